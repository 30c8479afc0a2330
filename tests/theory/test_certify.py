"""Certificates of a run: verdicts of each kind, honest scope, and the data that belong to the run."""

import itertools
import json
from dataclasses import replace

import jax
import mpmath
import numpy as np
import pytest
from model.modules import pooled_mlp
from paper_settings import setting

import manyheads as mh
from manyheads.data.dataset import Dataset
from manyheads.measures import curvature
from manyheads.model.attention import MultiHead
from manyheads.theory import provenance
from manyheads.theory.certify import certify
from manyheads.theory.deora2023 import derivatives, training
from manyheads.theory.examination import Examination
from manyheads.theory.ledger import about_runs
from manyheads.theory.verdict import Verdict
from manyheads.theory.walk import follow
from manyheads.training.descent import train
from manyheads.training.start import first_phase, gaussian_start

STATEMENTS = """
def1.p1 def1.p2 def1.p3 prop7 cor1.1 cor1.2 cor1.3 descent iterates thm1 thm1.sharp cor2 thm2 identity lemma3 loo
""".split()


@pytest.fixture(scope="module")
def run():
    s = setting("A")
    return s, train(
        first_phase(s.fresh, 16), s.dataset, rule=mh.GD(0.2), num_steps=60, dtype="float64"
    )


@pytest.fixture(scope="module")
def everything(run):
    s, trajectory = run
    return certify(trajectory, s.dataset, mixture=s.mixture, test=s.fresh, independent=True)


def test_all_statements_about_a_run_are_answered(everything):
    answered = {c.statement for c in everything}
    first = {name: item for name, item in about_runs().items() if item.paper == "deora2023"}
    assert answered == {name for name, item in first.items() if not item.on_request} | {
        "manyheads2026.forecast",
        "manyheads2026.forecast.before",
    }
    assert set(first) == set(STATEMENTS) and answered >= set(STATEMENTS) - {"lemma3", "loo"}


def test_another_paper_speaks_of_its_own_setting_or_when_it_is_named(run):
    s, trajectory = run
    (found,) = certify(trajectory, s.dataset, ["tarzanagh2023.direction"])
    assert found.verdict is Verdict.SILENT and "last-token readout" in found.reason


def test_unconditional_statements_hold_and_conditional_ones_are_silent(everything):
    for name in ("def1.p1", "def1.p2", "def1.p3", "cor1.1", "cor1.2", "cor1.3", "identity"):
        assert {c.verdict for c in everything.about(name)} == {Verdict.HOLDS}, name
    for name in (
        "thm1",
        "thm1.sharp",
        "iterates",
        "thm2",
        "cor2",
        "prop7",
    ):  # 16 heads are not enough
        assert {c.verdict for c in everything.about(name)} == {Verdict.SILENT}, name
        assert all("heads" in c.reason or "sqrt(H)" in c.reason for c in everything.about(name))
    assert everything.verdict is Verdict.HOLDS


def test_a_smaller_step_makes_the_descent_lemma_speak(run):
    s, _ = run
    calm = train(
        first_phase(s.fresh, 16), s.dataset, rule=mh.GD(0.1), num_steps=60, dtype="float64"
    )
    (found,) = certify(calm, s.dataset, ["descent"])
    assert found.verdict is Verdict.HOLDS


def test_one_statement_may_be_named_alone(run):
    s, trajectory = run
    alone, listed = (
        certify(trajectory, s.dataset, "descent"),
        certify(trajectory, s.dataset, ["descent"]),
    )
    assert [c.line() for c in alone] == [c.line() for c in listed] and len(alone) == 1


def test_text_and_json(everything):
    json.loads(everything.to_json(), parse_constant=lambda name: pytest.fail(name))
    assert "R assumed, largest seen" in str(everything)
    assert len(everything.brief().splitlines()) == len(everything) + 4
    assert "off by a factor" in everything.brief()


def test_a_planted_constant_is_violated(run, monkeypatch):
    s, trajectory = run
    monkeypatch.setattr(derivatives.Shape, "b1", lambda self, x: 0.1 * np.ones_like(x))
    (found,) = certify(trajectory, s.dataset, ["cor1.1"])
    assert found.verdict is Verdict.VIOLATED


def test_settings_that_were_not_examined_are_silent(run):
    s, trajectory = run
    other_rule = train(trajectory.start, s.dataset, rule=mh.Adam(0.02), num_steps=3)
    other_loss = replace(trajectory, settings=trajectory.settings | {"loss": "hinge"})
    for other, text in ((other_rule, "plain gradient descent"), (other_loss, "register the loss")):
        found = certify(other, s.dataset, ["thm1", "identity"])
        assert {c.verdict for c in found} == {Verdict.SILENT}
        assert all(text in c.reason for c in found)


@pytest.mark.parametrize(
    "start, text",
    [
        ({"rank": 2}, "the bounds grow with the norms of Q and K"),
        ({"exponent": 1.0}, "scaling 1/sqrt(H)"),
    ],
)
def test_models_that_were_not_examined_are_silent(start, text):
    s = setting("A")
    model = gaussian_start(2, num_tokens=4, dim=6, key=jax.random.key(0), **start)
    found = certify(
        train(model, s.dataset, rule=mh.GD(0.1), num_steps=2), s.dataset, ["thm1", "def1.p3"]
    )
    assert {c.verdict for c in found} == {Verdict.SILENT}
    assert all(text in c.reason for c in found)


def test_another_architecture_is_silent():
    s = setting("A")
    run = train(pooled_mlp(s.dataset.dim), s.dataset, rule=mh.GD(0.1), num_steps=3, dtype="float64")
    found = certify(run, s.dataset, test=s.fresh, mixture=s.mixture)
    ours = [
        c
        for c in found
        if "." not in c.statement or c.statement.startswith(("def1", "cor1", "thm1"))
    ]
    assert len(ours) == len(STATEMENTS) - 2 and {c.verdict for c in ours} == {Verdict.SILENT}
    assert all("proved for the paper's own setting only" in c.reason for c in ours)


def test_data_that_do_not_fit_the_model_are_refused(run):
    s, trajectory = run
    other = Dataset.from_arrays(s.dataset.tokens[:, :2], s.dataset.labels)
    with pytest.raises(ValueError, match="pass the dataset that the run was trained on"):
        certify(trajectory, other, ["def1.p1"])


@pytest.mark.parametrize("statement", ["identity", "def1.p3", "prop7", "loo"])
def test_a_run_on_other_data_is_refused(run, statement):
    s, trajectory = run
    with pytest.raises(ValueError, match="trained on"):
        certify(trajectory, s.dataset.without(0), [statement])


def test_data_are_told_by_fingerprint_and_without_one_by_the_first_gradient(run):
    s, trajectory = run
    labels = s.dataset.labels.copy()
    labels[[0, np.flatnonzero(labels != labels[0])[0]]] *= -1
    other = Dataset.from_arrays(s.dataset.tokens, labels, relevant=s.dataset.relevant)
    with pytest.raises(ValueError, match="fingerprint"):
        certify(trajectory, other, ["def1.p2"])
    nameless = replace(trajectory, sources={})
    with pytest.raises(ValueError, match="differ from a repetition"):
        certify(nameless, other, ["def1.p2"])
    plain = Dataset.from_arrays(s.dataset.tokens, s.dataset.labels)  # relevance enters no loss
    for same in ((nameless, s.dataset), (trajectory, plain)):
        assert certify(*same, ["def1.p2"]).verdict is Verdict.HOLDS


def test_a_weighted_run_is_refused_in_its_own_words(run):
    s, _ = run
    weight = np.where(np.arange(40) < 20, 1 / 20, 0.0)
    weighted = train(
        first_phase(s.fresh, 16), s.dataset, rule=mh.GD(0.2), num_steps=2, loss=mh.Weighted(weight)
    )
    with pytest.raises(ValueError, match="sample weights cannot be certified"):
        certify(weighted, s.dataset, ["identity"])


def test_a_radius_below_the_tokens_is_refused(run):
    s, trajectory = run
    far = Dataset.from_arrays(3 * s.fresh.tokens, s.fresh.labels)
    with pytest.raises(ValueError, match="below the largest token norm"):
        certify(trajectory, s.dataset, ["def1.p1"], token_radius=1.5, test=far)


def test_an_eigenvalue_that_was_not_found_is_silent(run, monkeypatch):
    s, trajectory = run
    honest = curvature.loss_curvature

    def lost(*a, **k):
        found = honest(*a, **k)
        return replace(found, smallest=replace(found.smallest, converged=False))

    monkeypatch.setattr(curvature, "loss_curvature", lost)
    found = certify(trajectory, s.dataset, ["cor1.2", "cor1.3"])
    assert [c.verdict for c in found] == [Verdict.SILENT] * 2
    assert all("converged" in c.reason for c in found)


def test_an_underflown_loss_hides_no_violation(run):
    """0/0 at the last step must not win over a violation at the first."""
    s, trajectory = run
    work = Examination(trajectory, s.dataset)
    walk = follow(trajectory.start, s.dataset, step_size=0.2, num_steps=2)
    planted = replace(
        walk,
        loss=np.array([0.5, 0.4, 0.0]),
        gradient_norm=np.array([1e9, 0.1, 0.0]),
        readout_norm=np.ones(3),
    )
    work._shared[training.repetition] = planted
    (found,) = derivatives.certify_loss_gradient(work)
    assert found.verdict is Verdict.VIOLATED and "step 0" in found.claim


def test_the_end_of_a_longer_run_is_a_target(everything):
    claims = " ".join(c.claim for c in everything.about("identity"))
    assert "the end of a run twice as long" in claims and "residual of the identity" in claims


def test_statements_that_are_not_about_a_run_are_refused(run):
    s, trajectory = run
    with pytest.raises(ValueError, match="manyheads verify E7"):
        certify(trajectory, s.dataset, ["E7"])
    with pytest.raises(ValueError, match="unknown statement"):
        certify(trajectory, s.dataset, ["theorem 9"])


def test_single_precision_runs_are_repeated_in_double(run):
    s, _ = run
    single = train(
        first_phase(s.fresh, 16), s.dataset, rule=mh.GD(0.2), num_steps=60, dtype="float32"
    )
    found = certify(single, s.dataset, ["identity"])
    assert abs(found.items[0].details["residual"]) < 1e-12


def test_leave_one_out_statements_run_their_twins(run):
    s, trajectory = run
    short = train(
        first_phase(s.fresh, 16), s.dataset, rule=mh.GD(0.2), num_steps=10, dtype="float64"
    )
    said = []
    found = certify(short, s.dataset, ["loo"], test=s.fresh, independent=True, progress=said.append)
    assert found.verdict is Verdict.SILENT and "several data sets" in found.items[0].reason
    assert found.items[0].measured > 0 and "40 leave-one-out runs" in said


def test_a_single_precision_run_of_very_many_heads_belongs_to_its_data():
    # its losses are off by 4%, which the rounding of the scores explains
    s = setting("B")
    start, plan = first_phase(s.fresh, 1e12), {"step_size": 0.2, "num_steps": 10}
    single, walk = (
        train(start, s.dataset, rule=mh.GD(0.2), num_steps=10, dtype="float32"),
        follow(start, s.dataset, **plan),
    )
    assert np.max(np.abs(single.train_loss / walk.loss[single.steps] - 1)) > 0.02
    provenance.check_records(single, s.dataset)
    provenance.compare(single, s.dataset, walk.loss, walk.gradient_norm, 10)
    with pytest.raises(ValueError, match="fingerprint"):
        provenance.trained_on(single, replace(s.dataset, tokens=1.01 * s.dataset.tokens))


def test_constants_beyond_float64_are_silent(run):
    s, trajectory = run
    found = certify(trajectory, s.dataset, ["thm1", "cor1.1", "def1.p3"], token_radius=1e300)
    assert [c.verdict.name for c in found] == ["SILENT", "SILENT", "HOLDS"]
    assert "its constants are within the range of float64" in found.items[0].reason


def test_the_noise_of_a_measured_loss_holds_that_of_the_scores():
    """Two classes that nearly cancel: of 10^12 heads the loss is known to 11 digits, here against 60."""
    rng, heads = np.random.default_rng(0), 1e12
    w, u, near = rng.normal(size=(1, 1, 1)), rng.normal(size=(1, 1, 1)), 1e-6
    X, labels = rng.normal(size=(3, 1, 1)), (1, -1, 1)
    start = MultiHead(
        np.concatenate([w, w]), np.concatenate([u, -u * (1 + near)]), np.full(2, heads / 2)
    )
    data = Dataset.from_arrays(X, labels)
    found = certify(train(start, data, rule=mh.GD(1e-16), num_steps=2), data, ["identity"]).items[0]
    with mpmath.workdps(60):
        score = (
            sum(mpmath.mpf(float(v)) for v in start.readout.ravel()) * mpmath.mpf(heads) ** 0.5 / 2
        )
        losses = [
            mpmath.log1p(mpmath.exp(-y * score * mpmath.mpf(float(x))))
            for x, y in zip(X.ravel(), labels, strict=True)
        ]
        exact = sum(losses) / 3
    assert 1e-13 < abs(float(exact - mpmath.mpf(found.measured))) <= found.noise < 1e-8


@pytest.mark.full
def test_curvature_that_is_zero_to_rounding_has_a_verdict():
    """Step sizes up to 1e5 drive the loss to 0, where the Hessian is rounding and nothing else."""
    lowest = 1.0
    for seed, signal, heads, step in itertools.product(
        range(2), (1.0, 4.0), (1, 8, 1024), (10.0, 1e3, 1e5)
    ):
        mixture = mh.TokenizedMixture(
            num_tokens=4,
            dim=6,
            num_patterns=2,
            sparsity=0.5,
            signal=signal,
            key=jax.random.key(seed),
        )
        data = mixture.sample(30, key=jax.random.key(100 + seed))
        start = mh.zero_start(heads, num_tokens=4, dim=6)
        run = mh.train(start, data, rule=mh.GD(step), num_steps=30, dtype="float64")
        lowest = min(lowest, float(run.train_loss[-1]))
        found = mh.certify(run, data, ["cor1.2", "cor1.3"])
        assert all(c.verdict is Verdict.HOLDS for c in found), [c.reason for c in found]
    assert lowest < 1e-100
