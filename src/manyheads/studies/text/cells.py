"""Attention on sentences: tuned on validation data and stopped early, linear classifiers beside it, what heads look at.

The data section of a cell is not used: the sentences are those of `manyheads.data.text.reviews`. Test data serve for
the numbers that are returned and for no choice.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from manyheads.data.dataset import Dataset
from manyheads.data.text.corpus import Corpus
from manyheads.data.text.movies import reviews
from manyheads.measures.margin import hard_margin
from manyheads.model.attention import MultiHead
from manyheads.studies.kit.cells import coordinate
from manyheads.studies.text.linear import LOSSES, fit_linear
from manyheads.studies.text.pytorch import torch_scores
from manyheads.sweeps.cost import make_start
from manyheads.sweeps.plan import Cell
from manyheads.sweeps.setup import stream
from manyheads.theory import targets
from manyheads.theory.deora2023.initialization import GoodStart, good_start
from manyheads.theory.deora2023.regime import smallest_heads
from manyheads.training.descent import train
from manyheads.training.rules import RULES

VALIDATION = 0.2  # of the sentences that are not for testing
FRESH = 0.05  # of the rest: for the first phase, and trained on by nobody
START = 3  # stream of a seed that draws the start
PENALTIES = [1e-5, 1e-4, 1e-3, 1e-2, 1e-1]
SEEN = 200  # test sentences on which attention is measured
SHOWN, SHORTEST, LONGEST = (
    5,
    8,
    12,
)  # sentences whose attention is shown, and how many pieces they have


class Parts(NamedTuple):
    """The sentences of one seed at one layer."""

    corpus: Corpus
    train: Dataset
    fresh: Dataset
    validation: Dataset
    test: Dataset
    places: tuple[
        np.ndarray, np.ndarray, np.ndarray
    ]  # of training, validation and test sentences in the corpus


class Tuned(NamedTuple):
    """A run at its best step size and step, by validation loss, and the losses that led there."""

    model: MultiHead
    step: int
    rung: int
    losses: np.ndarray  # of every step size, at its best step
    is_last: bool  # whether the best step is the last one


def attend(
    cell: Cell, *, layer: int, layers: list[int], num_examples: int, step_sizes: list[float]
) -> dict:
    """`wrong`: for each test sentence whether attention errs, at the step size and step of least validation loss.

    `validation_loss` is that loss for every step size. `moved`: how far the attention of the heads is from uniform, in
    total variation, mean over heads and test sentences.
    """
    parts = _parts(cell.seed, layer, tuple(layers), num_examples)
    tuned = _tuned(cell, parts, step_sizes)
    return _outcome(parts, tuned, step_sizes)


def adam(
    cell: Cell,
    *,
    layer: int,
    layers: list[int],
    num_examples: int,
    step_sizes: list[float],
    epochs: int,
) -> dict:
    """`attend`, and `torch_wrong`: errors of PyTorch's own attention trained with mini-batches; NaN without PyTorch."""
    parts = _parts(cell.seed, layer, tuple(layers), num_examples)
    found = _outcome(parts, _tuned(cell, parts, step_sizes), step_sizes)
    scores = torch_scores(
        parts.train,
        parts.validation,
        parts.test,
        int(cell.model.num_heads),
        epochs=epochs,
        seed=cell.seed,
    )
    wrong = np.full(len(parts.test), np.nan) if scores is None else _wrong(scores, parts.test)
    return {**found, "torch_wrong": (("sentence",), wrong)}


def linear(cell: Cell, *, layer: int, layers: list[int], num_examples: int) -> dict:
    """Errors on each test sentence of linear classifiers on its mean token: `logistic` and `svm`.

    The first at the width of the tokens (`_wrong`), the second at that of the encoder (`_full_wrong`). The penalty is
    the one with the fewest errors on validation data; `_at_end` says that it is the first or the last tried.
    """
    parts = _parts(cell.seed, layer, tuple(layers), num_examples)
    full = parts.corpus.means[layer].astype(float)
    three = (parts.train, parts.validation, parts.test)
    own = parts.places[0][len(parts.fresh) :], *parts.places[1:]
    features = {"": [mean_token(data) for data in three], "_full": [full[places] for places in own]}
    found: dict[str, Any] = {
        "chance": float(min(np.mean(parts.test.labels > 0), np.mean(parts.test.labels < 0)))
    }
    for width, (train_on, validate_on, test_on) in features.items():
        for loss in LOSSES:
            fitted = [
                fit_linear(train_on, parts.train.labels, loss, penalty) for penalty in PENALTIES
            ]
            errors = [_wrong(one(validate_on), parts.validation).mean() for one in fitted]
            best = int(np.argmin(errors))
            found[f"{loss}{width}_wrong"] = (
                ("sentence",),
                _wrong(fitted[best](test_on), parts.test),
            )
            found[f"{loss}{width}_at_end"] = best in (0, len(PENALTIES) - 1)
    return found


def look(
    cell: Cell, *, layer: int, layers: list[int], num_examples: int, step_sizes: list[float]
) -> dict:
    """What every head of a tuned run looks at in the first short test sentences; `weights` are NaN beyond their end."""
    parts = _parts(cell.seed, layer, tuple(layers), num_examples)
    model = _tuned(cell, parts, step_sizes).model
    pieces = [parts.corpus.pieces[i] for i in parts.places[2]]
    chosen = [i for i, one in enumerate(pieces) if SHORTEST <= len(one) <= LONGEST][:SHOWN]
    shown = parts.test.subset(chosen)
    weights = np.where(_real(shown)[:, None, :], _attention(model, shown), np.nan)[:, :, :LONGEST]
    words = [[*pieces[i], *[""] * LONGEST][:LONGEST] for i in chosen]
    return {
        "weights": (("shown", "head", "place"), weights),
        "words": (("shown", "place"), np.array(words)),
        "label": (("shown",), shown.names),
        "score": (("shown",), model.scores(shown)),
    }


def conditions(
    cell: Cell,
    *,
    layer: int,
    layers: list[int],
    num_examples: int,
    count: int,
    loss: float,
    num_steps: int,
) -> dict:
    r"""P1, P2 and P3 of Definition 1 at the start, on the first `count` training sentences of a seed.

    `margin` and `upper` bound the tangent margin (P3), `parameter_bound` and `model_bound` are the constants of P1 and
    P2. `linear` and `linear_full` are margins of the mean token, at the width of the tokens and at that of the encoder,
    on the same scale: lower ends for directions of norm $\sqrt2$, 0 where none is proved. `heads_asked`: how many
    heads make Theorem 1 certify a mean train loss of `loss` within `num_steps` steps, infinite where no number was
    found and NaN without a margin.
    """
    parts = _parts(cell.seed, layer, tuple(layers), num_examples)
    data, places = parts.train[:count], parts.places[0][len(parts.fresh) :][:count]
    good = good_start(_start(cell, parts), data)
    low, high = good.interval.p3_interval
    means = {
        "linear": mean_token(data),
        "linear_full": parts.corpus.means[layer][places].astype(float),
    }
    return {
        **{
            name: hard_margin(data.labels, features=rows).p3_interval[0]
            for name, rows in means.items()
        },
        "num_sentences": len(data),
        "margin": low,
        "upper": high,
        "parameter_bound": good.parameter_bound,
        "model_bound": good.model_bound,
        "heads_asked": _heads_asked(good, loss, num_steps) if good.holds else np.nan,
    }


def _heads_asked(good: GoodStart, loss: float, num_steps: int) -> float:
    """Heads that Theorem 1 asks for, where every head of the start has a mirror image, its readout negated.

    So the scores at the start are zero however many copies there are; the tangent kernel and P1 do not change.
    """
    W, U = good.start.key_query, good.start.readout
    counts = np.concatenate([good.start.multiplicity] * 2)
    mirrored = MultiHead.create(
        np.concatenate([W, W]), np.concatenate([U, -U]), multiplicity=counts, decoder="last"
    )
    direction = targets.combined_direction(
        "the best tangent direction", mirrored, good.dataset, good.interval.direction
    )
    try:
        found = smallest_heads(
            mirrored, good.dataset, [direction], certified=loss, num_steps=num_steps
        )
    except ValueError:  # no number of heads that is looked at
        return np.inf
    return found.num_heads


def mean_token(data: Dataset) -> np.ndarray:
    """The mean of the real tokens of each sequence."""
    return data.tokens.sum(axis=1) / _real(data).sum(axis=1, keepdims=True)


def _real(data: Dataset) -> np.ndarray:
    """Which tokens are not padding."""
    return np.ones(data.tokens.shape[:2], bool) if data.mask is None else data.mask


@lru_cache(maxsize=1)
def _corpus(layers: tuple[int, ...], num_examples: int) -> Corpus:
    return reviews(layers=layers, num_examples=num_examples or None)


@lru_cache(maxsize=2)
def _parts(seed: int, layer: int, layers: tuple[int, ...], num_examples: int) -> Parts:
    corpus = _corpus(layers, num_examples)
    places = corpus.places(VALIDATION, seed)
    both, validation, test = (corpus.dataset(layer, one) for one in places)
    fresh = round(FRESH * len(both))
    return Parts(corpus, both[fresh:], both[:fresh], validation, test, places)


def _start(cell: Cell, parts: Parts) -> MultiHead:
    key = stream(cell.seed, START)
    return make_start(cell).make(
        cell.model.num_heads, parts.train, fresh=parts.fresh, key=key, decoder="last"
    )


def _tuned(cell: Cell, parts: Parts, step_sizes: list[float]) -> Tuned:
    """Train at every step size; keep the step size and step of least validation loss."""
    start = _start(cell, parts)
    spec, losses = cell.train, np.full(len(step_sizes), np.nan)
    best = Tuned(start, 0, 0, losses, False)
    for rung, step_size in enumerate(step_sizes):
        run = train(
            start,
            parts.train,
            rule=RULES[spec.optimizer](step_size),
            num_steps=spec.num_steps,
            test=parts.validation,
            record=spec.record,
            snapshots="records",
        )
        if run.status == "interrupted":
            raise KeyboardInterrupt
        held_out = np.asarray(run.test_loss)
        at = int(np.nanargmin(held_out))
        losses[rung] = held_out[at]
        if rung == 0 or losses[rung] < losses[best.rung]:
            moved = jax.tree.map(lambda leaf, at=at: leaf[at], run.snapshots)
            last = int(run.steps[at]) == spec.num_steps
            best = Tuned(start.displaced(moved), int(run.steps[at]), rung, losses, last)
    return best


def _outcome(parts: Parts, tuned: Tuned, step_sizes: list[float]) -> dict:
    seen = parts.test[:SEEN]
    uniform = _real(seen) / _real(seen).sum(axis=1, keepdims=True)
    distance = (
        np.abs(_attention(tuned.model, seen) - uniform[:, None, :]).sum(axis=2).mean(axis=0) / 2
    )
    heads = tuned.model.multiplicity
    return {
        "step_size_tried": coordinate("rung", step_sizes),
        "validation_loss": (("rung",), tuned.losses),
        "wrong": (("sentence",), _wrong(tuned.model.scores(parts.test), parts.test)),
        "train_error": float(_wrong(tuned.model.scores(parts.train), parts.train).mean()),
        "moved": float(distance @ heads / heads.sum()),
        "best_step": tuned.step,
        "at_last_step": tuned.is_last,
    }


def _attention(model: MultiHead, data: Dataset) -> np.ndarray:
    """The weights (sequence, class of heads, token) of the last token, whose attention is read out."""
    tokens, mask = jnp.asarray(data.tokens, jnp.float32), jnp.asarray(_real(data))
    return np.asarray(jax.vmap(model.attention)(tokens, mask))[:, :, 0, :]


def _wrong(scores: np.ndarray, data: Dataset) -> np.ndarray:
    """1 where the sign of the score is not the label."""
    return (np.where(np.asarray(scores) > 0, 1.0, -1.0) != data.labels).astype(float)
