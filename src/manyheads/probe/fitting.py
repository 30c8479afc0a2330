"""Choosing and fitting: from sequences and codes of labels to one probe, and what to say about how it went."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from manyheads.data.dataset import Dataset
from manyheads.model.attention import MultiHead
from manyheads.probe import batches
from manyheads.probe.choice import CHOICE_STEPS, FEW, FOLDS, Candidate, Trial, choose
from manyheads.probe.columns import Shape, pooled
from manyheads.probe.problem import Kind, Problem
from manyheads.probe.sequences import LONGEST_POSITIONS, Layout, Sequences

PENALTIES = (1e-3, 1e-4, 1e-5)
STARTS = ((1, 0.0), (4, 8.0), (16, 8.0))  # heads and norm of the queries at the start
ENTRY_SECONDS = 2.5e-9  # for one entry of attention, measured, and for each of its features:
FEATURE_SECONDS = 1e-10
LONG = 10.0  # seconds from which on work is announced
CHOICE_SECONDS = 25.0  # more sequences than fit into this are not used to choose
BATCHES_FROM = 60.0  # seconds of L-BFGS from which on mini-batches take over
PAIRS_BLOCK = 128  # sequences scored at once where tokens ask
FEWEST_STREAMED = 5_000  # sequences; of fewer, mini-batches have too little to stop by
FLAT = 1e-3  # share of the loss of knowing nothing that a fit must gain


@dataclass(frozen=True)
class Settings:
    """What the user fixed; None where cross-validation chooses."""

    decoder: str | None = "query"
    heads: int | None = None
    start_norm: float | None = None
    positions: bool | None = None
    penalty: float | None = None
    max_steps: int = 500

    def candidates(self, sequences: Sequences) -> list[Candidate]:
        """Every setting that agrees with what was fixed."""
        longest = sequences.mask.shape[1]
        orders = (True, False) if 1 < longest <= LONGEST_POSITIONS else (False,)
        orders = orders if self.positions is None else (self.positions,)
        starts = STARTS
        if self.heads is not None:
            norms = (2.0, 8.0) if self.heads > 1 else (0.0, 4.0)
            starts = tuple((self.heads, norm) for norm in norms)
        if self.start_norm is not None:
            starts = tuple(dict.fromkeys((heads, self.start_norm) for heads, _ in starts))
        if longest == 1:  # attention has nothing to choose from: the probe is linear
            starts = ((self.heads or 1, 0.0),)
        penalties = PENALTIES if self.penalty is None else (self.penalty,)
        decoders = ("query", "pooled", "full", "last")
        decoders = decoders if self.decoder is None else (self.decoder,)
        return [
            Candidate(Kind(decoder, heads, norm, order), penalty)
            for decoder in decoders
            for order in orders
            for heads, norm in starts
            for penalty in penalties
        ]


@dataclass(frozen=True)
class Fit:
    """A fitted probe: one column, with how it was chosen and how its descent ended."""

    layout: Layout
    kind: Kind
    penalty: float
    theta: np.ndarray
    num_classes: int
    trials: tuple[Trial, ...]
    loss: float
    slope: float
    steps: int
    converged: bool
    length: int  # tokens of the longest sequence
    method: str

    def problem(self, sequences: Sequences) -> Problem:
        """Sequences as this probe reads them; their labels play no part."""
        features = self.layout.read(sequences)
        codes = np.zeros(len(features), int)
        return Problem.of(self.kind, features, sequences.mask, codes, self.num_classes)

    def scores(self, sequences: Sequences) -> np.ndarray:
        """Scores (n, outputs)."""
        if self.kind.decoder == "query":
            return self.problem(sequences).scores(self.theta[None])[0]
        count, length, dim = sequences.tokens.shape
        if self.kind.decoder == "full" and length > self.length:
            raise ValueError(
                f"X has sequences of {length} tokens, and decoder='full' has one readout for each of "
                f"the {self.length} it was fitted to; cut X, or fit with decoder='query'."
            )
        # Compiled for few shapes: blocks of one size, and lengths that are powers of two.
        long = self.length if length <= self.length else 1 << (length - 1).bit_length()
        found = []
        for first in range(0, count, PAIRS_BLOCK):
            some = sequences.take(slice(first, first + PAIRS_BLOCK))
            tokens = np.zeros((PAIRS_BLOCK, long, dim))
            mask = np.zeros((PAIRS_BLOCK, long), bool)
            mask[:, 0] = True
            tokens[: len(some.tokens), :length] = some.tokens
            mask[: len(some.tokens), :length] = some.mask
            scores = self.problem(Sequences(tokens, mask)).scores(self.theta[None])[0]
            found.append(scores[: len(some.tokens)])
        return np.concatenate(found)

    @property
    def shape(self) -> Shape:
        """Sizes of a column of learned queries."""
        outputs = 1 if self.num_classes == 2 else self.num_classes
        return Shape(self.kind.heads, self.layout.features, outputs)

    def attention(self, sequences: Sequences) -> np.ndarray:
        """Where the heads look, (n, heads, tokens); where several tokens ask, the mean over them."""
        model, mask = self.model(), sequences.mask
        features = self.layout.read(sequences)
        if self.kind.decoder == "query":
            return np.swapaxes(pooled(model.key_query, features, mask, np)[0], 1, 2)
        with jax.enable_x64(True):
            found = np.asarray(jax.vmap(model.attention)(jnp.asarray(features), jnp.asarray(mask)))
        return found.sum(axis=2) / (found.sum(axis=3) > 0).sum(axis=2)[:, :, None]

    def parts(self, sequences: Sequences) -> np.ndarray:
        """The part of each head in the score of each label, (n, heads, labels)."""
        if self.kind.decoder != "query":
            model, scale = self.model(), self.kind.heads**-0.5
            alone = [
                MultiHead.create(W[None], scale * U[None], decoder=self.kind.decoder)
                for W, U in zip(model.key_query, model.readout, strict=True)
            ]
            mask = None if sequences.mask.all() else sequences.mask
            data = Dataset(self.layout.read(sequences), np.ones(len(sequences.tokens)), mask)
            scores = [one.scores(data).reshape(len(sequences.tokens), -1) for one in alone]
            found = np.stack(scores, axis=1)
        else:
            queries, values = self.shape.split(self.theta[None])
            features = self.layout.read(sequences)
            P = pooled(queries, features, sequences.mask, np)[1]
            by_head = values[0].reshape(self.kind.heads, self.layout.features, -1)
            found = np.einsum("nhp,hpo->nho", P, by_head)
        if self.num_classes == 2:
            return np.concatenate([-found, found], axis=2)
        return found

    def model(self) -> MultiHead:
        """The probe as a model of tokens as the layout reads them."""
        tokens = np.zeros((1, self.length, self.layout.dim))
        mask = np.ones((1, self.length), bool)
        return self.problem(Sequences(tokens, mask)).model(self.theta)


def seconds(kind: Kind, sequences: Sequences, fits: int, steps: int) -> float:
    """What that many fits take, on a core of 2020."""
    _, length, dim = sequences.tokens.shape
    positions = length if kind.positions else 0
    entries = int(sequences.mask.sum()) * kind.heads
    if kind.decoder != "query":
        entries *= length
    each = ENTRY_SECONDS + FEATURE_SECONDS * (dim + positions + 1)
    return 1.2 * steps * fits * entries * each


def fit(
    sequences: Sequences,
    codes: np.ndarray,
    weight: np.ndarray,
    num_classes: int,
    settings: Settings,
    tell: Callable[[str], None],
) -> Fit:
    """Choose among the candidates of the settings, then fit to all sequences; `tell` gets lines of progress."""
    weight = weight / weight.sum()
    candidates = settings.candidates(sequences)
    folds = FOLDS if len(codes) < FEW else 1
    choosing = sum(seconds(each.kind, sequences, folds, CHOICE_STEPS) for each in candidates)
    last = max(seconds(each.kind, sequences, 1, settings.max_steps) for each in candidates)
    part = np.arange(len(codes))
    if len(candidates) > 1 and choosing > CHOICE_SECONDS and len(codes) > FEW:
        part = _share(codes, max(FEW, int(len(codes) * CHOICE_SECONDS / choosing)))
        choosing *= len(part) / len(codes)
    large = last > BATCHES_FROM and len(codes) >= FEWEST_STREAMED
    streamed = large and settings.decoder == "query"
    total = min(last, BATCHES_FROM) + (choosing if len(candidates) > 1 else 0.0)
    if total > LONG:
        room = sequences.tokens.size * 16 / 2**30
        tell(f"! about {total:.0f} s of one core and {room:.2g} GiB of memory; Ctrl-C stops")
    trials: list[Trial] = []
    chosen = candidates[0]
    if len(candidates) > 1:
        trials = choose(
            candidates,
            sequences.take(part),
            codes[part],
            weight[part],
            num_classes,
            lambda text, share: tell(f"{share:4.0%} {text}"),
        )
        chosen = trials[0].candidate
    # The penalty stands against a mean over sequences: with more of them less is needed.
    penalty = chosen.penalty * len(part) / len(codes)
    layout = Layout.measured(sequences, weight, chosen.kind.positions)
    tell(f"fitting {chosen.kind}, penalty {penalty:.1e}")
    arguments: Any = (chosen.kind, penalty, layout, sequences, codes, weight, num_classes)
    made = batches.fit(*arguments, tell) if streamed else _fit(*arguments, settings.max_steps, tell)
    theta, loss, slope, steps, converged, method = made
    shares = np.bincount(codes, weight, num_classes)
    nothing = -float(np.sum(shares * np.log(np.maximum(shares, 1e-300))))
    found = Fit(
        layout, chosen.kind, penalty, theta, num_classes, tuple(trials), loss, slope, steps,
        converged, sequences.tokens.shape[1], method,
    )  # fmt: skip
    _warn(found, nothing, settings)
    return found


def _fit(kind, penalty, layout, sequences, codes, weight, num_classes, steps, tell):
    """L-BFGS in float64 on all sequences."""
    features = layout.read(sequences)
    problem = Problem.of(kind, features, sequences.mask, codes, num_classes)

    def watch(step: int) -> None:
        if step and step % 50 == 0:
            tell(f"step {step}")

    found = problem.minimize(
        problem.start()[None], weight[None], np.array([penalty]), steps=steps, watch=watch
    )
    size = penalty * float(np.sum(found.theta**2))
    loss, slope = float(found.value[0]) - size, float(found.slope[0])
    return found.theta[0], loss, slope, int(found.steps[0]), bool(found.converged[0]), "L-BFGS"


def _share(codes: np.ndarray, count: int) -> np.ndarray:
    """About that many sequences, evenly spaced within each class, at least two of each."""
    chosen = []
    for code in np.unique(codes):
        mine = np.flatnonzero(codes == code)
        keep = min(len(mine), max(2, round(count * len(mine) / len(codes))))
        chosen.append(mine[np.linspace(0, len(mine) - 1, keep).astype(int)])
    return np.sort(np.concatenate(chosen))


def _warn(found: Fit, nothing: float, settings: Settings) -> None:
    """Say what a user should not overlook about how a fit ended."""
    from sklearn.exceptions import ConvergenceWarning

    if not np.isfinite(found.loss):
        raise ValueError("the loss is not finite; scale X, or pass a larger penalty.")
    if not found.converged:
        how = f"max_steps={settings.max_steps} with a gradient of {found.slope:.1e}; pass a larger max_steps, or"
        if found.method == "Adam":
            how = f"{batches.EPOCHS} epochs of mini-batches with a loss that still fell; pass"
        warnings.warn(
            f"the fit stopped at {how} a larger penalty.", ConvergenceWarning, stacklevel=4
        )
    if found.loss > (1 - FLAT) * nothing:
        warnings.warn(
            f"the loss is flat: {found.loss:.4f} nats, and {nothing:.4f} for the shares of the "
            "labels alone; the probe found nothing to learn here.",
            UserWarning,
            stacklevel=4,
        )


def binary(fit: Fit, sequences: Sequences, codes: np.ndarray) -> tuple[MultiHead, Dataset, tuple]:
    """The probe as a model of two labels, its data, and which two; of several, those it confuses most.

    Given that the label is one of two, its probability is the logistic function of the difference of their scores:
    the difference of their readouts is a model of these sequences with the logistic loss.
    """
    model, pair = fit.model(), (0, 1)
    if fit.num_classes > 2:
        scores = fit.scores(sequences)
        margins = scores - scores[np.arange(len(codes)), codes][:, None]
        margins[np.arange(len(codes)), codes] = -np.inf
        closest = int(np.argmax(margins.max(axis=1)))
        pair = tuple(sorted((int(codes[closest]), int(np.argmax(margins[closest])))))
        mine = np.isin(codes, pair)
        sequences, codes = sequences.take(mine), codes[mine]
        readout = model.readout[:, pair[1]] - model.readout[:, pair[0]]
        model = MultiHead.create(model.key_query, readout, decoder=fit.kind.decoder)
    mask = None if sequences.mask.all() else sequences.mask
    labels = np.where(codes == pair[1], 1.0, -1.0)
    return model, Dataset(fit.layout.read(sequences), labels, mask), pair
