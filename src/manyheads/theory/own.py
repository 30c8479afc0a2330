"""`verify` on a statement that brings its inputs: attack, confirm, make small, store."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from manyheads.data.files import read_npz, write_npz
from manyheads.theory.arithmetic import NotExactError, balls
from manyheads.theory.attack import QUICK, Budget, Problem, Tried, attacked
from manyheads.theory.finding import Effort
from manyheads.theory.result import Case, Counterexample, Result, confirmed, made_small
from manyheads.theory.verdict import ROUNDING, Verdict

if TYPE_CHECKING:
    from manyheads.theory.statement import Statement

QUICKLY = Effort(quick=True)
# of the best inputs, in 60 digits
CONFIRMED = 12
# of the tightest inputs, in balls
PROVED = 50
# of a free constant
LARGEST = 1e12


def attack(
    statement: Statement,
    effort: Effort = QUICKLY,
    *,
    constant: str | None = None,
    rigorous: bool = False,
    store: Path | None = None,
    tell: Callable[[str], None] = lambda text: None,
    budget: Budget | None = None,
) -> Result:
    """The outcome of an attack on one statement; inputs found earlier are tried first."""
    budget = budget or (QUICK if effort.quick else Budget())
    problem, rng = Problem(statement, constant), np.random.default_rng(effort.seed)
    path = stored_at(statement, store)
    c = 1.0
    tried = attacked(problem, budget, rng, _stored(path, problem.inputs.size), tell, c)
    tell("the best inputs in 60 digits")
    cases = _confirmed(problem, tried, c)
    if constant is not None:
        c, tried, cases = _smallest(problem, budget, tried, tell)
    allowed = [case for case in cases if case.sides.allowed]
    tightest = max(allowed, key=lambda case: case.sides.gap, default=None)
    notes = _notes(problem, tried, cases)
    counterexample = None
    if tightest is not None and tightest.sides.broken and constant is None:
        tell("a smaller counterexample")
        counterexample = made_small(problem, tightest.at, c, tried)
    verdict = Verdict.VIOLATED if counterexample else Verdict.HOLDS if allowed else Verdict.SILENT
    if rigorous and verdict is Verdict.HOLDS:
        tell("proofs in balls")
        notes.append(_proved(problem, tried, c))
    found = [case.at for case in [counterexample, tightest, *allowed[:3]] if case is not None]
    if found:
        _store(path, found, statement, verdict)
    best = None if constant is None else (constant, c)
    error = max((case.sides.error for case in allowed), default=0.0)
    return Result(
        statement, verdict, tightest, counterexample, tried, budget, best, error, tuple(notes)
    )


def stored_at(statement: Statement, store: Path | None = None) -> Path:
    """The file with the inputs that were found for a statement."""
    assert statement.inputs is not None
    kinds = [f"{name} {kind.words}" for name, kind in statement.inputs.kinds.items()]
    key = hashlib.sha256("\n".join([statement.title, *kinds]).encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = cache / "manyheads" / "attacks" if store is None else store
    return Path(folder) / f"{key}.npz"


def _stored(path: Path, size: int) -> np.ndarray:
    """Inputs found earlier; none where the file is missing, damaged, or about other inputs."""
    try:
        rows = read_npz(path)[0]["at"]
    except (OSError, ValueError, KeyError):
        return np.zeros((0, size))
    return rows if rows.ndim == 2 and rows.shape[1] == size else np.zeros((0, size))


def _store(path: Path, rows: list[np.ndarray], statement: Statement, verdict: Verdict) -> None:
    """A folder that cannot be written to is no reason to fail: the inputs are in the result."""
    meta = {"format_version": 1, "title": statement.title, "verdict": verdict.name}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_npz(path, {"at": np.unique(np.stack(rows), axis=0)}, meta)
    except (OSError, ValueError):
        return


def last_counterexample(statement: Statement) -> Counterexample | None:
    """The counterexample that an earlier call stored, evaluated anew."""
    if statement.inputs is None:
        return None
    problem = Problem(statement)
    rows = _stored(stored_at(statement), problem.inputs.size)
    broken = [row for row in rows if problem.exact(row).broken]
    broken.sort(key=np.count_nonzero)
    return confirmed(problem, broken[0], 1.0) if broken else None


def _confirmed(problem: Problem, tried: Tried, c: float) -> list[Case]:
    """The best inputs in 60 digits, and those where floating point gave no number."""
    cases, right = [], 0
    best = tried.best(3 * CONFIRMED)
    for row, score, gap in zip(best.at, best.score, best.gap, strict=True):
        if right >= CONFIRMED // 2 or not np.isfinite(score):
            break
        cases.append(Case(problem.statement, row, problem.exact(row, c)))
        # rounding may have fooled the search: then the next best ones count
        right += bool(abs(cases[-1].sides.gap - gap) < 1e-6)
    raw = np.where(tried.allowed & np.isfinite(tried.gap), tried.gap, -np.inf)
    rows = [tried.at[k] for k in np.argsort(-raw)[:3] if np.isfinite(raw[k])]
    rows += list(tried.at[_undefined(tried)][:3])
    cases += [Case(problem.statement, row, problem.exact(row, c)) for row in rows]
    return [case for case in cases if np.isfinite(case.sides.measured + case.sides.bound)]


def _undefined(tried: Tried) -> np.ndarray:
    return tried.allowed & ~np.isfinite(tried.measured + tried.bound)


def _notes(problem: Problem, tried: Tried, cases: list[Case]) -> list[str]:
    notes = []
    random = tried.take(tried.origin == "random")
    if problem.statement.hypotheses:
        notes.append(f"{random.allowed.sum():,} of the random inputs meet the hypotheses")
    undefined = int(_undefined(random).sum())
    if undefined:
        notes.append(f"not a finite number in float64 at {undefined:,} of the random inputs")
    unknown = next((case.sides.note for case in cases if case.sides.note), "")
    if unknown:
        notes.append(unknown)
    elif cases:
        worst = max(case.sides.error for case in cases[: CONFIRMED // 2])
        notes.append(f"rounding at the tightest inputs: {worst:.1g} of either side")
    return notes


def _proved(problem: Problem, tried: Tried, c: float) -> str:
    """How many of the tightest inputs are proved in interval arithmetic, slack of a verdict included."""
    arithmetic, sound, why = balls(), 0, ""
    rows = tried.best(PROVED).at
    for row in rows:
        try:
            sound += problem.proved(row, c, arithmetic)
        except NotExactError as error:
            why = f"; others undecided: {error}"
    note = f"proved at {sound} of the {len(rows)} tightest inputs (balls of python-flint, "
    return f"{note}slack {ROUNDING:g}){why}"


def _needed(problem: Problem, tried: Tried) -> np.ndarray:
    """For each input the smallest constant at which the bound holds there, by bisection."""
    low, high = np.zeros(len(tried)), np.ones(len(tried))
    fails = np.ones(len(tried), bool)
    while fails.any() and high.max() < LARGEST:
        fails = ~_held(problem, tried.at, high)
        high[fails] *= 4
    for _ in range(60):
        middle = (low + high) / 2
        held = _held(problem, tried.at, middle)
        low, high = np.where(held, low, middle), np.where(held, middle, high)
    return np.where(fails, np.inf, high)


def _held(problem: Problem, rows: np.ndarray, constants: np.ndarray) -> np.ndarray:
    return problem.tried(rows, "constant", constants).score <= 0


def _smallest(
    problem: Problem, budget: Budget, tried: Tried, tell: Callable[[str], None]
) -> tuple[float, Tried, list[Case]]:
    """The smallest constant that survives: raised to what the worst input asks for, until no ascent breaks it."""
    c = 0.0
    for turn in range(4):
        best = tried.best(64)
        asked = _needed(problem, best)
        finite = asked[np.isfinite(asked)]
        if not len(finite):
            raise ValueError(
                f"no {problem.constant} up to {LARGEST:g} survives; the bound must grow with it."
            )
        grown, c = finite.max() > c * (1 + 1e-6), max(c, float(finite.max()))
        if turn and not grown:
            break
        tell(f"{problem.constant} = {c:.6g}: {budget.ascents} ascents of {budget.steps} steps")
        rows = tried.best(budget.ascents).at
        tried = Tried.joined([tried, problem.climbed(rows, budget.steps, c)])
        again = problem.tried(tried.at, "again", c)
        tried = Tried(again.at, *(getattr(again, n) for n in _SIDES), tried.origin)
    return c, tried, _confirmed(problem, tried, c)


_SIDES = ("measured", "bound", "gap", "score", "allowed")
