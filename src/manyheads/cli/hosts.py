"""Several processes that make one run together: how they find each other, and the SLURM script that starts them."""

from __future__ import annotations

import inspect
import os
import shlex
import sys
from collections.abc import Callable, Mapping
from typing import Any

from manyheads.cli.numbers import write_heads

LOOPBACK, PORT = "127.0.0.1", 8476
JOIN_SECONDS, HEARTBEAT_SECONDS = (
    120,
    30,
)  # until all are there; until one that says nothing counts as lost
MOST_HOSTS = 10_000
SCRIPT = """\
#!/bin/bash
#SBATCH --job-name=manyheads
#SBATCH --nodes={hosts}
#SBATCH --ntasks-per-node=1
#SBATCH --time=01:00:00
coordinator=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1):{port}
srun {command} --coordinator "$coordinator"
"""
NOT_OF_A_JOB = ("dry_run", "process", "coordinator")


def join(hosts: int, process: int | None, coordinator: str | None) -> bool:
    """Meet the other processes, before JAX computes anything; whether this is process 0, the one that speaks.

    The place of this process is `process`, or SLURM's; the coordinator is process 0, on this machine unless told.
    """
    process, address = _place(hosts, process, coordinator)
    _keep_stdout(speaks=process == 0)
    os.environ.setdefault(
        "TF_CPP_MIN_LOG_LEVEL", "3"
    )  # what is to be said about a lost process is said by train
    import jax

    jax.config.update("jax_enable_preemption_service", False)  # it would swallow SIGTERM
    bind = (
        address if address.startswith(f"{LOOPBACK}:") else None
    )  # not seen from outside where all is on one machine
    try:
        jax.distributed.initialize(
            address,
            hosts,
            process,
            cluster_detection_method="deactivate",
            coordinator_bind_address=bind,
            initialization_timeout=JOIN_SECONDS,
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=HEARTBEAT_SECONDS,
        )
    except RuntimeError as error:
        text = " ".join(str(error).split())[:120]
        raise ConnectionError(
            f"the {hosts} processes did not meet at {address} ({text}); start all of them."
        ) from None
    return process == 0


def _place(hosts: int, process: int | None, coordinator: str | None) -> tuple[int, str]:
    if not 1 <= hosts <= MOST_HOSTS:
        raise ValueError(f"--hosts {hosts} must be a whole number from 1 to {MOST_HOSTS}.")
    slurm = {name: os.environ.get(f"SLURM_{name}", "") for name in ("PROCID", "NTASKS", "NNODES")}
    if process is None:
        if not slurm["PROCID"].isdigit():
            raise ValueError(
                f"--hosts {hosts} needs --process I, 0 to {hosts - 1}, or `srun` of SLURM to start it."
            )
        process = int(slurm["PROCID"])
        if slurm["NTASKS"] != str(hosts):
            raise ValueError(
                f"--hosts {hosts} is not the {slurm['NTASKS']} tasks of this SLURM job; pass that number."
            )
        if coordinator is None and slurm["NNODES"] not in ("", "1"):
            raise ValueError(
                f"{slurm['NNODES']} nodes need --coordinator ADDRESS:PORT; --dry-run shows a script."
            )
    if not 0 <= process < hosts:
        raise ValueError(f"--process {process} must be from 0 to {hosts - 1}, one of each.")
    address = f"{LOOPBACK}:{PORT}" if coordinator is None else coordinator
    host, _, port = address.rpartition(":")
    if not (host and port.isdigit() and 1 <= int(port) < 2**16):
        raise ValueError(
            f"--coordinator {coordinator!r} must be ADDRESS:PORT, 10.0.0.1:{PORT} say."
        )
    return process, address


def _keep_stdout(speaks: bool) -> None:
    """Python's results go where they went; what a library prints to the same place, and other processes, are silent."""
    silence = os.open(os.devnull, os.O_WRONLY)
    sys.stdout.flush()
    kept = os.dup(1) if speaks else os.dup(silence)
    os.dup2(silence, 1)
    os.close(silence)
    sys.stdout = os.fdopen(kept, "w", encoding="utf-8", buffering=1)


def job_script(command: Callable, given: Mapping[str, Any], hosts: int) -> str:
    """A SLURM script of `manyheads train` with the options that are not at their defaults, one task a node."""
    words = ["manyheads", "train"]
    for name, item in inspect.signature(command).parameters.items():
        if (value := given[name]) == item.default or name in NOT_OF_A_JOB:
            continue
        value = write_heads(value) if name == "heads" else value
        flag = f"--{name.removesuffix('_lines').replace('_', '-')}"
        words += [str(value)] if name == "data" else [flag] if value is True else [flag, str(value)]
    return SCRIPT.format(hosts=hosts, port=PORT, command=shlex.join(words))


def leave(code: int) -> None:
    """End now: JAX would first wait for the process that was lost, and then abort."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
