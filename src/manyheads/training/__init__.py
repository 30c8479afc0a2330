"""How parameters move: starts, gradient descent, and the trajectory that a run leaves behind."""

from manyheads._names import public

PUBLIC = {
    "start": ("population_first_phase",),
    "rules": ("Rule",),
    "trajectory": ("Trajectory", "Unsaved"),
}

__getattr__, __dir__ = public(__name__, PUBLIC)
