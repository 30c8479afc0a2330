r"""The direction in which W grows as the logistic loss becomes small: minimizers of given norm, and runs of descent.

The loss of a sequence is $\log(1+e^{-f})$ with $f=\sum_sa_sv_s$; $L_*$ is the mean loss when every
best token is selected, and $L(W)-L_*$ the excess loss. Proofs: docs/theory/attention-svm.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from manyheads.data import dataset as datasets
from manyheads.model import attention, variants
from manyheads.theory.finding import Effort, Finding, Tally
from manyheads.theory.statement import Statement
from manyheads.theory.tarzanagh2023 import selection
from manyheads.theory.tarzanagh2023.selection import ROUNDING, Selection
from manyheads.theory.verdict import OURS, Bound, Certificate, Hypothesis
from manyheads.training import descent
from manyheads.training.rules import GD, Normalized

if TYPE_CHECKING:
    from manyheads.theory.examination import Examination


ABOVE, REMEDY = "the steps are above rounding", 'use dtype="float64", or fewer steps'
CLAIM = "correlation of W with the support-vector solution at the end of the run"


def excess(problem: Selection, W: np.ndarray) -> float:
    """The excess loss, accurate where it is small."""
    deficit = (problem.attention(W) * problem.lead).sum(axis=1)
    return float(np.log1p(np.expm1(deficit) * _sigmoid(-problem.best)).mean())


def slope(problem: Selection, W: np.ndarray) -> np.ndarray:
    """The negative gradient of the loss, as a combination of the features."""
    A = problem.attention(W)
    deficit = (A * problem.lead).sum(axis=1, keepdims=True)
    weight = _sigmoid(deficit - problem.best[:, None]) / len(problem.best)
    return np.einsum("ns,nsp->p", weight * A * (problem.lead - deficit), problem.features)


def pulls(problem: Selection) -> tuple[float, float]:
    r"""c and C: an unselected mass m costs at least cm/n and at most Cm.

    $c=\min_i\sigma(-v_{opt})\min_s(v_{opt}-v_s)$ and
    $C=\frac1n\sum_i\sigma(-\min_sv_s)\max_s(v_{opt}-v_s)$.
    """
    least, most = problem.lead.min(axis=1), problem.lead.max(axis=1)
    return float((_sigmoid(-problem.best) * least).min()), float(
        (_sigmoid(most - problem.best) * most).mean()
    )


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0.0, -x))


def cosine(problem: Selection, W: np.ndarray) -> float:
    """Correlation with W_svm."""
    return float(W @ problem.direction / np.linalg.norm(W))


def cosine_bound(problem: Selection, W: np.ndarray) -> float:
    """`direction`: a lower bound on the correlation with W_svm from excess loss and norm."""
    ratio = pulls(problem)[0] / (len(problem.best) * excess(problem, W))
    return (
        math.log(ratio - 1) / (problem.upper * float(np.linalg.norm(W))) if ratio > 2 else -math.inf
    )


def path_bounds(problem: Selection, norm: float) -> tuple[float, float, float]:
    """`path` at norm B: lower bound on the excess loss, upper bound for B·Ŵ, lower bound on the correlation."""
    n, others, (c, C) = len(problem.best), problem.num_others, pulls(problem)
    least = c / n / (1 + math.exp(norm * problem.upper))
    most = C * others / (others + math.exp(norm * problem.lower))
    ratio = c * math.exp(norm * problem.lower) / (n * C * others)
    return least, most, math.log(ratio - 1) / (problem.upper * norm) if ratio > 2 else -math.inf


def check_path(effort: Effort) -> Finding:
    """Matrices of norm at most B that are no worse than B·Ŵ, from there to the minimizer."""
    tally, rng, count = Tally(), np.random.default_rng(effort.seed + 4), effort.count(40, 8)
    for problem in [*selection.draw(rng, count), selection.one_pair()]:
        c, C = pulls(problem)
        for room in (0.5, 2.0, 8.0, 32.0):
            norm = (
                math.log(2 * len(problem.best) * C * problem.num_others / c) + room
            ) / problem.lower
            least, most, correlated = path_bounds(problem, norm)
            tally.add(excess(problem, norm * problem.direction), most, noise=ROUNDING * most)
            for W in _improvements(problem, norm, effort.count(300, 100)):
                tally.add(excess(problem, W), least, sense=">=", noise=ROUNDING * least)
                tally.add(cosine(problem, W), correlated, sense=">=", noise=ROUNDING)
    return tally.finding(
        "excess loss and correlation with W_svm of matrices no worse than B·Ŵ on the ball"
    )


def _improvements(problem: Selection, norm: float, steps: int) -> Iterator[np.ndarray]:
    """Projected descent on the ball from B·Ŵ, which accepts decreases only."""
    W, rate = norm * problem.direction, 0.1 * norm
    yield W
    for _ in range(steps):
        move = slope(problem, W)
        moved = W + rate * move / np.linalg.norm(move)
        moved = moved * min(1.0, norm / float(np.linalg.norm(moved)))
        if excess(problem, moved) < excess(problem, W):
            W, rate = moved, 1.2 * rate
            yield W
        else:
            rate = 0.5 * rate


PATH = Statement(
    id="path",
    place="abstract, (1)",
    title="minimizers of growing norm turn to the support-vector solution",
    printed="“Optimizing the attention layer with vanishing regularization, parameterized by (K,Q), converges in "
    "direction to an SVM solution minimizing the nuclear norm of the combined parameter W=KQ^⊤. "
    "Instead, directly "
    "parameterizing by W minimizes a Frobenius norm objective.”",
    ours="every ‖W‖_F ≤ B has L − L_* ≥ (c/n)/(1 + e^{Bγ}), and B·Ŵ_svm has at most C(T−1)/(T−1 + e^{Bγ}); whatever "
    "is no worse than B·Ŵ_svm on the ball has correlation at least log(e^{Bγ}/κ − 1)/(Bγ) with "
    "W_svm, "
    "κ = nC(T−1)/c, if e^{Bγ} > 2κ: the correlation of minimizers tends to 1 like 1 − log κ/(Bγ)",
    proof="docs/theory/attention-svm.md#regularization-path",
    check=check_path,
    remark="one pair of tokens attains the lower end of the loss as B grows",
    tightness=0.999,
    used_by=("direction",),
)


def runs(effort: Effort) -> Iterator[tuple[Selection, float, np.ndarray]]:
    """Descent on W alone from zero where other tokens score alike: normalized, with its step size, and plain (NaN)."""
    pair = np.array(
        [[1.0, 0.5], [-1.0, 2.0]]
    )  # a sequence and its mirror image have the same features
    rng, found = (
        np.random.default_rng(effort.seed + 5),
        [(np.stack([pair, -pair]), np.array([1.0, -1.0]))],
    )
    for _ in range(
        effort.count(12, 3)
    ):  # the first coordinate is the score: that of the label for the first token
        tokens, labels = rng.standard_normal((4, 3, 5)), np.array([1.0, -1.0, 1.0, -1.0])
        tokens[..., 0] = np.outer(labels, [1.0, -1.0, -1.0])
        found.append((tokens, labels))
    for tokens, labels in found:
        data, dim = datasets.Dataset.from_arrays(tokens, labels), tokens.shape[2]
        model = attention.MultiHead.create(np.zeros((1, dim, dim)), np.eye(dim)[:1], decoder="last")
        problem = selection.problem_of(model, data)
        plan: dict[str, Any] = {
            "num_steps": effort.count(2000, 400),
            "record": "all",
            "dtype": "float64",
            "observe": {"W": _key_query},
        }
        frozen, eta = variants.frozen(model, "readout"), 20 / problem.upper
        for rule in (Normalized(eta / plan["num_steps"]), GD(eta)):
            run = descent.train(frozen, data, rule=rule, **plan)
            path = run.observed["W"][1:].reshape(-1, dim * dim)
            yield problem, rule.step_size if rule.name == "normalized" else math.nan, path


def _key_query(parameters, data):
    return parameters.key_query[0]


def _margin_ratio(point):
    gaps, dual = selection.fixed_data(point)
    return jnp.where(gaps.min() > 0, gaps.min() / (dual @ point["W"]), 0.0)


def check_direction(effort: Effort) -> Finding:
    """Along runs of plain and normalized descent, at random matrices, and under attack."""
    tally, rng = Tally(), np.random.default_rng(effort.seed)
    drawn, ends = selection.draw(rng, effort.count(40, 8)), {True: 1.0, False: 1.0}
    tried = selection.attack(effort, _margin_ratio, drawn[:4])
    for problem in drawn:
        tried += selection.matrices(rng, problem, 10)
    for problem, eta, path in runs(effort):
        tried += [(problem, W) for W in path[:: len(path) // 40]]
        plain = math.isnan(eta)
        ends[plain] = min(ends[plain], cosine(problem, path[-1]))
    for problem, W in tried:
        from_margin = problem.margin(W) / (problem.upper * float(np.linalg.norm(W)))
        tally.add(cosine(problem, W), from_margin, sense=">=", noise=ROUNDING)
        tally.broken += not cosine_bound(problem, W) <= from_margin + ROUNDING
    return tally.finding(
        f"smallest correlation with W_svm at the end of a run: {ends[False]:.4f} normalized, "
        f"{ends[True]:.4f} plain"
    )


def about_direction(work: Examination) -> list[Certificate]:
    """The correlation at the end of a run, by any optimizer."""
    problem, W = work.shared(selection.selection_of)
    cost, limit = len(problem.best) * excess(problem, W), pulls(problem)[0] / 2
    small = Hypothesis.at_most(
        "the excess loss is small: n (L - L_*) < c/2", cost, limit, "train longer"
    )
    above = Hypothesis.at_most(ABOVE, _noise(work, problem, W), 1e-3, REMEDY)
    bound = Bound(OURS, cosine_bound(problem, W), (*_selectable(problem), small, above))
    reached = {
        "margin reached, ‖W‖ = 1": problem.margin(W) / float(np.linalg.norm(W)),
        "largest margin, ‖W‖ = 1": problem.upper,
    }
    found = cosine(problem, W)
    return [Certificate("direction", CLAIM, found, (bound,), ">=", ROUNDING, details=reached)]


def _selectable(problem: Selection) -> tuple[Hypothesis, ...]:
    return (
        Hypothesis(
            "each sequence has one best token", pulls(problem)[0] > 0, "use another readout"
        ),
        Hypothesis(
            "the support-vector problem is feasible",
            problem.feasible,
            "use more dimensions or fewer tokens",
        ),
    )


DIRECTION = Statement(
    id="direction",
    place="abstract, (2)",
    title="loss and norm bound the correlation with the support-vector solution",
    printed="“we prove the local/global directional convergence of gradient descent under suitable geometric "
    "conditions”",
    ours="cos(W, W_svm) ≥ min_s⟨W, g_s⟩/(γ‖W‖_F) ≥ log(c/(n(L(W) − L_*)) − 1)/(γ‖W‖_F) for every W with "
    "n(L(W) − L_*) < c/2, whatever optimizer found it: a run converges in direction where L − L_* "
    "falls like e^{−γ‖W‖}",
    proof="docs/theory/attention-svm.md#direction",
    check=check_direction,
    about=about_direction,
    remark="that descent converges in direction is measured here, not proved; normalized descent is far ahead of plain",
    tightness=0.999,
)


def cone_bound(problem: Selection) -> float:
    return problem.lower / float(np.linalg.norm(problem.features, axis=2).max())


def gradient_rounding(problem: Selection, W: np.ndarray, dtype: str = "float64") -> float:
    """Relative rounding error of a computed step; infinite where the unselected mass underflows.

    A logit is known to its terms' rounding, which is the relative error of a mass; a lead to that
    of two scores.
    """
    kind = np.finfo(dtype)
    A = problem.attention(W)
    if not problem.worst_mass(W) > kind.tiny / kind.eps:
        return math.inf
    scores = np.abs(problem.best[:, None]) + np.abs(problem.best[:, None] - problem.lead)
    by_scores = float((A * scores).sum() / (A * problem.lead).sum())
    by_logits = 2 * problem.reach * float(np.linalg.norm(W))
    return 4 * float(kind.eps) * (4 + by_logits + by_scores) / cone_bound(problem)


def _noise(work: Examination, problem: Selection, W: np.ndarray) -> float:
    """What rounding does to the steps at the end of a run."""
    return max(
        gradient_rounding(problem, W, work.run.settings.get("dtype", "float64")), work.run.rounding
    )


def check_cone(effort: Effort) -> Finding:
    """Every iterate of plain and normalized descent from zero."""
    tally = Tally()
    for problem, eta, path in runs(effort):
        least = cone_bound(problem)
        for k, W in enumerate(path, start=1):
            noise = gradient_rounding(problem, W)
            tally.add(cosine(problem, W), least, sense=">=", noise=noise)
            if not math.isnan(eta):
                tally.add(
                    float(np.linalg.norm(W)), k * eta * least, sense=">=", noise=k * eta * noise
                )
    return tally.finding("correlation at every step, and the norm of normalized descent")


def about_cone(work: Examination) -> list[Certificate]:
    """The correlation at the end of a run from zero."""
    problem, W = work.shared(selection.selection_of)
    uneven, scale = np.ptp(problem.lead, axis=1).max(), problem.lead.max()
    rule, noise = work.run.settings.get("optimizer"), _noise(work, problem, W)
    hypotheses = (
        *_selectable(problem),
        Hypothesis.at_most("the other tokens of a sequence score alike", uneven, 1e-9 * scale),
        Hypothesis(
            "W starts at zero",
            not np.any(selection.whole(work.run.start).key_query),
            "start from zero",
        ),
        Hypothesis(
            "steps along the gradient", rule in ("gd", "normalized", "polyak"), 'use optimizer="gd"'
        ),
        Hypothesis.at_most(ABOVE, noise, 1e-3, REMEDY),
    )
    bound = Bound(OURS, cone_bound(problem), hypotheses)
    return [
        Certificate(
            "cone", CLAIM, cosine(problem, W), (bound,), ">=", noise, "rounding of gradients"
        )
    ]


CONE = Statement(
    id="cone",
    place="ours",
    title="descent from zero stays in the cone of the features",
    ours="if the other tokens of each sequence score alike, every iterate of descent on W alone from zero, with any "
    "step sizes, is a nonnegative combination of the g_s: cos(W_k, W_svm) ≥ γ/max‖g_s‖, and "
    "normalized descent has "
    "‖W_k‖_F ≥ kηγ/max‖g_s‖",
    proof="docs/theory/attention-svm.md#cone",
    check=check_cone,
    about=about_cone,
    remark="one pair of tokens attains both",
    tightness=1.0,
    used_by=("direction",),
)
