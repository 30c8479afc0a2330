import json
from dataclasses import replace

import numpy as np
import pytest
import xarray

from manyheads.certificates.verdict import Certificate
from manyheads.studies.generalization import study as generalization
from manyheads.studies.generalization.cells import gap, leave_one_out
from manyheads.sweeps.plan import make_plan
from manyheads.sweeps.setup import set_up
from manyheads.sweeps.spec import Sweep
from manyheads.training.descent import train

WOBBLE = np.array([0.98, 1.0, 1.02, 1.0])


def results(exponent=-1.0, more=2.0, lemma3=5.0, theorem2=90.0, hypotheses=1.0):
    sizes, heads, counts = np.array([10, 20, 40]), np.array([2.0, 256.0]), np.array([10, 20])
    base = sizes[None, :] ** float(exponent) * np.array([1.0, more])[:, None]
    values = base[:, None, :] * WOBBLE[None, :, None]
    gaps = xarray.Dataset(
        {"gap": (("num_heads", "seed", "size"), values)},
        {"num_heads": heads, "seed": range(4), "sizes": ("size", sizes)},
    )
    each = {"stability": 3.0, "test_loss": 0.2, "gap": 0.05, "left_out_loss": 0.22, "certificate": 4.0}
    each |= {"lemma3": lemma3, "theorem2": theorem2, "hypotheses": hypotheses}
    law = (10 / counts)[:, None, None] * WOBBLE  # num_examples, seed, sample
    loo = xarray.Dataset(
        {k: (("num_heads", "num_examples", "seed", "sample"), v * np.stack([law, law])) for k, v in each.items()},
        {"num_heads": heads, "num_examples": counts, "seed": [0]},
    )
    literal = xarray.Dataset(
        {k: (("num_examples", "seed", "sample"), v * law) for k, v in each.items()},
        {"num_examples": counts, "seed": [0]},
    )
    literal["hypotheses"] = xarray.full_like(literal["hypotheses"], hypotheses)
    return {"gap": gaps, "loo": loo, "literal": literal}


def test_the_answer_follows_the_data():
    usual = generalization.finding(results())
    assert usual.answer == "The gap falls with n, like n to the power -1 to -1; Theorem 2 is 1,800 times above it"
    assert "it grows: 2 times" in usual.text and "Theorem 2's hypotheses are true" in usual.text
    worse = generalization.finding(results(exponent=0.5, more=0.5))
    assert worse.answer.startswith("The gap grows with n") and "it falls: 0.5" in worse.text
    same = generalization.finding(results(more=1.0))
    assert "it does not clearly change" in same.text


def test_a_bound_that_fails_is_reported():
    assert generalization.finding(results(lemma3=0.01)).answer == "Lemma 3: the measured gap exceeds the bound"
    assert generalization.finding(results(theorem2=0.01)).answer == "Theorem 2: the measured gap exceeds the bound"


def test_a_bound_on_an_expectation_is_exceeded_by_more_than_half_an_interval():
    noisy = results()
    noisy["loo"]["gap"][-1, -1, 0] = [0.5, -0.4, 0.2, -0.2]
    noisy["loo"]["lemma3"][-1, -1] = 0.01
    assert "exceeds" not in generalization.finding(noisy).answer  # mean 0.025, standard error 0.2
    noisy["loo"]["gap"][-1, -1, 0] = [0.01, 0.02, 0.03, np.nan]  # 3.5 standard errors above, 4.3 are allowed
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
        name: data.isel(sample=[0]) if "sample" in data.dims else data for name, data in results(lemma3=0.01).items()
    }
    assert "exceeds" not in generalization.finding(one).answer


def test_runs_that_are_missing_are_not_called_silent():
    made = results()
    for name in made["literal"]:
        made["literal"][name][-1] = np.nan
    made["gap"]["gap"][0, 0, 1] = np.nan
    made["gap"]["gap"][0, 0, -1] = np.nan
    found = generalization.finding(made)
    assert found.answer.endswith("Theorem 2 was not measured") and found.answer.startswith("The gap falls with n")
    assert found.text.endswith("2 of 14 cells are missing and left out.") and generalization.figures(made)
    assert "The runs made for Theorem 2 are missing." in found.text
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
    assert silent.sentence.endswith("Theorem 2's hypotheses were not true of the runs made for it.")


def test_the_exponent_is_that_of_the_mean_and_its_interval_covers_it():
    sizes, rng, hits = np.array([10, 20, 40, 80]), np.random.default_rng(0), 0
    for _ in range(400):
        gaps = 1 / sizes[:, None] + 0.3 / sizes[:, None] * rng.standard_normal((4, 8))  # some are negative
        found = generalization.exponent_of_mean(sizes, gaps)
        hits += found.low <= -1 <= found.high
    assert 0.90 <= hits / 400 <= 0.99
    assert generalization.exponent_of_mean(sizes, -np.ones((4, 8))).count == 0


def test_figures_keep_the_literal_run_apart():
    gaps, bounds = generalization.figures(results())
    assert gaps.panels[0].marks[0].y == pytest.approx((1.0, 1.0, 1.0))  # n times 1/n
    assert [mark.label for mark in bounds.panels[2].marks] == ["measured gap", "Lemma 3", "Theorem 2, (5)"]
    assert bounds.panels[1].marks[1].y[0] == pytest.approx(5.0)


def cells(**settings):
    data = {"num_tokens": 4, "dim": 6, "signal": 1.0, "num_examples": 5, "num_test": 40}
    spec = {"data": data, "start": {"num_examples": 20}, "train": {"step_size": 0.05, "num_steps": 10}, **settings}
    (cell,) = make_plan(Sweep(**spec)).cells
    return cell


def logistic(model, data):
    return np.mean(np.logaddexp(0.0, -data.labels * model.scores(data)))


def test_the_gap_is_that_of_training_on_the_first_sequences():
    cell = cells(model={"num_heads": 6}, cell=f"{generalization.CELLS}:gap", parameters={"sizes": [3, 5]})
    found = gap(cell, sizes=[3, 5])
    setup = set_up(cell)
    few = setup.dataset.subset([0, 1, 2])
    final = train(setup.start, few, step_size=0.05, num_steps=10, dtype="float64").final
    expected = logistic(final, setup.test) - logistic(final, few)
    assert found["gap"][1][0] == pytest.approx(expected, abs=1e-12)


def test_another_seed_leaves_out_of_other_samples():
    settings = {"model": {"num_heads": 6}, "cell": f"{generalization.CELLS}:leave_one_out"}
    first, second = (leave_one_out(cells(seeds=[s], **settings), samples=2)["train_loss"][1] for s in (0, 1))
    assert len(set(first) | set(second)) == 4


def test_leaving_one_out_is_training_again_and_the_verdicts_follow():
    parameters = {"samples": 3}
    cell = cells(model={"num_heads": 1e14}, cell=f"{generalization.CELLS}:leave_one_out", parameters=parameters)
    cell = replace(cell, train=replace(cell.train, step_size=0.002))
    found = leave_one_out(cell, **parameters)
    setup = set_up(replace(cell, seed=1))
    plan = {"step_size": 0.002, "num_steps": 10, "dtype": "float64"}
    whole = train(setup.start, setup.dataset, **plan)
    distances, losses = [], []
    for i in range(5):
        weight = np.where(np.arange(5) == i, 0.0, 1 / 5)
        run = train(setup.start, setup.dataset, sample_weight=weight, **plan)
        parts = zip(run.displacement, whole.displacement, strict=True)
        squares = sum(np.sum((a - b) ** 2, axis=(1, 2)) for a, b in parts)
        distances.append(np.sqrt(setup.start.multiplicity @ squares))
        losses.append(np.logaddexp(0.0, -setup.dataset.labels[i] * run.final.scores(setup.dataset)[i]))
    assert found["stability"][1][1] == pytest.approx(np.mean(distances), rel=1e-6)
    assert found["left_out_loss"][1][1] == pytest.approx(np.mean(losses), rel=1e-6)
    assert found["test_loss"][1][1] == pytest.approx(logistic(whole.final, setup.test), rel=1e-6)
    assert found["hypotheses"][1].tolist() == [1, 1, 1]
    certificates = [Certificate.from_dict(item["certificate"]) for item in json.loads(found["certificates"])]
    assert [(c.statement, c.verdict.name) for c in certificates] == [
        ("lemma3", "HOLDS"),
        ("loo", "HOLDS"),
        ("thm2", "HOLDS"),
    ]
    assert (found["stability"][1] <= found["stability_bound"][1]).all()
