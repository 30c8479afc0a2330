"""How good a probe is, on sequences that no choice saw, beside linear models and a forest; and how many heads it needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.stats import binomtest
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from manyheads.probe.attention_probe import AttentionProbe
from manyheads.probe.choice import FEW, Candidate, choose, fold_of
from manyheads.probe.fitting import PENALTIES
from manyheads.probe.problem import Kind
from manyheads.probe.sequences import Layout, Sequences

LEVEL = 0.05  # of every test, and one minus the confidence of every interval
OUTER_FOLDS, OUTER_SHARE = 5, 4  # nested folds where data are few, else one of four parts set aside
HEADS = (1, 2, 4, 8, 16)  # of the curve
MOST_CURVE = 1_000  # sequences that the curve is measured on
STRENGTHS = (0.01, 0.1, 1.0, 10.0)  # of logistic regression, inverse penalties
PROBE, MEAN = "attention probe", "logistic regression on the mean token"
FLAT, FOREST = "logistic regression on all tokens", "random forest on all tokens"


@dataclass(frozen=True)
class Point:
    """The held-out error of probes with that many heads, and its interval."""

    heads: int
    wrong: float
    low: float
    high: float
    loss: float


@dataclass(frozen=True, eq=False)
class Report:
    """Which sequences each method got wrong, and its loss on each, on sequences set aside before any choice."""

    tested: np.ndarray  # their numbers in the data
    wrong: dict[str, np.ndarray] = field(repr=False)
    losses: dict[str, np.ndarray] = field(repr=False)
    guessed: np.ndarray = field(repr=False)  # wrong when the most frequent label is always said
    curve: tuple[Point, ...]
    scheme: str

    def interval(self, name: str = PROBE) -> tuple[float, float, float]:
        """Share of errors with its exact interval of 95%."""
        wrong = self.wrong[name]
        return (float(wrong.mean()), *_interval(int(wrong.sum()), len(wrong)))

    def p_value(self, first: str, second: str) -> float:
        """Of the exact paired test (McNemar) that two methods err equally often."""
        return paired(self.wrong[first], self.wrong[second])

    @property
    def verdict(self) -> str:
        """One of "nothing", "rival", "attention", "tie"."""
        return self._judged()[0]

    @property
    def headline(self) -> str:
        """The winner, or that no difference was seen, in one sentence."""
        return self._judged()[1]

    def _judged(self) -> tuple[str, str]:
        rivals = [name for name in self.wrong if name != PROBE]
        linear = [name for name in rivals if name in (MEAN, FLAT)]
        count = {name: int(wrong.sum()) for name, wrong in self.wrong.items()}
        best = min(self.wrong, key=lambda name: count[name])
        # All methods are compared with guessing, so each at its share of the level.
        if paired(self.wrong[best], self.guessed) >= LEVEL / len(self.wrong):
            return "nothing", (
                "No method is seen to be better than always answering the most frequent label."
            )
        rival = min(rivals, key=lambda name: count[name])
        p = self.p_value(PROBE, rival)
        if count[rival] < count[PROBE] and p < LEVEL / len(rivals):
            return "rival", f"The {rival} wins over the attention probe (p = {p:.2g}): use it."
        # Better than every linear model: the largest p-value is that of the claim.
        p = max(self.p_value(PROBE, name) for name in linear)
        if p < LEVEL and all(count[PROBE] < count[name] for name in linear):
            words = f"The attention probe wins over logistic regression (p = {p:.2g})"
            if FOREST not in self.wrong:
                return "attention", f"{words}."
            p = self.p_value(PROBE, FOREST)
            if p < LEVEL and count[PROBE] < count[FOREST]:
                return "attention", f"{words} and over the forest (p = {p:.2g})."
            return "attention", f"{words}; no difference seen from the forest (p = {p:.2g})."
        name = min(linear, key=lambda name: count[name])
        p = self.p_value(PROBE, name)
        return "tie", (
            f"No difference seen between the attention probe and {name} (p = {p:.2g}): "
            "the linear model is simpler."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        methods = {}
        for name in self.wrong:
            share, low, high = self.interval(name)
            loss = float(self.losses[name].mean())
            p = None if name == PROBE else self.p_value(PROBE, name)
            methods[name] = {"wrong": share, "low": low, "high": high, "loss": loss, "p": p}
        return {
            "verdict": self.verdict,
            "headline": self.headline,
            "scheme": self.scheme,
            "methods": methods,
            "heads": [vars(point) for point in self.curve],
        }

    def __str__(self) -> str:
        lines = [self.headline, "", f"Errors on {len(self.tested)} sequences, {self.scheme}:"]
        for name in self.wrong:
            share, low, high = self.interval(name)
            loss = self.losses[name].mean()
            p = "" if name == PROBE else f"  p = {self.p_value(PROBE, name):.2g}"
            lines.append(f"  {name:<40}{share:6.1%}  ({low:.1%} to {high:.1%})  {loss:.3f} nats{p}")
        if self.curve:
            lines += ["", "Held-out errors by number of heads:"]
        for point in self.curve:
            span = f"({point.low:.1%} to {point.high:.1%})"
            lines.append(f"  {point.heads:>3}  {point.wrong:6.1%}  {span}  {point.loss:.3f} nats")
        return "\n".join(lines)

    def plot(self, axes: Any) -> None:
        """The curve over heads on axes of matplotlib, with its intervals."""
        heads = [point.heads for point in self.curve]
        wrong = np.array([point.wrong for point in self.curve])
        low = wrong - [point.low for point in self.curve]
        high = [point.high for point in self.curve] - wrong
        axes.errorbar(heads, wrong, yerr=[low, high], marker="o", capsize=3)
        axes.set_xscale("log", base=2)
        axes.set_xlabel("heads")
        axes.set_ylabel("share of held-out sequences that are wrong")


def report(
    probe: AttentionProbe,
    X: Any,
    y: Any,
    mask: Any = None,
    *,
    curve: bool = True,
    tell: Callable[[str], None] = lambda line: None,
) -> Report:
    """The error of probes like this one, fitted anew without the sequences they are tested on, beside its rivals.

    Below 500 sequences each is tested once, in five parts, with all choices made on the other four; from there on a
    quarter is set aside. With `curve` the held-out error is also measured for 1 to 16 heads.
    """
    sequences, labels = clone(probe)._read(X, mask, y)
    classes, codes = np.unique(labels, return_inverse=True)
    count, sizes = len(codes), np.bincount(codes)
    if len(classes) < 2:
        raise ValueError(
            f"y holds one class, {classes[0]}; a classifier needs sequences of two classes."
        )
    if sizes.min() < 3:
        raise ValueError(
            f"only {sizes.min()} of the sequences are labeled {classes[sizes.argmin()]}; an error "
            "estimate needs 3 of each label: add some, leave the label out, or fit without a "
            "report (--no-report)."
        )
    parts = OUTER_FOLDS if count < FEW else OUTER_SHARE
    folds = fold_of(codes, parts)
    used = range(parts) if count < FEW else range(1)
    chances: dict[str, np.ndarray] = {}
    usual = np.zeros(count, int)
    fitted = probe
    for fold in used:
        train, test = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        tell(f"estimating the error, part {fold + 1} of {len(used)}")
        if len(np.unique(codes[train])) < len(classes):
            raise ValueError(f"a label has fewer than 2 sequences in {parts} parts; leave it out.")
        some = sequences.take(train)
        fitted = clone(probe).fit(some.tokens, codes[train], mask=some.mask)
        rest = sequences.take(test)
        found = {PROBE: fitted.predict_log_proba(rest.tokens, mask=rest.mask)}
        tell(f"logistic regression and a forest, part {fold + 1} of {len(used)}")
        found |= rivals(some, codes[train], rest)
        usual[test] = np.argmax(np.bincount(codes[train]))
        for name, values in found.items():
            chances.setdefault(name, np.zeros((count, len(classes))))[test] = values
    tested = np.flatnonzero(np.isin(folds, used))
    truth = codes[tested]
    wrong, losses = {}, {}
    for name, values in chances.items():
        wrong[name] = np.argmax(values[tested], axis=1) != truth
        losses[name] = -values[tested, truth]
    scheme = "each tested by a probe that was chosen and fitted without it"
    points = _curve(fitted, sequences, codes, len(classes), tell) if curve else ()
    return Report(tested, wrong, losses, usual[tested] != truth, points, scheme)


def rivals(
    train: Sequences,
    codes: np.ndarray,
    test: Sequences,
    names: Sequence[str] = (MEAN, FLAT, FOREST),
) -> dict[str, np.ndarray]:
    """Log-probabilities of logistic regression on the mean token and on all tokens, and of a forest."""
    layout = Layout.measured(train, np.ones(len(codes)), False)
    longest = max(train.tokens.shape[1], test.tokens.shape[1])
    tables = []
    for sequences in (train, test):
        tokens = layout.read(sequences)[:, :, :-1] * layout.norm
        mean = tokens.sum(axis=1) / sequences.mask.sum(axis=1)[:, None]
        flat = np.zeros((len(tokens), longest, tokens.shape[2]))
        flat[:, : tokens.shape[1]] = tokens
        tables.append((mean, flat.reshape(len(tokens), -1)))
    (mean, flat), (other_mean, other_flat) = tables
    found = {}
    if MEAN in names:
        found[MEAN] = _logistic(mean, codes, other_mean)
    if FLAT in names and longest > 1:
        found[FLAT] = _logistic(flat, codes, other_flat)
    if FOREST not in names:
        return found
    forest = RandomForestClassifier(300, random_state=0).fit(flat, codes)
    # Where no tree said a label its probability is zero; half a tree's vote keeps the loss finite.
    shares = forest.predict_proba(other_flat) * 300 + 0.5
    found[FOREST] = np.log(shares / shares.sum(axis=1, keepdims=True))
    return found


def _logistic(table: np.ndarray, codes: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Log-probabilities by logistic regression, its penalty chosen on a fifth."""
    held = fold_of(codes, 5) == 0
    best, least = STRENGTHS[0], np.inf
    for strength in STRENGTHS:
        made = LogisticRegression(C=strength, max_iter=300)
        values = made.fit(table[~held], codes[~held]).predict_log_proba(table[held])
        loss = -float(np.mean(values[np.arange(len(values)), codes[held]]))
        if loss < least:
            best, least = strength, loss
    return LogisticRegression(C=best, max_iter=1000).fit(table, codes).predict_log_proba(other)


def _curve(fitted: AttentionProbe, sequences, codes, num_classes, tell) -> tuple[Point, ...]:
    """Held-out errors for 1, 2, ... heads, with the positions and the start of a fitted probe."""
    some = np.arange(0, len(codes), -(-len(codes) // MOST_CURVE))
    points = []
    if sequences.tokens.shape[1] == 1:
        return ()
    for heads in HEADS:
        tell(f"errors with {heads} heads" if heads > 1 else "errors with 1 head")
        norm = 0.0 if heads == 1 else fitted.start_norm_ or 4.0
        kind = Kind(fitted.decoder_, heads, norm, fitted.positions_)
        candidates = [Candidate(kind, penalty) for penalty in PENALTIES]
        weight = np.ones(len(some))
        arguments = (candidates, sequences.take(some), codes[some], weight, num_classes)
        best = choose(*arguments, lambda text, share: None)[0]
        wrong = best.wrong[best.seen]
        low, high = _interval(int(wrong.sum()), len(wrong))
        points.append(Point(heads, float(wrong.mean()), low, high, best.loss))
    return tuple(points)


def _interval(wrong: int, count: int) -> tuple[float, float]:
    found = binomtest(wrong, count).proportion_ci(1 - LEVEL)
    return float(found.low), float(found.high)


def paired(first: np.ndarray, second: np.ndarray) -> float:
    """Two-sided exact test on the sequences where just one of two is wrong."""
    only_first, only_second = int(np.sum(first & ~second)), int(np.sum(second & ~first))
    total = only_first + only_second
    return float(binomtest(only_first, total).pvalue) if total else 1.0
