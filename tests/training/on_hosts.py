"""A program for one of two processes: `python on_hosts.py PROCESS PORT FOLDER CHECK`."""

import sys
from pathlib import Path

import jax
import numpy as np

process, port, folder, check = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), sys.argv[4]
address = f"127.0.0.1:{port}"
jax.distributed.initialize(
    address, 2, process, cluster_detection_method="deactivate", coordinator_bind_address=address
)

import manyheads as mh  # noqa: E402

task = mh.TokenizedMixture(
    num_tokens=5, dim=6, num_patterns=4, sparsity=0.4, signal=2.0, key=jax.random.key(0)
)
data, test = task.sample(19, key=jax.random.key(1)), task.sample(7, key=jax.random.key(2))
start = mh.first_phase(task.sample(40, key=jax.random.key(3)), num_heads=10)
how = dict(rule=mh.GD(0.3), num_steps=40, dtype="float64", test=test, snapshots=[3])
here = folder / f"process-{process}"
here.mkdir()


def agree():
    """One run together, and alone."""
    mh.train(start, data, **how).save(here / "alone.npz")
    run = mh.train(start, data, devices="all", checkpoint=here / "checkpoint.npz", **how)
    run.save(here / "together.npz")
    assert (here / "checkpoint.npz").exists() == (process == 0)
    # only process 1 wants to end it
    stopped = mh.train(
        start, data, devices=2, until=lambda step, _: process == 1 and step > 4 and "enough", **how
    )
    assert (stopped.status, stopped.reason, stopped.last_step) == ("stopped", "enough", 5)


def measure():
    """Kernels and left-out runs."""
    for name, devices in (("alone", None), ("together", "all")):
        kernel = mh.tangent_kernel(start, data, test, devices=devices)
        twins = mh.leave_one_out(
            start,
            data,
            rule=mh.GD(0.3),
            num_steps=5,
            indices=[0, 4, 9],
            devices=devices,
            checkpoint=here / f"{name}.npz",
        )
        np.savez(
            here / f"{name}-measured.npz",
            kernel=kernel.matrix,
            distance=twins.distance,
            loss=twins.left_out_loss,
        )


def refuse():
    """What must be said where the calls differ or do not fit the processes."""
    for devices, own in (
        ("all", data if process else data.subset(range(5, 19))),
        (1, data),
        (3, data),
    ):
        try:
            mh.train(start, own, devices=devices, **how)
        except ValueError as error:
            print(error, flush=True)


globals()[check]()
