import json

import numpy as np
import pytest
import xarray

from manyheads.certificates.verdict import Certificate, Verdict
from manyheads.studies.initialization import study as initialization
from manyheads.studies.initialization.cells import look
from manyheads.sweeps.plan import make_plan
from manyheads.sweeps.setup import set_up
from manyheads.sweeps.spec import Sweep

WOBBLE = np.array([0.99, 1.0, 1.01, 1.0])
DISTINCT = {"zero": 1, "first_phase": 2, "drawn": 16, "gaussian": 16}


def results(losses, margins=(0.9, 1.1, 1.0, 1.0), distinct=DISTINCT, end=None):
    made = {}
    for (name, loss), margin in zip(losses.items(), margins, strict=True):
        two = np.ones((2, 1)) * WOBBLE
        by_time = np.stack([two, loss * two], axis=-1)
        single = {"b2": 0.4 * two, "b_phi": 0.0 * two, "p3_margin": margin * two}
        single["distinct"] = np.full((2, 4), distinct[name])
        single["distinct_end"] = np.full((2, 4), (end or distinct)[name])
        dims = ("num_heads", "seed")
        values = {key: (dims, value) for key, value in single.items()}
        curves = {"train_loss": by_time, "test_loss": 2 * by_time, "focus": 0.1 + by_time / 10, "margin": by_time}
        values |= {key: ((*dims, "record"), value) for key, value in curves.items()}
        coordinates = {"num_heads": [4.0, 16.0], "seed": range(4), "step": ("record", [0, 200])}
        made[name] = xarray.Dataset(values, coordinates)
    return made


def named(*losses):
    return dict(zip(initialization.STARTS, losses, strict=True))


def test_the_answer_follows_the_losses():
    alike = initialization.finding(results(named(0.0100, 0.0104, 0.0102, 0.0105)))
    assert alike.answer.startswith("They train alike, within 5%")
    zero = initialization.finding(results(named(0.01, 0.02, 0.03, 0.04)))
    assert zero.answer.startswith("The zero start trains fastest")
    assert "from the Gaussian start it is 4 times" in zero.text
    gaussian = initialization.finding(results(named(0.04, 0.03, 0.02, 0.01), margins=(1.0, 1.0, 1.0, 2.0)))
    assert gaussian.answer.startswith("The Gaussian start trains fastest")
    assert "largest from the Gaussian start, 2, against" in gaussian.text
    two = initialization.finding(results(named(0.01, 0.01, 0.03, 0.04)))
    assert two.answer.startswith("No clear winner among zero and first phase")


def test_different_heads_are_counted_in_the_data():
    found = initialization.finding(results(named(1, 1, 1, 1)))
    assert found.answer.endswith("different heads out of 16: zero 1, first phase 2, drawn α 16, Gaussian 16")
    more = initialization.finding(results(named(1, 1, 1, 1), distinct={**DISTINCT, "zero": 5}))
    assert "zero 5" in more.answer


def test_what_is_so_by_construction_is_called_so():
    found = initialization.finding(results(named(1, 1, 1, 1)))
    assert "by construction" in found.notes[0] and "Training never made" not in found.text


def test_alike_means_all_of_them():
    made = results(named(0.0100, 0.0112, 0.0113, 0.0110))
    made["first_phase"]["train_loss"][:, :, -1] = 0.0112 * np.array([0.8, 1.2, 0.8, 1.2])  # mean alike, seeds are not
    assert not initialization.finding(made).answer.startswith("They train alike")


def test_a_start_that_did_not_run_is_left_out():
    made = results(named(0.01, 0.02, 0.03, 0.04))
    for name in made["zero"]:
        made["zero"][name] = made["zero"][name].astype(float) * np.nan
    made["gaussian"]["train_loss"][1, 0] = np.nan
    found = initialization.finding(made)
    assert found.answer.startswith("The first phase start trains fastest; different heads out of 16: first phase 2")
    assert found.text.endswith("9 of 32 cells are missing and left out.") and initialization.figures(made)
    nothing = initialization.finding(results(named(*[np.nan] * 4)))
    assert nothing.answer == "Not measured" and nothing.text == "32 of 32 cells are missing and left out."


def test_figures_compare_at_equal_heads():
    properties, time = initialization.figures(results(named(0.01, 0.02, 0.03, 0.04)))
    assert len(properties.legends()) == 1  # the same four starts in every panel
    assert [mark.y[-1] for mark in properties.panels[0].marks] == [1, 2, 16, 16]
    later = results(named(0.01, 0.02, 0.03, 0.04), end=dict.fromkeys(DISTINCT, 1))
    before, _ = initialization.figures(later)  # "before training": heads that grew equal later are still different
    assert [mark.y[-1] for mark in before.panels[0].marks] == [1, 2, 16, 16]
    assert [panel.title for panel in time.panels] == ["Train loss", "Margin", "Focus"]


@pytest.fixture(scope="module", params=["zero", "first_phase"])
def run(request):
    data = {"num_examples": 12, "num_test": 6, "num_tokens": 4, "dim": 6, "signal": 1.5}
    start = initialization.STARTS[request.param][2]
    train = {"step_size": 0.5, "num_steps": 8}
    model, seeds = {"num_heads": 4}, {"zero": [0], "first_phase": [1]}[request.param]
    sweep = Sweep(
        data=data,
        start=start,
        train=train,
        model=model,
        cell="manyheads.studies.initialization.cells:look",
        seeds=seeds,
    )
    (cell,) = make_plan(sweep).cells
    return request.param, set_up(cell), look(cell, card="A start")


def test_the_cell_reports_definition_1(run):
    name, setup, found = run
    assert found["distinct"] == found["distinct_end"] == {"zero": 1, "first_phase": 2}[name]
    heads = [np.asarray(leaf).reshape(setup.start.num_classes, -1) for leaf in setup.start.heads]
    assert found["b2"] == pytest.approx(np.sqrt(sum(np.sum(h**2, axis=1) for h in heads)).max())
    assert found["b_phi"] == pytest.approx(np.abs(setup.start.scores(setup.dataset)).max())
    assert 0 < found["p3_margin"] <= found["p3_upper"] * (1 + 1e-9)
    if name == "zero":  # one token average per sequence: the tangent features are those of a linear classifier
        from sklearn.svm import SVC

        averages = setup.dataset.tokens.mean(axis=1)
        signed = setup.dataset.labels[:, None] * averages
        twice = np.concatenate([signed, -signed])  # symmetric: no bias
        svm = SVC(kernel="linear", C=1e9, tol=1e-9).fit(twice, [1] * len(signed) + [-1] * len(signed))
        expected = np.sqrt(2) * np.sqrt(setup.dataset.num_tokens) / np.linalg.norm(svm.coef_)
        assert found["p3_margin"] == pytest.approx(expected, rel=1e-4)


def test_the_card_and_the_ledger_get_their_lines_from_every_seed(run):
    name, setup, found = run
    (card,) = json.loads(found["good_start"])
    assert card["name"] == "A start" and card["distinct"] == f"{found['distinct']} of 4"
    assert card["p3_margin"] == pytest.approx(found["p3_margin"]) and card["p3_upper"] == found["p3_upper"]
    certificates = [Certificate.from_dict(item["certificate"]) for item in json.loads(found["certificates"])]
    assert [c.statement for c in certificates] == ["def1.p1", "def1.p2", "def1.p3"]
    assert all(c.verdict is Verdict.HOLDS for c in certificates)


def test_the_margin_is_per_unit_of_readout_moved(run):
    name, setup, found = run
    from manyheads.training.descent import train

    again = train(setup.start, setup.dataset, test=setup.test, step_size=0.5, num_steps=8, dtype="float64")
    moved = np.sqrt(setup.start.multiplicity @ np.sum(again.displacement.readout**2, axis=(1, 2)))
    least = np.min(setup.dataset.labels * again.final.scores(setup.dataset))
    assert found["margin"][1][-1] == pytest.approx(least / moved, rel=1e-9)
    assert np.isnan(found["margin"][1][0])
