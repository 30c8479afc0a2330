"""The gap from runs on several samples that test each other, and what one sample says about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from manyheads.measures.expected_gap import optimism
from manyheads.measures.stability import leave_one_out
from manyheads.studies.kit.cells import descend
from manyheads.sweeps.plan import Cell
from manyheads.sweeps.setup import set_up, stream

OTHERS, PROBES = 10, 11  # streams of a seed: the other samples, the directions of the trace


def constant(
    cell: Cell, *, total: int, records: list[int], probes: int, most_left_out: int
) -> dict:
    r"""`gap`, `trace` and `left_out`, all of them times n, with both losses, along the run.

    Descent runs on each of total/n samples of n sequences, from one start, and all runs are measured on all samples.
    The gap is the mean loss of a sample under the runs on the others minus that under its own run: its expectation is
    exactly the gap, and a hard sample or a bad run enters both terms. The trace and leave-one-out are those of the
    first sample. Twins have weights 1/(n-1), that is, step size $\eta n/(n-1)$ for weights 1/n. NaN if n is more than
    `most_left_out`.
    """
    setup, n = set_up(cell), cell.data.num_examples
    size, steps, samples = cell.train.step_size, [*records, cell.train.num_steps], total // n
    others = setup.task.sample((samples - 1) * n, key=stream(cell.seed, OTHERS))
    blocks = [
        setup.dataset,
        *(others.subset(range(k * n, (k + 1) * n)) for k in range(samples - 1)),
    ]
    losses = np.zeros((len(steps), samples, samples))  # record, run, measured on
    for run, block in enumerate(blocks):
        path = descend(replace(setup, dataset=block), record=steps, snapshots=steps)
        for record, step in enumerate(steps):
            model = path.model(step)
            margins = np.concatenate(
                [data.labels * model.scores(data) for data in (setup.dataset, others)]
            )
            losses[record, run] = np.logaddexp(0.0, -margins).reshape(samples, n).mean(axis=1)
    own = np.einsum("rss->r", losses) / samples
    other = (losses.sum(axis=(1, 2)) - samples * own) / (samples * (samples - 1))
    options: dict[str, Any] = {"num_steps": steps[-1], "steps": steps}
    few = {} if n <= probes else {"num_probes": probes, "key": stream(cell.seed, PROBES)}
    found = optimism(setup.start, setup.dataset, step_size=size, **options, **few)
    left_out = np.full(len(steps), np.nan)
    if n <= most_left_out:
        twins = leave_one_out(setup.start, setup.dataset, step_size=size * n / (n - 1), **options)
        left_out = n * (twins.left_out_loss.mean(axis=0) - found.train_loss)
    values = {
        "gap": n * (other - own),
        "trace": found.trace,
        "left_out": left_out,
        "train_loss": own,
    }
    return {
        "step": (("record",), np.array(steps), {"units": "steps", "coordinate": True}),
        **{name: (("record",), value) for name, value in {**values, "test_loss": other}.items()},
    }
