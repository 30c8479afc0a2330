"""A program for one of two processes: `python on_processes.py PROCESS PORT FOLDER`; together they make one run."""

import sys
from pathlib import Path

import jax

process, port, folder = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
jax.distributed.initialize(f"127.0.0.1:{port}", 2, process, cluster_detection_method="deactivate")

import manyheads as mh  # noqa: E402

task = mh.TokenizedMixture(
    num_tokens=5, dim=6, num_patterns=4, sparsity=0.4, signal=2.0, key=jax.random.key(0)
)
data, test = task.sample(19, key=jax.random.key(1)), task.sample(7, key=jax.random.key(2))
start = mh.first_phase(task.sample(40, key=jax.random.key(3)), num_heads=10)
how = dict(rule=mh.GD(0.3), num_steps=40, dtype="float64", test=test, snapshots=[3])

mh.train(start, data, **how).save(folder / f"alone-{process}.npz")
run = mh.train(start, data, devices="all", checkpoint=folder / f"checkpoint-{process}.npz", **how)
run.save(folder / f"together-{process}.npz")
stopped = mh.train(start, data, devices="all", stop=lambda step, _: step > 4 and "enough", **how)
assert (stopped.status, stopped.reason, stopped.last_step) == ("stopped", "enough", 5)
for devices, own in (("all", data if process else data.subset(range(5, 19))), (1, data)):
    try:
        mh.train(start, own, devices=devices, **how)
    except ValueError as error:
        print(error, flush=True)
