r"""Which tokens attention can select, and at which norm.

One head, one query $x_q$ per sequence, token scores $v_s=y\langle u,x_s\rangle$ from a readout $u$
that is not trained. The best token $x_{opt}$ of each sequence is to be selected. With the features
$g_s=x_q(x_{opt}-x_s)^\top$, $$W_{svm}=\arg\min\|W\|_F\ \text{ s.t. }\ \langle W,g_s\rangle=x_q^\top
W(x_{opt}-x_s)\ge1,\qquad\gamma=1/\|W_{svm}\|.$$ The logit of key $s$ is $x_q^\top Wx_s$, as in
`MultiHead`; the paper writes the transpose. Proofs: docs/theory/attention-svm.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from manyheads._check import a, check
from manyheads.data.dataset import Dataset, is_dataset
from manyheads.measures import margin as margins
from manyheads.model.attention import MultiHead
from manyheads.model.variants import Frozen
from manyheads.theory import search
from manyheads.theory.finding import Effort, Finding, Tally
from manyheads.theory.statement import Statement
from manyheads.theory.verdict import OURS, Bound, Certificate

if TYPE_CHECKING:
    from manyheads.measures.margin import MarginInterval
    from manyheads.theory.examination import Examination


ROUNDING = 1e-12
Tried = list[tuple["Selection", np.ndarray]]


@dataclass(frozen=True, eq=False)
class Selection:
    """The task of selecting the best token of each sequence."""

    features: np.ndarray  # (n, T - 1, d^2)
    best: np.ndarray  # (n,): score of the best token
    lead: np.ndarray  # (n, T - 1): how much better it scores than each other one
    reach: float = 0.0  # the largest product of the norms of a query and a token

    @classmethod
    def of(cls, tokens: np.ndarray, queries: np.ndarray, scores: np.ndarray) -> Selection:
        """From tokens (n, T, d), queries (n, d) and scores (n, T)."""
        chosen = np.arange(tokens.shape[1]) == scores.argmax(axis=1)[:, None]
        others = tokens[~chosen].reshape(len(tokens), -1, tokens.shape[2])
        outer = np.einsum("nd,nse->nsde", queries, tokens[chosen][:, None] - others)
        lead = scores.max(axis=1, keepdims=True) - scores[~chosen].reshape(len(scores), -1)
        reach = np.linalg.norm(queries, axis=1) * np.linalg.norm(tokens, axis=2).max(axis=1)
        features = outer.reshape(*lead.shape, -1)
        return cls(features, scores.max(axis=1), lead, float(reach.max()))

    @property
    def num_others(self) -> int:
        return self.lead.shape[1]

    @cached_property
    def interval(self) -> MarginInterval:
        """The margin γ by quadratic programming, with the two points that prove it."""
        rows = self.features.reshape(self.lead.size, -1)
        return margins.hard_margin(np.ones(len(rows)), features=rows)

    @property
    def feasible(self) -> bool:
        return self.interval.lower > 0

    @cached_property
    def dual(self) -> np.ndarray:
        """(d²,): a convex combination of the features; γ is at most its norm, whatever the solver did."""
        weights = self.interval.weights / self.interval.weights.sum()
        return weights @ self.features.reshape(len(weights), -1)

    @cached_property
    def upper(self) -> float:
        return float(np.linalg.norm(self.dual))

    @cached_property
    def direction(self) -> np.ndarray:
        """(d²,): the direction of W_svm, of norm 1."""
        return self.dual / np.linalg.norm(self.dual)

    @property
    def W_svm(self) -> np.ndarray:
        """(d, d): the matrix of least norm with every gap at least 1, 1/γ times `direction`."""
        if not self.feasible:
            raise ValueError(
                "no matrix selects the best token of every sequence; use more dimensions, or fewer "
                "tokens."
            )
        d = math.isqrt(len(self.direction))
        return self.direction.reshape(d, d) / self.lower

    @cached_property
    def lower(self) -> float:
        """The margin of `direction`; γ is at least that."""
        return self.margin(self.direction)

    def margin(self, W: np.ndarray) -> float:
        """The smallest gap between the logits of a best token and another one. W as a vector, here and below."""
        return float((self.features @ W).min())

    def attention(self, W: np.ndarray) -> np.ndarray:
        """(n, T−1): attention on the other tokens, accurate where it is small."""
        gaps = self.features @ W
        low = np.minimum(gaps.min(axis=1, keepdims=True), 0.0)
        weights = np.exp(low - gaps)
        return weights / (np.exp(low) + weights.sum(axis=1, keepdims=True))

    def worst_mass(self, W: np.ndarray) -> float:
        """The largest attention that a sequence leaves on its other tokens."""
        return float(self.attention(W).sum(axis=1).max())

    def mass_range(self, norm: float) -> tuple[float, float]:
        """`selection`: an interval that contains the smallest possible `worst_mass` of a W of at most this norm."""
        return 1 / (1 + math.exp(norm * self.upper)), self.num_others / (
            self.num_others + math.exp(norm * self.lower)
        )


def draw(rng: np.random.Generator, count: int) -> list[Selection]:
    """Gaussian tokens, queries and readouts."""
    tokens, queries = rng.standard_normal((count, 3, 4, 4)), rng.standard_normal((count, 3, 4))
    scores = np.einsum("knsd,kd->kns", tokens, rng.standard_normal((count, 4)))
    return [Selection.of(*one) for one in zip(tokens, queries, scores, strict=True)]


def one_pair(copies: int = 1) -> Selection:
    """One sequence with one other token, or with equal ones: it attains the bounds."""
    tokens = np.array([[[1.0, 0.0], *([[0.0, 2.0]] * copies)]])
    return Selection.of(tokens, np.array([[1.0, -1.0]]), np.array([[0.5, *([-0.5] * copies)]]))


def contradiction(rng: np.random.Generator) -> Selection:
    """The same sequence and query twice, with different tokens to select: infeasible."""
    X, query, scores = rng.standard_normal((4, 4)), rng.standard_normal(4), rng.standard_normal(4)
    return Selection.of(np.stack([X, X]), np.stack([query, query]), np.stack([scores, -scores]))


def matrices(rng: np.random.Generator, problem: Selection, count: int) -> Tried:
    """Matrices of many sizes: near the dual point, and at random."""
    noise = rng.standard_normal((count, len(problem.dual)))
    sizes = 10.0 ** rng.uniform(-1, 1.5, count)
    near = problem.dual / np.linalg.norm(problem.dual) + 0.05 * noise
    return [
        (problem, size * (b if k % 2 else a))
        for k, (size, a, b) in enumerate(zip(sizes, near, noise, strict=True))
    ]


def attack(effort: Effort, ratio: Callable, problems: list[Selection]) -> Tried:
    """For each problem, the W at which gradient ascent makes a ratio largest."""
    rng, found = np.random.default_rng(effort.seed + 1), []
    for problem in problems:
        data = {"features": problem.features, "dual": problem.dual}
        starts = [{"W": W, **data} for _, W in matrices(rng, problem, 8)]
        found.append((problem, search.ascend(ratio, starts, steps=effort.count(400, 150))[0]["W"]))
    return found


def fixed_data(point):
    """Logit gaps (n, T−1) and the dual point of an attack, in which W alone is free."""
    features, dual = jax.lax.stop_gradient((point["features"], point["dual"]))
    return features @ point["W"], dual


def _mass_ratio(point):
    gaps, dual = fixed_data(point)
    worst = jnp.max(1 / (1 + 1 / jnp.sum(jnp.exp(-gaps), axis=1)))
    return 1 / (1 + jnp.exp(jnp.linalg.norm(point["W"]) * jnp.linalg.norm(dual))) / worst


def _half_ratio(point):
    return 2 * jnp.min(1 / (1 + jnp.sum(jnp.exp(-fixed_data(point)[0]), axis=1)))


def check_selection(effort: Effort) -> Finding:
    """Masses at B·Ŵ from above, at any W from below; no W selects where the problem is infeasible."""
    tally, rng = Tally(), np.random.default_rng(effort.seed)
    drawn = draw(rng, effort.count(40, 8))
    tried = attack(effort, _mass_ratio, drawn[:4])
    for problem in [*drawn, one_pair(), one_pair(copies=3)]:
        for norm in np.array([0.3, 1.0, 3.0, 10.0, 30.0]) / problem.lower:
            most = problem.mass_range(norm)[1]
            tally.add(problem.worst_mass(norm * problem.direction), most, noise=ROUNDING * most)
            tried.append((problem, norm * problem.direction))
        tried += matrices(rng, problem, 10)
        rows = problem.features.reshape(problem.lead.size, -1)
        if np.linalg.matrix_rank(rows) == len(
            rows
        ):  # independent features: feasible, with an explicit margin
            interpolating = 1 / math.sqrt(np.linalg.solve(rows @ rows.T, np.ones(len(rows))).sum())
            tally.add(problem.upper, interpolating, sense=">=", noise=ROUNDING)
    for problem, W in tried:
        least = problem.mass_range(float(np.linalg.norm(W)))[0]
        tally.add(problem.worst_mass(W), least, sense=">=", noise=ROUNDING * least)
    for problem, W in attack(effort, _half_ratio, [contradiction(rng) for _ in range(4)]):
        tally.add(problem.worst_mass(W), 0.5, sense=">=", noise=ROUNDING)
        tally.broken += problem.feasible
    return tally.finding(
        "unselected mass at B·Ŵ and under attack; at least 1/2 where the problem is infeasible"
    )


def about_selection(work: Examination) -> list[Certificate]:
    """The mass left at the end of a run."""
    problem, W = work.shared(selection_of)
    least = problem.mass_range(float(np.linalg.norm(W)))[0] if problem.feasible else 0.5
    claim = "largest attention left on tokens that are not the best, at the end of the run"
    return [
        Certificate(
            "selection", claim, problem.worst_mass(W), (Bound(OURS, least),), ">=", ROUNDING * least
        )
    ]


SELECTION = Statement(
    id="selection",
    place="abstract",
    title="attention selects exactly when the support-vector problem is feasible",
    printed="“a hard-margin SVM problem that separates optimal input tokens from non-optimal tokens using linear "
    "constraints on the outer-products of token pairs”; “over-parameterization catalyzes global "
    "convergence by "
    "ensuring the feasibility of the SVM problem”",
    ours="feasible: the least possible worst unselected mass over ‖W‖_F ≤ B lies between 1/(1 + e^{Bγ}) and "
    "(T−1)/(T−1 + e^{Bγ}), and B·Ŵ_svm reaches the latter; infeasible: for every W a sequence "
    "leaves at least 1/2. "
    "Independent features (from d ≥ n and d ≥ T − 1 on) are feasible with γ ≥ 1/√(1ᵀK⁻¹1), K their "
    "Gram matrix",
    proof="docs/theory/attention-svm.md#selection",
    check=check_selection,
    about=about_selection,
    remark="one other token attains the lower end, equal other tokens the upper end",
    tightness=1.0,
    used_by=("path", "direction"),
)


def whole(model):
    """The MultiHead, of which a block may be frozen."""
    return getattr(model, "full", model)


is_one_head = a((MultiHead, Frozen), 'make it with decoder="last"')


@check(model=is_one_head, dataset=is_dataset)
def token_selection(model: MultiHead | Frozen, dataset: Dataset) -> Selection:
    """The problem of selecting the best token of each sequence: its margin, and `W_svm`.

    `model` is one head (or equal heads) with a last-token readout, which scores the tokens; its
    key-query matrix does not matter. With `margin(W)` and `attention(W)` any other matrix, as a
    vector, is compared with the solution.
    """
    full = whole(model)
    if full.decoder != "last" or full.num_classes > 1 or full.num_outputs is not None:
        raise ValueError(
            f"token selection is about one head with a last-token readout, not {full}; make it "
            "with "
            'decoder="last", and give equal heads one class with collapse.'
        )
    if dataset.num_tokens < 2 or dataset.mask is not None or dataset.dim != full.dim:
        raise ValueError(
            f"token selection is about two tokens or more of dimension {full.dim}, without "
            "padding; use equal lengths."
        )
    return problem_of(full, dataset)


def problem_of(model: MultiHead, data: Dataset) -> Selection:
    """The selection problem of one head with a last-token readout."""
    tokens = np.asarray(data.tokens, float)
    readout = model.num_heads ** (1 - model.exponent) * np.asarray(model.readout, float)[0]
    return Selection.of(tokens, tokens[:, -1], data.labels[:, None] * (tokens @ readout))


def selection_of(work: Examination) -> tuple[Selection, np.ndarray]:
    """The selection problem of a run within the paper's scope, and the key-query matrix at its end."""
    final = np.asarray(whole(work.run.final).key_query, float)
    return problem_of(whole(work.run.start), work.dataset), final[0].reshape(-1)
