"""Twin runs of descent: one compiled program for the reference run and for every run on changed data."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from manyheads.model.attention import Heads
from manyheads.model.gradient import Batch, Weights, loss_and_gradient
from manyheads.model.loss import Loss
from manyheads.training.loop import norm


class Setup(NamedTuple):
    """What all runs share."""

    start: Heads
    weights: Weights
    counts: jax.Array  # (classes,) multiplicity
    batch: Batch
    replacements: Batch | None
    sample_weight: jax.Array  # (n,)
    step_size: jax.Array
    steps: jax.Array  # (steps,) increasing; the last one ends the run


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
    U = setup.start.readout + displacement.readout
    return jnp.sqrt(jnp.max(jnp.sum(U.reshape(U.shape[0], -1) ** 2, axis=1)))


def _evaluate(setup: Setup, batch: Batch, sample_weight, loss: Loss, displacement: Heads):
    point = jax.tree.map(jnp.add, setup.start, displacement)
    return loss_and_gradient(point, setup.weights, batch, sample_weight, loss=loss)


def _moved(setup: Setup, displacement: Heads, gradient: Heads) -> Heads:
    return jax.tree.map(lambda delta, g: delta - setup.step_size * g, displacement, gradient)


def _run(setup: Setup, batch: Batch, sample_weight, loss: Loss, observe):
    """Descent up to the last compared step; `observe(k, displacement, evaluation)` is kept at the k-th of them."""
    evaluate = partial(_evaluate, setup, batch, sample_weight, loss)
    zeros = jax.tree.map(jnp.zeros_like, setup.start)
    blank = jax.eval_shape(lambda: observe(0, zeros, evaluate(zeros)))
    kept = jax.tree.map(lambda a: jnp.full((len(setup.steps), *a.shape), jnp.nan, a.dtype), blank)

    def step(now, state):
        displacement, kept, k = state
        evaluation = evaluate(displacement)
        due = setup.steps[k] == now

        def keep():
            seen = observe(k, displacement, evaluation)
            return jax.tree.map(lambda all_steps, this: all_steps.at[k].set(this), kept, seen)

        return (
            _moved(setup, displacement, evaluation[2]),
            jax.lax.cond(due, keep, lambda: kept),
            k + due.astype(k.dtype),
        )

    state = (zeros, kept, jnp.zeros((), setup.steps.dtype))
    return jax.lax.fori_loop(0, setup.steps[-1] + 1, step, state)[1]


@partial(jax.jit, static_argnums=1)
def reference_run(setup: Setup, loss: Loss) -> Reference:
    """The run on all examples."""
    labels = setup.batch.labels.reshape(-1)[: len(setup.sample_weight)]

    def observe(k, displacement, evaluation):
        total, scores, _ = evaluation
        return Reference(
            displacement,
            norm(displacement, setup.counts),
            _largest_readout(setup, displacement),
            total,
            loss.value(labels * scores),
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
    if setup.replacements is None:
        weight = weight.at[i].set(0.0)
    else:
        size = batch.labels.shape[1]
        batch = jax.tree.map(
            lambda a, b: a.at[i // size, i % size].set(b[i // size, i % size]), batch, setup.replacements
        )
    label = setup.batch.labels.reshape(-1)[i]
    own = Batch(*(None if a is None else a.reshape(1, -1, *a.shape[2:])[:, i][:, None] for a in setup.batch))

    def observe(k, displacement, evaluation):
        there = jax.tree.map(lambda a: a[k], reference.displacement)
        gap = jax.tree.map(jnp.subtract, displacement, there)
        distance = norm(gap, setup.counts)
        score = (
            evaluation[1][i]
            if setup.replacements is None
            else _evaluate(setup, own, jnp.ones(1), loss, displacement)[1][0]
        )
        ratio = jnp.full_like(distance, jnp.nan)
        if expansion:
            other = _evaluate(setup, batch, weight, loss, there)[2]
            step = jax.tree.map(lambda e, a, b: e - setup.step_size * (a - b), gap, evaluation[2], other)
            ratio = jnp.where(distance > 0, norm(step, setup.counts) / distance, jnp.nan)
        return Twin(distance, loss.value(label * score), _largest_readout(setup, displacement), ratio)

    return _run(setup, batch, weight, loss, observe)
