"""Many runs: the grid, the engine that works through it, the store that keeps the results.

from manyheads.sweeps import Sweep, run

sweep = Sweep(axes={"model.num_heads": [1, 4, 16]}, seeds=3)
results = run(sweep, "results/heads", engine="processes")
results.train_loss.mean("seed")
"""

from manyheads._lazy import front_door

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


__getattr__, __dir__ = front_door(
    __name__, {name: f"{__name__}.{home}" for name, home in _HOME.items()}
)
