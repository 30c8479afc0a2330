"""Which devices a call uses, and independent work spread over them."""

from __future__ import annotations

import queue
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from manyheads.data.budget import processors
from manyheads.data.dataset import Dataset
from manyheads.data.door import guarded, shown
from manyheads.data.mapped import Mapped
from manyheads.model.sharded import AXIS

MORE_OF_A_CPU = "mh.use_cores({}) before the first computation makes that many of a CPU"
PART = 8192  # numbers in the tokens of a part; with fewer and two classes of heads, two cores are no faster than one


def choose_device(device: str | None) -> Any:
    """The first device of a kind ("cpu", "gpu") of this process, or the default one."""
    default = jax.config.jax_default_device  # ty: ignore[missing-attribute]
    if isinstance(default, jax.Device) and device in (None, default.platform):
        return default
    try:
        if device is None or isinstance(device, str):
            return jax.local_devices(backend=device)[0]
    except RuntimeError:  # there is none
        pass
    raise ValueError(f"device={shown(device)} is not available here; available: {_platforms()}.")


def _platforms() -> str:
    return ", ".join(dict.fromkeys([jax.local_devices()[0].platform, "cpu"]))


@guarded(count={"low": 1, "high": 1024})
def use_cores(count: int | None = None) -> int:
    """Make a device of every core of the processor, or of `count` cores; `train` then splits its sequences over them.

    Call it before JAX computes anything: JAX fixes its devices then. JAX's own threads hardly speed up a step of
    descent; a device for each of two cores makes it 1.7 times as fast (`benchmarks/bench_devices.py`).
    """
    count = processors() if count is None else count
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError:
        there = len(jax.local_devices(backend="cpu"))
        if there != count:
            raise ValueError(
                f"use_cores({count}) comes too late: JAX runs already, with {there} of the processor; call it right "
                "after the imports, before anything is computed."
            ) from None
    return count


def paying_devices(dataset: Dataset, before: int | None) -> int | None:
    """How many devices `train` uses if not told: those that a run was made on before, or the cores that pay off."""
    default = jax.config.jax_default_device  # ty: ignore[missing-attribute]
    there = jax.local_devices()
    if (
        default is not None
        or jax.process_count() > 1
        or there[0].platform != "cpu"
        or isinstance(dataset.tokens, Mapped)
    ):
        return None
    if before is not None:
        return before if before <= len(there) else None
    return max(1, min(len(there), dataset.tokens.size // PART, dataset.num_examples))


def choose_devices(devices: str | int | None, device: str | None = None) -> list[Any]:
    """The devices that `devices` asks for, "all" or how many, of the kind `device`; None: the one of `choose_device`.

    They are those of all processes of `jax.distributed`, the same number of each.
    """
    one = choose_device(device)
    if devices is None:
        return [one]
    there, processes = jax.devices(one.platform), jax.process_count()
    number = isinstance(devices, int | np.integer) and not isinstance(devices, bool)
    if not (number or (isinstance(devices, str) and devices == "all")):
        raise ValueError(
            f"devices={shown(devices)} must be 'all' or a number of devices; there are {len(there)}."
        )
    count = len(there) if devices == "all" else int(devices)
    if not 1 <= count <= len(there):
        hint = f" ({MORE_OF_A_CPU.format(count)})" if one.platform == "cpu" and count > 0 else ""
        raise ValueError(
            f"devices={count} is outside 1..{len(there)}, the {one.platform} devices there are; pass 'all'{hint}."
        )
    if count == 1 and processes == 1:
        return [one]
    by_process = [
        [d for d in there if d.process_index == p][: count // processes] for p in range(processes)
    ]
    chosen = [d for own in by_process for d in own]
    if len(chosen) != count:
        raise ValueError(
            f"devices={count} cannot be the same number of each of {processes} processes; pass 'all' or a multiple of "
            f"{processes}."
        )
    return chosen


def make_mesh(devices: Sequence[Any]) -> Mesh | None:
    """A mesh of several devices; None for one."""
    return Mesh(np.array(devices), (AXIS,)) if len(devices) > 1 else None


def spread(
    work: Callable[[Any, Any], Any], tasks: Sequence[Any], devices: Sequence[Any]
) -> Generator[tuple[Any, Any], None, None]:
    """(task, `work(task, device)`) of every task as it is done, with a thread for each of this process's devices.

    Inside, the device is JAX's default. Where this ends early, tasks that have begun are finished first.
    """
    own = [device for device in devices if device.process_index == jax.process_index()]
    wide = jax.config.jax_enable_x64  # ty: ignore[missing-attribute]
    free: queue.SimpleQueue = queue.SimpleQueue()
    for device in own:
        free.put(device)

    def one(task):
        device = free.get()
        try:
            with (
                jax.enable_x64(wide),
                jax.default_device(device),
            ):  # settings of JAX belong to a thread
                return work(task, device)
        finally:
            free.put(device)

    if len(own) == 1:
        yield from ((task, one(task)) for task in tasks)
        return
    with ThreadPoolExecutor(len(own)) as pool:
        begun = {pool.submit(one, task): task for task in tasks}
        try:
            for done in as_completed(begun):
                yield begun[done], done.result()
        finally:
            pool.shutdown(cancel_futures=True)
