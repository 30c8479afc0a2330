"""Runs that several processes do together: what they must agree on, and what happens when one of them is lost.

The processes are those of `jax.distributed`. Each makes the same call with the same data; process 0 writes files.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

LONGEST_TEXT = 240  # bytes of a text that processes agree on
TRANSPORT = "Gloo"  # what moves arrays between processes on CPUs
LOOK_SECONDS = (
    1e-3,
    0.05,
)  # between two looks at a result that is not there yet: at first, and at most


class HostLost(ConnectionError):
    """Another process of the run has ended."""


class Hosts:
    """The processes that share a mesh; without one, this process alone."""

    def __init__(self, mesh: Mesh | None = None):
        self.count = (
            1 if mesh is None else len({device.process_index for device in mesh.devices.flat})
        )
        self.index = 0 if self.count == 1 else jax.process_index()
        self.first = self.index == 0  # writes files and shows progress

    def largest(self, value: int) -> int:
        """The largest of all processes."""
        return value if self.count == 1 else int(self._gathered(np.int32(value)).max())

    def first_text(self, text: str) -> str:
        """What the first process that says something says."""
        if self.count == 1:
            return text
        row = np.frombuffer(text.encode()[:LONGEST_TEXT].ljust(LONGEST_TEXT, b"\0"), np.uint8)
        said = [bytes(own).rstrip(b"\0").decode(errors="ignore") for own in self._gathered(row)]
        return next(filter(None, said), "")

    def check_same(self, tree: Any, *more: Any) -> None:
        """Refuse to begin where processes were given different arrays, in a tree, or other things."""
        if self.count == 1:
            return
        digest = hashlib.sha256(repr(more).encode())
        for leaf in jax.tree.leaves(tree):
            digest.update(np.ascontiguousarray(leaf).tobytes())
        if self.largest(self.first_text(digest.hexdigest()) != digest.hexdigest()):
            raise ValueError(
                "the processes of this run were given different data, models or options; make the same call in each."
            )

    def total(self, array: np.ndarray) -> np.ndarray:
        """The sum over processes, of arrays that are zero where another process has its numbers."""
        return array if self.count == 1 else self._gathered(array).sum(axis=0, dtype=array.dtype)

    def run(self, program: Callable[..., Any], *arguments: Any) -> Any:
        """The result of a compiled program, once it is there."""
        if self.count == 1:
            return jax.block_until_ready(program(*arguments))
        with _a_lost_one_is_said():
            result = program(*arguments)
            waiting = [
                shard.data for leaf in jax.tree.leaves(result) for shard in leaf.addressable_shards
            ]
            pause, most = LOOK_SECONDS
            while (
                waiting
            ):  # where a process is lost, one device may know it while another waits forever
                for data in [data for data in waiting if data.is_ready()]:
                    data.block_until_ready()
                waiting = [data for data in waiting if not data.is_ready()]
                if waiting:
                    time.sleep(pause)
                    pause = min(1.2 * pause, most)
            return result

    def _gathered(self, array: Any) -> np.ndarray:
        from jax.experimental.multihost_utils import process_allgather

        with _a_lost_one_is_said(), jax.enable_x64(True):
            return np.asarray(process_allgather(array))


ALONE = Hosts()


@contextmanager
def _a_lost_one_is_said() -> Generator[None, None, None]:
    """JAX says it in the words of its transport, by one of two exceptions, depending on where a result is awaited."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        if isinstance(error, ValueError) and TRANSPORT not in str(error):
            raise
        raise HostLost(
            f"another process of this run was lost ({' '.join(str(error).split())[:120]})"
        ) from None
