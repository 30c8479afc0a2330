"""Heads, start, positions and penalty by cross-validation: every candidate on the same folds, without a draw.

All penalties and folds of one kind of probe are columns of one descent. The first folds are run for every candidate;
those clearly behind, by the paired differences of their held-out losses, are not run on the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from manyheads.probe.columns import losses_and_slopes
from manyheads.probe.problem import Kind, Problem
from manyheads.probe.sequences import Layout, Sequences

FEW = 500  # sequences below which each is held out once; from there on one share of them is enough
FOLDS = 5
FIRST_FOLDS = 2  # run for every candidate
BEHIND = 1.5  # standard errors of the paired difference from which on a candidate is given up
CHOICE_STEPS = 100
LINEAR_SHARE = 1e-9  # of the best loss: what a tie is

Watch = Callable[[str, float], None]


@dataclass(frozen=True)
class Candidate:
    """One setting of a probe."""

    kind: Kind
    penalty: float


@dataclass
class Trial:
    """What a candidate reached on the sequences that were held out from it; NaN where none was."""

    candidate: Candidate
    losses: np.ndarray = field(repr=False)  # (sequences,)
    wrong: np.ndarray = field(repr=False)
    weight: np.ndarray = field(repr=False)
    capped: int = 0  # fits that ended at the largest number of steps

    @property
    def seen(self) -> np.ndarray:
        return ~np.isnan(self.losses)

    @property
    def loss(self) -> float:
        """Mean held-out loss in nats."""
        return float(np.average(self.losses[self.seen], weights=self.weight[self.seen]))

    @property
    def share_wrong(self) -> float:
        return float(np.average(self.wrong[self.seen], weights=self.weight[self.seen]))

    def behind(self, best: Trial) -> float:
        """By how many standard errors the loss is above that of the best, sequence by sequence."""
        difference = (self.losses - best.losses)[self.seen & best.seen]
        error = difference.std() / np.sqrt(len(difference))
        return float(difference.mean() / error) if error > 0 else 0.0


def fold_of(codes: np.ndarray, count: int) -> np.ndarray:
    """A fold for each sequence: every class is dealt out in turn, in the order of the data."""
    found = np.empty(len(codes), int)
    dealt = 0
    for code in np.unique(codes):
        mine = np.flatnonzero(codes == code)
        # Go on where the last class stopped, so that folds of many small classes have equal sizes.
        found[mine] = (dealt + np.arange(len(mine))) % count
        dealt += len(mine)
    return found


def choose(
    candidates: Sequence[Candidate],
    sequences: Sequences,
    codes: np.ndarray,
    weight: np.ndarray,
    num_classes: int,
    watch: Watch,
) -> list[Trial]:
    """The candidates that were run on all folds, best first; where two are equal, in the order given."""
    folds = fold_of(codes, FOLDS)
    last = FOLDS if len(codes) < FEW else 1
    first = min(FIRST_FOLDS, last)
    features = {}
    for positions in {candidate.kind.positions for candidate in candidates}:
        layout = Layout.measured(sequences, weight, positions)
        # Single precision is enough to compare candidates, at half the time.
        precision = np.float32 if candidates[0].kind.decoder == "query" else np.float64
        features[positions] = layout.read(sequences, precision)
    empty = np.full(len(codes), np.nan)
    trials = [Trial(each, empty.copy(), empty.copy(), weight) for each in candidates]
    for stage in (range(first), range(first, last)):
        if not stage:
            break
        kinds = list(dict.fromkeys(trial.candidate.kind for trial in trials))
        for at, kind in enumerate(kinds):
            watch(f"choosing: {kind}", (stage.start + len(stage) * at / len(kinds)) / last)
            mine = [trial for trial in trials if trial.candidate.kind == kind]
            _run(mine, stage, folds, features[kind.positions], sequences.mask, codes, num_classes)
        best = min(trials, key=lambda trial: trial.loss)
        trials = [trial for trial in trials if trial.behind(best) <= BEHIND]
    return sorted(trials, key=lambda trial: trial.loss)


def _run(trials, stage, folds, features, mask, codes, num_classes: int) -> None:
    """Fit these candidates, of one kind, to all sequences but those of a fold, for each fold of the stage."""
    kind, weight = trials[0].candidate.kind, trials[0].weight
    columns = [(trial, fold) for trial in trials for fold in stage]
    problem = Problem.of(kind, features, mask, codes, num_classes, len(columns))
    used = np.stack([weight * (folds != fold) for _, fold in columns])
    used /= used.sum(axis=1, keepdims=True)
    penalty = np.array([trial.candidate.penalty for trial, _ in columns])
    start = np.tile(problem.start(), (len(columns), 1))
    found = problem.minimize(start, used, penalty, steps=CHOICE_STEPS)
    scores = problem.scores(found.theta)
    for k, (trial, fold) in enumerate(columns):
        held = folds == fold
        trial.losses[held] = losses_and_slopes(scores[k, held], codes[held], np)[0]
        trial.wrong[held] = predicted(scores[k, held]) != codes[held]
        trial.capped += int(not found.converged[k])


def predicted(scores: np.ndarray) -> np.ndarray:
    """The code of the label with the highest score, of scores (..., sequences, outputs)."""
    if scores.shape[-1] == 1:
        return (scores[..., 0] > 0).astype(int)
    return np.argmax(scores, axis=-1)
