r"""Theorems P and Q: parity of $T \ge 3$ tokens takes exactly $\lfloor T/2\rfloor$ heads; its margin is tiny for any.

On sequences of two kinds of tokens, averaged over permutations, a head is $v_q +
(v_p-v_q)\,g_{c,c'}(r)$, where $r$ counts the first kind and $c, c'$ say how much a query of either
kind prefers the second. Heads are built here in rational numbers, so that the signs of their scores
are exact. Proofs: docs/theory/needed-heads.md.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import jax
import numpy as np

from manyheads._check import check, whole
from manyheads.data import dataset as datasets
from manyheads.model import attention
from manyheads.theory.finding import Effort, Finding, Tally
from manyheads.theory.statement import Statement
from manyheads.training import descent
from manyheads.training import start as starts
from manyheads.training.rules import GD

if TYPE_CHECKING:
    from manyheads.data.dataset import Dataset
    from manyheads.model.attention import MultiHead


# most rounds of correcting the heads of an even length in exact arithmetic
CORRECTIONS = 100
# the largest preference searched for
FAR = 1e150
# tokens for which heads are built, in a minute; the theorem has no limit
LONGEST = 41


def heads_bound(num_tokens: int) -> int:
    """Heads that are necessary and sufficient for the parity of `num_tokens` two-valued tokens (Theorem P)."""
    return 2 if num_tokens == 2 else max(1, num_tokens // 2)


def count_parity(num_tokens: int, padded_to: int | None = None, signal: float = 2.0) -> Dataset:
    """All sequences of two orthogonal tokens, labeled +1 if the second occurs an even number of times.

    Padded with masked tokens to a common length, so that one compiled program works for all.
    """
    rows = np.array(list(itertools.product((0, 1), repeat=num_tokens)))
    tokens = np.zeros((len(rows), padded_to or num_tokens, 2))
    tokens[:, :num_tokens] = signal * np.eye(2)[rows]
    mask = np.tile(np.arange(tokens.shape[1]) < num_tokens, (len(rows), 1)) if padded_to else None
    labels = (-1.0) ** rows.sum(axis=1)
    return datasets.Dataset.from_arrays(tokens, labels, mask=mask, name="parity of counts")


def count_value(first: Fraction | float, second: Fraction | float, count: int, num_tokens: int):
    """$g_{c,c'}$ at a sequence with `count` tokens of the first kind; exact where the preferences are."""
    c, other, r, T = first, second, count, num_tokens
    if r in (0, T):
        return r // T
    return (r * r / (r + (T - r) * c) + r * (T - r) / (r + (T - r) * other)) / T


@dataclass(frozen=True)
class CountHeads:
    """Heads with preferences `first` for queries of the first kind and `second` for the others, in rational numbers."""

    num_tokens: int
    first: tuple[Fraction, ...]
    second: tuple[Fraction, ...]
    weights: tuple[Fraction, ...]
    offset: Fraction

    def values(self) -> list[Fraction]:
        """The score of a sequence by its number of tokens of the first kind."""
        heads, T = list(zip(self.first, self.second, self.weights, strict=True)), self.num_tokens
        return [
            self.offset + sum(a * count_value(c, other, r, T) for c, other, a in heads)
            for r in range(T + 1)
        ]

    @property
    def fits(self) -> bool:
        """Whether every score has the sign of the parity of the second kind of tokens."""
        return all(
            (-1) ** (self.num_tokens - r) * value > 0 for r, value in enumerate(self.values())
        )

    @property
    def margin(self) -> Fraction:
        """The smallest score, by absolute value, if the weights of all heads together are 1."""
        return min(abs(value) for value in self.values()) / sum(abs(a) for a in self.weights)

    def model(self, signal: float = 2.0) -> MultiHead:
        """The same scores as attention over tokens $(s,0)$ and $(0,s)$."""
        H, T, s = len(self.weights), self.num_tokens, signal
        W, U = np.zeros((H, 2, 2)), np.zeros((H, T, 2))
        W[:, 0, 0] = [-_log(c) / s**2 for c in self.first]
        W[:, 1, 0] = [-_log(c) / s**2 for c in self.second]
        U += math.sqrt(H) / (T * s) * float(self.offset / H)
        U[:, :, 0] += math.sqrt(H) / (T * s) * np.array(self.weights, float)[:, None]
        return attention.MultiHead.create(W, U)


def _log(value: Fraction) -> float:
    return math.log(value.numerator) - math.log(value.denominator)


@check(num_tokens=whole(3, LONGEST))
def parity_heads(num_tokens: int) -> CountHeads:
    """The heads of Theorem P: as few as can fit the parity of `num_tokens` >= 3 tokens, checked exactly."""
    heads = _odd(num_tokens) if num_tokens % 2 else _even(num_tokens)
    assert heads.fits and len(heads.weights) == heads_bound(num_tokens)
    return heads


def _product(values) -> Fraction:
    return math.prod(values, start=Fraction(1))


def _pole(c: Fraction) -> Fraction:
    return c + 1 / c


def _zeros(T: int) -> list[Fraction]:
    """Where the score must change sign: between the values of w at neighboring counts; the first is infinite."""
    w = [Fraction((T - r) ** 2 + r * r, r * (T - r)) for r in range(1, T // 2 + 1)]
    return [2 * w[0], *((a + b) / 2 for a, b in zip(w, w[1:], strict=False))]


def _odd(T: int) -> CountHeads:
    """All heads have c' = 1/c; the first preference is found by halving an interval, as in the proof."""
    zeros = _zeros(T)
    rest = [Fraction(2) ** (len(zeros) - h) for h in range(1, len(zeros))]
    rest = [1 / c if h % 2 == 0 else c for h, c in enumerate(rest)]
    tau = [_pole(c) for c in rest]
    without = [
        _product(t + z for z in zeros) / _product(t - u for u in tau if u != t) / (2 * (c - 1))
        for c, t in zip(rest, tau, strict=True)
    ]

    def weights(first: Fraction) -> list[Fraction]:
        top = _pole(first)
        own = _product(top + z for z in zeros) / _product(top - t for t in tau) / (2 * (first - 1))
        return [own, *(a / (t - top) for a, t in zip(without, tau, strict=True))]

    low, high, c = (1 / rest[0] if rest else Fraction(1)), None, Fraction(2**T)
    for halvings in itertools.count(1):
        low, high = (c, high) if sum(weights(c)) > 1 else (low, c)
        c = 2 * low if high is None else (low + high) / 2
        if halvings % 8 == 0:
            a, own = weights(c), (c, *rest)
            found = CountHeads(
                T, own, tuple(1 / each for each in own), tuple(a), -sum(a, Fraction(0)) / 2
            )
            if found.fits:
                return found
    raise AssertionError("the sum of the weights is never 1")


def _even(T: int) -> CountHeads:
    """Pairs of heads (c, 1/d), (d, 1/c) with opposite weights, and for an odd number of heads one with c' = 1."""
    scale, room, alone = Fraction(2), Fraction(0), T // 2 % 2
    # the lone head's weight is above -1
    while room <= alone * _product(2 + z for z in _zeros(T)):
        scale *= 2
        near = [scale * 2**k for k in reversed(range(T // 4))]
        room = _product((_pole(e) - 2) ** 2 for e in near)
    pairs = _Pairs(near, _zeros(T), alone)
    far = pairs.nearly_balanced()
    slopes, exact = pairs.in_float().slopes(far), [Fraction(c) for c in far]
    for _ in range(CORRECTIONS):
        found = pairs.built(T, exact)
        if found.fits:
            return found
        left = [_product(pairs.balance(k, exact)) - 1 for k in range(len(far))]
        unit = max(map(abs, left))
        steps = np.linalg.solve(slopes, [float(each / unit) for each in left])
        grain = Fraction(1, 2 ** (64 + max(0, math.ceil(-2 * _log(unit)))))
        exact = [
            round((c - Fraction(float(s)) * unit) / grain) * grain
            for c, s in zip(exact, steps, strict=True)
        ]
    raise AssertionError(f"no heads found for {T} tokens")


@dataclass(frozen=True)
class _Pairs:
    """Pairs of heads whose smaller poles are those of `near`; the larger ones have to be found."""

    near: list
    zeros: list
    alone: int

    def in_float(self) -> _Pairs:
        return _Pairs([float(e) for e in self.near], [float(z) for z in self.zeros], self.alone)

    def balance(self, k: int, far: list) -> list:
        """The factors of the ratio that has to be 1 for the pair k."""
        t, x = [_pole(e) for e in self.near], [_pole(c) for c in far]
        others = [i for i in range(len(t)) if i != k]
        return [
            (1 + 1 / self.near[k]) / (1 + far[k]),
            *((x[k] + z) / (t[k] + z) for z in self.zeros),
            *((t[k] - 2) / (x[k] - 2) for _ in range(self.alone)),
            *((x[i] - t[k]) / (x[i] - x[k]) for i in others),
            *((t[i] - t[k]) / (t[i] - x[k]) for i in others),
        ]

    def logarithm(self, k: int, far: list[float]) -> float:
        return sum(map(math.log, self.balance(k, far)))

    def nearly_balanced(self) -> list[float]:
        """Solve the pairs in turn, each by bisecting the interval that holds its solution, until none changes."""
        pairs = self.in_float()
        low, high = pairs.near, [FAR, *pairs.near[:-1]]
        far, before = [e * (1 + 1e-6) for e in low], [0.0] * len(low)
        while not np.allclose(far, before, rtol=1e-13, atol=0):
            before = list(far)
            for k in reversed(range(len(far))):
                below, above = low[k], high[k]
                while above > below * (1 + 1e-15):
                    far[k] = math.sqrt(below) * math.sqrt(above)
                    below, above = (
                        (far[k], above) if pairs.logarithm(k, far) < 0 else (below, far[k])
                    )
        return far

    def slopes(self, far: list[float]) -> np.ndarray:
        """How the balances depend on the preferences."""
        columns = []
        for i, (c, e) in enumerate(zip(far, self.near, strict=True)):
            step = 1e-6 * (c - e)
            ends = [[*far[:i], moved, *far[i + 1 :]] for moved in (c + step, c - step)]
            columns.append(
                [
                    (self.logarithm(k, ends[0]) - self.logarithm(k, ends[1])) / (2 * step)
                    for k in range(len(far))
                ]
            )
        return np.array(columns).T

    def built(self, T: int, far: list[Fraction]) -> CountHeads:
        near, m = self.near, len(far)
        poles = [_pole(e) for e in near + far] + [Fraction(2)] * self.alone
        residues = [
            _product(-t - z for z in self.zeros)
            / _product(u - t for k, u in enumerate(poles) if k != i)
            for i, t in enumerate(poles)
        ]
        b = [residue / (1 + 1 / e) for residue, e in zip(residues, near, strict=False)]
        first = [*far, *(1 / e for e in near)] + [Fraction(2) ** (8 * T)] * self.alone
        second = [*near, *(1 / c for c in far)] + [Fraction(1)] * self.alone
        return CountHeads(
            T,
            tuple(first),
            tuple(second),
            (*b, *(-each for each in b), *residues[2 * m :]),
            Fraction(1),
        )


def alternating_bound(num_tokens: int) -> int:
    r"""The largest $|\sum_r\binom Tr(-1)^rg(r/T)|$ of a head $g$: 1 for even $T$ and 2 for odd $T$."""
    return 1 + num_tokens % 2


def score_bound(readout_norm: float, num_tokens: int, token_radius: float) -> float:
    r"""Theorem Q: no model has a larger mean of $y\tilde\Phi$ on the parity, $a_T2^{-T}\sqrt{2T}R\,\|U\|_F$."""
    T, R = num_tokens, token_radius
    return alternating_bound(T) * 2.0**-T * math.sqrt(2 * T) * R * readout_norm


def sign_changes(values: Sequence) -> int:
    signs = [value > 0 for value in values if value]
    return sum(a != b for a, b in itertools.pairwise(signs))


def check_heads(effort: Effort) -> Finding:
    """Exact signs of the fewest heads, and heads chosen to change signs as often as they can."""
    tally, rng = Tally(), np.random.default_rng(effort.seed)
    longest, least = effort.count(24, 9), {}
    for T in range(3, longest + 1):
        heads = parity_heads(T)
        tally.add(len(heads.weights), T // 2)
        tally.add(sign_changes(heads.values()), T, sense=">=")
        tally.add(T, 2 * len(heads.weights) + 1)
        least[T] = float(heads.margin)
    for trial in range(effort.count(2000, 40)):
        T = 4 + trial % 9
        tally.add(
            sign_changes(_interpolated(T, 1 + trial % (T // 2), rng)),
            2 * (1 + trial % (T // 2)) + 1,
        )
    return tally.finding(
        f"exact for T = 3 to {longest}; margins from {least[3]:.2g} to {least[longest]:.1g} with "
        "these heads"
    )


def _interpolated(T: int, num_heads: int, rng: np.random.Generator) -> list[Fraction]:
    """The scores of random heads whose weights alternate the sign at as many counts as there are weights."""
    c = [
        [Fraction(float(x)).limit_denominator(10**6) + Fraction(1, 10**7) for x in row]
        for row in np.exp(rng.normal(0, 3, (num_heads, 2)))
    ]
    counts = sorted(rng.choice(T + 1, num_heads + 1, replace=False).tolist())
    rows = [[Fraction(1), *(Fraction(count_value(*pair, r, T)) for pair in c)] for r in counts]
    weights = _eliminated(rows, [Fraction((-1) ** k) for k in range(len(counts))])
    return CountHeads(T, *zip(*map(tuple, c), strict=True), tuple(weights[1:]), weights[0]).values()


def _eliminated(rows: list[list[Fraction]], right: list[Fraction]) -> list[Fraction]:
    """The solution of a system of equations in rational numbers."""
    rows = [[*row, value] for row, value in zip(rows, right, strict=True)]
    for k in range(len(rows)):
        pivot = next(i for i in range(k, len(rows)) if rows[i][k])
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [value / rows[k][k] for value in rows[k]]
        for i in range(len(rows)):
            if i != k:
                rows[i] = [a - rows[i][k] * b for a, b in zip(rows[i], rows[k], strict=True)]
    return [row[-1] for row in rows]


def check_margin(effort: Effort) -> Finding:
    """Single heads in exact arithmetic, and runs: mean scores, losses and gradients against Theorem Q."""
    tally, rng, best = Tally(), np.random.default_rng(effort.seed), [0.0, 0.0]
    ends = [Fraction(1, 10**9), Fraction(1), Fraction(10**9)]
    for T in range(2, effort.count(16, 8)):
        drawn = [
            Fraction(float(x)).limit_denominator(10**9) + Fraction(1, 10**9)
            for x in np.exp(rng.normal(0, 4, effort.count(20, 3)))
        ]
        for c, other in itertools.product(ends + drawn, repeat=2):
            value = abs(
                sum(math.comb(T, r) * (-1) ** r * count_value(c, other, r, T) for r in range(T + 1))
            )
            tally.add(value, alternating_bound(T))
            best[T % 2] = max(best[T % 2], float(value) / alternating_bound(T))
    for k in range(effort.count(200, 1)):
        add_run(tally, (4, 2, 3, 5)[k % 4], (2, 1, 8)[k % 3], effort.seed + k)
    return tally.finding(
        f"largest share for one head {best[0]:.6f} for even T, {best[1]:.6f} for odd T"
    )


def add_run(tally: Tally, num_tokens: int, num_heads: int, seed: int, num_steps: int = 60) -> None:
    """One run from a Gaussian start: its loss at every step, its mean score, and the gradient at zero readouts."""
    T, data, R, eta = num_tokens, count_parity(num_tokens), 2.0, 0.5
    key = jax.random.key(seed)
    start = starts.gaussian_start(
        num_heads, num_tokens=T, dim=2, key=key, key_query_scale=1.0, readout_scale=0.3
    )
    run = descent.train(start, data, rule=GD(eta), num_steps=num_steps, dtype="float64")
    norm = float(np.linalg.norm(start.readout))
    for step, loss in zip(run.steps, run.train_loss, strict=True):
        travel = eta * math.sqrt(T) * R * int(step)
        tally.add(np.logaddexp(0, -score_bound(norm + travel, T, R)), float(loss), noise=1e-12)
    final = run.final
    mean = float(np.mean(data.labels * final.scores(data)))
    tally.add(mean, score_bound(float(np.linalg.norm(final.readout)), T, R), noise=1e-12)
    logits = (
        data.tokens @ np.asarray(final.key_query, float)[:, None] @ data.tokens.transpose(0, 2, 1)
    )
    A = np.exp(logits - logits.max(axis=-1, keepdims=True))
    features = A / A.sum(axis=-1, keepdims=True) @ data.tokens
    slope = np.mean(data.labels[:, None, None] * features, axis=1) / (2 * math.sqrt(num_heads))
    tally.add(float(np.linalg.norm(slope)), score_bound(0.5, T, R), noise=1e-12)


PARITY = Statement(
    id="parity",
    place="ours, Theorem P",
    title="parity of T tokens takes exactly ⌊T/2⌋ heads",
    ours="for T ≥ 3, H heads with full or pooled readout fit the parity of all 2^T sequences of two "
    "orthogonal tokens of equal norm for some W and U if and only if H ≥ ⌊T/2⌋; for T = 2 if and "
    "only if H ≥ 2",
    proof="docs/theory/needed-heads.md#theorem-p",
    tightness=1.0,
    remark="of the sign changes that H heads can have are reached, 2H + 1 for odd T; exact arithmetic",
    check=check_heads,
    aliases=("theorem-p",),
)

PARITY_MARGIN = Statement(
    id="parity.margin",
    place="ours, Theorem Q",
    title="no number of heads gives parity more than an exponentially small margin",
    ours="the mean of yΦ̃ over all 2^T sequences of two orthogonal tokens of norm R, T ≥ 2, is at most "
    "b‖U‖ with b = a_T 2^{−T}√(2T) R, a_T = 1 for even T and 2 for odd T, so the margin is, and "
    "the logistic loss at "
    "least log(1+exp(−b‖U‖)), for every H and W; after k steps of descent ‖U‖ ≤ ‖U(0)‖ + ηk√T R; "
    "at U = 0 the gradient "
    "is at most b/2",
    proof="docs/theory/needed-heads.md#theorem-q",
    tightness=1.0,
    remark="of the mean score is reached: for odd T by equal heads that attend to the other kind of token, for even T "
    "by equal heads that attend to one kind alone",
    check=check_margin,
    aliases=("theorem-q",),
)
