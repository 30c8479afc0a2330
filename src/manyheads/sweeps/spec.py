"""What a sweep is: data, start, model, training, what to measure, and axes over any of their fields."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from manyheads.sweeps.fields import (
    SpecError,
    check_value,
    counts_for,
    described,
    misplaced,
    nearest,
    show,
    without_idle,
)
from manyheads.sweeps.sections import FILE, SECTIONS, DataSpec, ModelSpec, StartSpec, TrainSpec
from manyheads.sweeps.toml import to_toml

MOST_CELLS = 100_000
LARGEST_SPEC = 4 * 2**20  # bytes of TOML
TRAIN_AND_MEASURE = "manyheads.sweeps.cell:train_and_measure"
Scalar = bool | int | float | str


@dataclass(frozen=True)
class Sweep:
    """A grid of runs: `axes` maps dotted names such as "model.num_heads" to the values they take.

    `seeds` is a number of seeds (0, 1, ...) or the seeds themselves. `measures` and `certificates` name what is
    computed from each run. `cell` is a function "module:name" of your own, called as `name(cell, **parameters)`
    instead of plain training; it returns a dict of scalars, arrays or `(dims, array)` pairs.
    """

    name: str = "sweep"
    data: DataSpec = field(default_factory=DataSpec)
    start: StartSpec = field(default_factory=StartSpec)
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
        self._put("name", _text(self.name, "name", problems))
        for section, kind in SECTIONS.items():
            self._put(section, _section(section, kind, getattr(self, section), problems))
        for which in ("measures", "certificates"):
            self._put(which, _names(getattr(self, which), which, problems))
        self._put("seeds", _seeds(self.seeds, problems))
        self._put("parameters", _parameters(self.parameters, problems))
        self._put("cell", _text(self.cell, "cell", problems))
        if isinstance(self.cell, str) and not _is_reference(self.cell):
            problems.append(f"cell = {show(self.cell)} is no function; write it as 'package.module:function'")
        if self.cell == TRAIN_AND_MEASURE and self.parameters:
            problems.append("parameters are for your own cell function; set cell = 'module:function' or remove them")
        if not problems:
            self._put("axes", _axes(self, problems))
        if not problems:
            problems += _kinds(self)
        if problems:
            raise SpecError(problems)

    def _put(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Sweep:
        """A sweep from nested dictionaries; unknown keys are errors that name the nearest one."""
        if not isinstance(content, Mapping):
            raise SpecError([f"a sweep must be a table of keys and values, not {show(content)}"])
        known = [item.name for item in fields(cls)]
        problems = [f"unknown key {show(key)}; {nearest(str(key), known)}" for key in content if key not in known]
        for section, kind in SECTIONS.items():
            inner = content.get(section, {})
            if isinstance(inner, Mapping):
                problems += _unknown_fields(section, kind, inner)
        if problems:
            raise SpecError(problems)
        if "axes" in content and isinstance(content["axes"], Mapping):
            content = {**content, "axes": _flat(content["axes"])}
        arguments: dict[str, Any] = dict(content)
        return cls(**arguments)

    @classmethod
    def from_toml(cls, source: str | Path) -> Sweep:
        """A sweep from a TOML file (a Path) or from TOML text (a str)."""
        text, where = (source, "the spec") if isinstance(source, str) else (_read(source), str(source))
        try:
            content = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
            raise SpecError(
                [f"{where} is not valid TOML: {reason}; write key = value lines and [section] headers"]
            ) from None
        if not content:
            raise SpecError([f"{where} is empty; begin with `manyheads sweep --example`"])
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
        content = self.to_dict()
        for section, kind in SECTIONS.items():
            owner = content[section]
            content[section] = {
                name: owner[name]
                for name, (_, item) in described(kind).items()
                if name in owner and (counts_for(item, owner.get("kind")) or owner[name] != item.default)
            }
        return to_toml(content)

    def save(self, path: str | Path) -> None:
        """Write the TOML file."""
        Path(path).write_text(self.to_toml(), encoding="utf-8")

    @property
    def num_cells(self) -> int:
        """How many runs the grid has."""
        total = len(self.seeds)
        for values in self.axes.values():
            total *= len(values)
        return total

    def __str__(self) -> str:
        axes = [f"{name} ({len(values)})" for name, values in self.axes.items()] + [f"seed ({len(self.seeds)})"]
        return f"{self.name}: {self.num_cells} cells = {' x '.join(axes)}"


def _read(path: Path) -> str:
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; check the path, or begin with `manyheads sweep --example`.")
    if path.is_dir():
        raise SpecError([f"{path} is a folder; pass the .toml file of a sweep"])
    if path.stat().st_size > LARGEST_SPEC:
        raise SpecError(
            [f"{path} has {path.stat().st_size} bytes, more than the {LARGEST_SPEC} of a spec; is it the right file?"]
        )
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        raise SpecError([f"{path} is not a text file in UTF-8; save it as UTF-8"]) from None


def _text(value: Any, name: str, problems: list[str]) -> Any:
    if not isinstance(value, str) or not value or len(value) > 200 or not value.isprintable():
        problems.append(f'{name} = {show(value)} must be a text of 1 to 200 printable characters; write {name} = "..."')
    return value


def _section(section: str, kind: type, value: Any, problems: list[str]) -> Any:
    if isinstance(value, kind):
        return value
    if not isinstance(value, Mapping):
        problems.append(f"{section} = {show(value)} must be a table; write its keys below a line [{section}]")
        return value
    unknown = _unknown_fields(section, kind, value)
    problems += unknown
    try:
        return value if unknown else kind(**value)
    except SpecError as error:
        problems += error.problems
        return value


def _unknown_fields(section: str, kind: type, content: Mapping) -> list[str]:
    known = [f"{section}.{name}" for name in described(kind)]
    return [
        f"unknown key {show(f'{section}.{key}')}; {nearest(f'{section}.{key}', known)}"
        for key in content
        if f"{section}.{key}" not in known
    ]


def _names(value: Any, which: str, problems: list[str]) -> tuple:
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(v, str) and v for v in value):
        problems.append(f'{which} = {show(value)} must be a list of names; write {which} = ["..."], or [] for none')
        return ()
    if len(set(value)) < len(value):
        problems.append(f"{which} = {show(list(value))} names one twice; name each once")
    return tuple(value)


_SEED = dict(low=0, high=2**31 - 1, above=None, below=None, choices=())


def _seeds(value: Any, problems: list[str]) -> tuple[int, ...]:
    try:
        if isinstance(value, Sequence) and not isinstance(value, str):
            seeds = tuple(
                check_value(f"seeds[{i}]", seed, int, _SEED) for i, seed in enumerate(value[: MOST_CELLS + 1])
            )
        else:
            seeds = tuple(range(check_value("seeds", value, int, {**_SEED, "low": 1, "high": MOST_CELLS})))
    except SpecError as error:
        problems += error.problems
        return (0,)
    if not seeds:
        problems.append("seeds = [] is empty; write how many (seeds = 3) or which (seeds = [0, 1, 2])")
    if len(set(seeds)) < len(seeds):
        problems.append("seeds names one twice; name each once")
    return seeds or (0,)


def _parameters(value: Any, problems: list[str]) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        problems.append(f"parameters = {show(value)} must be a table; write its keys below a line [parameters]")
        return {}
    for name, inner in value.items():
        items = inner if isinstance(inner, list | tuple) else [inner]
        if not (isinstance(name, str) and name.isidentifier()):
            problems.append(f"parameters.{show(name)} is no name that a function can take; use letters, digits and _")
        elif not all(isinstance(item, bool | int | float | str) for item in items):
            problems.append(
                f"parameters.{name} = {show(inner)} must be a number, a text, true or false, or a list of them"
            )
    return {name: list(inner) if isinstance(inner, tuple) else inner for name, inner in value.items()}


def _axes(sweep: Sweep, problems: list[str]) -> dict[str, tuple[Scalar, ...]]:
    if not isinstance(sweep.axes, Mapping):
        problems.append(
            f'axes = {show(sweep.axes)} must be a table; write lines such as "model.num_heads" = [1, 4] below [axes]'
        )
        return {}
    axes = {}
    for name, values in _flat(sweep.axes).items():
        found: list[str] = []
        checked = _axis(sweep, str(name), values, found)
        problems += found
        axes[str(name)] = checked
    total = len(sweep.seeds)
    for values in axes.values():
        total *= max(len(values), 1)
    if total > MOST_CELLS:
        sizes = " x ".join(
            [f"{name} ({len(values)})" for name, values in axes.items()] + [f"seeds ({len(sweep.seeds)})"]
        )
        problems.append(
            f"axes give {total} cells = {sizes}, more than {MOST_CELLS}; shorten an axis or split the sweep"
        )
    return axes


def _axis(sweep: Sweep, name: str, values: Any, problems: list[str]) -> tuple[Scalar, ...]:
    section, _, key = name.partition(".")
    known = [f"{s}.{k}" for s, kind in SECTIONS.items() for k in described(kind)]
    own = section == "parameters" and sweep.cell != TRAIN_AND_MEASURE and key.isidentifier()
    if name in ("seed", "seeds"):
        problems.append(f"axes.{name} is not an axis of its own; write the seeds as seeds = [...]")
    elif name not in known and not own:
        problems.append(f"unknown axis {show(name)}; {nearest(name, known)}")
    if isinstance(values, str) or not isinstance(values, Sequence) or not len(values):
        problems.append(f'axes.{name} = {show(values)} must be a list with at least one value; write "{name}" = [...]')
    if problems:
        return ()
    if own:
        checked = tuple(values)
        if (
            not all(isinstance(v, bool | int | float | str) for v in checked)
            or len({isinstance(v, str) for v in checked}) > 1
        ):
            problems.append(
                f'axes.{name} = {show(values)} must hold numbers only or texts only; write "{name}" = [1, 2]'
            )
            return ()
    else:
        kind, item = described(SECTIONS[section])[key]
        try:
            checked = tuple(
                check_value(f"axes.{name}[{i}]", v, kind, item.metadata) for i, v in enumerate(values[: MOST_CELLS + 1])
            )
        except SpecError as error:
            problems += error.problems
            return ()
        if None in checked:
            problems.append(f"axes.{name} holds nothing at {checked.index(None)}; write numbers")
    if len(set(checked)) < len(checked):
        problems.append(f"axes.{name} names a value twice; name each once")
    return checked


def _kinds(sweep: Sweep) -> list[str]:
    """Fields and axes that would have no effect, and a file that is not named."""
    problems = []
    for section in ("data", "start"):
        owner = getattr(sweep, section)
        kinds = sweep.axes.get(f"{section}.kind", (owner.kind,))
        problems += misplaced(owner, section, kinds)
        for name, (_, item) in described(type(owner)).items():
            if f"{section}.{name}" in sweep.axes and not any(counts_for(item, kind) for kind in kinds):
                problems.append(
                    f"axes.{section}.{name} has no effect for {section}.kind = {kinds[0]!r}; remove it or the kind"
                )
        if FILE in kinds and section == "data" and not (owner.path or "data.path" in sweep.axes):
            problems.append("data.path is missing; data.kind = 'file' needs the path of an .npz with tokens and labels")
    return problems


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
    return bool(colon) and all(part.isidentifier() for part in module.split(".")) and function.isidentifier()


def with_values(sweep: Sweep, values: Mapping[str, Scalar]) -> dict[str, Any]:
    """The sections and parameters of one cell: the sweep's own with axis values put in."""
    changes: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        section, _, key = name.partition(".")
        changes.setdefault(section, {})[key] = value
    content: dict[str, Any] = {
        section: without_idle(replace(getattr(sweep, section), **changes.get(section, {}))) for section in SECTIONS
    }
    content["parameters"] = {**sweep.parameters, **changes.get("parameters", {})}
    return content
