import re

import jax
import numpy as np
import pytest
import xarray
from data.text import encoders
from synthetic import filled, wiggle

from manyheads.data.text import Encoder, corpus
from manyheads.measures.margin import hard_margin
from manyheads.model.autodiff import float64
from manyheads.report import matplotlib_figures, vega
from manyheads.studies.kit.catalog import story, studies
from manyheads.studies.text import cells, study
from manyheads.studies.text.linear import fit_linear
from manyheads.studies.text.pytorch import torch_scores
from manyheads.theory.deora2023.initialization import good_start
from manyheads.theory.targets import tangent_margins
from manyheads.training.start import zero_start

SENTENCES = 400
STUDY = studies()["text"]


def text_results(
    by_heads=0.0,
    linear=0.30,
    full=0.25,
    best_rung=1,
    torch=False,
    missing=False,
    scale="quick",
    margin=1e-3,
    asked=2e17,
):
    """Errors that change by `by_heads` from the fewest to the most heads; linear classifiers err on these shares.

    Tangent margins are `margin` per head from the Gaussian start, for which the theorem asks `asked` heads, and a tenth
    of it from the first phase, for which no number is enough.
    """
    plan, rungs = STUDY.plan(scale), 3 if scale == "quick" else 4

    def wrong(share, seed):
        return (
            ("sentence",),
            (np.arange(SENTENCES) < share * wiggle(seed) * SENTENCES).astype(float),
        )

    def attention(num_heads, seed, **_):
        name, values = wrong(0.28 + by_heads * (num_heads > 1), seed)
        return name, np.full(SENTENCES, np.nan) if missing else values

    def losses(num_heads, seed, **_):
        return ("rung",), 0.55 + 0.01 * np.abs(np.arange(rungs) - best_rung) + 0.001 * num_heads

    results = {}
    for name, sweep in plan.items():
        if name == "linear":
            values = {
                f"{n}_wrong": (lambda seed, s=s, **_: wrong(s, seed))
                for n, s in {
                    "logistic": linear,
                    "svm": linear,
                    "logistic_full": full,
                    "svm_full": full,
                }.items()
            }
        elif name == "conditions":
            values = {
                "num_sentences": lambda **_: 100,
                "margin": lambda start, num_heads, seed, **_: (
                    np.nan
                    if missing
                    else margin * wiggle(seed) * (num_heads if start == "gaussian" else 0.1)
                ),
                "parameter_bound": lambda start, **_: 1.5 if start == "gaussian" else 0.02,
                "model_bound": lambda start, seed, **_: (
                    0.25 * wiggle(seed) if start == "gaussian" else 0.0
                ),
                "linear": lambda **_: 0.0,
                "linear_full": lambda seed, **_: 0.03 * wiggle(seed),
                "heads_asked": lambda start, seed, **_: (
                    np.nan
                    if missing or not margin
                    else asked * (1 + seed)
                    if start == "gaussian"
                    else np.inf
                ),
            }
        elif name == "looks":
            words = np.array(
                [["[CLS]", "good", "film", "good", "[SEP]", "", "", "", "", "", "", ""]] * 5
            )
            weights = np.where(words[0] != "", 0.2, np.nan) * np.ones((5, 4, 12))
            values = {
                "weights": lambda weights=weights, **_: (("shown", "head", "place"), weights),
                "words": lambda words=words, **_: (("shown", "place"), words),
                "label": lambda **_: (("shown",), np.array(["positive"] * 5)),
                "score": lambda **_: (("shown",), np.array([1.0, -1, 1, 1, 1])),
            }
        else:
            values = {
                "wrong": attention,
                "validation_loss": losses,
                "step_size_tried": lambda **_: (("rung",), 16.0 * 4.0 ** np.arange(rungs)),
                "moved": lambda num_heads, seed, **_: 0.4 / num_heads * wiggle(seed),
                "train_error": lambda **_: np.nan if missing else 0.2,
                "at_last_step": lambda **_: 0.0,
            }
            if name.startswith("adam"):
                values["torch_wrong"] = lambda seed, **_: (
                    wrong(0.27, seed) if torch else (("sentence",), np.full(SENTENCES, np.nan))
                )
        data = filled(sweep, **values)
        if "step_size_tried" in data:
            tried = data["step_size_tried"].values.reshape(-1, rungs)[0]
            data = data.drop_vars("step_size_tried").assign_coords(step_size_tried=("rung", tried))
        results[name] = data
    return results


@pytest.mark.parametrize(
    ("by_heads", "words"),
    [
        (0.0, "No: 8 heads instead of 1 change the error by less than a point"),
        (-0.08, "Yes: 8 heads instead of 1 make fewer errors"),
        (0.08, "No: 8 heads instead of 1 make more errors"),
    ],
)
def test_the_answer_follows_the_errors(by_heads, words):
    found = study.finding(text_results(by_heads))
    assert found.answer.startswith(words) and "2,000 movie reviews" in found.answer
    assert found.numbers["heads.gaussian"].estimate.value == pytest.approx(by_heads, abs=0.01)
    assert "Quick scale" in found.notes[0]


def test_a_linear_model_that_is_better_or_worse_is_called_so():
    found = study.finding(text_results(linear=0.4, full=0.15))
    assert re.search(r"logistic regression on the mean token on 40(\.\d)?%, worse", found.text)
    assert re.search(r"full width on 15(\.\d)?%, better", found.text)


def test_a_best_step_at_the_end_of_its_ladder_is_said():
    inside, end = (study.finding(text_results(best_rung=rung)).text for rung in (1, 2))
    assert (
        "an end of its ladder in 0 of 8 settings" in inside
        and "an end of its ladder in 8 of 8 settings" in end
    )


def test_pytorch_is_reported_where_it_ran():
    assert "PyTorch's attention" in study.finding(text_results(torch=True)).text
    assert "PyTorch's attention" not in study.finding(text_results()).text


def test_nothing_is_claimed_where_nothing_was_measured():
    assert study.finding(text_results(missing=True)).answer == "Not measured"


def test_the_conditions_of_the_theorem_are_told_as_measured():
    found = study.finding(text_results())
    assert "separate 4 of 4 draws with margin 1e-4 (1 head, first-phase start)" in found.text
    assert (
        "4 of 4 draws with margin 0.008 (8 heads, Gaussian start); mean tokens are separated in 0 of 4"
        in found.text
    )
    assert (
        "4 of 4 draws with margin 0.03 at full width. No head has a norm above 1.5 (P1)"
        in found.text
    )
    asked = "asks for 2e17 heads or more from the Gaussian start; from the first-phase start no number up to 10²⁴ was"
    assert "no score at the start exceeds 0.25 (P2)" in found.text and asked in found.text
    assert found.numbers["p3.gaussian.6.8"].estimate.value == pytest.approx(8e-3, rel=0.02)
    none = study.finding(text_results(margin=0.0))
    assert (
        "separate 0 of 4 draws (1 head, first-phase start)" in none.text
        and "asks for" not in none.text
    )
    assert "P3" not in study.finding(text_results(missing=True)).text


def test_a_part_of_a_full_run_is_told_and_drawn():
    """One cell in three is there: a run that was interrupted."""
    results = text_results(scale="full")
    for name, data in results.items():
        if name != "looks":
            keep = xarray.DataArray(np.arange(data["seed"].size) % 3 == 0, dims="seed")
            results[name] = data.map(lambda v, keep=keep: v.where(keep) if "seed" in v.dims else v)
    found = study.finding(results)
    assert (
        "16 heads instead of 1 change the error by less than a point" in found.answer
        and "all movie reviews" in found.answer
    )
    assert "separate 6 of 6 draws" in found.text and "cells are missing and left out" in found.text
    drawn = study.figures(results)
    assert [len(figure.panels) for figure in drawn] == [3, 1, 1, 5]
    assert [mark.label for mark in drawn[2].panels[0].marks] == [
        "first phase",
        "Gaussian, 1 head",
        "Gaussian, 16 heads",
        "mean token at full width",
    ]


@pytest.mark.full
def test_figures_are_drawn_and_words_that_occur_twice_keep_their_places(tmp_path):
    drawn = study.figures(text_results(torch=True))
    assert [figure.name for figure in drawn] == [
        "text-heads",
        "text-step",
        "text-margins",
        "text-looks",
    ]
    assert drawn[3].panels[0].row_labels == ("[CLS]", "good (1)", "film", "good (2)", "[SEP]")
    assert drawn[3].panels[1].title == "positive, predicted negative"
    assert all(vega.views(figure) for figure in drawn)
    matplotlib_figures.save(drawn[3], tmp_path)


def test_without_the_packages_the_story_leaves_the_study_out(monkeypatch, capsys, tmp_path):
    from manyheads.cli import main as cli
    from manyheads.data.text import packages

    monkeypatch.setenv(corpus.FOLDER, str(tmp_path))
    monkeypatch.setattr(packages, "_found", lambda file: None)
    assert "text" not in story() and "heads" in story()
    assert cli.main(["run", "text", "--out", str(tmp_path / "out")]) == 2
    shown = capsys.readouterr().err
    assert "study text: the text packages are not installed: type `pip install --no-deps" in shown
    assert shown.count("\n") == 1 and not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Sentences of a tiny encoder whose label is a word of them."""
    encoder = Encoder.load(encoders.write(tmp_path_factory.mktemp("encoder")))
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(encoders.PIECES[4:], 6)) for _ in range(80)]
    labels = np.array(["up" if "good" in text or "bright" in text else "down" for text in texts])
    return corpus.encoded(encoder, texts, labels, np.arange(80) >= 60, (1,), 6, 12, "small")


def test_cells_choose_on_validation_data_alone(small, monkeypatch):
    """Changing the labels of the test data changes the errors there and nothing that was chosen."""
    sweeps = STUDY.plan("quick")
    options = {"layer": 1, "layers": [1], "num_examples": 0}
    flipped = small.labels.copy()
    flipped[60:] = np.where(flipped[60:] == "up", "down", "up")
    other = corpus.Corpus(flipped, small.pieces, small.is_test, 12, small.tokens, small.means)
    found = []
    from manyheads.sweeps.plan import make_plan

    for one in (small, other):
        cells._parts.cache_clear()
        monkeypatch.setattr(cells, "_corpus", lambda layers, count, one=one: one)
        cell = make_plan(sweeps["gaussian_6"]).cells[0]
        attend = cells.attend(cell, **options, step_sizes=[1.0, 8.0])
        line = cells.linear(make_plan(sweeps["linear"]).cells[0], **options)
        look = cells.look(make_plan(sweeps["looks"]).cells[0], **options, step_sizes=[1.0])
        found.append((attend, line, look))
    cells._parts.cache_clear()
    (first, line, look), (second, other_line, _) = found
    np.testing.assert_array_equal(first["wrong"][1], 1 - second["wrong"][1])
    np.testing.assert_array_equal(first["validation_loss"][1], second["validation_loss"][1])
    assert (
        first["best_step"] == second["best_step"] and first["train_error"] == second["train_error"]
    )
    for name in ("logistic_wrong", "svm_full_wrong"):
        np.testing.assert_array_equal(line[name][1], 1 - other_line[name][1])
    weights = look["weights"][1]
    np.testing.assert_allclose(np.nansum(weights, axis=2), 1, rtol=1e-5)
    assert look["words"][1].shape == (5, cells.LONGEST) and 0 < first["moved"] < 1


def test_the_conditions_of_a_cell_are_those_of_its_training_sentences(small, monkeypatch):
    """Against explicit gradients: the tangent margin of the first sentences, and mean tokens as the zero start."""
    from manyheads.sweeps.plan import make_plan

    cells._parts.cache_clear()
    monkeypatch.setattr(cells, "_corpus", lambda layers, count: small)
    asked = []

    def heads(start, data, directions, *, certified, num_steps):
        asked.append((start, data, directions[0], certified, num_steps))
        raise ValueError("none")

    monkeypatch.setattr(cells, "smallest_heads", heads)
    cell = next(
        c for c in make_plan(STUDY.plan("quick")["conditions"]).cells if c.start.kind == "gaussian"
    )
    options = {
        "layer": 1,
        "layers": [1],
        "num_examples": 0,
        "count": 10,
        "loss": 0.3,
        "num_steps": 50,
    }
    found = cells.conditions(cell, **options)
    parts = cells._parts(cell.seed, 1, (1,), 0)
    data, start = parts.train[:10], cells._start(cell, parts)
    cells._parts.cache_clear()
    with jax.enable_x64(True):
        rows = jax.jit(jax.jacrev(start.objective(data).scores))(float64(start.heads))
    features = np.concatenate(
        [np.asarray(leaf).reshape(10, -1) for leaf in jax.tree.leaves(rows)], axis=1
    )
    assert found["margin"] == pytest.approx(
        np.sqrt(2) * hard_margin(data.labels, features=features).lower, rel=1e-5
    )
    assert 0 < found["margin"] <= found["upper"] and found["num_sentences"] == 10
    assert found["model_bound"] == pytest.approx(np.abs(start.scores(data)).max())
    zero = good_start(zero_start(1, num_tokens=data.num_tokens, dim=data.dim, decoder="last"), data)
    assert found["linear"] == pytest.approx(zero.interval.p3_interval[0], rel=1e-5)
    ((mirrored, same, direction, certified, num_steps),) = asked
    assert (
        found["heads_asked"] == np.inf and (certified, num_steps) == (0.3, 50) and len(same) == 10
    )
    np.testing.assert_allclose(mirrored.scores(data), 0, atol=1e-12)
    margin = tangent_margins(direction, mirrored, data).min()
    assert margin == pytest.approx(found["margin"], rel=1e-5)


@pytest.mark.parametrize("loss", ["logistic", "svm"])
def test_linear_classifiers_agree_with_those_of_scikit_learn(loss):
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import LinearSVC

    rng = np.random.default_rng(0)
    X, n = rng.standard_normal((200, 5)), 200
    y = np.sign(X[:, 0] + 0.5 * rng.standard_normal(n) + 0.3)
    penalty = 0.01
    C = 1 / (n * penalty)
    if loss == "logistic":
        theirs = LogisticRegression(C=C, tol=1e-10).fit(X, y)
        tolerance = 1e-3
    else:  # liblinear penalizes the intercept, which a large constant feature makes negligible
        theirs = LinearSVC(C=C, tol=1e-10, intercept_scaling=100, max_iter=100_000, dual=False).fit(
            X, y
        )
        tolerance = 3e-3
    np.testing.assert_allclose(
        fit_linear(X, y, loss, penalty)(X), theirs.decision_function(X), atol=tolerance
    )


def test_pytorchs_attention_learns_where_it_is_installed(small):
    pytest.importorskip("torch")
    train, validation, test = small.split(1)
    scores = torch_scores(train, validation, test, 2, epochs=2, seed=0)
    assert scores.shape == (len(test),) and np.isfinite(scores).all()
    np.testing.assert_array_equal(
        scores, torch_scores(train, validation, test, 2, epochs=2, seed=0)
    )
