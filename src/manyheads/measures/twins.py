"""Twin runs of descent: one compiled program for the reference run and for every run on changed data."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from manyheads.model.attention import Heads
from manyheads.model.gradient import Batch, Weights, batch_scores, loss_and_gradient
from manyheads.model.loss import Loss
from manyheads.training.loop import largest_readout, norm


class Setup(NamedTuple):
    """What all runs share."""

    start: Heads
    weights: Weights
    counts: Any  # (classes,) multiplicity
    batch: Batch
    replacements: Batch | None
    sample_weight: Any  # (n,)
    step_size: Any
    steps: Any  # (steps,) increasing; the last one ends the run


class Reference(NamedTuple):
    """The run on all examples, at the compared steps."""

    displacement: Heads  # (steps, ...)
    distance: jax.Array  # (steps,) from the start
    readout_norm: jax.Array  # (steps,)
    train_loss: jax.Array  # (steps,)
    losses: jax.Array  # (steps, n)


class Twin(NamedTuple):
    """A run on changed data, at the compared steps."""

    distance: jax.Array
    loss: jax.Array
    readout_norm: jax.Array
    expansion: jax.Array


def _largest_readout(setup: Setup, displacement: Heads):
    return largest_readout(setup.start.readout + displacement.readout, setup.batch)


def _evaluate(setup: Setup, batch: Batch, sample_weight, loss: Loss, displacement: Heads):
    point = jax.tree.map(jnp.add, setup.start, displacement)
    return loss_and_gradient(point, setup.weights, batch, sample_weight, loss=loss)


def _moved(setup: Setup, displacement: Heads, gradient: Heads) -> Heads:
    return jax.tree.map(lambda delta, g: delta - setup.step_size * g, displacement, gradient)


def _run(setup: Setup, batch: Batch, sample_weight, loss: Loss, observe):
    """Descent up to the last compared step; `observe(k, displacement)` is kept at the k-th of them."""
    evaluate = partial(_evaluate, setup, batch, sample_weight, loss)
    zeros = jax.tree.map(jnp.zeros_like, setup.start)
    blank = jax.eval_shape(lambda: observe(0, zeros))
    kept = jax.tree.map(lambda a: jnp.full((len(setup.steps), *a.shape), jnp.nan, a.dtype), blank)

    def stretch(k, state):
        displacement, kept, now = state
        displacement = jax.lax.fori_loop(
            now, setup.steps[k], lambda _, here: _moved(setup, here, evaluate(here)[2]), displacement
        )
        kept = jax.tree.map(lambda rows, row: rows.at[k].set(row), kept, observe(k, displacement))
        return displacement, kept, setup.steps[k]

    start = (zeros, kept, jnp.zeros((), setup.steps.dtype))
    return jax.lax.fori_loop(0, len(setup.steps), stretch, start)[1]


@partial(jax.jit, static_argnums=1)
def reference_run(setup: Setup, loss: Loss) -> Reference:
    """The run on all examples."""
    n = len(setup.sample_weight)
    labels = setup.batch.labels.reshape(-1)[:n]

    def observe(k, displacement):
        point = jax.tree.map(jnp.add, setup.start, displacement)
        losses = loss.value(labels * batch_scores(point, setup.weights, setup.batch, n))
        return Reference(
            displacement,
            norm(displacement, setup.counts),
            _largest_readout(setup, displacement),
            jnp.sum(setup.sample_weight * losses),
            losses,
        )

    return _run(setup, setup.batch, setup.sample_weight, loss, observe)


@partial(jax.jit, static_argnames=("loss", "expansion"))
def twin_runs(setup: Setup, reference: Reference, indices: jax.Array, *, loss: Loss, expansion: bool) -> Twin:
    """The runs that leave out (or replace) each of `indices`, side by side."""
    one = partial(_twin, setup, reference, loss, expansion)
    if len(indices) == 1:
        return jax.tree.map(lambda a: a[None], one(indices[0]))
    return jax.vmap(one)(indices)


def _twin(setup: Setup, reference: Reference, loss: Loss, expansion: bool, i) -> Twin:
    batch, weight = setup.batch, setup.sample_weight
    where = (i // batch.labels.shape[1], i % batch.labels.shape[1])
    if setup.replacements is None:
        weight = weight.at[i].set(0.0)
    else:
        batch = jax.tree.map(lambda a, b: a.at[where].set(b[where]), batch, setup.replacements)
    own = jax.tree.map(lambda a: a[where][None, None], setup.batch)  # example i alone

    def observe(k, displacement):
        there = jax.tree.map(lambda a: a[k], reference.displacement)
        gap = jax.tree.map(jnp.subtract, displacement, there)
        distance = norm(gap, setup.counts)
        point = jax.tree.map(jnp.add, setup.start, displacement)
        score = batch_scores(point, setup.weights, own, 1)[0]
        ratio = jnp.full_like(distance, jnp.nan)
        if expansion:
            here, other = (_evaluate(setup, batch, weight, loss, at)[2] for at in (displacement, there))
            step = jax.tree.map(lambda e, a, b: e - setup.step_size * (a - b), gap, here, other)
            ratio = jnp.where(distance > 0, norm(step, setup.counts) / distance, jnp.nan)
        return Twin(distance, loss.value(own.labels[0, 0] * score), _largest_readout(setup, displacement), ratio)

    return _run(setup, batch, weight, loss, observe)
