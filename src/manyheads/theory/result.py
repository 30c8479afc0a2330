"""What an attack on a statement found: the verdict, the tightest input, a counterexample made small, a figure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from manyheads._card import card
from manyheads.theory.arithmetic import FRACTIONS
from manyheads.theory.attack import BATCH, Budget, Problem, Sides, Tried
from manyheads.theory.finding import Finding
from manyheads.theory.source import standing_alone
from manyheads.theory.verdict import ROUNDING, Verdict, ratio

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from manyheads.theory.statement import Statement

# of one origin in a figure
POINTS = 1000
# simpler inputs that are tried in one round
CANDIDATES = 2 * BATCH


@dataclass(frozen=True)
class Case:
    """One input of a statement with both sides."""

    statement: Statement
    at: np.ndarray  # its coordinates
    sides: Sides

    @property
    def values(self) -> dict[str, Any]:
        """The inputs by name, as arrays of NumPy."""
        assert self.statement.inputs is not None
        return dict(self.statement.inputs.values(self.at))

    @property
    def share(self) -> float:
        """How much of the bound is reached; more than 1 is a violation."""
        return ratio(self.sides.measured, self.sides.bound, self.statement.sense)

    @property
    def nonzero(self) -> int:
        """How many coordinates differ from zero."""
        return int(np.count_nonzero(self.at))

    def inline(self) -> str:
        """The inputs in one line."""
        parts = (
            f"{name} = {_shown(leaf)}"
            for name, value in self.values.items()
            for leaf in jax.tree.leaves(value)[:2]
        )
        return ", ".join(parts)

    def __str__(self) -> str:
        m, b, sense = self.sides.measured, self.sides.bound, self.statement.sense
        fails = "is not " if self.sides.broken else ""
        sides = f"measured {m:.10g} {fails}{sense} bound {b:.10g}: {self.share:.6g} of it"
        return "\n".join([self.statement.title, self.inline(), sides])


@dataclass(frozen=True)
class Counterexample(Case):
    """An input at which a statement fails, made small; `confirmed` says in which arithmetic it was checked."""

    confirmed: str = ""

    def code(self) -> str:
        """Python that shows it without this library."""
        return standing_alone(self.statement, self.values, self.sides)


@dataclass(frozen=True)
class Result:
    """The outcome of `verify` on one statement.

    `reached` is the largest share of the bound, `tightest` the input where it was reached,
    `counterexample` the smallest one found, or None. With `constant=` of `verify`, `constant` is
    the smallest that survived.
    """

    statement: Statement
    verdict: Verdict
    tightest: Case | None
    counterexample: Counterexample | None
    tried: Tried = field(repr=False)
    budget: Budget = field(repr=False)
    constant: tuple[str, float] | None = None
    error: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def reached(self) -> float:
        return math.nan if self.tightest is None else self.tightest.share

    def count(self, origin: str) -> int:
        """How many inputs of one origin were tried: "random", "structured", "changed", "ascent", "stored"."""
        return int(np.sum(self.tried.origin == origin))

    def figure(self) -> Figure:
        """Measured against bound at all inputs tried, as a figure of matplotlib."""
        return drawn(self)

    def finding(self) -> Finding:
        """The outcome as the ledger lists it."""
        detail = self.notes[0] if self.notes else ""
        name, count = self.statement.name, len(self.tried)
        return Finding(name, count, None, self.reached, self.verdict, detail)

    def to_dict(self) -> dict:
        return self.finding().to_dict() | {"notes": list(self.notes)}

    def _repr_html_(self) -> str:
        first, *rest = str(self).split("\n")
        return card(first, {"": " ".join(line.strip() for line in rest)})

    def __str__(self) -> str:
        indent = " " * (len(self.verdict.name) + 2)
        lines = [f"{self.verdict.name}  {self.statement.title}: {self._first()}", *self._rest()]
        return f"\n{indent}".join(lines)

    def _first(self) -> str:
        if self.verdict is Verdict.SILENT:
            return f"none of the {len(self.tried):,} inputs tried meets the hypotheses"
        if self.counterexample is not None:
            small = self.counterexample
            return (
                f"{'' if small.nonzero else 'already '}at {small.inline()} ({self._missed(small)})"
            )
        parts = [
            f"{self.count('random'):,} random inputs",
            f"{self.budget.ascents} ascents of {self.budget.steps} steps",
            f"{self.count('structured')} structured inputs",
        ]
        if self.count("stored"):
            parts.append(f"{self.count('stored')} stored ones")
        side = "above" if self.statement.sense == "<=" else "below"
        return f"{', '.join(parts)}, none {side} the bound"

    def _missed(self, case: Case) -> str:
        sides = case.sides
        if math.isinf(case.share) or sides.bound == 0:
            return f"{sides.measured:.4g} against {sides.bound:.4g}"
        if self.statement.sense == ">=":
            return f"{1 / case.share:.5g} times the bound"
        return f"{case.share:.5g} times the bound"

    def _rest(self) -> list[str]:
        lines = []
        if self.constant is not None:
            name, value = self.constant
            lines.append(f"the smallest {name} that survives is {value:.6g}")
        elif self.counterexample is not None:
            small, worst = self.counterexample, self.tightest
            least = f"smallest counterexample found has {small.nonzero} nonzero numbers"
            lines.append(
                f"{least}, confirmed in {small.confirmed}: print(result.counterexample.code())"
            )
            if (
                worst is not None
                and worst.share > 1.001 * small.share
                and math.isfinite(worst.share)
            ):
                lines.append(f"largest violation found: {self._missed(worst)}, at result.tightest")
        elif self.tightest is not None:
            tight = "the constant cannot be smaller " if self.reached > 0.9995 else ""
            shown = f"{self.reached:.4f}" if 1e-4 < self.reached < 1e4 else f"{self.reached:.3g}"
            rest = "(input stored; print(result.tightest))"
            lines.append(f"reached {shown} of it{': ' if tight else ' '}{tight}{rest}")
        return [*lines, *self.notes]


def _shown(value: Any) -> str:
    """An array in one line; numbers of more than nine figures are cut to six."""
    value = np.asarray(value)
    if value.size > 40:
        return f"<array of shape {value.shape}>"
    return np.array2string(
        value,
        separator=", ",
        max_line_width=10_000,
        formatter={"float_kind": _written},
    ).replace("\n", "")


def _written(x: Any) -> str:
    return f"{x:.{9 if _digits(float(x)) <= 9 else 6}g}"


# Making a counterexample small


def _digits(x: float) -> int:
    """How many figures a number is written with."""
    figures = f"{abs(x):.16e}".split("e")[0].replace(".", "").strip("0")
    return len(figures)


def _cost(z: np.ndarray) -> float:
    """Nonzero numbers first, then figures, then distinct numbers."""
    return sum(20 + _digits(x) for x in z if x != 0) + len(set(np.abs(z))) + np.sum(z < 0) / 100


def _rounded(z: np.ndarray, figures: int) -> np.ndarray:
    size = 10.0 ** (np.floor(np.log10(np.where(z == 0, 1.0, np.abs(z)))) - figures + 1)
    with np.errstate(all="ignore"):
        found = np.round(z / size) * size
    # 0.1 * 3 is not 0.3: written out and read again
    return np.array([float(f"{x:.15g}") for x in np.where(np.isfinite(found), found, z)])


def _simpler(problem: Problem, z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Inputs that are simpler than one in some respect."""
    top = np.abs(z).max() or 1.0
    whole = [_rounded(z, d) for d in (1, 2, 3, 6)] + [np.where(np.abs(z) < 1e-3 * top, 0.0, z)]
    whole += [_rounded(z / top, d) for d in (1, 2)] + [np.round(z), np.sign(z)]
    whole += [np.round(z / s) for s in np.abs(z[z != 0])[:8]]
    # what agrees in two inputs, or does not change a softmax, goes away together
    for value in np.unique(z[z != 0])[:16]:
        same = np.abs(z - value) < 1e-6 * top
        whole += [_rounded(np.where(same, 0.0, z - value), 12), np.where(same, 0.0, z)]
    rows = [np.asarray(w) for w in whole]
    for place in problem.inputs.slices.values():
        for value in (0.0, float(np.mean(z[place]))):
            row = z.copy()
            row[place] = value
            rows.append(row)
    for i in np.flatnonzero(z):
        values = [0.0, *(_rounded(z[i : i + 1], d)[0] for d in (1, 2, 4)), np.round(z[i])]
        values += [s * x for x in rng.choice(z, size=2) for s in (1, -1)]
        for value in values:
            row = z.copy()
            row[i] = value
            rows.append(row)
    rows = rows if len(rows) <= CANDIDATES else [rows[k] for k in rng.permutation(len(rows))]
    return np.stack(rows[:CANDIDATES])


def made_small(
    problem: Problem, z: np.ndarray, c: float, tried: Tried | None = None, rounds: int = 80
) -> Counterexample:
    """A counterexample with fewer nonzero numbers and rounder ones that keeps a tenth of the violation.

    It is looked for from z, and from the best input of every origin in `tried` that keeps as much.
    """
    floor, starts = max(problem.exact(z, c).gap / 10, 2 * ROUNDING), [z]
    if tried is not None:
        for origin in np.unique(tried.origin):
            part = tried.take((tried.origin == origin) & (tried.score > floor))
            # a stored one was made small before
            small = sorted(part.at, key=_cost)[:1]
            starts += small if origin == "stored" else list(part.best(1).at)
    found = [_descended(problem, start, c, floor, rounds) for start in starts]
    best = min(found, key=_cost)
    return confirmed(problem, best if problem.exact(best, c).broken else z, c)


def _descended(problem: Problem, z: np.ndarray, c: float, floor: float, rounds: int) -> np.ndarray:
    rng, best = np.random.default_rng(0), z
    for _ in range(rounds):
        rows = _simpler(problem, best, rng)
        tried = problem.tried(rows, "smaller", c)
        costs = np.array([_cost(row) for row in rows])
        # no -0.0
        rows += 0.0
        good = np.flatnonzero((tried.score > floor) & (costs < _cost(best)))
        if not len(good):
            break
        # of the simplest ones the one that breaks the most
        order = np.lexsort((-tried.score[good], costs[good]))
        best = rows[good[order[0]]]
    return best


def confirmed(problem: Problem, z: np.ndarray, c: float) -> Counterexample:
    """The violation in fractions if they suffice, else in 60 digits."""
    for arithmetic in (FRACTIONS, None):
        sides = problem.exact(z, c) if arithmetic is None else problem.exact(z, c, arithmetic)
        if not sides.note:
            break
    name = "floating point only" if sides.note else "exact fractions" if arithmetic else "60 digits"
    return Counterexample(problem.statement, z, sides, name)


def drawn(result: Result) -> Figure:
    """Measured against bound at all inputs tried, and the share that is reached along the size of each input."""
    from matplotlib.figure import Figure

    assert result.statement.inputs is not None
    slices: Mapping[str, slice] = result.statement.inputs.slices
    tried = result.tried.take(result.tried.allowed)
    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for origin, color in zip(("random", "structured", "changed", "ascent"), _COLORS, strict=True):
        part = tried.take(tried.origin == origin)
        good = (part.bound > 0) & (part.measured > 0)
        part = part.take(np.flatnonzero(good)[-POINTS:])
        shares = part.measured / part.bound
        left.scatter(part.bound, part.measured, s=6, color=color, label=origin, linewidths=0)
        size = np.linalg.norm(part.at[:, slices[next(iter(slices))]], axis=1)
        fine = size > 0
        right.scatter(size[fine], shares[fine], s=6, color=color, linewidths=0)
    low, high = left.get_xlim()
    ends = [max(low, 1e-12), max(high, 1e-11)]
    left.plot(ends, ends, color="0.4", linewidth=1)
    right.axhline(1.0, color="0.4", linewidth=1)
    left.set(xscale="log", yscale="log", xlabel="bound", ylabel="measured")
    right.set(xscale="log", xlabel=f"size of {next(iter(slices))}", ylabel="measured / bound")
    left.legend(frameon=False, markerscale=2, fontsize=9)
    figure.suptitle(result.statement.title, fontsize=11)
    return figure


_COLORS = ("#8fb0dd", "#2e9e6b", "#d99a3d", "#b3312c")
