"""Question: how small is the certificate of the test loss that Theorem S computes from one run?

Run:  python benchmarks/twins_table.py --examples 100 --steps 5 20 60 --heads 8
The mixture of the checks, balanced first phase on 200 other sequences, step size 1. One line of Markdown per case: the certificate,
the test loss on 2,000 fresh sequences, the train loss, the bound on the average distance of twins, the largest share of its bound that
five trained twins reach, and the product of the one-step expansions.
"""

import argparse

import jax
import numpy as np

import manyheads as mh
from manyheads.theory.deora2023.problem import small_problem
from manyheads.theory.manyheads2026.twins import bound_twins
from manyheads.theory.targets import train_loss

COLUMNS = (
    "n",
    "H",
    "K",
    "certificate",
    "test loss",
    "train loss",
    "mean distance, at most",
    "share reached",
    "expansion",
)


def row(n, heads, steps, step_size=1.0):
    mixture, _, fresh = small_problem(0)
    data, test = (mixture.sample(count, key=jax.random.key(k)) for count, k in ((n, 1), (2000, 5)))
    start, plan = mh.first_phase(fresh, heads), {"step_size": step_size, "num_steps": steps}
    found = bound_twins(start, data, **plan)
    real = mh.measures.leave_one_out(
        start, data, indices=np.linspace(0, n - 1, 5).astype(int), **plan
    )
    final = mh.train(start, data, dtype="float64", record=10**9, **plan).final
    share = np.max(real.distance[:, -1] / found.distance[real.indices])
    values = (
        found.test_loss(mixture.token_radius),
        train_loss(final, test),
        found.train_loss,
        found.distance.mean(),
        share,
    )
    return [
        f"{n:,}",
        f"{heads:,}",
        str(steps),
        *(f"{v:.3g}" for v in (*values, found.total_expansion)),
    ]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in (("examples", [100]), ("heads", [8]), ("steps", [20])):
        parser.add_argument(f"--{name}", type=int, nargs="+", default=default)
    options = parser.parse_args()
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|")
    for n in options.examples:
        for heads in options.heads:
            for steps in options.steps:
                print("| " + " | ".join(row(n, heads, steps)) + " |", flush=True)


if __name__ == "__main__":
    main()
