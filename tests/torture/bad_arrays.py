"""Bad arguments at the Python door: every public function, each of its arguments, everything that a user might pass."""

from __future__ import annotations

import io
import math
import pickle
import zipfile
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import jax
import numpy as np

import manyheads as mh
from torture.judged import FAULTS as FAULTS
from torture.judged import RIGHT, outcome
from torture.public_calls import calls, good

KINDS = ("number", "flag", "name", "array", "thing", "key", "path", "keyword", "fine array", "file")
MOST = 2**31 - 2


OF_KIND = {
    "number": (
        "positive",
        "count",
        "steps",
        "some",
        "some or share",
        "many",
        "share",
        "share or zero",
        "zero up",
        "seed",
        "index",
        "heads count",
        "heads few",
        "bytes",
        "above one",
        "loss level",
        "digit",
        "kept step",
        "real",
    ),
    "flag": ("flag",),
    "name": ("name", "name or none", "name or steps", "dtype", "names", "text"),
    "array": ("array", "steps list", "kept steps", "directions", "few or list", "table"),
    "thing": (
        "model",
        "heads",
        "data",
        "data or none",
        "run",
        "run or heads",
        "mixture",
        "good",
        "direction",
        "threshold",
        "sweep",
    ),
    "key": ("key",),
    "path": ("path",),
}
BAD_NUMBERS: tuple[Any, ...] = (
    math.nan,
    math.inf,
    -math.inf,
    -1,
    0,
    -0.5,
    0.5,
    3.7,
    1e-320,
    1e308,
    2**32 + 3,
    2**31,
    2 * 10**9,
    10**8,
    2**63,
    2**64,
    10**400,
    -(10**400),
    10**5000,
    "3",
    "abc",
    b"3",
    None,
    True,
    False,
    1 + 2j,
    [3],
    (3,),
    {},
    {3},
    np.float16(2.5),
    np.float64("nan"),
    np.array(3),
    np.array([3]),
    np.array(2.0),
    np.ma.masked,
    np.array("3"),
    np.datetime64("2020-01-01"),
    Fraction(1, 3),
    object(),
    print,
    float,
    np.int8(3),
    np.uint64(2**64 - 1),
)
ALLOWED: dict[
    str, Callable[[float, bool], bool]
] = {  # the number, and whether it is whole by its type
    "positive": lambda x, whole: 0 < x < math.inf,
    "above one": lambda x, whole: 1 < x < math.inf,
    "zero up": lambda x, whole: 0 <= x < math.inf,
    "real": lambda x, whole: abs(x) < math.inf,
    "share": lambda x, whole: 0 < x < 1,
    "share or zero": lambda x, whole: 0 <= x < 1,
    "loss level": lambda x, whole: 0 < x < math.log(2),
    "bytes": lambda x, whole: 1e5 <= x < math.inf,
    "count": lambda x, whole: whole and 1 <= x <= MOST,
    "some": lambda x, whole: whole and 1 <= x <= MOST,
    "some or share": lambda x, whole: 0 < x < 1 or (whole and 1 <= x <= MOST),
    "many": lambda x, whole: whole and 2 <= x <= MOST,
    "steps": lambda x, whole: whole and 0 <= x <= MOST,
    "index": lambda x, whole: whole and 0 <= x <= 8,
    "kept step": lambda x, whole: whole and x in (0, 2, 4),
    "seed": lambda x, whole: whole and 0 <= x < 2**64,
    "digit": lambda x, whole: whole and 0 <= x <= 9,
    "heads count": lambda x, whole: x % 1 == 0 and 1 <= x <= 9e15,
    "heads few": lambda x, whole: x % 1 == 0 and 1 <= x <= 1e6,
}
BAD_FLAGS = (
    "no",
    "yes",
    "",
    "False",
    0,
    1,
    2,
    None,
    [],
    [True],
    math.nan,
    np.array([True, False]),
    b"",
    object(),
    "true",
)
BAD_NAMES = (
    "nonsense",
    "",
    " ",
    "full\n",
    "LOGISTIC",
    3,
    None,
    [],
    ["full"],
    {"a": 1},
    b"full",
    object(),
    "é" * 300,
    "../../x",
    True,
    math.nan,
)
NOT_THINGS = (
    None,
    3,
    "model",
    b"",
    [],
    (),
    {},
    object(),
    print,
    np.zeros(3),
    np.ma.masked_array([1.0]),
    math.nan,
    type,
    mh.Dataset,
    1j,
)
NOT_KEYS = (
    None,
    -1,
    "key",
    [1, 2],
    np.zeros(2),
    np.zeros((3, 2), np.uint32),
    jax.random.split(jax.random.key(0), 3),
    object(),
    math.nan,
    np.array(3),
)
NOT_PATHS = (
    None,
    3,
    1.5,
    [],
    {},
    object(),
    True,
    "",
    "\0",
    "no\0file",
    "/dev/null/x",
    "a" * 5000,
    b"bytes",
    "/proc/self/mem/x",
    np.zeros(3),
)


def trial(kind: str, rng: np.random.Generator, folder: Path):
    """One function, one argument, one bad value."""
    if kind == "file":
        return bad_file(rng, folder)
    if kind == "fine array":
        return fine_array(rng, folder)
    table = calls()
    if kind == "keyword":
        return bad_keyword(rng, table)
    places = [
        (name, argument)
        for name, (_, _, kinds) in table.items()
        for argument, of in kinds.items()
        if of in OF_KIND[kind]
    ]
    name, argument = places[rng.integers(len(places))]
    function, arguments, kinds = table[name]
    value, allowed = drawn(kind, kinds[argument], arguments[argument], rng)
    about = f"{name}({argument}={shown(value)})"
    return outcome(
        lambda: function(**{**arguments, argument: value}),
        allowed,
        about,
        lambda: function(**arguments),
    )


def drawn(kind: str, of: str, valid: Any, rng: np.random.Generator) -> tuple[Any, bool | None]:
    """A bad value and whether it is allowed after all; None where that depends on more than the value."""
    if kind == "number":
        value = BAD_NUMBERS[rng.integers(len(BAD_NUMBERS))]
        return value, number_allowed(of, value)
    if kind == "flag":
        return BAD_FLAGS[rng.integers(len(BAD_FLAGS))], False
    if kind == "name":
        value = BAD_NAMES[rng.integers(len(BAD_NAMES))]
        empty = of in ("names", "name or steps") and isinstance(value, list) and not value
        empty |= of == "name or steps" and value == 3  # every third step
        fine = (
            of == "text"
            and isinstance(value, str)
            and value.strip()
            and value.isprintable()
            and len(value) <= 200
        )
        return value, None if empty or fine or (
            of in ("name or none", "dtype") and value is None
        ) else False
    if kind == "array":
        return bad_array(of, valid, rng)
    if kind == "thing":
        value = NOT_THINGS[rng.integers(len(NOT_THINGS))]
        optional = of in ("data or none",) and value is None
        return value, None if optional or (of == "model" and value is print) else False
    if kind == "key":
        value = NOT_KEYS[rng.integers(len(NOT_KEYS))]
        return value, None if value is None else False
    value = NOT_PATHS[rng.integers(len(NOT_PATHS))]
    return value, False


def number_allowed(of: str, value: Any) -> bool | None:
    """Whether a number is within its documented range, by type and size; None where it is None, an absence."""
    if value is None:
        return None
    if (
        isinstance(value, np.generic | np.ndarray)
        and np.ndim(value) == 0
        and not isinstance(value, np.ma.MaskedArray)
    ):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float | Fraction):
        return False
    try:
        size = float(value)
    except OverflowError:
        return False
    return None if ALLOWED[of](size, isinstance(value, int)) else False


def bad_array(of: str, valid: Any, rng: np.random.Generator) -> tuple[Any, bool | None]:
    """A valid array spoiled, or something that is no array."""
    if of in ("directions", "few or list", "table"):
        choices: list[Any] = [
            3.7,
            "abc",
            [3.7],
            ["a"],
            [None],
            [[1]],
            object(),
            [object()],
            math.nan,
            {"a": 1},
            {1: 2},
            -1,
            [1, 1],
            b"",
            {"a.b": []},
        ]
        return choices[rng.integers(len(choices))], False
    X = np.array(valid, dtype=float)
    place = np.arange(X.size).reshape(X.shape) == rng.integers(X.size)

    def flat(value: float) -> np.ndarray:
        return np.where(place, value, X)

    spoiled: list[Callable[[], Any]] = [
        lambda: flat(math.nan),
        lambda: flat(math.inf),
        lambda: flat(-math.inf),
        lambda: flat(1e200),
        lambda: X + 1j,
        lambda: X.astype(object),
        lambda: X.astype(str),
        lambda: X[:0],
        lambda: X[..., :0],
        lambda: X[None],
        lambda: X[0],
        lambda: np.ma.masked_array(X, flat(0) == 0),
        lambda: X.tolist()[:-1],
        lambda: None,
        lambda: 3,
        lambda: "abc",
        lambda: b"abc",
        lambda: [[1], [1, 2]],
        lambda: object(),
        lambda: {},
        lambda: np.array(["a", None], dtype=object),
        lambda: X.astype("datetime64[s]"),
        lambda: iter([1]),
        lambda: X + 0.5,
        lambda: np.zeros(X.shape, dtype=[("a", float)]),
        lambda: [2**70],
        lambda: [10**400],
        lambda: np.array(math.nan),
        lambda: set(),
    ]
    with np.errstate(all="ignore"):
        value = spoiled[rng.integers(len(spoiled))]()
    if (
        isinstance(value, np.ndarray)
        and value.dtype.kind == "f"
        and np.isfinite(value).all()
        or value is None
    ):
        return value, None  # may be valid: another shape, other numbers
    number = isinstance(value, list) or (isinstance(value, int) and not isinstance(value, bool))
    text = (
        isinstance(value, np.ndarray) and value.dtype.kind in "UMO"
    )  # two texts or times are labels; [1.0, 0.0] as objects a mask
    return value, None if number or text or isinstance(value, str) else False


def bad_keyword(rng: np.random.Generator, table: dict):
    """An argument that is not there, one too few, one too many."""
    names = list(table)
    name = names[rng.integers(len(names))]
    function, arguments, _ = table[name]
    how = rng.integers(3)
    if how == 0:
        return outcome(lambda: function(**arguments, nonsense=3), False, f"{name}(nonsense=3)")
    if how == 1:
        dropped = list(arguments)[rng.integers(len(arguments))]
        rest = {k: v for k, v in arguments.items() if k != dropped}
        return outcome(
            lambda: function(**rest),
            None,
            f"{name} without {dropped}",
            lambda: function(**arguments),
        )
    return outcome(lambda: function(*range(30)), False, f"{name}(0, 1, ..., 29)")


def fine_array(rng: np.random.Generator, folder: Path):
    """Arrays in another form must give the same dataset, margin and model."""
    X, y = good()["data"].tokens, good()["data"].labels
    forms: dict[str, Callable[[np.ndarray], Any]] = {
        "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
        "Fortran order": np.asfortranarray,
        "every second": lambda a: np.repeat(a, 2, axis=0)[::2],
        "reversed twice": lambda a: a[::-1].copy()[::-1],
        "read-only": lambda a: frozen(a.copy()),
        "memory-mapped": lambda a: mapped(a, folder),
        "lists": lambda a: a.tolist(),
        "jax": lambda a: jax.numpy.asarray(a),
        "float16": lambda a: a.astype(np.float16),
        "matrix rows": lambda a: list(a),
        "int8": lambda a: a.round().astype(np.int8),
    }
    form = list(forms)[rng.integers(len(forms))]
    tokens, labels = forms[form](X), forms[form](y)
    exact = np.asarray(tokens, dtype=float)

    def call():
        data = mh.Dataset.from_arrays(tokens, labels)
        assert (
            data.tokens.dtype == np.float64
            and np.array_equal(data.tokens, exact)
            and np.array_equal(data.labels, y)
        )
        rows = forms[form](X.reshape(8, -1))
        margin = mh.hard_margin(labels, features=rows)
        same = mh.hard_margin(y, features=np.asarray(rows, dtype=float))
        assert (margin.lower, margin.upper) == (same.lower, same.upper)
        model = mh.MultiHead.create(
            forms[form](np.zeros((1, 4, 4))), forms[form](np.ones((1, 2, 4)))
        )
        return data, float(model.scores(data).sum())

    found, detail = outcome(call, None, form)
    return (found, detail) if found == RIGHT else ("traceback", detail)


def frozen(a: np.ndarray) -> np.ndarray:
    a.setflags(write=False)
    return a


def mapped(a: np.ndarray, folder: Path) -> np.ndarray:
    path = folder / f"{a.ndim}-{a.size}.npy"
    np.save(path, a)
    return np.load(path, mmap_mode="r")


class Runs:
    """A pickle that leaves a file behind when it is loaded."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def bad_file(rng: np.random.Generator, folder: Path):
    """Files that are something else: pickles that would run code, bombs, cut and empty ones, folders, texts."""
    path, mark = folder / "file.npz", folder / "code-ran"
    y = good()["data"].labels
    huge = np.lib.format.magic(1, 0)

    def bomb():
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            header, {"descr": "<f8", "fortran_order": False, "shape": (2**20, 2**10, 2**6)}
        )
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            with archive.open("tokens.npy", "w", force_zip64=True) as member:
                member.write(header.getvalue())
                for _ in range(int(rng.integers(1, 8))):
                    member.write(bytes(2**20))
            archive.writestr("labels.npy", header.getvalue())

    writers: dict[str, Callable[[], Any]] = {
        "a pickle": lambda: path.write_bytes(pickle.dumps(Runs(mark))),
        "objects": lambda: np.savez(
            path, tokens=np.array([Runs(mark)], dtype=object), labels=y, allow_pickle=True
        ),
        "object labels": lambda: np.savez(
            path,
            tokens=good()["data"].tokens,
            labels=np.array([Runs(mark)] * 8, dtype=object),
            allow_pickle=True,
        ),
        "an object array": lambda: np.save(
            path.open("wb"), np.array([Runs(mark)], dtype=object), allow_pickle=True
        ),
        "a zip bomb": bomb,
        "nothing": lambda: path.write_bytes(b""),
        "a header alone": lambda: path.write_bytes(huge),
        "text": lambda: path.write_text("tokens,labels\n1,2\n"),
        "noise": lambda: path.write_bytes(rng.bytes(int(rng.integers(1, 4000)))),
        "a folder": lambda: path.mkdir(),
        "a zip of noise": lambda: zipfile.ZipFile(path, "w").writestr("tokens.npy", rng.bytes(100)),
        "other names": lambda: np.savez(path, x=np.zeros(3)),
        "wrong shapes": lambda: np.savez(path, tokens=np.zeros((3, 2)), labels=y),
        "a null in a name": lambda: zipfile.ZipFile(path, "w").writestr("a/../tokens.npy", b""),
    }
    what = list(writers)[rng.integers(len(writers))]
    writers[what]()
    readers: dict[str, Callable[[], Any]] = {
        "Dataset.load": lambda: mh.Dataset.load(path),
        "Trajectory.load": lambda: mh.Trajectory.load(path),
        "train(resume=)": lambda: mh.train(
            good()["model"], good()["data"], rule=mh.GD(0.1), num_steps=4, resume=path
        ),
        "leave_one_out(checkpoint=)": lambda: mh.leave_one_out(
            good()["model"],
            good()["data"],
            step_size=0.1,
            num_steps=2,
            num_left_out=1,
            key=good()["key"],
            checkpoint=path,
        ),
        "Sweep.from_toml": lambda: mh.Sweep.from_toml(path),
        "open_sweep": lambda: mh.open_sweep(folder),
    }
    reader = list(readers)[rng.integers(len(readers))]
    found = outcome(readers[reader], False, f"{reader} of {what}")
    return ("code ran", f"{reader} of {what}") if mark.exists() else found


def shown(value: Any) -> str:
    """A value in a report."""
    try:
        return f"{type(value).__name__} {value!r}"[:90]
    except ValueError:
        return f"{type(value).__name__} of thousands of digits"
