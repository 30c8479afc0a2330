import numpy as np
import pytest
import xarray

from manyheads.studies.constant import study as constant
from manyheads.studies.constant.cells import OTHERS
from manyheads.studies.constant.cells import constant as cell_of
from manyheads.sweeps.plan import make_plan
from manyheads.sweeps.setup import set_up, stream
from manyheads.sweeps.spec import Sweep
from manyheads.training.descent import train
from manyheads.training.rules import GD

WOBBLE = np.array([0.98, 1.0, 1.02, 1.0])


def made(over=1.0, bend=12.8, more=1.0, noise=WOBBLE):
    """n × gap = `over` (1 + bend/n) times the trace; both are twice the train loss, times `more` with many heads.

    Along the run the train loss falls from 0.4 to 0.1, twice that with many heads; leave-one-out is off by bend/n².
    """
    heads, sizes, losses = np.array([2.0, 1e6]), np.array([40, 80, 320]), np.array([0.4, 0.2, 0.1])
    train_loss = np.array([1.0, 2.0])[:, None] * losses
    shape = (2, 3, 4, 3)  # heads, n, seed, record
    loss = np.broadcast_to(train_loss[:, None, None, :], shape).copy()
    trace = 2 * loss * np.array([1.0, more])[:, None, None, None] * WOBBLE[None, None, :, None]
    n = sizes[None, :, None, None]
    gap = over * (1 + bend / n) * trace / WOBBLE[None, None, :, None] * noise[None, None, :, None]
    left_out = np.where(n <= 80, gap * (1 + bend / n**2), np.nan)
    dims = ("num_heads", "num_examples", "seed", "record")
    values = {
        "gap": gap,
        "trace": trace,
        "left_out": left_out,
        "train_loss": loss,
        "test_loss": loss + gap / n,
    }
    return xarray.Dataset(
        {name: (dims, value) for name, value in values.items()},
        {
            "num_heads": heads,
            "num_examples": sizes,
            "seed": range(4),
            "step": ("record", [10, 50, 100]),
        },
    )


def test_the_constant_is_the_trace_where_the_quotient_says_so():
    found = constant.finding({"easy": made(), "hard": made()})
    assert found.answer == (
        "The gap times n equals the trace along the run, within 15%: n × gap / trace = 1.04 on the easy mixture and 1.04 on the "
        "hard mixture (n = 320, first phase, 100 steps of 0.2); at equal train loss gap / test loss does not clearly "
        "depend on the number of heads"
    )
    assert "n × gap is 1.32, 1.16 and 1.04 times the trace at n = 40, 80 and 320" in found.text
    assert found.numbers["over_left_out.hard.80"].estimate.value == pytest.approx(
        1 / (1 + 12.8 / 6400), rel=1e-6
    )
    assert "over_left_out.hard.320" not in found.numbers
    twice = constant.finding({"easy": made(), "hard": made(over=2.0)})
    assert twice.answer.startswith(
        "The gap times n still differs from the trace along the run, its limit: n × gap / trace = 1.04"
    )
    noisy = constant.finding({"easy": made(), "hard": made(noise=np.array([0.6, 1.5, 0.5, 1.3]))})
    assert noisy.answer.startswith(
        "The gap times n is consistent with the trace along the run, its limit"
    )


def test_heads_are_compared_at_equal_train_loss():
    """Twice the loss is twice the gap: at equal train loss there is no difference, unless there is one."""
    found = constant.finding({"easy": made(), "hard": made(more=1.5)})
    assert found.numbers["gap_matched.easy"].estimate.value == pytest.approx(1.0, rel=1e-9)
    assert found.numbers["gap_matched.hard"].estimate.value == pytest.approx(1.5, rel=1e-9)
    assert found.numbers["trace_matched.hard"].estimate.value == pytest.approx(1.5, rel=1e-9)
    assert "(easy mixture, n = 320) gap / test loss hardly depends on H" in found.text
    assert "(hard mixture, n = 320) gap / test loss is larger" in found.text
    both = constant.finding({"easy": made(more=1.5), "hard": made(more=1.5)})
    assert both.answer.endswith(
        "at equal train loss gap / test loss grows with the number of heads"
    )
    fewer = constant.finding({"easy": made(more=0.5), "hard": made(more=0.5)})
    assert fewer.answer.endswith(
        "at equal train loss gap / test loss falls with the number of heads"
    )


def test_runs_that_are_missing_are_left_out():
    results = {"easy": made(), "hard": made()}
    for name in results["hard"]:
        results["hard"][name][0, 0, 1] = np.nan
    found = constant.finding(results)
    assert "equals the trace" in found.answer and found.text.endswith(
        "1 of 48 cells is missing and left out."
    )
    assert constant.figures(results)
    for data in results.values():
        for name in data:
            data[name][:] = np.nan
    assert constant.finding(results).answer == "Not measured" and constant.figures(results)


def test_figures_show_gap_trace_and_left_out():
    first, second = constant.figures({"easy": made(), "hard": made()})
    assert [mark.label for mark in first.panels[0].marks] == ["n × gap", "trace", "leave-one-out"]
    assert [mark.label for mark in second.panels[1].marks] == ["2 heads", "10⁶ heads"]


def test_the_gap_is_that_of_runs_measured_on_each_others_samples():
    data = {"num_tokens": 4, "dim": 6, "signal": 1.0, "num_examples": 5, "num_test": 0}
    parameters = {"total": 15, "records": [4], "probes": 3, "most_left_out": 5}
    spec = {
        "data": data,
        "start": {"num_examples": 20},
        "train": {"step_size": 0.3, "num_steps": 10},
    }
    name = f"{constant.CELLS}:constant"
    (cell,) = make_plan(
        Sweep(**spec, model={"num_heads": 6}, cell=name, parameters=parameters)
    ).cells
    found = cell_of(cell, **parameters)
    setup = set_up(cell)
    others = setup.task.sample(10, key=stream(cell.seed, OTHERS))
    blocks = [setup.dataset, others.subset(range(5)), others.subset(range(5, 10))]
    table = np.zeros((3, 3))
    for i, block in enumerate(blocks):
        final = train(setup.start, block, rule=GD(0.3), num_steps=10, dtype="float64").final
        table[i] = [np.logaddexp(0.0, -b.labels * final.scores(b)).mean() for b in blocks]
    own = np.trace(table) / 3
    expected = 5 * ((table.sum() - 3 * own) / 6 - own)
    assert found["gap"][1][-1] == pytest.approx(expected, rel=1e-9)
    assert found["train_loss"][1][-1] == pytest.approx(own, rel=1e-9) and found["step"][
        1
    ].tolist() == [4, 10]
    left_out = []
    for i in range(5):
        rest = setup.dataset.subset([j for j in range(5) if j != i])
        final = train(setup.start, rest, rule=GD(0.3), num_steps=10, dtype="float64").final
        one = setup.dataset.subset([i])
        left_out.append(np.logaddexp(0.0, -one.labels * final.scores(one)).mean())
    assert found["left_out"][1][-1] == pytest.approx(
        5 * (np.mean(left_out) - table[0, 0]), rel=1e-6
    )
