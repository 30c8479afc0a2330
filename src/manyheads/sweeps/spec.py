"""What a sweep is: data, start, model, training, what to measure, and axes over any of their fields."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import tomli_w

from manyheads._fields import RANGE, SpecError, check_value, settings, shown
from manyheads._registry import nearest
from manyheads.sweeps.sections import (
    SECTIONS,
    ModelSpec,
    TrainSpec,
    all_fields,
    cell_section,
    of_other_kinds,
    read_section,
)

MOST_CELLS = 100_000
LARGEST_SPEC = 4 * 2**20  # bytes of TOML
TRAIN_AND_MEASURE = "manyheads.sweeps.cell:train_and_measure"
SEED = {**RANGE, "low": 0, "high": 2**31 - 1}
Scalar = bool | int | float | str


@dataclass(frozen=True)
class Sweep:
    """A grid of runs: `axes` maps dotted names such as "model.num_heads" to the values they take.

    `data`, `start`, `model` and `train` are tables of settings; `kind` in the first two names a registered data source
    or start, whose own settings stand beside it. `seeds` is a number of seeds (0, 1, ...) or the seeds themselves.
    `measures` and `certificates` name what is computed from each run. `cell` is a function "module:name" of your own,
    called as `name(cell, **parameters)` instead of plain training; it returns a dict of scalars, arrays or
    `(dims, array)` pairs.
    """

    name: str = "sweep"
    data: Any = field(default_factory=dict)
    start: Any = field(default_factory=dict)
    model: ModelSpec = field(default_factory=ModelSpec)
    train: TrainSpec = field(default_factory=TrainSpec)
    measures: tuple[str, ...] = ()
    certificates: tuple[str, ...] = ()
    axes: Mapping[str, Sequence[Scalar]] = field(default_factory=dict)
    seeds: Any = 1
    cell: str = TRAIN_AND_MEASURE
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        problems: list[str] = []
        axes = _flat(self.axes) if isinstance(self.axes, Mapping) else {}
        self._put("name", _text(self.name, "name", problems))
        if isinstance(self.name, str) and ("/" in self.name or self.name.startswith(".")):
            problems.append(
                f"name = {shown(self.name)} is the name of a folder; write it without / and a leading dot"
            )
        for section in SECTIONS:
            kinds = axes.get(f"{section}.kind")
            swept = [axis.partition(".")[2] for axis in axes if str(axis).startswith(f"{section}.")]
            try:
                kinds = kinds if isinstance(kinds, list | tuple) else ()
                self._put(section, read_section(section, getattr(self, section), kinds, swept))
            except SpecError as error:
                problems += error.problems
        for which in ("measures", "certificates"):
            self._put(which, _names(getattr(self, which), which, problems))
        self._put("seeds", _seeds(self.seeds, problems))
        self._put("parameters", _parameters(self.parameters, problems))
        self._put("cell", _text(self.cell, "cell", problems))
        if isinstance(self.cell, str) and not _is_reference(self.cell):
            problems.append(
                f"cell = {shown(self.cell)} is not a function; write it as 'package.module:function'"
            )
        if self.cell == TRAIN_AND_MEASURE and self.parameters:
            problems.append(
                "parameters are for your own cell function; set cell = 'module:function' or remove them"
            )
        if not isinstance(self.axes, Mapping):
            problems.append(
                f'axes = {shown(self.axes)} must be a table; write lines such as "model.num_heads" = [1, 4] '
                "below [axes]"
            )
        if not problems:
            self._put("axes", _axes(self, axes, problems))
        if problems:
            raise SpecError(*problems)

    def _put(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Sweep:
        """A sweep from nested dictionaries; unknown keys are errors that name the nearest one."""
        if not isinstance(content, Mapping):
            raise SpecError(f"a sweep must be a table of keys and values, not {shown(content)}")
        known = [item.name for item in fields(cls)]
        problems = [
            f"unknown key {shown(key)}; {nearest(str(key), known)}"
            for key in content
            if key not in known
        ]
        try:
            sweep = cls(**{str(key): value for key, value in content.items() if key in known})
        except SpecError as error:
            raise SpecError(*problems, *error.problems) from None
        if problems:
            raise SpecError(*problems)
        return sweep

    @classmethod
    def from_toml(cls, source: str | Path) -> Sweep:
        """A sweep from a TOML file (a Path) or from TOML text (a str)."""
        text, where = (
            (source, "the spec") if isinstance(source, str) else (_read(source), str(source))
        )
        try:
            content = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
            raise SpecError(
                f"{where} is not valid TOML: {reason}; write key = value lines and [section] headers"
            ) from None
        if not content:
            raise SpecError(f"{where} is empty; begin with `manyheads sweep --example`")
        return cls.from_dict(content)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON and TOML hold them."""
        content = asdict(self)
        for section in SECTIONS:
            content[section] = {k: v for k, v in content[section].items() if v is not None}
        content.update({k: list(content[k]) for k in ("measures", "certificates", "seeds")})
        content["axes"] = {name: list(values) for name, values in self.axes.items()}
        return content

    def to_toml(self) -> str:
        """TOML text from which `from_toml` makes an equal sweep."""
        return tomli_w.dumps(self.to_dict())

    def save(self, path: str | Path) -> None:
        """Write the TOML file."""
        Path(path).write_text(self.to_toml(), encoding="utf-8")

    @property
    def num_cells(self) -> int:
        """How many runs the grid has."""
        return len(self.seeds) * math.prod(map(len, self.axes.values()))

    def __str__(self) -> str:
        axes = [f"{name} ({len(values)})" for name, values in self.axes.items()] + [
            f"seed ({len(self.seeds)})"
        ]
        return f"{self.name}: {self.num_cells} cells = {' x '.join(axes)}"

    def cell_content(self, values: Mapping[str, Scalar]) -> dict[str, Any]:
        """The sections and parameters of one cell: the sweep's own with axis values put in."""
        changes: dict[str, dict[str, Any]] = {}
        for name, value in values.items():
            section, _, key = name.partition(".")
            changes.setdefault(section, {})[key] = value
        content = {
            section: cell_section(getattr(self, section), changes.get(section, {}))
            for section in SECTIONS
        }
        return {**content, "parameters": {**self.parameters, **changes.get("parameters", {})}}


def _read(path: Path) -> str:
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(
            f"{path} does not exist; check the path, or begin with `manyheads sweep --example`."
        )
    if path.is_dir():
        raise SpecError(f"{path} is a folder; pass the .toml file of a sweep")
    if not path.is_file():
        raise SpecError(f"{path} is a device or a pipe; pass the .toml file of a sweep")
    if path.stat().st_size > LARGEST_SPEC:
        raise SpecError(
            f"{path} has {path.stat().st_size} bytes, more than the {LARGEST_SPEC} of a spec; is it the right file?"
        )
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        raise SpecError(f"{path} is not a text file in UTF-8; save it as UTF-8") from None


def _text(value: Any, name: str, problems: list[str]) -> Any:
    if (
        not isinstance(value, str)
        or not value.strip()
        or len(value) > 200
        or not value.isprintable()
    ):
        problems.append(
            f"{name} = {shown(value)} must be a text of 1 to 200 printable characters, not all spaces; "
            f'write {name} = "..."'
        )
    return value


def _names(value: Any, which: str, problems: list[str]) -> tuple:
    if (
        isinstance(value, str)
        or not isinstance(value, Sequence)
        or not all(isinstance(v, str) and v for v in value)
    ):
        problems.append(
            f'{which} = {shown(value)} must be a list of names; write {which} = ["..."], or [] for none'
        )
        return ()
    if len(set(value)) < len(value):
        problems.append(f"{which} = {shown(list(value))} names one twice; name each once")
    return tuple(value)


def _seeds(value: Any, problems: list[str]) -> tuple[int, ...]:
    try:
        if isinstance(value, Sequence) and not isinstance(value, str):
            seeds = tuple(
                check_value(f"seeds[{i}]", seed, int, SEED)
                for i, seed in enumerate(value[: MOST_CELLS + 1])
            )
        else:
            seeds = tuple(
                range(check_value("seeds", value, int, {**SEED, "low": 1, "high": MOST_CELLS}))
            )
    except SpecError as error:
        problems += error.problems
        return (0,)
    if not seeds:
        problems.append(
            "seeds = [] is empty; write how many (seeds = 3) or which (seeds = [0, 1, 2])"
        )
    if len(set(seeds)) < len(seeds):
        problems.append("seeds names one twice; name each once")
    return seeds or (0,)


def _parameters(value: Any, problems: list[str]) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        problems.append(
            f"parameters = {shown(value)} must be a table; write its keys below a line [parameters]"
        )
        return {}
    for name, inner in value.items():
        items = inner if isinstance(inner, list | tuple) else [inner]
        if not (isinstance(name, str) and name.isidentifier()):
            problems.append(
                f"parameters.{shown(name)} is not a parameter name; use letters, digits and _"
            )
        elif not all(isinstance(item, Scalar) for item in items):
            problems.append(
                f"parameters.{name} = {shown(inner)} must be a number, a text, true or false, or a list of them"
            )
    return {
        name: list(inner) if isinstance(inner, tuple) else inner for name, inner in value.items()
    }


def _axes(
    sweep: Sweep, axes: Mapping[str, Any], problems: list[str]
) -> dict[str, tuple[Scalar, ...]]:
    checked = {}
    for name, values in axes.items():
        try:
            checked[str(name)] = _axis(sweep, str(name), values)
        except SpecError as error:
            problems += error.problems
    sizes = {**{name: len(values) for name, values in checked.items()}, "seeds": len(sweep.seeds)}
    total = math.prod(sizes.values())
    if total > MOST_CELLS:
        product = " x ".join(f"{name} ({size})" for name, size in sizes.items())
        problems.append(
            f"axes give {total} cells = {product}, more than {MOST_CELLS}; shorten an axis or split the sweep"
        )
    return checked


def _axis(sweep: Sweep, name: str, values: Any) -> tuple[Scalar, ...]:
    section, _, key = name.partition(".")
    kinds = settings(type(getattr(sweep, section))) if section in SECTIONS else {}
    own = section == "parameters" and sweep.cell != TRAIN_AND_MEASURE and key.isidentifier()
    if name in ("seed", "seeds"):
        raise SpecError(f"axes.{name} is not an axis of its own; write the seeds as seeds = [...]")
    if key not in kinds and not own:
        if of_other_kinds(section, key):
            kind = getattr(sweep, section).kind
            raise SpecError(
                f"axes.{name} has no effect for {section}.kind = {kind!r}; remove it or the kind"
            )
        known = [f"{other}.{k}" for other in SECTIONS for k in all_fields(other)]
        raise SpecError(f"unknown axis {shown(name)}; {nearest(name, known)}")
    if isinstance(values, str) or not isinstance(values, Sequence) or not len(values):
        raise SpecError(
            f'axes.{name} = {shown(values)} must be a list with at least one value; write "{name}" = [...]'
        )
    values = values[: MOST_CELLS + 1]
    if own:
        checked = tuple(values)
        if (
            not all(isinstance(v, Scalar) for v in checked)
            or len({isinstance(v, str) for v in checked}) > 1
        ):
            raise SpecError(
                f"axes.{name} = {shown(values)} must hold numbers only or texts only, such as [1, 2]"
            )
    else:
        kind, item = kinds[key]
        checked = tuple(
            check_value(f"axes.{name}[{i}]", v, kind, item.metadata) for i, v in enumerate(values)
        )
        if None in checked:
            raise SpecError(f"axes.{name} holds nothing at {checked.index(None)}; write numbers")
    if len(set(checked)) < len(checked):
        raise SpecError(f"axes.{name} names a value twice; name each once")
    return checked


def _flat(axes: Mapping) -> dict[str, Any]:
    """TOML reads model.num_heads = [...] as nested tables; axes are flat."""
    flat = {}
    for name, values in axes.items():
        if isinstance(values, Mapping):
            flat.update({f"{name}.{inner}": v for inner, v in values.items()})
        else:
            flat[name] = values
    return flat


def _is_reference(text: str) -> bool:
    module, colon, function = text.partition(":")
    return (
        bool(colon)
        and all(part.isidentifier() for part in module.split("."))
        and function.isidentifier()
    )
