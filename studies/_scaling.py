"""The axis "scaling" of studies about heads: which step size the attention weights get."""

import jax

import manyheads as mh

SCALINGS = ["paper", "W times H", "Adam"]
ADAM = 0.02  # its step size where that of descent is 1


class Split(mh.GD):
    """Gradient descent whose step on W is multiplied."""

    ratio: float = 1.0

    def move(self, problem, view, memory, axis):
        W, U = view.gradient
        moved = jax.tree.map(lambda g: -self.step_size * self.ratio * g, W)
        return type(view.gradient)(moved, -self.step_size * U), memory


def rule_of(scaling, heads, step):
    """The rule of a scaling: the paper's one step for all weights, H times as large a step on W, or Adam."""
    if scaling == "Adam":
        return mh.Adam(ADAM * step)
    return Split(step, float(heads) if scaling == "W times H" else 1.0)
