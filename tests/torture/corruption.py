"""Damaged files of every sort: each is refused in one line, read exactly, or set aside and made again.

A kind is a file and what is done to it. The file is then used as its owner would, through the command line where a
command reads it, and what comes out is compared with what came out of the file as it was.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import io
import json
import shutil
import signal
import tempfile
import warnings
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from sweep_cells import arithmetic

import manyheads as mh
from manyheads.cli.main import BAD_INPUT, main
from manyheads.data.files import save_npz, write_json
from manyheads.studies.kit.folder import read_run, write_run
from manyheads.sweeps.assembly import open_sweep

FILES = ("part", "plan", "trajectory", "checkpoint", "dataset", "measure", "studies")
DAMAGES = (
    "one bit",
    "some bits",
    "cut short",
    "empty",
    "zeroed",
    "another's",
    "older",
    "older bit",
    "newer",
)
TABLES = ("plan", "studies")  # JSON, which before format 2 said nothing of damage but a warning
KINDS = [
    f"{file}: {damage}"
    for file in FILES
    for damage in DAMAGES
    if damage != "older bit" or file not in TABLES
]
REFUSED, EXACT, AGAIN = "refused in one line", "read exactly", "set aside and run again"
SILENT, TRACEBACK, DEAD_END, HANG = FAULTS = [
    "accepted in silence",
    "traceback",
    "dead end",
    "hang",
]
SECONDS = 120  # after which a trial counts as hanging
SPEC = 'name = "torture"\nseeds = 3\ncell = "{cell}"\n[parameters]\nslope = {slope}\n[axes]\n"parameters.size" = [3, 4]\n'
TASK = ["--heads", "2", "--start", "zero", "--quiet", "--json"]
SMALL = ["--examples", "8", "--test-examples", "4"]


class Hanging(BaseException):
    """The trial took too long."""


def trial(kind: str, rng: np.random.Generator, folder: Path) -> tuple[str, str]:
    """Damage one file and use it."""
    file, damage = kind.split(": ")
    shutil.copytree(originals(), folder, dirs_exist_ok=True)
    target, other = paths(file, rng, folder)
    before, swapped = target.read_bytes(), other.read_bytes()
    after = damaged(before, swapped, damage, rng, header="header" if file == "part" else "meta")
    target.write_bytes(after)
    try:
        with limited(), warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("default")
            outcome, detail = USES[file](
                folder, target, intact=after == before, swapped=after == swapped, damage=damage
            )
    except Hanging:
        return HANG, ""
    except (ValueError, OSError) as error:
        is_one = "\n" not in str(error) and str(error)
        outcome, detail = REFUSED if is_one else TRACEBACK, str(error)
    except Exception as error:
        outcome, detail = TRACEBACK, f"{type(error).__name__}: {error}"
    if outcome == REFUSED and (after == before or damage == "older"):
        return DEAD_END, f"a good file was refused: {detail}"
    if outcome == EXACT and after not in (before, swapped) and not damage.startswith("older"):
        return SILENT, "a changed file was used"
    return outcome, detail


def damaged(
    content: bytes, other: bytes, damage: str, rng: np.random.Generator, header: str
) -> bytes:
    """What a file holds after an accident."""
    if damage == "older bit":
        content, damage = with_version(content, 1, header), "one bit"
    if damage in ("one bit", "some bits"):
        flipped = bytearray(content)
        for place in rng.integers(
            8 * len(content), size=1 if damage == "one bit" else rng.integers(2, 9)
        ):
            flipped[place // 8] ^= 1 << place % 8
        return bytes(flipped)
    if damage == "cut short":
        return content[: rng.integers(1, len(content))]
    if damage == "zeroed":
        first, size = rng.integers(len(content)), rng.integers(1, 513)
        return (content[:first] + bytes(size) + content[first + size :])[: len(content)]
    if damage in ("older", "newer"):
        version = 1 if damage == "older" else int(rng.integers(3, 100))
        return with_version(content, version, header)
    return {"empty": b"", "another's": other}[damage]


def with_version(content: bytes, version: int, header: str) -> bytes:
    """The same file in another format: version 1 had no checksum, later ones have it."""
    if content.startswith(b"{"):
        table = {**json.loads(content), "format_version": version}
        table.pop("sha256")
        if version == 1:
            return json.dumps(table, indent=1).encode()
        with tempfile.TemporaryDirectory() as folder:
            write_json(Path(folder, "x"), table)
            return Path(folder, "x").read_bytes()
    with np.load(io.BytesIO(content)) as file:
        arrays = dict(file)
    arrays[header] = np.array(
        json.dumps({**json.loads(str(arrays[header])), "format_version": version})
    )
    made = io.BytesIO()
    np.savez(made, **arrays) if version == 1 else save_npz(made, arrays)
    return made.getvalue()


@functools.cache
def originals() -> Path:
    """Good files of every sort, and of two specs, `a` and `b`."""
    folder = Path(tempfile.mkdtemp(prefix="manyheads-originals-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    mixture = mh.TokenizedMixture(num_tokens=4, dim=5, num_patterns=2, sparsity=0.5, frame="axis")
    for name, slope, seed in (("a", 1.5, 0), ("b", 2.5, 1)):
        where = folder / name
        where.mkdir()
        spec = SPEC.format(cell=f"{arithmetic.__module__}:arithmetic", slope=slope)
        (where / "spec.toml").write_text(spec)
        assert (
            call("sweep", where / "spec.toml", "--out", where / "sweep", "--quiet", "--no-cache")[0]
            == 0
        )
        data = mixture.sample(40, key=jax.random.key(seed))
        data.save(where / "data.npz")
        assert call(*resuming(where, ""), "--steps", "6", "--out", where / "run.npz")[0] == 0
        shutil.copy(where / "run.npz", where / "checkpoint.npz")
        stability(where)
        write_run(where, "quick", seed, ["heads", "margins"] if seed else ["literal"])
    return folder


def paths(file: str, rng: np.random.Generator, folder: Path) -> tuple[Path, Path]:
    """The file to damage, and one of its kind that belongs to something else."""
    a, b = folder / "a", folder / "b"
    if file == "part":
        mine, its = (sorted((side / "sweep" / "parts").glob("*.npz")) for side in (a, b))
        chosen = int(rng.integers(len(mine)))
        others = [path for path in (*mine, *its) if path != mine[chosen]]
        return mine[chosen], others[int(rng.integers(len(others)))]
    name = {
        "plan": "sweep/sweep.json",
        "trajectory": "run.npz",
        "dataset": "data.npz",
        "studies": "run.json",
    }
    place = name.get(file, f"{file}.npz")
    return a / place, b / place


def call(*arguments: Any) -> tuple[int, str, str]:
    """A command in this process: its exit code and what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(argument) for argument in arguments])
    return code, out.getvalue(), err.getvalue()


def judged(found: tuple[int, str, str], wanted: tuple[int, str, str] | None) -> tuple[str, str]:
    """How a command took a file; `wanted` is what it prints for the good one, None if there is none."""
    code, out, err = found
    errors = [line for line in err.splitlines() if not line.startswith(("warning: ", "note: "))]
    if code == BAD_INPUT and len(errors) == 1 and errors[0].startswith("error: "):
        return REFUSED, errors[0]
    if code != 0 or errors:
        return TRACEBACK, f"exit {code}: {err}"
    return (EXACT, "") if wanted is not None and out == wanted[1] else (SILENT, out[:500])


def use_command(reading: Callable[[Path, Path], list]) -> Callable:
    """Use a file by a command, and compare what it prints with what it prints for the good file."""

    def use(
        folder: Path, target: Path, *, intact: bool, swapped: bool, damage: str
    ) -> tuple[str, str]:
        good = originals() / ("b" if swapped else "a")
        return judged(call(*reading(folder / "a", target)), printed(reading, good, target.name))

    return use


@functools.cache
def printed(reading: Callable, good: Path, name: str) -> tuple[int, str, str] | None:
    found = call(*reading(originals() / "a", good / name))
    return found if found[0] == 0 else None


def resuming(where: Path, checkpoint: Path | str) -> list:
    again = ["--resume", checkpoint, "--steps", "9"] if checkpoint else []
    return ["train", "mixture", *SMALL, *TASK, "--seed", "1" if where.name == "b" else "0", *again]


def training(where: Path, data: Path) -> list:
    return ["train", data, *TASK, "--steps", "5"]


def stability(where: Path) -> Any:
    """Leave-one-out with a checkpoint."""
    data = mh.Dataset.load(where / "data.npz")
    model = mh.zero_start(2, num_tokens=data.num_tokens, dim=data.dim)
    return mh.leave_one_out(
        model, data, step_size=0.1, num_steps=4, indices=[0, 1], checkpoint=where / "measure.npz"
    )


def use_measure(folder: Path, target: Path, **_: Any) -> tuple[str, str]:
    found, wanted = stability(folder / "a"), good_measure()
    same = all(
        np.array_equal(a, b, equal_nan=True)
        for a, b in zip(measured(found), measured(wanted), strict=True)
    )
    return (EXACT, "") if same else (SILENT, str(found))


def measured(result: Any) -> list[np.ndarray]:
    return [value for value in vars(result).values() if isinstance(value, np.ndarray)]


@functools.cache
def good_measure() -> Any:
    return stability(originals() / "a")


def use_trajectory(folder: Path, target: Path, *, swapped: bool, **_: Any) -> tuple[str, str]:
    found = mh.Trajectory.load(target)
    wanted = mh.Trajectory.load(originals() / ("b" if swapped else "a") / target.name)
    leaves = [jax.tree.leaves(vars(run)) for run in (found, wanted)]
    same = jax.tree.structure(vars(found)) == jax.tree.structure(vars(wanted)) and all(
        np.array_equal(a, b) and np.asarray(a).dtype == np.asarray(b).dtype
        for a, b in zip(*leaves, strict=True)
    )
    return (EXACT, "") if same else (SILENT, str(found))


def use_studies(folder: Path, target: Path, *, swapped: bool, **_: Any) -> tuple[str, str]:
    found, wanted = read_run(target.parent), read_run(originals() / ("b" if swapped else "a"))
    found.pop("format_version"), wanted.pop("format_version")
    return (EXACT, "") if found == wanted else (SILENT, str(found))


def use_sweep(
    folder: Path, target: Path, *, intact: bool, swapped: bool, damage: str
) -> tuple[str, str]:
    """Look at a sweep, resume it, and compare its dataset with the one it had."""
    sweep, spec = folder / "a" / "sweep", folder / "a" / "spec.toml"
    looked, detail = judged(call("status", sweep), printed_status(folder, sweep))
    if looked == TRACEBACK:
        return looked, detail
    if looked == SILENT:  # other counts are fine if it says why
        looked = REFUSED if "corrupt: " in detail or "missing" in detail else SILENT
    arguments = ["sweep", spec, "--out", sweep, "--quiet", "--no-cache"]
    code, _, err = resumed = call(*arguments)
    if damage == "newer":
        return judged(resumed, None)
    taken_over = code == BAD_INPUT and swapped and "pass extend" in err
    if taken_over:
        code, _, err = call(*arguments, "--extend")
    if code != 0:
        return (TRACEBACK if "bug in" in err or "Traceback" in err else DEAD_END), err
    aside = [path.name for path in sweep.rglob("*.corrupt")]
    if not same_results(sweep):
        return SILENT, err
    if intact or damage == "older":
        return (
            (EXACT, "")
            if looked == EXACT and not aside
            else (DEAD_END, f"a good file was set aside: {err}")
        )
    if damage == "older bit" and not aside:
        return looked, err
    if taken_over:
        return judged(resumed, None)
    if not aside:
        return SILENT, "a changed file is still in use"
    return (AGAIN, err) if looked == REFUSED else (SILENT, "status saw nothing")


def printed_status(folder: Path, sweep: Path) -> tuple[int, str, str]:
    code, out, err = good_status()
    return code, out.replace(str(originals()), str(folder)), err


@functools.cache
def good_status() -> tuple[int, str, str]:
    return call("status", originals() / "a" / "sweep")


@functools.cache
def good_results() -> Any:
    return open_sweep(originals() / "a" / "sweep").load()


def same_results(sweep: Path) -> bool:
    return open_sweep(sweep).load().drop_attrs().identical(good_results().drop_attrs())


@contextlib.contextmanager
def limited() -> Generator[None, None, None]:
    """Stop what takes too long."""

    def ring(*_: Any) -> None:
        raise Hanging

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


USES: dict[str, Callable] = {
    "part": use_sweep,
    "plan": use_sweep,
    "trajectory": use_trajectory,
    "checkpoint": use_command(resuming),
    "dataset": use_command(training),
    "measure": use_measure,
    "studies": use_studies,
}
