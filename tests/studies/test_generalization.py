import json
from dataclasses import replace

import numpy as np
import pytest
import xarray

from manyheads.studies.generalization import study as generalization
from manyheads.studies.generalization.cells import REFERENCE, gap, leave_one_out
from manyheads.sweeps.plan import make_plan
from manyheads.sweeps.setup import set_up, stream
from manyheads.sweeps.spec import Sweep
from manyheads.theory.verdict import Certificate
from manyheads.training.descent import train
from manyheads.training.rules import GD

WOBBLE = np.array([0.98, 1.0, 1.02, 1.0])


def results(
    exponent=-1.0, more=2.0, lemma3=5.0, theorem2=90.0, hypotheses=1.0, bend=0.0, literal_loss=0.62
):
    """Gaps like n^exponent from n = 80 on, with a term bend/n⁵ that small n see.

    Along a run the gap is that times the train loss, and 256 heads are still at `more` times the train loss of 2.
    """
    sizes, heads, counts = (
        np.array([20, 40, 80, 160, 320]),
        np.array([2.0, 256.0]),
        np.array([10, 20]),
    )
    base = sizes ** float(exponent) + bend * sizes**-5.0
    losses = np.array([1.0, more])[:, None] * np.array([4.0, 2.0, 1.0])  # heads, record
    train = np.broadcast_to((0.1 * losses)[:, None, None, :], (2, 4, 5, 3)).copy()
    values = losses[:, None, None, :] * base[None, None, :, None] * WOBBLE[None, :, None, None]
    dims = ("num_heads", "seed", "size", "record")
    gaps = xarray.Dataset(
        {"gap": (dims, values), "train_loss": (dims, train), "test_loss": (dims, train + values)},
        {
            "num_heads": heads,
            "seed": range(4),
            "sizes": ("size", sizes),
            "step": ("record", [0, 50, 100]),
        },
    )
    each = {
        "stability": 3.0,
        "test_loss": 0.2,
        "gap": 0.05,
        "left_out_loss": 0.22,
        "certificate": 4.0,
    }
    each |= {"train_loss": 0.1, "lemma3": lemma3, "theorem2": theorem2, "hypotheses": hypotheses}
    law = (10 / counts)[:, None, None] * WOBBLE  # num_examples, seed, sample
    loo = xarray.Dataset(
        {
            k: (("num_heads", "num_examples", "seed", "sample"), v * np.stack([law, law]))
            for k, v in each.items()
        },
        {"num_heads": heads, "num_examples": counts, "seed": [0]},
    )
    literal = xarray.Dataset(
        {k: (("num_examples", "seed", "sample"), v * law) for k, v in each.items()},
        {"num_examples": counts, "seed": [0]},
    )
    literal["hypotheses"] = xarray.full_like(literal["hypotheses"], hypotheses)
    literal["train_loss"] = xarray.full_like(literal["train_loss"], literal_loss)
    return {"gap": gaps, "loo": loo, "literal": literal}


def test_the_answer_follows_the_data():
    usual = generalization.finding(results())
    assert usual.answer == (
        "From n = 80 on the gap falls like 1/n (mixture, 100 steps of 0.2; n × gap = 1 nats with 2 heads and 2 nats with "
        "256 heads); Theorem 2 allows 45 nats on an almost untrained run"
    )
    assert "a train loss of 0.62 (log 2 = 0.693 is chance)" in usual.text
    worse = generalization.finding(results(exponent=0.5))
    assert worse.answer.startswith("From n = 80 on the gap grows with n")
    slow = generalization.finding(results(exponent=-0.5)).answer
    assert slow.startswith("From n = 80 on the gap falls with n, exponent -0.5: not 1/n")
    assert "on a trained run" in generalization.finding(results(literal_loss=0.1)).answer


def test_curvature_at_small_n_is_not_the_law():
    """Exactly c/n with a bend at small n: fitted over all n the exponent is far from -1."""
    bent = results(bend=1.1e6)
    sizes, values = (
        bent["gap"]["sizes"].values,
        bent["gap"]["gap"].isel(num_heads=0, record=-1).values.T,
    )
    assert generalization.exponent_of_mean(sizes, values).below(-1.3)
    found = generalization.finding(bent)
    assert found.answer.startswith("From n = 80 on the gap falls") and "1/n" in found.answer
    assert "not 1/n" not in found.answer and "-1.3" not in found.answer
    assert found.numbers["gap_exponent_small.2"].estimate.below(-1.5)


def test_gaps_are_compared_at_equal_train_loss_too():
    """More heads with twice the loss have twice the gap, and at equal train loss the same."""
    found = generalization.finding(results(more=2.0))
    assert found.numbers["gap_ratio"].estimate.value == pytest.approx(2.0)
    assert found.numbers["gap_ratio_matched"].estimate.value == pytest.approx(1.0, rel=1e-9)
    assert (
        "256 heads have 2 times the gap of 2, at equal train loss (0.2 nats) 1 times" in found.text
    )
    noisy = results(more=2.0)
    noisy["gap"]["gap"][:] = -1.0
    assert "could not be compared" in generalization.finding(noisy).text


def test_a_bound_that_fails_is_reported():
    assert (
        generalization.finding(results(lemma3=0.01)).answer
        == "Lemma 3: the measured gap exceeds the bound"
    )
    assert (
        generalization.finding(results(theorem2=0.01)).answer
        == "Theorem 2: the measured gap exceeds the bound"
    )


def test_a_bound_on_an_expectation_is_exceeded_by_more_than_half_an_interval():
    noisy = results()
    noisy["loo"]["gap"][-1, -1, 0] = [0.5, -0.4, 0.2, -0.2]
    noisy["loo"]["lemma3"][-1, -1] = 0.01
    assert "exceeds" not in generalization.finding(noisy).answer  # mean 0.025, standard error 0.2
    noisy["loo"]["gap"][-1, -1, 0] = [
        0.01,
        0.02,
        0.03,
        np.nan,
    ]  # 3.5 standard errors above, 4.3 are allowed
    noisy["loo"]["lemma3"][-1, -1] = 0.0
    assert "exceeds" not in generalization.finding(noisy).answer
    noisy["loo"]["lemma3"][-1, -1] = 0.01
    noisy["loo"]["gap"][-1, -1, 0] = [0.026, 0.025, 0.024, 0.025]
    assert generalization.finding(noisy).answer == "Lemma 3: the measured gap exceeds the bound"


def test_a_bound_is_compared_at_every_number_of_heads_and_sequences():
    made = results()
    made["loo"]["lemma3"][0, 0] = 0.001  # not the largest n, nor the most heads
    found = generalization.finding(made)
    assert found.answer == "Lemma 3: the measured gap exceeds the bound"
    assert "Lemma 3 is exceeded by more than half of a 95% interval at H = 2, n = 10." in found.text
    made = results()
    made["literal"]["theorem2"][0] = 0.001
    assert generalization.finding(made).answer == "Theorem 2: the measured gap exceeds the bound"
    made["literal"]["hypotheses"][0] = 0.0
    assert "exceeds" not in generalization.finding(made).answer
    one = {
        name: data.isel(sample=[0]) if "sample" in data.dims else data
        for name, data in results(lemma3=0.01).items()
    }
    assert "exceeds" not in generalization.finding(one).answer


def test_runs_that_are_missing_are_not_called_silent():
    made = results()
    for name in made["literal"]:
        made["literal"][name][-1] = np.nan
    made["gap"]["gap"][0, 0] = np.nan
    found = generalization.finding(made)
    assert found.answer.endswith("Theorem 2 was not measured") and found.answer.startswith(
        "From n = 80 on the gap falls"
    )
    assert found.text.endswith(
        "2 of 14 cells are missing and left out."
    ) and generalization.figures(made)
    assert "The runs set up for Theorem 2 are missing." in found.text
    for data in made.values():
        for name in data:
            data[name][:] = np.nan
    assert generalization.finding(made).answer == "Not measured"


def test_an_interval_without_an_upper_end_is_not_called_one_seed():
    made = results()
    made["literal"]["gap"][-1, 0] = [0.3, -0.2, 0.1, 0.0]
    interval = generalization.finding(made).numbers["theorem2_ratio"].estimate.interval
    assert interval.startswith("from ") and " to " not in interval


def test_theorem_2_is_silent_where_its_hypotheses_fail():
    silent = generalization.finding(results(theorem2=0.01, hypotheses=0.0))
    assert silent.answer.endswith("Theorem 2 is silent")
    assert silent.sentence.endswith("Theorem 2's hypotheses failed on the runs set up for it.")


def test_the_exponent_is_that_of_the_mean_and_its_interval_covers_it():
    sizes, rng, hits = np.array([10, 20, 40, 80]), np.random.default_rng(0), 0
    for _ in range(400):
        gaps = 1 / sizes[:, None] + 0.3 / sizes[:, None] * rng.standard_normal(
            (4, 8)
        )  # some are negative
        found = generalization.exponent_of_mean(sizes, gaps)
        hits += found.low <= -1 <= found.high
    assert 0.90 <= hits / 400 <= 0.99
    assert generalization.exponent_of_mean(sizes, -np.ones((4, 8))).count == 0


def test_figures_keep_the_literal_run_apart():
    gaps, bounds = generalization.figures(results())
    assert gaps.panels[0].marks[0].y == pytest.approx((1.0,) * 5)  # n times 1/n
    assert [mark.label for mark in bounds.panels[2].marks] == [
        "measured gap",
        "Lemma 3",
        "Theorem 2, (5)",
    ]
    assert bounds.panels[1].marks[1].y[0] == pytest.approx(5.0)


def cells(**settings):
    data = {"num_tokens": 4, "dim": 6, "signal": 1.0, "num_examples": 5, "num_test": 40}
    spec = {
        "data": data,
        "start": {"num_examples": 20},
        "train": {"step_size": 0.05, "num_steps": 10},
        **settings,
    }
    (cell,) = make_plan(Sweep(**spec)).cells
    return cell


def logistic(model, data):
    return np.mean(np.logaddexp(0.0, -data.labels * model.scores(data)))


def test_the_gap_is_that_of_training_on_the_first_sequences():
    parameters = {"sizes": [3, 5], "records": [4]}
    cell = cells(model={"num_heads": 6}, cell=f"{generalization.CELLS}:gap", parameters=parameters)
    found = gap(cell, **parameters)
    setup = set_up(cell)
    few = setup.dataset.subset([0, 1, 2])
    final = train(setup.start, few, rule=GD(0.05), num_steps=10, dtype="float64").final
    expected = logistic(final, setup.test) - logistic(final, few)
    assert found["plain"][1][0, -1] == pytest.approx(expected, abs=1e-12)
    others = setup.task.sample(5, key=stream(cell.seed, REFERENCE))
    reference = train(setup.start, others, rule=GD(0.05), num_steps=10, dtype="float64").final
    control = logistic(reference, setup.test) - logistic(reference, few)  # zero in expectation
    assert found["gap"][1][0, -1] == pytest.approx(expected - control, abs=1e-12)
    assert found["step"][1].tolist() == [0, 4, 10] and found["gap"][1][:, 0] == pytest.approx(
        0, abs=1e-12
    )


def test_another_seed_leaves_out_of_other_samples():
    settings = {"model": {"num_heads": 6}, "cell": f"{generalization.CELLS}:leave_one_out"}
    first, second = (
        leave_one_out(cells(seeds=[s], **settings), samples=2)["train_loss"][1] for s in (0, 1)
    )
    assert len(set(first) | set(second)) == 4


def test_leaving_one_out_is_training_again_and_the_verdicts_follow():
    parameters = {"samples": 3}
    cell = cells(
        model={"num_heads": 1e14},
        cell=f"{generalization.CELLS}:leave_one_out",
        parameters=parameters,
    )
    cell = replace(cell, train=replace(cell.train, step_size=0.002))
    found = leave_one_out(cell, **parameters)
    setup = set_up(replace(cell, seed=1))
    plan = {"rule": GD(0.002), "num_steps": 10, "dtype": "float64"}
    whole = train(setup.start, setup.dataset, **plan)
    distances, losses = [], []
    for i in range(5):
        weight = np.where(np.arange(5) == i, 0.0, 1 / 5)
        run = train(setup.start, setup.dataset, sample_weight=weight, **plan)
        parts = zip(run.displacement, whole.displacement, strict=True)
        squares = sum(np.sum((a - b) ** 2, axis=(1, 2)) for a, b in parts)
        distances.append(np.sqrt(setup.start.multiplicity @ squares))
        losses.append(
            np.logaddexp(0.0, -setup.dataset.labels[i] * run.final.scores(setup.dataset)[i])
        )
    assert found["stability"][1][1] == pytest.approx(np.mean(distances), rel=1e-6)
    assert found["left_out_loss"][1][1] == pytest.approx(np.mean(losses), rel=1e-6)
    assert found["test_loss"][1][1] == pytest.approx(logistic(whole.final, setup.test), rel=1e-6)
    assert found["hypotheses"][1].tolist() == [1, 1, 1]
    certificates = [
        Certificate.from_dict(item["certificate"]) for item in json.loads(found["certificates"])
    ]
    assert [(c.statement, c.verdict.name) for c in certificates] == [
        ("lemma3", "HOLDS"),
        ("loo", "HOLDS"),
        ("thm2", "HOLDS"),
    ]
    assert (found["stability"][1] <= found["stability_bound"][1]).all()
