"""The attack on a statement: random and structured inputs, changes of the best ones, and many ascents at once.

What is climbed is the gap (measured - bound) / (|measured| + |bound|): it lies between -1 and 1, it
is positive exactly where the statement fails, and it needs no sign of the two sides. A multiple of
its rounding error is taken off, or the climb would end where two nearly equal numbers are
subtracted. What floating point finds is confirmed in 60 digits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from manyheads.theory import draws
from manyheads.theory.arithmetic import MANY_DIGITS, Arithmetic, NotExactError
from manyheads.theory.exact import Program
from manyheads.theory.kinds import Point
from manyheads.theory.shaken import shaken
from manyheads.theory.verdict import ROUNDING

if TYPE_CHECKING:
    from manyheads.theory.statement import Statement

BATCH = 256
TINY = 1e-300
# multiples of the rounding error that are taken off the gap
CAUTION = 2.0


@dataclass(frozen=True)
class Budget:
    """How much is tried: random inputs, rounds of changes before and after the ascents, ascents and their steps."""

    random: int = 2000
    rounds: int = 30
    ascents: int = 64
    steps: int = 500


QUICK = Budget(random=512, rounds=8, ascents=32, steps=150)


@dataclass(frozen=True)
class Tried:
    """Inputs that were tried, one row each: coordinates, both sides, the gap, and whether the hypotheses hold."""

    at: np.ndarray
    measured: np.ndarray
    bound: np.ndarray
    gap: np.ndarray
    score: np.ndarray  # the gap without what rounding may have added; -inf where a hypothesis fails
    allowed: np.ndarray
    origin: np.ndarray  # "random", "structured", "stored", "changed", "ascent"

    def __len__(self) -> int:
        return len(self.gap)

    def take(self, rows: Any) -> Tried:
        return Tried(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    def best(self, count: int) -> Tried:
        return self.take(np.argsort(-self.score, kind="stable")[:count])

    @staticmethod
    def joined(parts: Iterable[Tried]) -> Tried:
        parts = list(parts)
        names = Tried.__dataclass_fields__
        return Tried(*(np.concatenate([getattr(p, name) for p in parts]) for name in names))


@dataclass(frozen=True)
class Sides:
    """Both sides at one input in 60 digits, and how far floating point was off."""

    measured: float
    bound: float
    gap: float
    allowed: bool
    error: float  # relative, the larger of both sides
    note: str = ""  # why it is not confirmed, if it is not

    @property
    def broken(self) -> bool:
        return self.allowed and self.gap > ROUNDING


class Problem:
    """A statement as compiled functions of the vector of coordinates and the free constant."""

    def __init__(self, statement: Statement, constant: str | None = None):
        assert statement.inputs is not None
        self.statement, self.inputs, self.constant = statement, statement.inputs, constant
        self.sign = 1.0 if statement.sense == "<=" else -1.0
        self._programs: dict[float, Program] = {}
        with jax.enable_x64(True):
            self._look = jax.jit(jax.vmap(self.look))
            self._climb = jax.jit(self._ascents, static_argnames="steps")

    def point(self, z: Any, c: Any) -> Point:
        point = self.inputs.point(z)
        return point if self.constant is None else Point({**point, self.constant: c})

    def both(self, z: Any, c: Any) -> tuple[Any, Any]:
        """The two sides."""
        p = self.point(z, c)
        assert self.statement.measured is not None and self.statement.bound is not None
        sides = self.statement.measured(p), self.statement.bound(p)
        for name, side in zip(("measured", "bound"), sides, strict=True):
            if np.shape(side) != ():
                raise ValueError(
                    f"{name} of {self.statement.title!r} is an array of shape {np.shape(side)}; "
                    "return one number, such as its norm or its largest entry."
                )
        return jnp.asarray(sides[0], float), jnp.asarray(sides[1], float)

    def conditions(self, z: Any, c: Any) -> tuple[list[Any], list[tuple[Any, Any]]]:
        """The hypotheses: truth values, and pairs (have, need)."""
        p, truths, pairs = self.point(z, c), [], []
        for hypothesis in self.statement.hypotheses.values():
            found = hypothesis(p)
            if isinstance(found, tuple):
                # a remedy may follow
                have, need, *_ = found
                pairs.append((jnp.asarray(have, float), jnp.asarray(need, float)))
            else:
                truths.append(jnp.all(jnp.asarray(found)))
        return truths, pairs

    def margin(self, z: Any, c: Any) -> Any:
        """By how much, relatively, the tightest pair (have, need) holds; 1 if there is none."""
        _, pairs = self.conditions(z, c)
        shares = [(have - need) / (abs(have) + abs(need) + TINY) for have, need in pairs]
        return jnp.min(jnp.stack(shares)) if shares else jnp.ones(())

    def look(self, z: Any, c: Any) -> dict[str, Any]:
        """Both sides at one input, the gap with its slope and its rounding error, and the hypotheses."""
        both = partial(self.both, c=c)
        (m, b), pull = jax.vjp(both, z)
        slopes = jax.vmap(pull)((jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0])))[0]
        size = jnp.abs(m) + jnp.abs(b)
        # 0 <= 0 says nothing
        empty = size <= TINY
        size = jnp.where(empty, 1.0, size)
        gap = jnp.where(empty, -1.0, self.sign * (m - b) / size)
        up, down = size - (m - b) * jnp.sign(m), size + (m - b) * jnp.sign(b)
        slope = self.sign * (slopes[0] * up - slopes[1] * down) / size**2
        # what rounding inside may add: the sides once more, every operation off by a few last places
        patterns = jnp.array([1.0, 2.0, 3.0])
        near = jnp.stack(jax.vmap(partial(shaken, self.both, (z, c)))(patterns), axis=1)
        off = jnp.max(jnp.sum(jnp.abs(near - jnp.stack([m, b])[None]), axis=1))
        ulp = 2.0**-52 * (1 + jnp.sum(jnp.abs(slopes) @ jnp.abs(z)) / size)
        noise = jnp.maximum(ulp, off / size)
        truths, _ = self.conditions(z, c)
        margin = self.margin(z, c)
        held = jnp.all(jnp.stack([jnp.ones((), bool), *truths]))
        finite = jnp.isfinite(gap) & jnp.isfinite(m) & jnp.isfinite(b)
        allowed = held & (margin >= -ROUNDING)
        score = jnp.where(allowed & finite, gap - CAUTION * noise, -jnp.inf)
        return {
            "measured": m, "bound": b, "gap": gap, "slope": slope, "score": score,
            "margin": margin, "held": held & finite, "allowed": allowed,
        }  # fmt: skip

    def tried(self, rows: np.ndarray, origin: str, c: float | np.ndarray = 1.0) -> Tried:
        """Both sides at many inputs; batches of one size, so that one program serves all."""
        found: list[dict] = []
        constants = np.broadcast_to(np.asarray(c, float), len(rows))
        for start in range(0, len(rows), BATCH):
            part = rows[start : start + BATCH]
            places = np.minimum(np.arange(start, start + BATCH), len(rows) - 1)
            with jax.enable_x64(True):
                seen = self._look(jnp.asarray(rows[places]), jnp.asarray(constants[places]))
            found.append({name: np.asarray(value)[: len(part)] for name, value in seen.items()})
        names = ("measured", "bound", "gap", "score", "allowed")
        columns = [np.concatenate([f[name] for f in found]) for name in names]
        return Tried(rows, *columns, np.full(len(rows), origin))

    def climbed(self, starts: np.ndarray, steps: int, c: float = 1.0) -> Tried:
        """The best input of every ascent."""
        kinds = np.arange(len(starts))
        # four sizes of steps, in plain coordinates and in shares of each coordinate
        rates, shares = np.array([0.3, 0.1, 0.03, 0.01])[kinds % 4], (kinds // 4) % 2
        scales = np.ones_like(starts)
        for place in self.inputs.slices.values():
            scales[:, place] = np.sqrt(np.mean(starts[:, place] ** 2, axis=1, keepdims=True))
        scales = np.where(scales > 0, scales, 1.0)
        with jax.enable_x64(True):
            given = [jnp.asarray(a) for a in (starts, scales, rates, shares == 1)]
            best = np.asarray(self._climb(*given, jnp.asarray(c), steps=steps))
        return self.tried(best, "ascent", c)

    def _ascents(self, starts: Any, scales: Any, rates: Any, shares: Any, c: Any, *, steps: int):
        adam = optax.scale_by_adam(b1=0.9, b2=0.99)

        def one(start: Any, scale: Any, rate: Any, share: Any) -> Any:
            def step(carry: Any, k: Any) -> tuple[Any, None]:
                z, state, best, top = carry
                seen = self.look(z, c)
                better = seen["score"] > top
                best, top = jnp.where(better, z, best), jnp.where(better, seen["score"], top)
                # where a pair (have, need) fails, climb back to it first
                uphill = seen["slope"]
                if self.statement.hypotheses:
                    back = jax.grad(self.margin)(z, c)
                    uphill = jnp.where(seen["margin"] < 0, back, uphill)
                unit = jnp.where(share, jnp.abs(z) + 1e-3 * scale, scale)
                uphill = jnp.where(jnp.isfinite(uphill), uphill, 0.0) * unit
                move, state = adam.update(uphill, state)
                decay = rate * 0.5 * (1 + jnp.cos(jnp.pi * k / steps))
                # where a condition without a size fails, or a side is not finite, go halfway back
                z = jnp.where(seen["held"], z + decay * unit * move, (z + best) / 2)
                return (z, state, best, top), None

            state = (start, adam.init(start), start, jnp.asarray(-jnp.inf))
            (_, _, best, _), _ = jax.lax.scan(step, state, jnp.arange(steps))
            return best

        return jax.vmap(one)(starts, scales, rates, shares)

    def _program(self, c: float) -> Program:
        """Both sides and all hypotheses with one constant, for other arithmetics."""
        if c not in self._programs:

            def everything(flat: Any) -> Any:
                constant = jnp.asarray(c, float)
                truths, pairs = self.conditions(flat, constant)
                return self.both(flat, constant), truths, pairs

            self._programs[c] = Program(everything, self.inputs.size)
        return self._programs[c]

    def exact(self, z: np.ndarray, c: float = 1.0, arithmetic: Arithmetic = MANY_DIGITS) -> Sides:
        """Both sides and the hypotheses in another arithmetic, coordinates and all."""
        seen = self.tried(z[None], "again", c)
        try:
            m, b, *rest = (a[()] for a in self._program(c).at(z, arithmetic))
        except NotExactError as error:
            note = f"not confirmed in {arithmetic.name}: {error}"
            m, b = float(seen.measured[0]), float(seen.bound[0])
            return Sides(m, b, float(seen.score[0]), bool(seen.allowed[0]), np.nan, note)
        count = sum(1 for a in rest if isinstance(a, bool | np.bool_))
        pairs = zip(rest[count::2], rest[count + 1 :: 2], strict=True)
        slack = arithmetic.of(ROUNDING)
        allowed = all(rest[:count]) and all(h >= n - slack * abs(n) for h, n in pairs)
        return _sides(m, b, self.sign, bool(allowed), seen)

    def proved(self, z: np.ndarray, c: float, arithmetic: Arithmetic) -> bool:
        """Whether the hypotheses and the inequality are certain in balls; `NotExactError` if undecided."""
        m, b, *_ = (a[()] for a in self._program(c).at(z, arithmetic))
        slack = arithmetic.of(ROUNDING) * (abs(b) + arithmetic.of(TINY))
        smaller, larger = (m, b) if self.sign > 0 else (b, m)
        return arithmetic.less(smaller, larger + slack)


def _sides(m: Any, b: Any, sign: float, allowed: bool, seen: Tried) -> Sides:
    size = abs(m) + abs(b)
    if not size == size or size == 0 or size == float("inf"):
        return Sides(float(m), float(b), -1.0, allowed, 0.0)
    gap = float((m - b) / size) * sign
    floats = float(seen.measured[0]), float(seen.bound[0])
    off = [abs(float((f - e) / e)) for f, e in zip(floats, (m, b), strict=True) if e != 0]
    return Sides(float(m), float(b), gap, allowed, max(off, default=0.0))


def attacked(
    problem: Problem,
    budget: Budget,
    rng: np.random.Generator,
    stored: np.ndarray,
    tell: Callable[[str], None],
    c: float = 1.0,
) -> Tried:
    """Everything that was tried, in the order of the attack: stored, structured, random, changed, climbed, changed."""
    inputs = problem.inputs
    tried = []
    if len(stored):
        tried.append(problem.tried(stored, "stored", c))
    tell("structured and random inputs")
    tried.append(problem.tried(draws.structured(inputs), "structured", c))
    tried.append(problem.tried(draws.drawn(inputs, rng, budget.random), "random", c))
    pool = Tried.joined(tried)
    tell("changes of the best inputs")
    pool = _evolved(problem, pool, budget.rounds, rng, c)
    for part in range(2):
        tell(f"{budget.ascents} ascents of {budget.steps} steps, part {part + 1} of 2")
        starts = _starts(pool, tried[-1], budget.ascents // 2, rng)
        climbed = problem.climbed(starts, budget.steps, c)
        # a supremum may lie at infinity: farther along the way that each ascent took
        way = climbed.at - starts
        farther = [climbed.at + t * way for t in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0, 256.0)]
        farther = problem.tried(np.concatenate(farther), "ascent", c)
        tried += [climbed, farther]
        pool = _evolved(problem, Tried.joined([pool, climbed, farther]), budget.rounds // 2, rng, c)
    return Tried.joined([*tried, replace(pool, origin=np.full(len(pool), "changed"))])


def _starts(pool: Tried, random: Tried, count: int, rng: np.random.Generator) -> np.ndarray:
    """Half of them the best, half any others; each kind of step gets some of both."""
    best = pool.best(count // 2).at
    others = random.at[rng.integers(len(random), size=count - len(best))]
    return rng.permutation(np.concatenate([best, others]))


def _evolved(
    problem: Problem, pool: Tried, rounds: int, rng: np.random.Generator, c: float
) -> Tried:
    """The best inputs after rounds of random changes, of which only improvements stay."""
    pool = _distinct(pool)
    for _ in range(rounds):
        parents = pool.at[rng.integers(len(pool), size=BATCH)]
        children = problem.tried(draws.changed(problem.inputs, rng, parents), "changed", c)
        pool = _distinct(Tried.joined([pool, children]))
    return pool


def _distinct(pool: Tried, count: int = 64) -> Tried:
    """The best of different scores: copies of one input would crowd out the others."""
    order = np.argsort(-pool.score, kind="stable")
    _, first = np.unique(np.round(pool.score[order], 9), return_index=True)
    kept = order[np.sort(first)][:count]
    return pool.take(kept)
