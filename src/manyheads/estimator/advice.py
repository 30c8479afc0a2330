"""One recommendation in plain words: settings, the error to expect, what a linear model does, what is promised."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from scipy.optimize import minimize
from scipy.stats import beta, binom

from manyheads.data.dataset import Dataset, split_order
from manyheads.data.door import SHARE, guarded
from manyheads.estimator.fitted import Fitted, fit
from manyheads.estimator.search import Wishes, counted
from manyheads.theory.deora2023.planner import NAMES, Demand, plan
from manyheads.theory.verdict import PRINTED, plain

CONFIDENCE = 0.95
LEVEL = (
    1 - CONFIDENCE
) / 3  # of each sign test; three classifiers are tested, so all together err in 5% of cases
DOUBT = 0.1  # below it a sign test that is not significant is called undecided instead of noise
MOST_JUDGED = 200  # sequences on which the theory is asked
MOST_ADVISED = 4000  # sequences on which a plan's recommendation is made
MOST_CLASSES = 10  # that have fractions as labels; more are measurements
FEWEST = 20  # sequences that can be split
FEWEST_RARE = math.ceil(
    -math.log2(LEVEL)
)  # held-out sequences that the constant answer must get wrong for a test
NOISE = "Labels look like noise: no better than chance."


class Diverged(ValueError):
    """Training made the loss larger, so that there is nothing to recommend."""


@dataclass(frozen=True)
class Measured:
    """Errors of one classifier on the sequences that were held out."""

    name: str
    num_errors: int
    num_held_out: int
    num_gained: int  # sequences on which it is right and the constant answer is wrong
    num_lost: int  # the other way round

    @property
    def error(self) -> float:
        return self.num_errors / self.num_held_out

    @property
    def interval(self) -> tuple[float, float]:
        """Clopper-Pearson, 95%."""
        k, n, tail = self.num_errors, self.num_held_out, (1 - CONFIDENCE) / 2
        low = 0.0 if k == 0 else float(beta.ppf(tail, k, n - k + 1))
        return low, 1.0 if k == n else float(beta.ppf(1 - tail, k + 1, n - k))

    @property
    def p_value(self) -> float:
        """One-sided exact McNemar (sign) test against the constant answer, on the sequences where the two differ."""
        return float(binom.sf(self.num_gained - 1, self.num_gained + self.num_lost, 0.5))

    @property
    def beats_chance(self) -> bool:
        """Whether it is better than the constant answer by more than the sampling of the held-out data explains."""
        return self.p_value <= LEVEL


@dataclass(frozen=True, eq=False)
class Recommendation:
    """What to use on these data, and the numbers behind it.

    `attention` is the recommended model, trained on `num_train` sequences (`fitted`); it and two logistic regressions,
    on the mean token and on all tokens in a row, are judged on the same held-out sequences. `chance` is the error
    there of always answering `usual`, the most frequent class of the training data.
    `promise` is what the theory says about these settings.
    """

    fitted: Fitted
    attention: Measured
    pooled: Measured
    flattened: Measured
    chance: float
    usual: str
    num_train: int
    seed: int
    promise: str

    @property
    def num_rare(self) -> int:
        """Held-out sequences on which the constant answer is wrong: all that a classifier can gain."""
        return round(self.chance * self.attention.num_held_out)

    @property
    def is_undecided(self) -> bool:
        """Whether nothing is seen to beat chance, but the held-out sequences are too few to call that noise."""
        best = min(one.p_value for one in (self.attention, self.pooled, self.flattened))
        return best > LEVEL and (self.num_rare < FEWEST_RARE or best <= DOUBT)

    @property
    def is_noise(self) -> bool:
        """Whether nothing that was tried predicts held-out labels better than chance, though they could show it."""
        tried = (self.attention, self.pooled, self.flattened)
        return not (self.is_undecided or any(one.beats_chance for one in tried))

    def __str__(self) -> str:
        one = self.attention
        (low, high), num = one.interval, one.num_held_out
        share = num / (num + self.num_train)
        return "\n".join(
            [
                *self._opening(),
                f"Error on held-out data: {one.error:.1%}, between {low:.1%} and {high:.1%} with 95% confidence "
                f"({num} sequences, {share:.0%}, set aside with seed {self.seed}; trained on {self.num_train}).",
                f"Logistic regression on the same split: {self.pooled.error:.1%} on the mean token, "
                f"{self.flattened.error:.1%} on all tokens in a row; always the same answer: {self.chance:.1%}.",
                *filter(None, [self._sentence(), self.promise]),
            ]
        )

    def _opening(self) -> list[str]:
        if self.is_noise:
            return [f"Recommendation: none. {NOISE}", f"Best setting tried: {self.fitted.choice}."]
        return [f"Recommendation: {self.fitted.choice}."]

    def _sentence(self) -> str:
        linear = min(self.pooled, self.flattened, key=lambda one: one.num_errors)
        fewer = linear.num_errors - self.attention.num_errors
        if self.is_undecided:
            return self._too_few()
        if self.is_noise:
            return ""  # said at the beginning
        if not self.attention.beats_chance and self.attention.p_value > DOUBT:
            return "Attention is no better than chance here; use logistic regression."
        if fewer > 0:
            some = counted(fewer, "error")
            return f"Attention makes {some} fewer than the better of the two among {linear.num_held_out}."
        if fewer == 0:
            return "Attention and the better of the two make equally many errors: the linear model is enough."
        return f"Logistic regression makes {counted(-fewer, 'error')} fewer: use it."

    def _too_few(self) -> str:
        num, names = self.attention.num_held_out, self.fitted.label_names
        rare = [name for name in names if name != self.usual]
        of_them = f"of class {rare[0]}" if len(rare) == 1 else f"of another class than {self.usual}"
        few = f"{num} held-out sequences, {self.num_rare} {of_them}, are too few to tell whether anything is learned"
        if self.num_rare < FEWEST_RARE:
            few += f": too few sequences {of_them}, at least {FEWEST_RARE} are needed"
        return f"{few} (sign test against always the same answer, 5%)."

    def to_dict(self) -> dict[str, Any]:
        choice = self.fitted.choice
        measured = {
            name: {"error": one.error, "interval": list(one.interval)}
            for name, one in (
                ("held_out", self.attention),
                ("pooled", self.pooled),
                ("flattened", self.flattened),
            )
        }
        return plain(
            {
                "heads": choice.num_heads,
                "start": choice.start,
                "step_size": choice.step_sizes[0],
                "steps": choice.num_steps[0],
                **measured,
                "chance": self.chance,
                "num_train": self.num_train,
                "num_held_out": self.attention.num_held_out,
                "seed": self.seed,
                "labels_look_like_noise": self.is_noise,
                "too_few_to_tell": self.is_undecided,
                "promise": self.promise,
            }
        )


@guarded(held_out=SHARE, seed={"low": 0, "high": 2**32 - 1})
def recommend(
    dataset: Dataset,
    *,
    classes: tuple[np.ndarray, tuple[str, ...]] | None = None,
    wishes: Wishes | None = None,
    scale: str = "rms",
    positions: str = "none",
    intercept: bool = True,
    held_out: float = 0.2,
    seed: int = 0,
    theory: bool = True,
    demands: tuple[Demand, ...] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Recommendation:
    """Fit on a part of the data and judge on the rest; `held_out` is the share of each class that is set aside first.

    `classes` are codes and names of more than two classes; the labels of `dataset` do not count then. Settings that
    are "auto" in `wishes` are chosen on the part that is fitted (`MultiHeadAttentionClassifier`).
    `demands` are what the theory asks for where a plan is there already; else it is asked, unless `theory` is False.
    """
    tell, wishes = progress or (lambda text: None), wishes or Wishes()
    if dataset.num_examples < FEWEST:
        raise ValueError(
            f"{dataset.num_examples} sequences are too few to hold some out; at least {FEWEST} are needed."
        )
    codes, names = classes or ((dataset.labels > 0).astype(int), dataset.label_names)
    _check_learnable(dataset, codes, names)
    held = _held_out(codes, held_out, seed)
    test, train, answers, codes = (
        dataset.subset(held),
        dataset.subset(~held),
        codes[held],
        codes[~held],
    )
    with np.errstate(
        over="ignore", invalid="ignore"
    ):  # of a run that diverges, which is said below
        fitted = fit(
            train.tokens,
            train.mask,
            codes,
            names,
            wishes,
            scale=scale,
            positions=positions,
            intercept=intercept,
            seed=seed,
            tell=tell,
        )
    _check_converged(fitted)
    usual = int(np.argmax(np.bincount(codes)))  # as far as the training data say

    def measured(name: str, guesses: np.ndarray) -> Measured:
        right, always = guesses == answers, answers == usual
        return Measured(
            name,
            int((~right).sum()),
            len(test),
            int((right & ~always).sum()),
            int((always & ~right).sum()),
        )

    attention = measured("attention", fitted.codes(test))
    tell("logistic regression on the same split")
    linear = [
        measured(name, _linear_codes(features(train), codes, features(test)))
        for name, features in (("mean token", _pooled), ("all tokens", _flattened))
    ]
    chance = float(np.mean(answers != usual))
    promise = ""
    if theory and len(names) > 2:
        promise = "The theory is about two classes: name one with --positive to ask it about that one against the rest."
    elif theory:
        tell("what the theory promises")
        promise = _promise(fitted, wishes, seed, demands)
    return Recommendation(
        fitted, attention, *linear, chance, names[usual], len(train), seed, promise
    )


def _check_learnable(dataset: Dataset, codes: np.ndarray, names: tuple[str, ...]) -> None:
    """Refuse sequences that are all the same, and labels that are measurements and not classes."""
    X, mask = dataset.tokens, dataset.mask
    if (X == X[:1]).all() and (mask is None or (mask == mask[:1]).all()):
        what = "equal" if X.any() else "zero"
        raise ValueError(
            f"all {len(X)} sequences are {what}: nothing can be learned from them; check the tokens."
        )
    if len(names) > max(2, len(codes) / 2) or (
        len(names) > MOST_CLASSES and any(map(_is_fraction, names))
    ):
        few = ", ".join(names[:3])
        raise ValueError(
            f"labels have {len(names)} values ({few}, ...) among {len(codes)} sequences: they look like numbers to be "
            "predicted, and this is a classifier; make classes of them first, for example above and below a threshold."
        )


def _is_fraction(name: str) -> bool:
    try:
        return not float(name).is_integer()
    except ValueError:
        return False


def _check_converged(fitted: Fitted) -> None:
    for run in () if fitted.found is None else fitted.found.runs:
        losses = run.train_loss
        first, last = (float(losses[0]), float(losses[-1])) if len(losses) else (math.nan, math.nan)
        if run.status == "diverged" or not last <= first:
            size = fitted.choice.step_sizes[0]
            raise Diverged(
                f"training diverged: with step size {size:g} the train loss went from {first:.3g} to {last:.3g}, so "
                "there is nothing to recommend; pass a smaller step_size=, or leave it out."
            )


def _held_out(codes: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Flags of this share of each class, at least one sequence of it and not all; a single sequence is not held out."""
    order, held = split_order(len(codes), seed), np.zeros(len(codes), bool)
    for code in np.unique(codes):
        members = order[codes[order] == code]
        held[members[: min(max(round(share * len(members)), 1), len(members) - 1)]] = True
    return held


def _pooled(data: Dataset) -> np.ndarray:
    real = np.ones(data.tokens.shape[:2]) if data.mask is None else data.mask
    return np.einsum("nt,ntd->nd", real, data.tokens) / real.sum(axis=1, keepdims=True)


def _flattened(data: Dataset) -> np.ndarray:
    X = data.tokens if data.mask is None else data.tokens * data.mask[:, :, None]
    return X.reshape(len(X), -1)


def _linear_codes(features: np.ndarray, codes: np.ndarray, new: np.ndarray) -> np.ndarray:
    """The classes that logistic regression gives, one against the rest where there are more than two."""
    several = range(int(codes.max()) + 1) if codes.max() > 1 else (1,)
    scores = [
        logistic_regression(features, np.where(codes == code, 1.0, -1.0))(new) for code in several
    ]
    return np.argmax(scores, axis=0) if len(scores) > 1 else (scores[0] > 0).astype(int)


def logistic_regression(
    features: np.ndarray, labels: np.ndarray
) -> Callable[[np.ndarray], np.ndarray]:
    """The scores of a logistic regression, on standardized features with penalty |w|²/2 (scikit-learn's)."""
    center, spread = features.mean(axis=0), features.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    Z = (features - center) / spread

    def value_and_gradient(w):
        m = labels * (Z @ w[1:] + w[0])
        slope = -labels * np.exp(-np.logaddexp(0.0, m))
        gradient = np.concatenate([[slope.sum()], Z.T @ slope + w[1:]])
        return np.logaddexp(0.0, -m).sum() + w[1:] @ w[1:] / 2, gradient

    w = minimize(value_and_gradient, np.zeros(Z.shape[1] + 1), jac=True, method="L-BFGS-B").x
    return lambda new: (new - center) / spread @ w[1:] + w[0]


def _promise(fitted: Fitted, wishes: Wishes, seed: int, demands: tuple[Demand, ...] | None) -> str:
    """What the theory says about these settings, in a sentence."""
    if fitted.found is None:
        raise ValueError("a classifier from a file has no runs to speak about; fit it.")
    heads, run, data = fitted.choice.num_heads, fitted.found.runs[0], fitted.found.trained_on[0]
    reached, asked = float(run.train_loss[-1]), demands is None
    if demands is None:
        few = data if len(data) <= MOST_JUDGED else data.split(MOST_JUDGED, key=seed)[0]
        goal = min(max(reached, 1e-6), 0.65)
        demands = plan(
            few,
            start=fitted.choice.start,
            target_loss=goal,
            trials=False,
            decoder=wishes.decoder,
            key=jax.random.key(seed),
            planning_share=0.9,
        ).demands
    proved = [d for d in demands if math.isfinite(d.num_heads) and d.version != NAMES[PRINTED]]
    elsewhere = " `manyheads plan` looks for settings that can be promised." if asked else ""
    if not proved:
        told = "The theory promises nothing for this setting: no small change of its start is known to fit the data."
        return told + elsewhere
    least = min(proved, key=lambda demand: demand.num_heads)
    needed = f"{least.num_heads:,.0f}" if least.num_heads < 1e7 else f"{least.num_heads:.1e}"
    if heads < least.num_heads:
        return (
            "The theory promises nothing for these settings; not practical: for a train loss of "
            f"{least.certified_loss:.3g} the theory would need {needed} heads.{elsewhere}"
        )
    return (
        f"The theory promises a train loss of {least.certified_loss:.3g} with these heads, step size "
        f"{least.step_size:.3g} and {least.num_steps:,.0f} steps."
    )
