"""Runs of `train` in a process with a chosen number of cores and simulated devices; answers JSON lines."""

import os
from importlib.metadata import version

from answering import serve, timed

STATE = {}


def load(file, cores, devices, options):
    """Take cores and devices before JAX starts, then the data and the start."""
    os.environ["NPROC"] = str(cores)
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    import numpy as np

    import manyheads as mh

    with np.load(file, allow_pickle=False) as given:
        data = mh.Dataset.from_arrays(given["tokens"], given["labels"])
        model = mh.MultiHead.create(given["key_query"], given["readout"])
    plan = dict(rule=mh.GD(0.1), devices=devices, record=[], **options)
    STATE["run"] = lambda: mh.train(model, data, **plan)


def answer(request):
    if request["action"] == "versions":
        return {"versions": {"jax": version("jax")}}
    if request["action"] == "load":
        load(*(request[name] for name in ("file", "cores", "devices", "options")))
        return {}
    if request["action"] == "check":
        STATE["run"]().save(request["file"])
        return {}
    return timed(STATE["run"], request["repeats"])


serve(answer)
