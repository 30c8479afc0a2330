from dataclasses import dataclass

import numpy as np
import pytest

from manyheads._fields import SpecError, setting, settings
from manyheads.data.dataset import Dataset
from manyheads.data.mixture import TokenizedMixture
from manyheads.data.source import SOURCES
from manyheads.sweeps.cost import batch_size
from manyheads.sweeps.engine import check_plan
from manyheads.sweeps.plan import Cell, make_plan
from manyheads.sweeps.sections import section_type
from manyheads.sweeps.setup import set_up
from manyheads.sweeps.spec import Sweep

TINY = dict(num_examples=8, num_tokens=4, dim=4, num_patterns=2, num_test=0)


def test_hashes_are_what_they_were():
    """Golden: a change here makes every stored sweep start anew."""
    assert Cell().hash == "5fc39f65fa17b6eb512d"
    plan = make_plan(Sweep(axes={"model.num_heads": [1, 4]}, seeds=2), batching=False)
    assert [batch.id for batch in plan.batches] == [
        "37113544afbd8cf9abf0",
        "4b90a9353686dd452817",
        "910da28d5992c394993a",
        "21b71882b8baafa463aa",
    ]


def test_a_hash_knows_every_field():
    base = Cell()
    others = [
        Cell(seed=1),
        Cell(measures=("risk",)),
        Cell(certificates=("thm1",)),
        Cell(function="a:b"),
        Cell(parameters={"x": 1}),
        Cell(file_hash="0"),
        *(
            Cell.from_dict({**base.to_dict(), s: {**base.to_dict()[s], k: v}})
            for s, k, v in CHANGES
        ),
    ]
    assert len({cell.hash for cell in [base, *others]}) == 1 + len(others)
    assert Cell.from_dict(base.to_dict()) == base


CHANGES = [
    ("data", "num_examples", 101),
    ("data", "sparsity", 0.5),
    ("data", "seed", 0),
    ("start", "kind", "zero"),
    ("model", "num_heads", 9.0),
    ("model", "exponent", 1.0),
    ("train", "step_size", np.nextafter(0.1, 1)),
    ("train", "dtype", "float64"),
]


def test_the_grid_runs_over_axes_in_order_with_the_seed_last():
    plan = make_plan(
        Sweep(axes={"train.step_size": [0.1, 0.2], "model.num_heads": [1, 4, 16]}, seeds=[5, 7])
    )
    assert plan.dims == ("step_size", "num_heads", "seed") and plan.grid.shape == (2, 3, 2)
    cell = plan.cells[plan.grid[1, 2, 0]]
    assert (cell.train.step_size, cell.model.num_heads, cell.seed) == (0.2, 16.0, 5)
    assert plan.coordinates["num_heads"]["units"] == "heads"


def test_dimensions_are_named_without_ambiguity():
    axes = {
        "data.num_examples": [5],
        "start.num_examples": [6],
        "data.seed": [1],
        "start.kind": ["first_phase"],
    }
    assert make_plan(Sweep(axes=axes)).dims == (
        "data_num_examples",
        "start_num_examples",
        "data_seed",
        "start",
        "seed",
    )


def test_equal_cells_run_once():
    axes = {"start.kind": ["zero", "gaussian"], "start.readout_scale": [1.0, 2.0, 3.0]}
    plan = make_plan(Sweep(axes=axes))
    assert plan.grid.size == 6 and len(plan.cells) == 4
    assert len(set(plan.grid[0].ravel())) == 1 and len(set(plan.grid[1].ravel())) == 3


def test_batches_hold_each_cell_once_and_one_shape_each():
    axes = {"model.num_heads": [1, 4, 16], "train.num_steps": [3, 4]}
    plan = make_plan(Sweep(data=TINY, axes=axes, seeds=5), batching=4)
    members = [i for batch in plan.batches for i in batch.cells]
    assert sorted(members) == list(range(30))
    assert max(len(batch.cells) for batch in plan.batches) == 4
    for batch in plan.batches:
        assert (
            len(
                {
                    (plan.cells[i].train.num_steps, min(plan.cells[i].model.num_heads, 2))
                    for i in batch.cells
                }
            )
            == 1
        )


def test_the_planner_batches_tiny_cells_only():
    tiny, large = Cell(data=Sweep(data=TINY).data), Cell()
    assert batch_size(tiny) > 1 and batch_size(large) == 1 and batch_size(large, device="gpu") > 1
    assert batch_size(tiny, batching=False) == 1
    assert batch_size(Cell(data=tiny.data, function="sweep_cells:arithmetic")) == 1


def test_a_data_file_counts_with_its_content(tmp_path):
    path = tmp_path / "data.npz"
    rng = np.random.default_rng(0)
    tokens, labels = rng.normal(size=(40, 3, 4)), np.repeat([0, 1], 20)
    sweep = Sweep(data={"kind": "file", "path": str(path)})
    with pytest.raises(FileNotFoundError, match="does not exist"):
        make_plan(sweep)
    Dataset.from_arrays(tokens, labels).save(path)
    first = make_plan(sweep).cells[0].hash
    assert first == make_plan(sweep).cells[0].hash
    Dataset.from_arrays(tokens + 1, labels).save(path)
    assert first != make_plan(sweep).cells[0].hash


@pytest.mark.parametrize(
    ("sweep", "words"),
    [
        (dict(axes={"data.num_patterns": [4, 11]}), "dim=12 is too small"),
        (dict(axes={"data.sparsity": [0.25, 0.3]}), "must be a whole number between 1 and 7"),
        (dict(data={"noise_mu": 1.0}), "noise_norm=0.0 is too small"),
        (
            dict(axes={"model.decoder": ["full", "last"]}, start={"kind": "population"}),
            "start.kind = 'population' needs",
        ),
        (dict(axes={"model.rank": [2]}), "needs start.kind = 'gaussian'"),
        (
            dict(axes={"model.num_heads": [2e6]}, start={"kind": "gaussian"}, data=TINY),
            "too many for a start that draws every head",
        ),
        (
            dict(train={"num_steps": 10**9, "record": "all"}),
            "train.record = 'all' makes a cell need",
        ),
        (
            dict(cell="sweep_cells:arithmetic", parameters={"slop": 1}),
            "takes no parameter 'slop'; did you mean 'slope'?",
        ),
        (
            dict(cell="sweep_cells:arithmetc"),
            "has no function 'arithmetc'; did you mean 'arithmetic'?",
        ),
        (dict(cell="no_such_module:x"), "cannot import 'no_such_module'"),
        (dict(cell="sweep_cells:deadly"), "needs a parameter 'marker'"),
        (dict(measures=["rsik"]), "did you mean 'risk'?"),
    ],
)
def test_an_impossible_grid_is_refused_before_anything_runs(sweep, words):
    with pytest.raises(SpecError) as caught:
        check_plan(make_plan(Sweep(**sweep)))
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_digits_are_a_kind_like_any_other():
    sweep = Sweep(
        data={"kind": "digits", "second": 5, "num_examples": 30, "num_test": 20},
        start={"num_examples": 25},
        axes={"data.first": [1, 3]},
    )
    setups = [set_up(cell) for cell in make_plan(sweep).cells]
    assert [setup.dataset.name for setup in setups] == ["digits 1 and 5", "digits 3 and 5"]
    rows = [
        tuple(x.ravel())
        for data in (setups[0].dataset, setups[0].test, setups[0].first)
        for x in data.tokens
    ]
    assert len(set(rows)) == 75  # disjoint
    with pytest.raises(
        SpecError, match="data: first and second are both 3; choose two different digits"
    ):
        check_plan(make_plan(Sweep(data={"kind": "digits", "second": 3})))
    with pytest.raises(
        SpecError,
        match=r"axes.data.first\[1\] = 10 is out of range; write a whole number >= 0 and <= 9",
    ):
        Sweep(data={"kind": "digits"}, axes={"data.first": [1, 10]})


def test_a_setting_is_checked_alike_by_its_constructor_and_by_a_sweep():
    for name, (_, item) in settings(TokenizedMixture).items():
        bounds = {"low": -1, "above": 0, "high": 1, "below": 0}
        for bound, beyond in bounds.items():
            limit = item.metadata[bound]
            if limit is not None:
                value = type(item.default)(limit + beyond)
                with pytest.raises(ValueError, match=f"{name}={value} must be"):
                    TokenizedMixture(**{"frame": "axis", name: value})
                with pytest.raises(SpecError, match=f"data.{name} = {value} is out of range"):
                    Sweep(data={name: value})
    assert section_type("data", ("mixture",))().dim == TokenizedMixture.dim == 12


def test_kinds_with_different_defaults_each_have_their_own(monkeypatch):
    @dataclass(frozen=True)
    class Short:
        num_tokens: int = setting(2, "tokens per sequence", low=1)

    monkeypatch.setitem(SOURCES._things, "short", Short)
    plan = make_plan(Sweep(axes={"data.kind": ["mixture", "short"]}))
    assert [cell.data.num_tokens for cell in plan.cells] == [8, 2]
    plan = make_plan(Sweep(data={"num_tokens": 8}, axes={"data.kind": ["mixture", "short"]}))
    assert [cell.data.num_tokens for cell in plan.cells] == [8, 8]
