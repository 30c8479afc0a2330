"""manyheads: the theory of training multi-head attention, made to run.

The names below load their module on first use, so `import manyheads` is quick and reading stored results needs no JAX.
"""

from importlib import import_module

__version__ = "0.1.0"

# Public name -> the module that holds it. To add a name, add a line.
_HOME = {
    "Dataset": "manyheads.data.dataset",
    "TokenizedMixture": "manyheads.data.mixture",
    "Planted": "manyheads.data.planted",
    "RandomLabels": "manyheads.data.planted",
    "MultiHead": "manyheads.model.attention",
    "Factored": "manyheads.model.attention",
    "collapse": "manyheads.model.attention",
    "expand": "manyheads.model.attention",
    "zero_start": "manyheads.training.start",
    "gaussian_start": "manyheads.training.start",
    "first_phase": "manyheads.training.start",
    "population_first_phase": "manyheads.training.start",
    "train": "manyheads.training.descent",
    "Trajectory": "manyheads.training.trajectory",
    "Sweep": "manyheads.sweeps.spec",
    "run_sweep": "manyheads.sweeps.engine",
    "open_sweep": "manyheads.sweeps.assembly",
}


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module 'manyheads' has no attribute {name!r}; it offers {', '.join(sorted(_HOME))}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
