"""From a grid to cells with stable hashes, and from cells to the fixed batches that run together."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from manyheads.sweeps.batching import batch_key, batch_size
from manyheads.sweeps.fields import SpecError, described
from manyheads.sweeps.sections import FILE, SECTIONS, DataSpec, ModelSpec, StartSpec, TrainSpec
from manyheads.sweeps.spec import TRAIN_AND_MEASURE, Sweep, with_values

CONTENT_VERSION = 1  # goes into every hash: raise it when the same content or another default means something else
RESERVED = ("seed", "record", "head_class", "status", "message")


@dataclass(frozen=True)
class Cell:
    """One run: the sections with the axis values put in, and its seed."""

    data: DataSpec = field(default_factory=DataSpec)
    start: StartSpec = field(default_factory=StartSpec)
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
        for section, kind in SECTIONS.items():
            default = {name: item.default for name, (_, item) in described(kind).items()}
            content[section] = {k: v for k, v in content[section].items() if v != default[k]}
        text = json.dumps({"version": CONTENT_VERSION, **content}, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    def to_dict(self) -> dict[str, Any]:
        """Plain values that travel to a worker."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Cell:
        """What `to_dict` gave."""
        sections = {name: kind(**content[name]) for name, kind in SECTIONS.items()}
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

    def __str__(self) -> str:
        sizes = " x ".join(f"{dim} ({len(c['values'])})" for dim, c in self.coordinates.items())
        return f"{self.sweep.name}: {self.grid.size} cells = {sizes}, in {len(self.batches)} batches"


def make_plan(sweep: Sweep, *, batching: bool | int = True, device: str | None = None) -> Plan:
    """Expand the grid, in the order of the axes with the seed last, and fix the batches.

    `batching` is True (where it is faster), False (never) or how many cells of one shape run together.
    """
    names = list(sweep.axes)
    dims = tuple(_dim_names(names))
    coordinates = {dim: _coordinate(name, sweep.axes[name]) for dim, name in zip(dims, names, strict=True)}
    seeds = dict(values=list(sweep.seeds), units="", long_name="seed of the draw", axis="seed")
    hashes: dict[str, str] = {}
    positions: dict[str, int] = {}
    cells: list[Cell] = []
    order: list[int] = []
    for values in itertools.product(*sweep.axes.values()):
        content = _content(sweep, dict(zip(names, values, strict=True)))
        content["file_hash"] = _file_hash(content["data"], hashes)
        for seed in sweep.seeds:
            cell = Cell(**content, seed=seed)
            if cell.hash not in positions:
                positions[cell.hash] = len(cells)
                cells.append(cell)
            order.append(positions[cell.hash])
    shape = tuple(len(c["values"]) for c in coordinates.values()) + (len(sweep.seeds),)
    grid = np.array(order, dtype=np.int64).reshape(shape)
    return Plan(
        sweep, (*dims, "seed"), {**coordinates, "seed": seeds}, grid, tuple(cells), _batches(cells, batching, device)
    )


def _content(sweep: Sweep, values: dict[str, Any]) -> dict[str, Any]:
    try:
        content = with_values(sweep, values)
    except SpecError as error:
        where = ", ".join(f"{name} = {value!r}" for name, value in values.items())
        raise SpecError([f"{problem} (in the cell with {where})" for problem in error.problems]) from None
    return {**content, "measures": sweep.measures, "certificates": sweep.certificates, "function": sweep.cell}


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
            text = ",".join(cells[i].hash for i in together)
            batches.append(Batch(hashlib.sha256(text.encode()).hexdigest()[:20], together))
    return tuple(sorted(batches, key=lambda batch: batch.cells[0]))


def _dim_names(axes: list[str]) -> list[str]:
    """The field's own name where that is unambiguous, section_field where not; "start" for "start.kind"."""
    last = [name.removesuffix(".kind").rpartition(".")[2] for name in axes]
    return [
        name.replace(".", "_") if last.count(short) > 1 or short in RESERVED else short
        for name, short in zip(axes, last, strict=True)
    ]


def _coordinate(axis: str, values: Sequence) -> dict[str, Any]:
    section, _, name = axis.partition(".")
    described_here = described(SECTIONS[section]) if section in SECTIONS else {}
    metadata = described_here[name][1].metadata if name in described_here else {"unit": "", "help": f"parameter {name}"}
    return dict(values=list(values), units=metadata["unit"], long_name=metadata["help"], axis=axis)


def _file_hash(data: DataSpec, known: dict[str, str]) -> str:
    if data.kind != FILE:
        return ""
    if data.path not in known:
        path = Path(data.path)
        if not path.is_file():
            raise FileNotFoundError(f"data.path = {data.path!r} does not exist or is no file; check the path.")
        with open(path, "rb") as file:
            known[data.path] = hashlib.file_digest(file, "sha256").hexdigest()
    return known[data.path]
