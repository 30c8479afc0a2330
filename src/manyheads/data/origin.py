"""Where sequences come from, so that a run can say which of them it was trained on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class Origin:
    """The file or data source of a dataset, and which of its sequences these are.

    `source` is a path or the name of a data source, empty for arrays in memory. `rows` are
    sequences of it, in this order; None means all. `seed` and `part` ("training", "test", "first
    phase") say how `manyheads train` drew or split them, `drawn` how many sequences a data source
    was asked for.
    """

    source: str = ""
    seed: int | None = None
    part: str = ""
    drawn: int | None = None
    rows: np.ndarray | None = None

    def chosen(self, index: np.ndarray) -> Origin:
        """The origin of some of the sequences."""
        return replace(self, rows=index if self.rows is None else self.rows[index])

    @property
    def fields(self) -> dict[str, Any]:
        """All but `rows`, as a file's header keeps them."""
        return {name: getattr(self, name) for name in ("source", "seed", "part", "drawn")}

    def __str__(self) -> str:
        seed = "" if self.seed is None else f" with seed {self.seed}"
        part = f"the {self.part} part of " if self.part else ""
        return f"{part}{self.source or 'arrays in memory'}{seed}"
