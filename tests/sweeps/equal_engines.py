"""Run one spec with three engines from a fresh process, and say whether the datasets are the same to the last bit.

Usage: python equal_engines.py FOLDER WORKERS
"""

import json
import sys
from pathlib import Path

from manyheads.sweeps import Sweep, run

SWEEP = Sweep(
    name="equal",
    data={"num_examples": 40, "num_test": 50},
    start={"kind": "gaussian"},
    train={"num_steps": 12, "dtype": "float64"},
    measures=["risk", "sweep_cells:product"],
    axes={"train.step_size": [0.1, 0.3]},
    seeds=3,
)


def bits(dataset) -> dict[str, bytes]:
    return {str(name): variable.values.tobytes() for name, variable in dataset.variables.items()}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    engines = {"here": None, "processes": int(sys.argv[2]), "dask": int(sys.argv[2])}
    found = {
        name: run(SWEEP, folder / name, engine=name, workers=workers, batching=2, progress=False)
        for name, workers in engines.items()
    }
    first = bits(found["here"])
    attributes = {
        name: {k: v for k, v in data.attrs.items() if k != "git"} for name, data in found.items()
    }
    equal = {
        name: bits(data) == first and attributes[name] == attributes["here"]
        for name, data in found.items()
    }
    threads = {name: data.attrs["threads"] for name, data in found.items()}
    print(json.dumps({"equal": equal, "threads": threads, "names": sorted(first)}))
