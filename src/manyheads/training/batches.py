"""Mini-batches: any rule of descent on a few sequences at a time."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from manyheads import _check
from manyheads._check import checked, whole
from manyheads.training.rules import Optax, Rule, checked_rule, is_like_optax

if TYPE_CHECKING:
    from manyheads.training.loop import Problem


def _rule(rule: Any) -> Rule:
    """The rule inside; whether a transform suits the model is checked where the model is known."""
    if isinstance(rule, MiniBatches):
        raise ValueError("a rule on mini-batches cannot be on mini-batches again; pass its rule.")
    if is_like_optax(rule):
        return Optax(rule)
    return rule if isinstance(rule, Rule) else checked_rule(rule, None)


def _key_data(key: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(checked("key", key, _check.key)))


class MiniBatches(Rule):
    """`rule` on `batch_size` sequences at a time, in an order that `key` draws anew for each pass through the data.

    The gradient of a step is that of its sequences, times n over their number: its mean over a pass
    is the gradient on all data. Of n sequences n mod `batch_size` are left out of a pass. Records
    are of all data, and a step without a record evaluates its own sequences only.

    Args:
        rule: what a step makes of the gradient: GD(0.1), Adam(0.01), an optax transform.
        batch_size: how many sequences a step sees.
        key: the random key of the order, or its seed.
    """

    rule: Any = eqx.field(converter=_rule)
    batch_size: int = eqx.field(
        converter=partial(checked, "batch_size", constraint=whole()), static=True
    )
    key: Any = eqx.field(converter=_key_data, default=0)

    @property
    def name(self) -> str:
        return f"{self.rule.name} in batches"

    @property
    def step_size(self) -> Any:
        return self.rule.step_size

    @property
    def coordinates(self) -> Any:
        return self.rule.coordinates

    @property
    def settings(self) -> dict[str, Any]:
        batches = {"batch_size": self.batch_size, "batch_key": self.key.tolist()}
        return self.rule.settings | {"optimizer": self.name} | batches

    def begin(self, start: Any, copies: Any, num_examples: int = 0) -> Any:
        """The order of the sequences in this pass, and what the rule inside remembers."""
        return jnp.zeros(num_examples, jnp.int32), self.rule.begin(start, copies)

    def batch(self, problem: Problem, step: Any, memory: Any) -> tuple[Problem, Any]:
        """The problem of the sequences of a step, and their order in this pass."""
        n, size = problem.sample_weight.shape[0], self.batch_size
        # batches of a pass
        count = n // size

        def drawn():
            key = jax.random.fold_in(jax.random.wrap_key_data(self.key), step // count)
            return jax.random.permutation(key, jnp.arange(n, dtype=jnp.int32))

        order = jax.lax.cond(step % count == 0, drawn, lambda: memory[0])
        chosen = jax.lax.dynamic_slice(order, (step % count * size,), (size,))
        weight = jnp.asarray(problem.sample_weight)[chosen] * (n / size)
        part = replace(
            problem,
            objective=problem.objective.some(chosen),
            sample_weight=weight.astype(problem.sample_weight.dtype),
            rule=self.rule,
        )
        return part, order

    def move(self, problem, view, memory, axis):
        """The move that the rule inside makes on the batch that `view` has seen."""
        order, inner = memory
        moves, inner = self.rule.move(problem, view, inner, axis)
        return moves, (order, inner)


def checked_on(rule: Any, model: Any, num_examples: int) -> Rule:
    """A rule of descent for this model and this many sequences."""
    if not isinstance(rule, MiniBatches):
        return checked_rule(rule, model.copies)
    if rule.batch_size > num_examples:
        raise ValueError(
            f"batch_size={rule.batch_size} is more than the {num_examples} sequences there are; "
            "pass at most that, or "
            f"the rule without mini-batches."
        )
    return replace(rule, rule=checked_rule(rule.rule, model.copies))
