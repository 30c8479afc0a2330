import pickle
import re

import pytest
import tomli_w

from manyheads._fields import SpecError, settings
from manyheads.cli.main import main
from manyheads.sweeps import cost
from manyheads.sweeps.sections import SECTIONS, section_type
from manyheads.sweeps.spec import Sweep

BASE = Sweep(
    name="base",
    data={"num_examples": 20, "num_test": 10},
    train={"num_steps": 5},
    measures=["risk"],
    axes={"model.num_heads": [1, 4], "train.step_size": [0.1, 0.2]},
    seeds=2,
)


def problem(text: str) -> str:
    with pytest.raises(SpecError) as caught:
        Sweep.from_toml(text)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_question_takes_ten_lines():
    assert BASE.num_cells == 8
    assert str(BASE) == "base: 8 cells = model.num_heads (2) x train.step_size (2) x seed (2)"


def test_toml_gives_back_an_equal_sweep():
    odd = Sweep(
        name='quote " back \\ tab é',
        data={"kind": "planted", "margin": 1e-300, "seed": 7},
        start={"kind": "gaussian", "readout_scale": 0.5},
        axes={"start.kind": ["zero", "gaussian"], "train.record": ["log", 3], "model.rank": [1, 2]},
        seeds=[3, 1],
        cell="sweep_cells:arithmetic",
        parameters={"slope": 0.1 + 0.2, "fail": False, "words": ["a", "b"]},
    )
    for sweep in (BASE, Sweep(), odd):
        assert Sweep.from_toml(sweep.to_toml()) == sweep
        assert Sweep.from_dict(sweep.to_dict()) == sweep


def test_dotted_and_quoted_axis_names_mean_the_same():
    quoted = Sweep.from_toml('[axes]\n"model.num_heads" = [1, 2]')
    assert quoted == Sweep.from_toml("[axes]\nmodel.num_heads = [1, 2]")
    assert quoted == Sweep.from_toml("[axes.model]\nnum_heads = [1, 2]")


def test_numbers_are_taken_in_the_type_of_their_field():
    sweep = Sweep.from_toml("[model]\nnum_heads = 10\n[train]\nnum_steps = 1e3\nstep_size = 1")
    assert (
        type(sweep.model.num_heads),
        type(sweep.train.num_steps),
        type(sweep.train.step_size),
    ) == (
        float,
        int,
        float,
    )
    assert sweep.train.num_steps == 1000
    assert Sweep.from_toml("[model]\nnum_heads = 1e12").model.num_heads == 1e12


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nmae = 'x'", "unknown key 'nmae'; did you mean 'name'?"),
        ("[data]\nnum_exampels = 3", "did you mean 'data.num_examples'?"),
        ("[axes]\nnum_heads = [1]", "unknown axis 'num_heads'; did you mean 'model.num_heads'?"),
        ("[axes]\nseed = [1]", "write the seeds as seeds = [...]"),
        (
            "[data]\nnum_examples = 'many'",
            "data.num_examples = 'many' is a text; write a whole number >= 2",
        ),
        (
            "[data]\nnum_examples = true",
            "data.num_examples = True is true or false; write a whole number",
        ),
        (
            "[data]\nsparsity = 1.0",
            "data.sparsity = 1.0 is out of range; write a finite number strictly between 0 and 1",
        ),
        ("[train]\nstep_size = nan", "train.step_size = nan is out of range"),
        ("[train]\noptimizer = 'agm'", "train.optimizer = 'agm' is not known"),
        ("[model]\nnum_heads = 2.5", "model.num_heads = 2.5 is not whole"),
        (
            "[data]\nkind = 'planted'\nsparsity = 0.5",
            "data.sparsity counts only for data.kind = 'mixture'",
        ),
        ("[data]\nkind = 'file'", "data.path is missing"),
        (
            "[axes]\ndata.token_norm = [1, 2]",
            "axes.data.token_norm has no effect for data.kind = 'mixture'",
        ),
        (
            "[axes]\ntrain.step_size = []",
            "axes.train.step_size = [] must be a list with at least one value",
        ),
        ("[axes]\ntrain.step_size = [1, 1.0]", "names a value twice"),
        ("seeds = [1, 1]", "seeds names one twice"),
        (
            "name = ' '",
            "name = ' ' must be a text of 1 to 200 printable characters, not all spaces",
        ),
        (
            "name = '../../x'",
            "name = '../../x' is the name of a folder; write it without / and a leading dot",
        ),
        ("name = 'a/../../b'", "write it without / and a leading dot"),
        ("name = '..'", "write it without / and a leading dot"),
        ("seeds = 50000\n[axes]\ntrain.step_size = [1, 2, 3]", "axes give 150000 cells"),
        ("cell = 'nothing'", "write it as 'package.module:function'"),
        ("[parameters]\nx = 1", "parameters are for your own cell function"),
        ("", "the spec is empty"),
        ("a = = b", "is not valid TOML"),
        ("[data]\n[data]", "is not valid TOML"),
    ],
)
def test_a_mistake_is_named_with_its_remedy(text, words):
    assert words in problem(text)


def test_all_mistakes_are_reported_at_once():
    found = problem("seeds = 0\n[data]\nnum_examples = 1\n[train]\nstep_size = -1")
    assert all(key in found for key in ("seeds", "data.num_examples", "train.step_size"))


def test_python_users_get_the_same_checks():
    with pytest.raises(SpecError, match=r"data\.num_tokens = 0 is out of range"):
        Sweep(data={"num_tokens": 0})
    with pytest.raises(SpecError, match=r"data\.num_tokens = 0 is out of range"):
        section_type("data", ("planted",))(num_tokens=0)
    with pytest.raises(SpecError, match="did you mean 'model.num_heads'"):
        Sweep(axes={"model.num_head": [1]})


def mutants() -> list[tuple[str, str]]:
    """(what the message must name, TOML text), each wrong in one way."""
    base = BASE.to_dict()
    found = []

    def mutate(key, section, name, value):
        content = {k: dict(v) if isinstance(v, dict) else v for k, v in base.items()}
        if section is None:
            content[name] = value
        else:
            content[section][name] = value
        found.append((key, tomli_w.dumps(content)))

    for section in SECTIONS:  # misspelt: a letter lost, doubled, swapped
        known = settings(section_type(section))
        for name in known:
            for wrong in (name[:-1], name + name[-1], name[1] + name[0] + name[2:]):
                if wrong not in known:
                    mutate(f"{section}.{wrong}", section, wrong, 1)
    for name in base:
        mutate(name[:-1], None, name[:-1] if name[:-1] not in base else name + "x", 1)
    for section, name in (
        ("data", "num_examples"),
        ("model", "num_heads"),
        ("train", "step_size"),
        ("train", "num_steps"),
    ):
        for value in ("text", [1], True, float("nan"), float("inf"), -1, -1e300, 10**18, ""):
            if (name, value) != ("step_size", 10**18):  # a step size may be large
                mutate(f"{section}.{name}", section, name, value)
    for axis in ("model.num_heads", "train.step_size"):
        for value in ("text", [], [0], ["a"], [[1]], [1, 1], [float("nan")], 5):
            mutate(f"axes.{axis}", "axes", axis, value)
    for axis in (
        "modle.num_heads",
        "model.heads",
        "train",
        "",
        "data.num_exmples",
        "train.stepsize",
    ):
        mutate(axis, "axes", axis, [1, 2])
    for value in (0, -1, "a", [], [-1], [1.5], 10**9, [0, 0], True, {"first": 1}):
        mutate("seeds", None, "seeds", value)
    for which in ("measures", "certificates"):
        for value in ("risk", ["rsik"], [1], 3, [""], ["risk", "risk"], ["no.such:thing"]):
            name = (
                "no.such" if value == ["no.such:thing"] else "rsik" if value == ["rsik"] else which
            )
            mutate(name, None, which, value)
    for value in (1, "", "a" * 10_000, []):
        mutate("name", None, "name", value)
    for section in SECTIONS:
        mutate(section, None, section, 3)
        mutate(section, None, section, ["x"])
    huge = (
        ("num_examples", 10**7),
        ("num_test", 10**7),
        ("dim", 10**5),
        ("num_tokens", 10**5),
        ("num_patterns", 10**4),
    )
    for name, value in huge:
        mutate(
            "num_tokens"
            if name == "num_tokens"
            else f"data.{name}"
            if name != "num_patterns"
            else name,
            "data",
            name,
            value,
        )
    found.append(("empty", ""))
    found.append(("TOML", "[[[["))
    found.append(("TOML", "x = " + "[" * 5000))
    found.append(("bytes", "#" * 5_000_000))
    found.append(("TOML", "name = 'a'\nname = 'b'"))
    return found


def test_two_hundred_mutated_specs_each_get_a_message(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(cost, "total_memory", lambda: 16e9)
    cases = mutants()
    assert len({text for _, text in cases}) >= 200
    path = tmp_path / "spec.toml"
    for key, text in cases:
        path.write_text(text)
        code = main(["sweep", str(path), "--dry-run"])
        out, err = capsys.readouterr()
        assert (code, out) == (2, ""), text
        assert re.fullmatch(r"error: .*\n", err), err
        assert key in err, (key, err)
        assert any(
            word in err
            for word in (
                "write",
                "did you mean",
                "choose",
                "lower",
                "Pass",
                "name",
                "remove",
                "begin",
                "right file",
            )
        ), err


def test_a_sweep_goes_to_another_process_as_it_is():
    for kind in ("mixture", "planted", "digits"):
        sweep = Sweep(data={"kind": kind, "num_examples": 30}, start={"kind": "zero"})
        assert pickle.loads(pickle.dumps(sweep)) == sweep
