"""Many runs: the grid, the engine that works through it, the store that keeps the results.

from manyheads.sweeps import Sweep, run

sweep = Sweep(axes={"model.num_heads": [1, 4, 16]}, seeds=3)
results = run(sweep, "results/heads", engine="processes")
results.train_loss.mean("seed")
"""

from importlib import import_module

# Public name -> the module that holds it; loaded on first use, so that opening results needs no JAX.
_HOME = {
    "Sweep": "spec",
    "SpecError": "sections",
    "ModelSpec": "sections",
    "TrainSpec": "sections",
    "Cell": "plan",
    "make_plan": "plan",
    "run": "engine",
    "run_sweep": "engine",
    "Here": "local",
    "Processes": "local",
    "Dask": "cluster",
    "Slurm": "cluster",
    "open_sweep": "assembly",
    "export": "assembly",
    "status": "status",
    "Store": "store",
    "StoreError": "store",
    "set_up": "setup",
    "train_setup": "cell",
    "train_and_measure": "cell",
    "measured": "cell",
    "Run": "measures",
}


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(
            f"module 'manyheads.sweeps' has no attribute {name!r}; it offers {', '.join(sorted(_HOME))}"
        )
    value = getattr(import_module(f"manyheads.sweeps.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
