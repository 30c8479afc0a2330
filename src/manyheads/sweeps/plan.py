"""From a grid to cells with stable hashes, and from cells to the fixed batches that run together."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from manyheads._fields import SpecError, setting_values, settings
from manyheads.data.door import guarded
from manyheads.data.source import SOURCES
from manyheads.sweeps.cost import batch_key, batch_size
from manyheads.sweeps.sections import SECTIONS, ModelSpec, TrainSpec, read_section, section_type
from manyheads.sweeps.spec import TRAIN_AND_MEASURE, Sweep

CONTENT_VERSION = 1  # goes into every hash: raise it when the same content or another default means something else
RESERVED = ("seed", "record", "head_class", "status", "message")


@dataclass(frozen=True)
class Cell:
    """One run: the sections with the axis values put in, and its seed."""

    data: Any = field(default_factory=lambda: section_type("data")())
    start: Any = field(default_factory=lambda: section_type("start")())
    model: ModelSpec = field(default_factory=ModelSpec)
    train: TrainSpec = field(default_factory=TrainSpec)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    measures: tuple[str, ...] = ()
    certificates: tuple[str, ...] = ()
    function: str = TRAIN_AND_MEASURE
    seed: int = 0
    file_hash: str = ""  # of the data file, so that other data is another cell

    @cached_property
    def hash(self) -> str:
        """Twenty hex digits of everything the result depends on; stable over processes and machines.

        Fields at their defaults do not count, so that a field that is added later leaves old cells what they are.
        """
        content = asdict(self)
        content.update({section: getattr(self, section).given() for section in SECTIONS})
        text = json.dumps(
            {"version": CONTENT_VERSION, **content}, sort_keys=True, separators=(",", ":")
        )
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    def to_dict(self) -> dict[str, Any]:
        """Plain values that travel to a worker."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Cell:
        """What `to_dict` gave."""
        sections = {name: read_section(name, content[name]) for name in SECTIONS}
        names = {name: tuple(content[name]) for name in ("measures", "certificates")}
        arguments: dict[str, Any] = {**content, **sections, **names}
        return cls(**arguments)


@dataclass(frozen=True)
class Batch:
    """Cells that run together and are written together. `cells` are positions in `Plan.cells`."""

    id: str
    cells: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """The whole work, fixed before it begins: the grid, its different cells, and their batches."""

    sweep: Sweep
    dims: tuple[str, ...]
    coordinates: dict[str, dict[str, Any]]  # dim -> values, units, long_name, axis
    grid: np.ndarray  # position in `cells` for every point of the grid
    cells: tuple[Cell, ...]
    batches: tuple[Batch, ...]

    @property
    def counts(self) -> list[int]:
        """How many points of the grid each different cell fills."""
        return np.bincount(self.grid.ravel(), minlength=len(self.cells)).tolist()

    def __str__(self) -> str:
        sizes = " x ".join(f"{dim} ({len(c['values'])})" for dim, c in self.coordinates.items())
        return (
            f"{self.sweep.name}: {self.grid.size} cells = {sizes}, in {len(self.batches)} batches"
        )


@guarded()
def make_plan(sweep: Sweep, *, batching: bool | int = True, device: str | None = None) -> Plan:
    """Expand the grid, in the order of the axes with the seed last, and fix the batches.

    `batching` is True (where it is faster), False (never) or how many cells of one shape run together.
    """
    names = list(sweep.axes)
    dims = tuple(_dim_names(names))
    coordinates = {
        dim: _coordinate(sweep, name, sweep.axes[name])
        for dim, name in zip(dims, names, strict=True)
    }
    seeds = dict(values=list(sweep.seeds), units="", long_name="seed of the draw", axis="seed")
    hashes: dict[Any, str] = {}
    positions: dict[str, int] = {}
    cells: list[Cell] = []
    order: list[int] = []
    for values in itertools.product(*sweep.axes.values()):
        content = _content(sweep, dict(zip(names, values, strict=True)))
        content["file_hash"] = _fingerprint(content["data"], hashes)
        for seed in sweep.seeds:
            cell = Cell(**content, seed=seed)
            if cell.hash not in positions:
                positions[cell.hash] = len(cells)
                cells.append(cell)
            order.append(positions[cell.hash])
    shape = tuple(len(c["values"]) for c in coordinates.values()) + (len(sweep.seeds),)
    grid = np.array(order, dtype=np.int64).reshape(shape)
    return Plan(
        sweep,
        (*dims, "seed"),
        {**coordinates, "seed": seeds},
        grid,
        tuple(cells),
        _batches(cells, batching, device),
    )


def _content(sweep: Sweep, values: dict[str, Any]) -> dict[str, Any]:
    try:
        content = sweep.cell_content(values)
    except SpecError as error:
        where = ", ".join(f"{name} = {value!r}" for name, value in values.items())
        raise SpecError(
            *(f"{problem} (in the cell with {where})" for problem in error.problems)
        ) from None
    return {
        **content,
        "measures": sweep.measures,
        "certificates": sweep.certificates,
        "function": sweep.cell,
    }


def name_of_batch(hashes: Iterable[str]) -> str:
    """The name of the batch of the cells with these hashes, in this order."""
    return hashlib.sha256(",".join(hashes).encode()).hexdigest()[:20]


def _batches(cells: list[Cell], batching: bool | int, device: str | None) -> tuple[Batch, ...]:
    groups: dict[Any, list[int]] = {}
    for position, cell in enumerate(cells):
        size = batch_size(cell, batching, device)
        key = (batch_key(cell), size) if size > 1 else position
        groups.setdefault(key, []).append(position)
    batches = []
    for key, members in groups.items():
        size = key[1] if isinstance(key, tuple) else 1
        for first in range(0, len(members), size):
            together = tuple(members[first : first + size])
            batches.append(Batch(name_of_batch(cells[i].hash for i in together), together))
    return tuple(sorted(batches, key=lambda batch: batch.cells[0]))


def _dim_names(axes: list[str]) -> list[str]:
    """The field's own name where that is unambiguous, section_field where not; "start" for "start.kind"."""
    last = [name.removesuffix(".kind").rpartition(".")[2] for name in axes]
    return [
        name.replace(".", "_") if last.count(short) > 1 or short in RESERVED else short
        for name, short in zip(axes, last, strict=True)
    ]


def _coordinate(sweep: Sweep, axis: str, values: Sequence) -> dict[str, Any]:
    section, _, name = axis.partition(".")
    known = settings(type(getattr(sweep, section))) if section in SECTIONS else {}
    metadata = (
        known[name][1].metadata if name in known else {"unit": "", "help": f"parameter {name}"}
    )
    return dict(values=list(values), units=metadata["unit"], long_name=metadata["help"], axis=axis)


def _fingerprint(data: Any, seen: dict[Any, str]) -> str:
    """The content of a collection that may change, such as a file; "" for others."""
    source = SOURCES[data.kind]
    if not hasattr(source, "fingerprint"):
        return ""
    collection = source(**setting_values(data, source))
    if collection not in seen:
        seen[collection] = collection.fingerprint()
    return seen[collection]
