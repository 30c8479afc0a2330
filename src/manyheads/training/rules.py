"""Rules of descent: what a step makes of the loss and its gradient.

A rule is a pytree. Its step size is a leaf, so that another one runs the same compiled program.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from manyheads._check import (
    REFUSED,
    Constraint,
    checked,
    none,
    not_negative,
    one_of,
    positive,
    real,
    shown,
)
from manyheads.model.protocol import norm, scaled

if TYPE_CHECKING:
    from manyheads.training.loop import Problem, View

below_one = real(low=0, below=1)
is_transform = Constraint(
    "an optax transform with init and update",
    lambda t: optax.with_extra_args_support(t) if is_like_optax(t) else REFUSED,
)


def is_like_optax(thing: Any) -> bool:
    """Whether a thing has the two methods of an optax transform."""
    return hasattr(thing, "init") and hasattr(thing, "update")


def _field(name: str, constraint: Constraint = positive, **more: Any) -> Any:
    return eqx.field(converter=partial(checked, name, constraint=constraint), **more)


class Rule(eqx.Module):
    """How descent moves. A rule of your own has these methods and a `name`."""

    name = ""
    # a rule with one makes it a field
    step_size = None
    # whether its steps stay long where the gradient is small, rounding or not
    magnifies = False
    coordinates = "head"

    def begin(self, start: Any, copies: Any) -> Any:
        """What the rule remembers at step 0, a pytree of arrays."""
        return ()

    @abstractmethod
    def move(self, problem: Problem, view: View, memory: Any, axis: str | None) -> tuple[Any, Any]:
        """The move of one copy of each parameter, and what the rule remembers next.

        `axis` is the name of the axis over runs where many are made together.
        """

    @property
    def settings(self) -> dict[str, Any]:
        """What a run says about its rule."""
        size = None if self.step_size is None else float(self.step_size)
        return {"optimizer": self.name, "coordinates": self.coordinates, "step_size": size}


class GD(Rule):
    """Gradient descent, the paper's: the step size times the gradient."""

    name = "gd"
    step_size: Any = _field("step_size")

    def move(self, problem, view, memory, axis):
        return jax.tree.map(lambda g: -self.step_size * g, view.gradient), memory


class Normalized(Rule):
    """The step size times the unit gradient, exact where the loss underflows."""

    name = "normalized"
    magnifies = True
    step_size: Any = _field("step_size")

    def move(self, problem, view, memory, axis):
        _, gradient, length, _ = _without_underflow(problem, view, axis)
        size = jnp.where(length > 0, self.step_size / length, 0.0)
        return jax.tree.map(lambda g: -size * g, gradient), memory


class Polyak(Rule):
    """The loss over the squared norm of its gradient, at most `step_size`; exact where the loss underflows."""

    name = "polyak"
    magnifies = True
    step_size: Any = _field("step_size")

    def move(self, problem, view, memory, axis):
        loss, gradient, length, largest = _without_underflow(problem, view, axis)
        size = jnp.where(length > 0, jnp.minimum(largest, loss / length / length), 0.0)
        return jax.tree.map(lambda g: -size * g, gradient), memory


class Adam(Rule):
    """Adam, on one head of each class, as it would act on all its members.

    Where no example weighs more than 1e-3 in the gradient, the weights are taken in units that give
    the largest one 1e-3: beside what it remembers of larger gradients, Adam would hardly move, and
    not at all as the loss underflows.
    """

    name = "adam"
    magnifies = True
    step_size: Any = _field("step_size")
    b1: float = _field("b1", below_one, default=0.9, static=True)
    b2: float = _field("b2", below_one, default=0.999, static=True)
    eps: float = _field("eps", not_negative, default=1e-8, static=True)

    def begin(self, start, copies):
        return optax.scale_by_adam(self.b1, self.b2, self.eps).init(start)

    def move(self, problem, view, memory, axis):
        transform = optax.scale_by_adam(self.b1, self.b2, self.eps)
        gradient = _without_underflow(problem, view, axis, LEAST_WEIGHT)[1]
        moves, memory = transform.update(gradient, memory)
        return jax.tree.map(lambda u: -self.step_size * u, moves), memory

    @property
    def settings(self) -> dict[str, Any]:
        usual = {item.name: item.default for item in dataclasses.fields(Adam)}
        chosen = {name: getattr(self, name) for name in ("b1", "b2", "eps")}
        return super().settings | {k: v for k, v in chosen.items() if v != usual[k]}


class Optax(Rule):
    """Any optax transform, which brings its own step size.

    For a model with classes of identical heads `coordinates` must say what is right for it: "head"
    if it acts entry by entry, "class" if it sees the model as one vector.
    """

    name = "optax"
    transform: Any = _field("transform", is_transform, static=True)
    coordinates: Any = _field(
        "coordinates", one_of("head", "class") | none, default=None, static=True
    )

    def begin(self, start, copies):
        by_class = self.coordinates == "class"
        return self.transform.init(scaled(start, jnp.sqrt(copies)) if by_class else start)

    def move(self, problem, view, memory, axis):
        point, gradient, root = view.point, view.gradient, jnp.sqrt(problem.objective.copies)
        by_class = self.coordinates == "class"
        if by_class:
            point, gradient = scaled(point, root), scaled(gradient, root)
        moves, memory = self.transform.update(
            gradient, memory, point, value=view.loss, grad=gradient
        )
        return scaled(moves, 1 / root) if by_class else moves, memory


# in the gradient of the example with the largest one, for Adam
LEAST_WEIGHT = 1e-3
RULES = {rule.name: rule for rule in (GD, Normalized, Polyak, Adam)}


def checked_rule(rule: Any, copies: np.ndarray | None) -> Rule:
    """A rule as it is, or made of an optax transform; `copies` are those of the model."""
    if not isinstance(rule, Rule) and is_like_optax(rule):
        rule = Optax(rule)
    if not isinstance(rule, Rule):
        raise ValueError(
            f"rule={shown(rule)} is not a rule of descent; pass mh.GD(0.1), mh.Normalized(0.1), "
            "mh.Polyak(10.0), mh.Adam(0.02) or an optax transform."
        )
    if isinstance(rule, Optax) and rule.coordinates is None:
        if copies is not None and (copies > 1).any():
            raise ValueError(
                "this model has classes of identical heads, and nothing is known about this optax "
                "transform: pass "
                "rule=mh.Optax(transform, coordinates='head') if it acts entry by entry, 'class' "
                "if it sees the model "
                "as one vector, or expand(model)."
            )
        rule = dataclasses.replace(rule, coordinates="head")
    return rule


def _without_underflow(problem: Problem, view: View, axis: str | None, least: float | None = None):
    r"""Loss, gradient and its norm, all divided by the same unit, and the step size times that unit.

    The weights $|\ell'(m_i)|$ of the examples are $e^{s_i}$ with $s_i$ computed from the scores. As
    long as the largest is far above the smallest number of the dtype, the unit is one; below, it is
    that largest weight, so that a softmax of the $s_i$ weights the examples and the direction is
    exact however small the loss. With `least` the largest weight is kept at that where it would be
    smaller.
    """
    loss, objective, step_size = problem.method.loss, problem.objective, problem.step_size
    plain = (view.loss, view.gradient, view.gradient_norm)
    if loss.log_value is None or loss.log_slope is None:
        return *plain, step_size
    log_value, log_slope = loss.log_value, loss.log_slope
    logs = jnp.where(problem.sample_weight > 0, log_slope(objective.labels * view.scores), -jnp.inf)
    top = jnp.max(logs)
    small = 0.5 * float(np.log(jnp.finfo(logs.dtype).tiny)) if least is None else np.log(least)
    tiny = top < small
    top = top if least is None else top - small
    divided = dataclasses.replace(
        loss,
        value=lambda m: jnp.exp(log_value(m) - top),
        slope=lambda m: -jnp.exp(log_slope(m) - top),
    )

    def again():
        value, _, gradient = view.at(view.displacement, divided)
        return value, gradient, norm(objective.copies, gradient)

    # one condition for all runs
    needed = tiny if axis is None else jax.lax.pmax(tiny, axis)
    found = jax.lax.cond(needed, again, lambda: plain)
    found = jax.tree.map(lambda a, b: jnp.where(tiny, a, b), found, plain)
    return *found, jnp.where(tiny, jnp.exp(jnp.log(step_size) + top), step_size)
