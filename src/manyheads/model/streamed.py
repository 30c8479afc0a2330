"""Tokens that a compiled program reads from the host, block by block, while a thread reads the next block.

A block is a number of chunks. The program asks for it by a callback and goes through its chunks as
through those of tokens on the device: same program for a chunk, same order, same bits. Numbers pass
the callback as words of 32 bits: JAX calls it in a thread that knows nothing of `jax.enable_x64`,
and would round float64 there.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from manyheads.data.mapped import Mapped

# of a block: it is still in the cache of a CPU when its chunks are computed
FEED_BYTES = 2**22
# numbers; of either precision, no page of memory holds fewer
PAGE = 512


class Feed:
    """The tokens in chunks of `size` sequences, the last ones filled up with zeros."""

    def __init__(self, tokens: Mapped, size: int, dtype: Any):
        self.tokens, self.size, self.dtype = tokens, size, np.dtype(dtype)
        chunks, one = (
            -(-len(tokens) // size),
            size * int(np.prod(tokens.shape[1:])) * self.dtype.itemsize,
        )
        self.blocks = -(-chunks // max(1, FEED_BYTES // one))
        self.per_block = -(-chunks // self.blocks)
        self.blocks = -(-chunks // self.per_block)
        self.ahead: tuple[int, Future] | None = None
        self.reader = ThreadPoolExecutor(1, "manyheads-reads-ahead")

    @property
    def shape(self) -> tuple[int, ...]:
        """(chunks, size, T, d)."""
        return (self.blocks * self.per_block, self.size, *self.tokens.shape[1:])

    def read(self, block: int) -> np.ndarray:
        """One block, (chunks of a block, size, T, d)."""
        count = self.per_block * self.size
        found = np.ascontiguousarray(self.tokens[block * count : (block + 1) * count], self.dtype)
        if len(found) < count:
            found = np.concatenate(
                [found, np.zeros((count - len(found), *found.shape[1:]), self.dtype)]
            )
        # what is still a part of the file is now in memory
        found.reshape(-1)[::PAGE].max()
        return found.reshape(self.per_block, *self.shape[1:])

    def fetch(self, block: Any) -> np.ndarray:
        """One block, read before if the one before it was fetched last; nothing is read ahead of the last."""
        now, ahead = int(block), self.ahead
        found = ahead[1].result() if ahead is not None and ahead[0] == now else self.read(now)
        self.ahead = (
            (now + 1, self.reader.submit(self.read, now + 1)) if now + 1 < self.blocks else None
        )
        return found


class Streamed(eqx.Module):
    """Stands for tokens (chunks, size, T, d) that are not on the device. A program is compiled for each feed."""

    feed: Feed = eqx.field(static=True)

    shape = property(lambda self: self.feed.shape)
    dtype = property(lambda self: self.feed.dtype)


def scan(body, start, pieces: tuple):
    """`jax.lax.scan` over the chunks of `pieces`, the first of which is a batch with streamed tokens."""
    feed = pieces[0].tokens.feed
    wide = feed.dtype.itemsize // 4
    block = jax.ShapeDtypeStruct(
        (feed.per_block, *feed.shape[1:-1], feed.shape[-1] * wide), np.uint32
    )

    def one_block(carry, here):
        number, (batch, *rest) = here
        words = jax.pure_callback(lambda k: feed.fetch(k).view(np.uint32), block, number)
        words = words if wide == 1 else words.reshape(*words.shape[:-1], -1, wide)
        tokens = jax.lax.bitcast_convert_type(words, feed.dtype)
        return jax.lax.scan(body, carry, (batch._replace(tokens=tokens), *rest))

    by_block = jax.tree.map(
        lambda a: jnp.reshape(a, (feed.blocks, feed.per_block, *a.shape[1:])), pieces
    )
    carry, found = jax.lax.scan(
        one_block, start, (np.arange(feed.blocks, dtype=np.int32), by_block)
    )
    return carry, jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), found)
