import json

import numpy as np
import pytest
import xarray

from manyheads.studies.initialization import study as initialization
from manyheads.studies.initialization.cells import look
from manyheads.sweeps.plan import make_plan
from manyheads.sweeps.setup import set_up
from manyheads.sweeps.spec import Sweep
from manyheads.theory.verdict import Certificate, Verdict

WOBBLE = np.array([0.99, 1.0, 1.01, 1.0])
DISTINCT = {"zero": 1, "first_phase": 2, "drawn": 16, "gaussian": 16}
ALL = ("zero", "first_phase", "drawn", "small", "gaussian", "large")


def results(easy=(1,) * 6, hard=(1,) * 6, random=(1,) * 6, few=None, distinct=DISTINCT):
    """Final losses from each start on each kind of data; `few` multiplies those with 2 heads."""
    coordinates = {"num_heads": [2.0, 16.0], "seed": range(4)}
    two, made = np.ones((2, 1)) * WOBBLE, {}
    for name, count in distinct.items():
        values = {
            "b2": 0.4 * two,
            "b_phi": 0.0 * two,
            "p3_margin": two,
            "distinct": np.full((2, 4), count),
        }
        made[name] = xarray.Dataset(
            {k: (("num_heads", "seed"), v) for k, v in values.items()}, coordinates
        )
    for data, losses in {"easy": easy, "hard": hard, "random": random}.items():
        for name, loss in zip(ALL, losses, strict=True):
            scale = np.array([(few or {}).get(name, 1.0), 1.0])[:, None]
            curves = np.stack([two, 0.01 * loss * scale * two], axis=-1)
            made[f"{data}_{name}"] = xarray.Dataset(
                {"train_loss": (("num_heads", "seed", "record"), curves)},
                coordinates | {"step": ("record", [0, 200])},
            )
    return made


def test_what_holds_at_one_setting_is_not_said_of_all():
    """Alike on the easy mixture, and far apart on random labels: the old sentence was about the first alone."""
    found = initialization.finding(
        results(easy=(1.04, 1, 1.02, 1.03, 1.05, 1.01), random=(1, 1, 1, 0.6, 0.2, 0.1))
    )
    assert found.answer == (
        "It depends on the data: on the easy mixture all alike (1.01 to 1.05); on the hard mixture all alike (1 to "
        "1); on random labels faster from Gaussian heads of norm 0.3, 1 and 3 (0.1 to 0.6); 16 heads, 200 steps of 0.5, train "
        "loss over that from the first phase"
    )
    assert "Gaussian 0.1 (norm 3) to 0.6 (norm 0.3) on random labels" in found.text


def test_the_answer_follows_the_losses():
    same = initialization.finding(results())
    assert same.answer.startswith("The same on all data: on the easy mixture all alike")
    zero = (0.5, 1, 1, 1, 1, 1)
    everywhere = initialization.finding(results(zero, zero, zero))
    assert everywhere.answer.startswith(
        "The same on all data: on the easy mixture faster from zero (0.5); on the hard"
    )
    mixed = initialization.finding(results((2.0, 1, 1, 1, 1, 0.5)))
    assert (
        "on the easy mixture slower from zero (2) and faster from Gaussian heads of norm 3 (0.5)"
        in mixed.answer
    )
    made = results()
    made["hard_zero"]["train_loss"][:, :, -1] *= np.array([0.5, 2.0, 0.5, 2.0])
    assert "on the hard mixture no clear winner" in initialization.finding(made).answer
    assert "With 2 heads: zero 3, drawn" in initialization.finding(results(few={"zero": 3.0})).text


def test_different_heads_are_counted_and_what_is_so_by_construction_is_called_so():
    found = initialization.finding(results())
    assert (
        "Different heads out of 16: zero 1, first phase 2, drawn α 16, Gaussian 16." in found.text
    )
    assert "zero 5" in initialization.finding(results(distinct={**DISTINCT, "zero": 5})).text
    assert "by construction" in found.notes[0]


def test_a_start_that_did_not_run_is_left_out():
    made = results(random=(1, 1, 1, 0.6, 0.2, 0.1))
    made["random_gaussian"]["train_loss"][:] = np.nan
    found = initialization.finding(made)
    assert (
        "faster from Gaussian heads of norm 0.3 and 3 (0.1 to 0.6)" in found.answer
        and initialization.figures(made)
    )
    assert found.text.endswith("8 of 144 cells are missing and left out.")
    for data in made.values():
        for name in data:
            data[name] = data[name].astype(float) * np.nan
    nothing = initialization.finding(made)
    assert nothing.answer == "Not measured" and nothing.text.endswith(
        "144 of 144 cells are missing and left out."
    )


def test_figures_compare_at_equal_heads():
    time, scale, properties = initialization.figures(results())
    assert (
        len(properties.legends()) == 1 and len(time.panels) == 3
    )  # the same four starts in every panel
    assert [mark.y[-1] for mark in properties.panels[0].marks] == [1, 2, 16, 16]
    assert [mark.label for mark in scale.panels[0].marks] == [
        "easy mixture",
        "hard mixture",
        "random labels",
        "first phase",
    ]


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
    assert found["distinct"] == {"zero": 1, "first_phase": 2}[name]
    heads = [np.asarray(leaf).reshape(setup.start.num_classes, -1) for leaf in setup.start.heads]
    assert found["b2"] == pytest.approx(np.sqrt(sum(np.sum(h**2, axis=1) for h in heads)).max())
    assert found["b_phi"] == pytest.approx(np.abs(setup.start.scores(setup.dataset)).max())
    assert 0 < found["p3_margin"] <= found["p3_upper"] * (1 + 1e-9)
    if (
        name == "zero"
    ):  # one token average per sequence: the tangent features are those of a linear classifier
        from sklearn.svm import SVC

        averages = setup.dataset.tokens.mean(axis=1)
        signed = setup.dataset.labels[:, None] * averages
        twice = np.concatenate([signed, -signed])  # symmetric: no bias
        svm = SVC(kernel="linear", C=1e9, tol=1e-9).fit(
            twice, [1] * len(signed) + [-1] * len(signed)
        )
        expected = np.sqrt(2) * np.sqrt(setup.dataset.num_tokens) / np.linalg.norm(svm.coef_)
        assert found["p3_margin"] == pytest.approx(expected, rel=1e-4)


def test_the_card_and_the_ledger_get_their_lines_from_every_seed(run):
    name, setup, found = run
    (card,) = json.loads(found["good_start"])
    assert card["name"] == "A start" and card["distinct"] == f"{found['distinct']} of 4"
    assert (
        card["p3_margin"] == pytest.approx(found["p3_margin"])
        and card["p3_upper"] == found["p3_upper"]
    )
    certificates = [
        Certificate.from_dict(item["certificate"]) for item in json.loads(found["certificates"])
    ]
    assert [c.statement for c in certificates] == ["def1.p1", "def1.p2", "def1.p3"]
    assert all(c.verdict is Verdict.HOLDS for c in certificates)
