import numpy as np
import xarray

from manyheads.studies import paper
from manyheads.studies.kit.study import STATED
from manyheads.sweeps.engine import run
from manyheads.sweeps.spec import Sweep

WOBBLE = np.linspace(0.98, 1.02, 5)


def made(second_start, factors, classes=2):
    """Final losses of 1 and of 64 heads in the given ratio, for each start."""
    dims = ("start", "num_heads", "seed")
    loss = np.stack([np.stack([0.1 * WOBBLE, 0.1 * f * WOBBLE[::-1]]) for f in factors])
    mass = np.full((2, 2, 5, 2, 2), 0.4)
    mass[0, ..., classes - 1 :] = np.nan
    values = {f"final_{what}": (dims, loss) for what in ("train_loss", "test_loss", "test_error")}
    values["attention_mass"] = ((*dims, "record", "head_class"), mass)
    values["attention_of_heads"] = ((*dims, "record"), mass[..., 0])
    values["test_loss"] = ((*dims, "record"), np.stack([loss, loss / 2], axis=-1))
    coordinates = {"start": ["zero", second_start], "num_heads": [1.0, 64.0], "step": ("record", [0, 9])}
    return xarray.Dataset(values, coordinates)


def answer(mixture, planted):
    return paper.finding({"mixture": made("first_phase", mixture), "planted": made("gaussian", planted)})


def test_the_answer_follows_the_losses():
    slower = answer([4.0, 3.0], [1.0, 0.5])
    assert slower.answer.startswith("On the mixture more heads are worse; on planted data more heads make no clear")
    assert slower.answer.endswith("from a zero start and are better from a Gaussian start")
    faster = answer([0.2, 0.3], [2.0, 3.0])
    assert faster.answer == "On the mixture more heads are better; on planted data more heads are worse"
    assert "the test loss is 0.2 times" in faster.text


def test_distinct_heads_are_counted_not_assumed():
    one = answer([4.0, 3.0], [1.0, 0.5])
    assert "1 distinct head at every H" in one.text and "slows" not in one.text
    assert any("by construction" in note for note in one.notes)
    two = {"mixture": made("first_phase", [1.0, 1.0], classes=3), "planted": made("gaussian", [1.0, 1.0])}
    assert "up to 2 distinct heads" in paper.finding(two).text


def test_missing_trials_are_left_out():
    made_up = {"mixture": made("first_phase", [4.0, 3.0]), "planted": made("gaussian", [1.0, 0.5])}
    made_up["mixture"]["final_test_loss"][0, 0, 0] = np.nan
    found = paper.finding(made_up)
    assert found.answer.startswith("On the mixture more heads are worse")
    assert found.text.endswith("1 of 40 cells is missing and left out.")
    for data in made_up.values():
        for name in data:
            data[name][:] = np.nan
    nothing = paper.finding(made_up)
    assert nothing.answer == "Not measured" and "distinct" not in nothing.text


def test_what_the_paper_states_is_run_at_every_scale():
    for scale in ("quick", "full"):
        mixture, planted = paper.sweeps(scale).values()
        assert (mixture.data.num_examples, mixture.data.num_test, len(mixture.seeds)) == (100, 300, 5)
        assert mixture.train.step_size == 1.0 and mixture.axes["start.kind"][0] == "zero"
        assert (planted.data.num_examples, planted.data.num_test, len(planted.seeds)) == (1000, 3000, 5)
    stated = [s.name for s in paper.STUDY.settings if s.source == STATED]
    assert stated == ["mixture", "planted data"]


def test_the_published_start_has_one_head_whatever_their_number(tmp_path):
    small = {"num_examples": 12, "num_test": 8, "num_tokens": 4, "dim": 6}
    sweep = Sweep(
        data=small,
        start={"kind": "zero"},
        train={"step_size": 1.0, "num_steps": 5},
        axes={"model.num_heads": [1, 64]},
        measures=["risk"],
    )
    data = run(sweep, tmp_path / "sweep", progress=False, cache=False)
    assert paper.distinct_heads(data) == 1


def test_figures_compare_the_starts():
    mixture, planted = paper.figures(
        {"mixture": made("first_phase", [4.0, 3.0]), "planted": made("gaussian", [1, 0.5])}
    )
    assert [mark.label for mark in mixture.panels[0].marks] == ["1 head", "64 heads"]
    assert [mark.role for mark in mixture.panels[1].marks] == ["zero", "first phase"]
    assert [mark.role for mark in planted.panels[1].marks] == ["zero", "gaussian"]
