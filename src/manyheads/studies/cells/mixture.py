"""The tokenized mixture behind a cell, for what has a formula only there."""

from __future__ import annotations

from typing import Any

from manyheads.data.mixture import TokenizedMixture
from manyheads.sweeps.setup import Setup


def mixture_of(setup: Setup) -> Any:
    """The data model of a cell, which must be the mixture."""
    if not isinstance(setup.task, TokenizedMixture):
        raise ValueError(f"data.kind = {setup.cell.data.kind!r} is not the mixture; write data.kind = 'mixture'.")
    return setup.task
