"""Bad specs of sweeps: a good one with something wrong in it, as TOML and as tables."""

from __future__ import annotations

import copy
import dataclasses
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from manyheads._fields import settings
from manyheads.sweeps import Here, Sweep, make_plan
from manyheads.sweeps.engine import describe
from manyheads.sweeps.sections import SECTIONS
from torture.judged import FAULTS as FAULTS
from torture.judged import outcome

KINDS = ("type", "extreme", "missing", "unknown", "table", "list", "nesting", "text", "code", "cut")
GOOD: dict[str, Any] = {
    "name": "torture",
    "seeds": 2,
    "measures": ["risk"],
    "data": {
        "kind": "mixture",
        "num_examples": 8,
        "num_test": 4,
        "num_tokens": 4,
        "dim": 6,
        "sparsity": 0.5,
        "signal": 1.5,
    },
    "start": {"kind": "first_phase", "num_examples": 8, "signs": "balanced"},
    "model": {"num_heads": 4.0, "decoder": "full", "exponent": 0.5},
    "train": {
        "step_size": 0.2,
        "num_steps": 5,
        "optimizer": "gd",
        "loss": "logistic",
        "dtype": "float64",
        "record": "log",
    },
    "axes": {"model.num_heads": [1, 4], "train.step_size": [0.1, 0.2]},
}
OTHER_TYPES: tuple[Any, ...] = (
    "3",
    "",
    3,
    -1,
    0,
    2.5,
    True,
    [],
    [3],
    {},
    {"a": 1},
    "nonsense",
    [[1]],
    ["a", 1],
    "\t",
    "é",
    [None],
)
EXTREMES: tuple[Any, ...] = (
    math.nan,
    math.inf,
    -math.inf,
    1e308,
    -1e308,
    1e-320,
    2**31,
    2**32 + 3,
    2**63 - 1,
    -(2**63),
    10**18,
    0,
    -1,
    -0.0,
    1e16,
    3.7,
    10**7,
    10**5,
)
NAMES = (
    "num_head",
    "Data",
    "seed",
    "",
    " ",
    "a.b",
    "é",
    "__class__",
    "num_heads\n",
    "x" * 300,
    "data.kind",
    "path",
    "key",
    "task_seed",
    "rank",
)
TEXTS = (
    "= 3",
    "[data",
    "name = ",
    'name = "a',
    "name = 'x'\nname = 'y'",
    "[data]\n[data]",
    "\0",
    "\ufeffname = 'x'",
    "seeds = 1e400",
    "seeds = 0x",
    "{}",
    'name = """a\nb"""',
    "seeds = 1979-05-27",
    "axes = 3",
    "[[data]]",
    "# nothing",
    "",
    "\n\n",
    "name = 'a\\q'",
    "x" * 5000,
    "seeds = " + "9" * 5000,
    "data = " + "[" * 2000,
    "data.num_examples.deep = 1",
    "<html></html>",
    "seeds = inf",
    "name = '../../x'",
    "🎈 = 1",
    "[axes]\nseed = [1]",
)


def places(content: dict, path: tuple = ()) -> list[tuple]:
    """Every key of a nested table."""
    inner = [
        p
        for key, value in content.items()
        if isinstance(value, dict)
        for p in places(value, (*path, key))
    ]
    return [*((*path, key) for key in content), *inner]


def trial(kind: str, rng: np.random.Generator, folder: Path):
    """One spec with one thing wrong."""
    content = copy.deepcopy(GOOD)
    path = places(content)[rng.integers(len(places(content)))]
    parent = content
    for key in path[:-1]:
        parent = parent[key]

    def pick(values):
        return values[rng.integers(len(values))]

    if kind == "type":
        parent[path[-1]] = pick(OTHER_TYPES)
    elif kind == "extreme":
        parent[path[-1]] = pick(EXTREMES)
    elif kind == "missing":
        del parent[path[-1]]
    elif kind == "unknown":
        parent[pick(NAMES)] = pick((*OTHER_TYPES, *EXTREMES))
    elif kind == "table":
        section = pick((*SECTIONS, "axes", "parameters"))
        content[section] = {pick(NAMES): pick(OTHER_TYPES) for _ in range(int(rng.integers(1, 4)))}
    elif kind == "list":
        content[pick(("measures", "certificates", "seeds"))] = pick(
            (*OTHER_TYPES, [1, 1], ["risk", "risk"], [-1], [2**70], ["thm1"], ["E1"], ["x"])
        )
    elif kind == "nesting":
        deep: Any = pick(OTHER_TYPES)
        for _ in range(int(rng.integers(1, 300))):
            deep = {"a": deep} if rng.random() < 0.5 else [deep]
        parent[path[-1]] = deep
    if kind == "code":
        return code(content, rng, folder)
    if kind in ("text", "cut"):
        text = bytearray(tomli_w.dumps(GOOD).encode())
        if kind == "text":
            line = pick(TEXTS)
            text = bytearray((line + "\n" + text.decode() if rng.random() < 0.5 else line).encode())
        elif rng.random() < 0.5:
            text = text[: rng.integers(len(text))]
        else:
            text[rng.integers(len(text))] = rng.integers(256)
        (folder / "spec.toml").write_bytes(bytes(text))
        return outcome(
            lambda: planned(Sweep.from_toml(folder / "spec.toml")),
            None,
            f"{kind}: {bytes(text)[:80]!r}",
        )
    about = f"{kind}: {'.'.join(map(str, path))} of {str(content)[:200]}"
    if rng.random() < 0.5 and (text := written(content)) is not None:
        return outcome(lambda: planned(Sweep.from_toml(text)), None, about)
    return outcome(lambda: planned(Sweep.from_dict(content)), None, about)


def written(content: dict) -> str | None:
    """As TOML, if it can be written so."""
    try:
        return tomli_w.dumps(content)
    except (TypeError, ValueError, RecursionError):
        return None


def planned(sweep: Sweep) -> str:
    """What the engine does before it runs; an accepted spec must be within its ranges and survive a round trip."""
    text = describe(sweep, Here())
    assert Sweep.from_toml(sweep.to_toml()) == sweep, "another sweep after a round trip"
    for cell in make_plan(sweep).cells:
        assert 0 <= cell.seed < 2**31 and cell.model.num_heads % 1 == 0
        for section in SECTIONS:
            assert in_range(getattr(cell, section)), f"{section} is out of range"
    return text


def in_range(section: Any) -> bool:
    """Whether every number of a section is finite and within the range that its help states."""
    tests: dict[str, Callable[[float, float], bool]] = {
        "low": lambda x, bound: x >= bound,
        "high": lambda x, bound: x <= bound,
        "above": lambda x, bound: x > bound,
        "below": lambda x, bound: x < bound,
    }
    for name, (_, item) in settings(type(section)).items():
        value = getattr(section, name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            bounds = ((test, item.metadata[bound]) for bound, test in tests.items())
            if not math.isfinite(value) or not all(
                bound is None or test(value, bound) for test, bound in bounds
            ):
                return False
    return dataclasses.is_dataclass(section)


def code(content: dict, rng: np.random.Generator, folder: Path):
    """Names that look like code, where no code belongs: a module that tells when it is imported is in reach."""
    mark, module = folder / "code-ran", f"evil{rng.integers(10**9)}"
    (folder / f"{module}.py").write_text(
        f"import pathlib\npathlib.Path({str(mark)!r}).touch()\ndef run(*a, **k): return {{}}\n"
    )
    hostile = (
        f"{module}:run",
        f"{module}.run",
        module,
        f"__import__('{module}')",
        f"{{{{{module}}}}}",
        f"$({module})",
        f"!!python/object:{module}.run",
    )
    spots = [
        path for path in places(content) if path[0] not in ("measures", "cell", "certificates")
    ]
    path = spots[rng.integers(len(spots))]
    parent = content
    for key in path[:-1]:
        parent = parent[key]
    name = hostile[rng.integers(len(hostile))]
    parent[path[-1]] = [name] if isinstance(parent[path[-1]], list) else name
    sys.path.insert(0, str(folder))
    try:
        found = outcome(lambda: planned(Sweep.from_dict(content)), None, f"code: {path} = {name}")
    finally:
        sys.path.remove(str(folder))
    return ("code ran", f"{path} = {name}") if mark.exists() else found
