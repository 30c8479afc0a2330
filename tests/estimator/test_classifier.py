import importlib
import inspect
import sys

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import manyheads as mh

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 4, 3))
Y = np.where(X[:, 1, 0] - X[:, 2, 1] > 0, "up", "down")
LISTS = [x[: 2 + i % 3] for i, x in enumerate(X)]
QUICK = dict(
    num_heads=1,
    start="zero",
    num_steps=100,
    early_stopping=False,
    positions="one-hot",
    random_state=0,
)


def quick(**more):
    return mh.MultiHeadAttentionClassifier(**{**QUICK, **more})


@pytest.fixture(scope="module")
def fitted():
    return quick().fit(X, Y)


def test_predictions_probabilities_and_scores_agree(fitted):
    scores, chances = fitted.decision_function(X), fitted.predict_proba(X)
    assert fitted.classes_.tolist() == ["down", "up"] and scores.shape == (60,)
    assert np.allclose(chances[:, 1], 1 / (1 + np.exp(-scores)), rtol=1e-12)
    assert np.array_equal(fitted.predict(X), np.where(scores > 0, "up", "down"))
    assert fitted.score(X, Y) == np.mean(fitted.predict(X) == Y) > 0.9


def test_the_model_is_the_one_that_train_would_give(fitted):
    data = fitted.fitted_.found.trained_on[0]
    start = mh.zero_start(1, num_tokens=4, dim=8)  # three features, a constant and four positions
    run = mh.train(start, data, rule=mh.GD(fitted.step_size_[0]), num_steps=100)
    assert np.allclose(run.final.scores(data), fitted.decision_function(X), atol=1e-5)  # float32


def test_the_step_size_is_at_the_edge_of_stability(fitted):
    data, size = fitted.fitted_.found.trained_on[0], fitted.step_size_[0]
    start = mh.zero_start(1, num_tokens=4, dim=8)

    def rises(step_size):
        return (
            np.diff(
                mh.train(start, data, rule=mh.GD(step_size), num_steps=32, record="all").train_loss
            ).max()
            > 1e-6
        )

    assert np.log2(size) == round(np.log2(size)) and not rises(size) and rises(2 * size)


def test_looking_at_a_fitted_model_asks_the_theory_nothing(fitted, monkeypatch):
    def asked(*arguments, **more):
        raise AssertionError("the theory was asked")

    monkeypatch.setattr("manyheads.theory.deora2023.planner.plan", asked)
    monkeypatch.setattr("manyheads.estimator.classifier.certify", asked)
    names = dir(fitted)
    assert {"predict", "fitted_", "classes_"} <= set(names) and not {"plan_", "certificate_"} & set(
        names
    )
    assert (
        repr(fitted)
        and "MultiHeadAttentionClassifier" in fitted._repr_html_()
        and inspect.getmembers(fitted)
    )
    with pytest.raises(AssertionError, match="the theory was asked"):
        _ = fitted.certificate_


def test_attention_maps_are_distributions_over_real_tokens(fitted):
    maps = fitted.attention_maps(LISTS)
    assert maps.shape == (60, 1, 4, 4)
    lengths = np.array([len(one) for one in LISTS])
    real = np.arange(4)[None] < lengths[:, None]
    assert np.allclose(maps.sum(-1)[:, 0][real], 1) and not maps[:, 0][~real].any()
    assert not maps.transpose(0, 1, 3, 2)[:, 0][~real].any()


def test_a_grid_search_over_a_pipeline_runs_on_arrays_and_on_lists():
    steps = make_pipeline(FunctionTransformer(), quick())
    grid = {"multiheadattentionclassifier__num_heads": [1, 2]}
    for given in (X, LISTS):
        found = GridSearchCV(steps, grid, cv=2, error_score="raise").fit(given, Y)
        assert found.best_score_ > 0.5 and found.predict(given).shape == (60,)


def test_clone_and_cross_validation():
    copy = clone(quick(step_size=0.5))
    assert copy.get_params() == quick(step_size=0.5).get_params() and not hasattr(copy, "fitted_")
    assert cross_val_score(copy, X, Y, cv=2).min() > 0.5


def test_more_than_two_classes_are_one_against_the_rest():
    y = np.argmax(X[:, 0], axis=1) + 5
    model = quick(num_steps=150).fit(X, y)
    scores = model.decision_function(X)
    assert scores.shape == (60, 3) and model.classes_.tolist() == [5, 6, 7]
    assert (
        np.array_equal(model.predict(X), 5 + np.argmax(scores, axis=1)) and model.score(X, y) > 0.7
    )
    assert np.allclose(model.predict_proba(X).sum(axis=1), 1) and model.attention_maps(X).shape == (
        60,
        3,
        1,
        4,
        4,
    )
    alone = quick(num_steps=150).fit(X, y == 5)
    assert np.allclose(alone.decision_function(X), scores[:, 0], atol=1e-5)


@pytest.mark.full
def test_weights_count_sequences():
    weight = np.ones(60)
    weight[:20], weight[20:30] = 0, 2
    repeated = np.concatenate([np.arange(20, 60), np.arange(20, 30)])
    one = quick(dtype="float64").fit(X, Y, sample_weight=weight).decision_function(X)
    other = quick(dtype="float64").fit(X[repeated], Y[repeated]).decision_function(X)
    assert np.allclose(one, other, rtol=1e-9)
    assert not np.allclose(one, quick(dtype="float64").fit(X, Y).decision_function(X), rtol=1e-3)


def test_class_weights_move_the_boundary(fitted):
    heavy = quick(class_weight={"up": 10.0, "down": 1.0}).fit(X, Y)
    assert (heavy.predict(X) == "up").sum() > (fitted.predict(X) == "up").sum()
    with pytest.raises(AttributeError, match="weights cannot be certified"):
        _ = heavy.certificate_


@pytest.mark.full
def test_the_certificate_is_about_the_run(fitted):
    certificates = fitted.certificate_
    assert {c.statement for c in certificates} >= {
        "descent",
        "thm1",
    } and certificates is fitted.certificate_
    assert certificates.verdict.name in ("HOLDS", "SILENT")


@pytest.mark.full
def test_auto_compares_three_starts_and_takes_the_lowest_held_out_loss():
    model = mh.MultiHeadAttentionClassifier(positions="one-hot", random_state=1).fit(X, Y)
    assert [trial.start for trial in model.trials_] == ["zero", "first_phase", "gaussian"]
    best = min(model.trials_, key=lambda trial: trial.held_out_loss)
    assert (model.start_, model.num_heads_) == (best.start, best.num_heads)
    assert tuple(model.num_steps_) == best.num_steps and 1 <= model.n_iter_ <= 1000
    again = clone(model).fit(X, Y)
    assert np.array_equal(again.decision_function(X), model.decision_function(X))
    assert model.plan_.start_kind == model.start_


def test_early_stopping_keeps_the_step_with_the_lowest_held_out_loss():
    noise = np.random.default_rng(1).permutation(
        Y
    )  # nothing to learn: the held-out loss soon rises
    model = quick(num_steps=1000, early_stopping=True, positions="one-hot").fit(X, noise)
    (trial,) = model.trials_
    assert model.n_iter_ == trial.num_steps[0] < 200


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_heads": 0}, "num_heads=0 must be a whole number"),
        ({"start": "one"}, "start='one' is not known; "),
        ({"step_size": -1}, "step_size=-1 must be a finite number > 0 or 'auto'"),
        ({"num_steps": 2.5}, "num_steps=2.5 must be a whole number >= 1 or 'auto'"),
        ({"scale": "max"}, "scale='max' is not known; "),
        ({"positions": "learned"}, "positions='learned' is not known; "),
        ({"optimizer": "sgd"}, "optimizer='sgd' is not known; "),
        ({"validation_fraction": 1.5}, "validation_fraction=1.5 must be a number between 0 and 1"),
    ],
)
def test_a_bad_setting_is_named(change, words):
    with pytest.raises(ValueError, match=words):
        quick(**change).fit(X, Y)


def test_a_bad_X_is_named(fitted):
    cases = {
        "X has 2 features, but .* is expecting 3": X[:, :, :2],
        "the sequences have 5 tokens, and the model was fitted to at most 4": np.zeros((2, 5, 3)),
        r"X\[1\] has tokens of dimension 2, X\[0\] of 3": [X[0], X[1][:2, :2]],
        "contains NaN or infinity": np.full((2, 4, 3), np.nan),
    }
    for words, given in cases.items():
        with pytest.raises(ValueError, match=words):
            fitted.predict(given)
    with pytest.raises(ValueError, match="X has 60 sequences and y 59 labels"):
        quick().fit(X, Y[1:])
    with pytest.raises(ValueError, match="y holds one class, up"):
        quick().fit(X, np.full(60, "up"))


@pytest.mark.full
def test_a_pooled_decoder_takes_longer_sequences():
    model = quick(decoder="pooled", positions="sinusoidal").fit(LISTS, Y)
    assert model.predict([np.zeros((9, 3))]).shape == (1,)


@pytest.mark.full
def test_on_tables_it_is_logistic_regression():
    table = np.random.default_rng(3).standard_normal((200, 3))
    y = np.random.default_rng(4).random(200) < 1 / (1 + np.exp(-table[:, 0] - 0.5))
    ours = mh.MultiHeadAttentionClassifier(
        num_heads=1, start="zero", num_steps=4000, early_stopping=False, dtype="float64"
    ).fit(table, y)
    theirs = LogisticRegression(C=np.inf, tol=1e-10).fit(table, y)
    assert np.allclose(
        ours.decision_function(table), theirs.decision_function(table), atol=1e-3
    )  # both have converged


def test_without_scikit_learn_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    monkeypatch.delitem(sys.modules, "manyheads.estimator.classifier")
    with pytest.raises(
        ImportError, match="needs scikit-learn: install it with `pip install manyheads"
    ) as caught:
        importlib.import_module("manyheads.estimator.classifier")
    assert "\n" not in str(caught.value)
