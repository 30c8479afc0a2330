"""How much does the number of heads slow training down? A grid, its dataset, and the answer in ten lines."""

import tempfile
from pathlib import Path

import manyheads as mh

sweep = mh.Sweep(
    name="heads",
    data={"num_examples": 40, "num_test": 100, "dim": 10, "signal": 1.5},
    train={"step_size": 0.2, "num_steps": 150},
    measures=["risk"],
    axes={"model.num_heads": [2, 64, 1e6]},
    seeds=3,
)

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        results = mh.run_sweep(sweep, Path(folder) / "heads", progress=False)
        loss = results.final_test_loss
        for heads in loss.num_heads.values:
            at = loss.sel(num_heads=heads)
            print(
                f"{heads:>9,.0f} heads: test loss {at.mean():.4f} +- {at.std(ddof=1) / len(at) ** 0.5:.4f}"
            )
        assert (loss.sel(num_heads=1e6) > loss.sel(num_heads=2)).all()
