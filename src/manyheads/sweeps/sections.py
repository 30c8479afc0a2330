"""The sections of a sweep. Those of data and start take their fields from the registered class that `kind` names."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, asdict, dataclass, field, make_dataclass
from typing import Any, ClassVar

from manyheads._fields import SpecError, check_spec, check_value, setting, settings, shown
from manyheads._names import DECODERS, OPTIMIZERS
from manyheads._registry import Registry, nearest
from manyheads.data.source import SOURCES, takes_key
from manyheads.model.loss import LOSSES
from manyheads.training.start import STARTS

Fields = dict[str, tuple[Any, Field]]


@dataclass(frozen=True)
class Section:
    """What all sections share: checked when made, whoever makes them."""

    name: ClassVar[str] = ""
    kinds: ClassVar[tuple[str, ...]] = ()  # of a section made for them

    def __reduce__(self) -> tuple:
        """Its class may have been made on the way: another process makes it again."""
        return _restored, (
            self.name,
            self.kinds,
            {k: getattr(self, k) for k in settings(type(self))},
        )

    def __post_init__(self) -> None:
        if problems := check_spec(self, self.name):
            raise SpecError(*problems)

    def given(self) -> dict[str, Any]:
        """The values that are not at their defaults."""
        return {k: v for k, v in asdict(self).items() if v != settings(type(self))[k][1].default}


@dataclass(frozen=True)
class DataSpec(Section):
    """Settings that every data section has beside those of its source."""

    name = "data"
    kind: str = setting("mixture", "which data", choices=SOURCES)
    num_examples: int = setting(100, "training sequences, n", unit="sequences", low=2, high=10**7)
    num_test: int = setting(
        200, "fresh test sequences; 0 for none", unit="sequences", low=0, high=10**7
    )
    seed: int | None = setting(
        None, "fixes the sample; without it each seed of the sweep draws its own", low=0, high=2**31
    )


@dataclass(frozen=True)
class KeyedSpec:
    """A setting of sources that are themselves random."""

    task_seed: int = setting(0, "draws the patterns or the teacher", low=0, high=2**31 - 1)


@dataclass(frozen=True)
class StartSpec(Section):
    """Where training starts."""

    name = "start"
    kind: str = setting("first_phase", "which start", choices=STARTS)


@dataclass(frozen=True)
class ModelSpec(Section):
    """The attention model."""

    name = "model"
    num_heads: float = setting(8.0, "heads, H", unit="heads", low=1, high=9e15)
    decoder: str = setting("full", "the readout", choices=DECODERS)
    rank: int | None = setting(
        None, "rank of the key-query weights; without it they are full", low=1, high=10**5
    )
    exponent: float = setting(0.5, "c in the scaling H^-c", unit="1", low=0, high=10)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_heads != int(self.num_heads):
            raise SpecError(
                f"model.num_heads = {self.num_heads!r} is not whole; write a whole number such as 64 or 1e12"
            )


@dataclass(frozen=True)
class TrainSpec(Section):
    """Gradient descent."""

    name = "train"
    step_size: float = setting(0.1, "step size, eta", unit="1", above=0)
    num_steps: int = setting(100, "steps, K", unit="steps", low=0, high=10**9)
    optimizer: str = setting("gd", "how parameters move", choices=OPTIMIZERS)
    loss: str = setting("logistic", "the loss", choices=LOSSES)
    dtype: str = setting(
        "auto",
        "precision; auto: float32, float64 from 10^6 heads on",
        choices=("auto", "float32", "float64"),
    )
    record: str | int = setting(
        "log", "which steps are recorded: a spacing, or", low=1, high=10**9, choices=("log", "all")
    )


SECTIONS: dict[str, type[Section]] = {
    "data": DataSpec,
    "start": StartSpec,
    "model": ModelSpec,
    "train": TrainSpec,
}
KINDS: dict[str, Registry] = {"data": SOURCES, "start": STARTS}


@functools.cache
def section_type(section: str, kinds: tuple[str, ...] = ()) -> Any:
    """The class of a section whose `kind` is one of these.

    A field is None until it is set where it has no default, or a different one for each kind.
    """
    base = SECTIONS[section]
    if section not in KINDS:
        return base
    if not kinds:
        return section_type(section, (settings(base)["kind"][1].default,))
    found: dict[str, tuple[Any, Any, Mapping]] = {}
    for kind in kinds:
        for name, (type_, item) in _own_fields(section, kind).items():
            if name in settings(base):
                raise SpecError(
                    f"{section}.kind = {kind!r} has a setting {name!r}, which every sweep has; rename it"
                )
            same = name not in found or found[name][1] == item.default
            default = item.default if same and item.default is not MISSING else None
            found[name] = (type_ | None if default is None else type_, default, item.metadata)
    parts = [(name, type_, field(default=d, metadata=m)) for name, (type_, d, m) in found.items()]
    return make_dataclass(
        base.__name__, parts, bases=(base,), frozen=True, namespace={"kinds": kinds}
    )


def _restored(section: str, kinds: tuple[str, ...], values: dict[str, Any]) -> Section:
    return section_type(section, kinds)(**values)


@functools.cache
def _own_fields(section: str, kind: str) -> Fields:
    """The fields of a section that come with one kind."""
    owner = KINDS[section][kind]
    keyed = settings(KeyedSpec) if section == "data" and takes_key(owner) else {}
    return {**keyed, **settings(owner)}


def all_fields(section: str) -> list[str]:
    """The fields of a section for all kinds together."""
    kinds = KINDS.get(section, ())
    return list(
        dict.fromkeys(
            [*settings(SECTIONS[section]), *(n for k in kinds for n in _own_fields(section, k))]
        )
    )


def of_other_kinds(section: str, name: str) -> dict[str, Field]:
    """Kind -> field, for the kinds of a section that have a field of this name."""
    kinds = KINDS.get(section, ())
    return {
        kind: _own_fields(section, kind)[name][1]
        for kind in kinds
        if name in _own_fields(section, kind)
    }


def read_section(
    section: str, value: Any, kinds: Iterable[Any] = (), swept: Iterable[str] = ()
) -> Section:
    """A section from a table of its settings; a SpecError lists everything that is wrong with it.

    `kinds` are those that an axis sets, and `swept` the fields that an axis sets.
    """
    if isinstance(value, Section):
        value = value.given()
    if not isinstance(value, Mapping):
        raise SpecError(
            f"{section} = {shown(value)} must be a table; write its keys below a line [{section}]"
        )
    known: tuple[str, ...] = ()
    if section in KINDS:
        kind = settings(SECTIONS[section])["kind"][1]
        own = check_value(f"{section}.kind", value.get("kind", kind.default), str, kind.metadata)
        known = tuple(k for k in kinds if isinstance(k, str) and k in KINDS[section]) or (own,)
    type_, content, problems = section_type(section, known), {}, []
    for name, given in value.items():
        if name in settings(type_):
            content[name] = given
        elif others := of_other_kinds(section, str(name)):
            if given not in ("", *(item.default for item in others.values())):
                problems.append(
                    f"{section}.{name} counts only for {section}.kind = {_either(others)}: remove {section}.{name} or "
                    f"change {section}.kind = {_either(known)}"
                )
        else:
            near = nearest(f"{section}.{name}", [f"{section}.{k}" for k in all_fields(section)])
            problems.append(f"unknown key {shown(f'{section}.{name}')}; {near}")
    needed = {
        name
        for k in known
        for name, (_, item) in _own_fields(section, k).items()
        if item.default is MISSING
    }
    for name in sorted(needed - {*swept}):
        if content.get(name) in (None, ""):
            help_ = settings(type_)[name][1].metadata["help"]
            problems.append(
                f"{section}.{name} is missing; {section}.kind = {_either(known)} needs {help_}"
            )
    if problems:
        raise SpecError(*problems)
    return type_(**content)


def _either(words: Iterable[str]) -> str:
    return " or ".join(map(repr, words))


def cell_section(section: Section, changes: Mapping[str, Any]) -> Section:
    """The section of one cell: the sweep's with axis values put in, and only what counts for its kind."""
    values = {**asdict(section), **changes}
    type_ = (
        section_type(section.name, (values["kind"],)) if section.name in KINDS else type(section)
    )
    return type_(**{name: values[name] for name in settings(type_) if values.get(name) is not None})
