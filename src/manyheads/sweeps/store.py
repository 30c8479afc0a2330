"""The folder of a sweep: `sweep.json` (spec and plan), one part file per finished batch, a journal. Needs no JAX.

A part file is written to a temporary name, synced and renamed, and never written again: a part that exists is complete.
It is used only if its checksum is right and its cells are those that its name, a hash of them, stands for.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import math
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from manyheads.data.files import (
    Archive,
    Damaged,
    Newer,
    read_json,
    save_npz,
    set_aside,
    short,
    whole_file,
    write_json,
)
from manyheads.sweeps.plan import Plan, name_of_batch
from manyheads.sweeps.spec import Sweep

FORMAT_VERSION = 2
OURS = ("parts", "lock", "journal", "sweep")  # the names in a folder of ours, without their endings
STATUSES = ("finished", "diverged", "failed")
REMEDY = "run the same spec into this folder again, its parts are kept"
REMEDIES = {
    errno.ENOSPC: "free some space and rerun",
    errno.EDQUOT: "free some of your quota and rerun",
    errno.EFBIG: "raise the limit on file sizes and rerun",
    errno.EROFS: "choose a folder that can be written",
    errno.EACCES: "choose a folder that you may write",
    errno.EPERM: "choose a folder that you may write",
    errno.ENOTDIR: "choose a path whose parents are folders",
}


class StoreError(ValueError):
    """The folder of a sweep cannot be used as asked; the message says what to do."""


class CorruptPart(StoreError):
    """A part file that cannot be read, or does not hold what its name says."""


class DamagedManifest(StoreError):
    """A `sweep.json` that cannot be read."""


class Store:
    """The folder `path` of one sweep."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.parts = self.path / "parts"

    def exists(self) -> bool:
        """Whether a sweep was begun here."""
        return (self.path / "sweep.json").is_file()

    def begin(self, plan: Plan, provenance: Mapping[str, Any], *, extend: bool = False) -> None:
        """Make the folder, or check that the one that is there belongs to this plan."""
        manifest = _manifest(plan, provenance)
        if self.exists():
            old = self.manifest()
            if [batch["id"] for batch in old["batches"]] == [
                batch["id"] for batch in manifest["batches"]
            ]:
                if Sweep.from_dict(old["spec"]) == plan.sweep:
                    return
            elif not extend:
                what = _difference(self.sweep().to_dict(), manifest["spec"])
                raise StoreError(
                    f"{self.path} holds another sweep ({what}); choose another folder, or pass extend to take over the "
                    "batches that both have in common"
                )
        elif self.path.is_dir() and any(
            p.name.split(".")[0] not in OURS for p in self.path.iterdir()
        ):
            raise StoreError(
                f"{self.path} is not empty and holds no sweep; choose a new or empty folder"
            )
        with self._writing():
            self.parts.mkdir(parents=True, exist_ok=True)
            write_json(self.path / "sweep.json", manifest)

    def mend(self, plan: Plan, *, extend: bool = False) -> str:
        """Set a damaged `sweep.json` aside, unless the parts are of another plan; what was done, or "".

        One of this plan that has no checksum yet gets it.
        """
        try:
            old = self.manifest() if self.exists() else {"format_version": FORMAT_VERSION}
            if (
                old["format_version"] < FORMAT_VERSION
                and Sweep.from_dict(old["spec"]) == plan.sweep
            ):
                with self._writing():
                    write_json(self.path / "sweep.json", {**old, "format_version": FORMAT_VERSION})
            return ""
        except DamagedManifest as error:
            reason = str(error).rpartition("; ")[0]
            known = {batch.id for batch in plan.batches}
            others = [part.name for part in self.parts.glob("*.npz") if part.stem not in known]
            if others and not extend:
                raise StoreError(
                    f"{reason}, and parts such as {others[0]} are not of this spec; pass the spec of this folder, or "
                    "extend to begin anew beside them"
                ) from None
            with self._writing():
                aside = set_aside(self.path / "sweep.json", "sweep.json")
            return f"{reason}: kept as {aside.name}, the plan is written anew"

    def manifest(self) -> dict[str, Any]:
        """The content of `sweep.json`."""
        path = self.path / "sweep.json"
        if not path.is_file():
            raise FileNotFoundError(
                f"{self.path} holds no sweep (there is no sweep.json); pass the folder of a sweep."
            )
        try:
            content = read_json(path, FORMAT_VERSION, REMEDY)
        except Damaged as error:
            raise DamagedManifest(str(error)) from None
        except Newer as error:
            raise StoreError(str(error)) from None
        if reason := _wrong_plan(content):
            raise DamagedManifest(f"{path} is no plan of a sweep ({reason}); {REMEDY}")
        return content

    def sweep(self) -> Sweep:
        """The spec of this folder."""
        return Sweep.from_dict(self.manifest()["spec"])

    def part(self, batch_id: str) -> Path:
        """Where a batch is written."""
        return self.parts / f"{batch_id}.npz"

    def write(self, batch_id: str, result: Mapping[str, Any]) -> None:
        """Keep the result of a batch: `cells`, a list of hash, status, message, seconds and values, and `worker`."""
        if self.part(batch_id).exists():
            raise StoreError(
                f"{self.part(batch_id)} exists; a finished batch is never written again"
            )
        arrays, cells = {}, []
        for i, cell in enumerate(result["cells"]):
            described = {}
            for name, (dims, array, attributes) in cell["values"].items():
                arrays[f"{i}/{name}"] = array
                described[name] = dict(
                    dims=list(dims),
                    attributes=attributes,
                    shape=list(array.shape),
                    dtype=array.dtype.str,
                )
            cells.append(
                {
                    **{k: cell[k] for k in ("hash", "status", "message", "seconds")},
                    "values": described,
                }
            )
        header = dict(
            format_version=FORMAT_VERSION, batch=batch_id, cells=cells, worker=result["worker"]
        )
        with self._writing(), whole_file(self.part(batch_id)) as file:
            save_npz(file, {"header": np.array(json.dumps(header)), **arrays})

    def header(self, batch_id: str) -> dict[str, Any]:
        """Statuses, shapes and origin of a part, without its arrays."""
        with self._open(batch_id) as (archive, header):
            if not archive.sealed:
                _check_arrays(header, archive)
            return header

    def check(self, batch_id: str) -> dict[str, Any]:
        """Read a part to its last byte, and return its header."""
        with self._open(batch_id) as (archive, header):
            _check_arrays(header, archive)
            return header

    def read(self, batch_id: str, names: list[str]) -> dict[str, np.ndarray]:
        """Some arrays of a part."""
        with self._open(batch_id) as (archive, _):
            return {array: archive[array] for array in names}

    @contextlib.contextmanager
    def _open(self, batch_id: str) -> Generator[tuple[Archive, dict[str, Any]], None, None]:
        """A part that was verified, and its header."""
        path = self.part(batch_id)
        with open(path, "rb") as raw:
            try:
                archive = Archive(raw)
                header = json.loads(archive.text("header"))
                archive.check_version(header.get("format_version"), FORMAT_VERSION)
                _check_header(header, batch_id, archive)
                yield archive, header
            except MemoryError:
                raise
            except Newer as error:
                raise StoreError(f"{path} {error}") from None
            except (
                Exception
            ) as error:  # zipfile, zlib, json, tokenize and numpy each have their own
                reason = f"{path} cannot be read ({short(error)})"
                raise CorruptPart(f"{reason}; run the sweep again to redo its batch") from None

    def set_aside(self, batch_id: str, ending: str) -> Path:
        """Rename a part so that its batch counts as missing; nothing is deleted."""
        with self._writing():
            return set_aside(self.part(batch_id), batch_id, ending)

    def sweep_leftovers(self) -> None:
        """Remove temporary files of writers that were killed (only the holder of the lock may do this)."""
        for scratch in [*self.parts.glob("*.tmp"), *self.path.glob("*.tmp")]:
            scratch.unlink(missing_ok=True)

    def headers(
        self,
        manifest: Mapping[str, Any],
        wanted: Callable[[dict[str, Any]], bool] = lambda described: False,
    ) -> Generator[tuple[dict, Any], None, None]:
        """(batch, header) of every part that is stored; the error in place of a header that cannot be read.

        Of arrays that are `wanted` the header has the values, as "array".
        """
        for batch in manifest["batches"]:
            try:
                with self._open(batch["id"]) as (archive, header):
                    if not archive.sealed:
                        _check_arrays(header, archive)
                    for name, described in _described(header).items():
                        if wanted(described):
                            described["array"] = archive[name]
            except FileNotFoundError:
                continue
            except CorruptPart as error:
                header = error
            yield batch, header

    def is_locked(self) -> bool:
        """Whether a process is working on this folder."""
        try:
            with open(self.path / "lock") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            return isinstance(error, BlockingIOError)
        return False

    @contextlib.contextmanager
    def lock(self) -> Generator[None, None, None]:
        """One driver at a time; the lock goes when its process goes, also by kill -9."""
        with self._writing():
            self.parts.mkdir(parents=True, exist_ok=True)
            file = open(self.path / "lock", "a")
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreError(
                    f"another process is working on {self.path}; wait for it, or stop it first"
                ) from None
            yield

    @contextlib.contextmanager
    def _writing(self) -> Generator[None, None, None]:
        """Turn an error of the file system into one line that says what to do."""
        try:
            yield
        except OSError as error:
            remedy = REMEDIES.get(error.errno or 0, "fix this and rerun")
            reason = error.strerror or error
            raise StoreError(
                f"cannot write in {self.path}: {reason}; stored results are safe, {remedy}"
            ) from None

    def note(self, event: str, batch_id: str = "", **more: Any) -> None:
        """Add a line to the journal; it is read for rates, and no result depends on it."""
        line = (
            json.dumps({"time": round(time.time(), 3), "event": event, "batch": batch_id, **more})
            + "\n"
        )
        with contextlib.suppress(OSError), open(self.path / "journal.jsonl", "a") as file:
            file.write(line)

    def journal(self) -> list[dict[str, Any]]:
        """The journal's lines; a line torn by a kill is left out."""
        path = self.path / "journal.jsonl"
        lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
        events = []
        for line in lines:
            with contextlib.suppress(ValueError):
                events.append(json.loads(line))
        return [event for event in events if _is_event(event)]


def _manifest(plan: Plan, provenance: Mapping[str, Any]) -> dict[str, Any]:
    return dict(
        format_version=FORMAT_VERSION,
        name=plan.sweep.name,
        spec=plan.sweep.to_dict(),
        dims=list(plan.dims),
        coordinates=plan.coordinates,
        grid=plan.grid.ravel().tolist(),
        cells=[cell.hash for cell in plan.cells],
        batches=[dict(id=batch.id, cells=list(batch.cells)) for batch in plan.batches],
        provenance=dict(provenance),
    )


def _wrong_plan(content: dict[str, Any]) -> str:
    """What is wrong with the content of a `sweep.json`, or ""."""
    try:
        cells, grid = content["cells"], content["grid"]
        sizes = [len(content["coordinates"][dim]["values"]) for dim in content["dims"]]
        if len(grid) != math.prod(sizes) or set(grid) != set(range(len(cells))):
            return "its grid and its cells do not fit"
        if any(
            batch["id"] != name_of_batch(cells[i] for i in batch["cells"])
            for batch in content["batches"]
        ):
            return "a batch is not named after its cells"
        if sorted(i for batch in content["batches"] for i in batch["cells"]) != list(
            range(len(cells))
        ):
            return "its batches are not all of its cells"
        if not (isinstance(content["spec"], dict) and isinstance(content["name"], str)):
            return "it has no spec"
        content["provenance"].get("git")
        return ""
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        return f"{type(error).__name__}: {short(error)}"


def _described(header: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The arrays that a part should have."""
    return {
        f"{i}/{name}": v
        for i, cell in enumerate(header["cells"])
        for name, v in cell["values"].items()
    }


def _check_header(header: dict[str, Any], batch_id: str, archive: Archive) -> None:
    """Refuse a part of other cells, or one without all of its arrays."""
    if not header["batch"] == batch_id == name_of_batch(cell["hash"] for cell in header["cells"]):
        raise Damaged(f"it holds batch {header['batch']}")
    if {"header", *_described(header)} != set(archive.names):
        raise Damaged("its arrays are not those that it describes")
    if any(cell["status"] not in STATUSES for cell in header["cells"]):
        raise Damaged("a cell has no known status")


def _check_arrays(header: dict[str, Any], archive: Archive) -> None:
    """Read every array of a part, and refuse one that is not as described."""
    for name, described in _described(header).items():
        array = archive[name]
        if list(array.shape) != described["shape"] or array.dtype.str != described["dtype"]:
            raise Damaged(f"the array {name} is not as described")


def _is_event(line: Any) -> bool:
    if not (isinstance(line, dict) and "event" in line):
        return False
    return all(
        isinstance(n, int | float) and math.isfinite(n)
        for n in (line.get("time"), line.get("cells", 1))
    )


def _difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """The first key in which two specs differ."""
    for key in new:
        a, b = old.get(key), new[key]
        if a != b and isinstance(a, dict) and isinstance(b, dict):
            inner = next(k for k in {**a, **b} if a.get(k) != b.get(k))
            return f"{key}.{inner} is {a.get(inner)!r} there and {b.get(inner)!r} here"[:200]
        if a != b:
            return f"{key} is {a!r} there and {b!r} here"[:200]
    there, here = list(old.get("axes", ())), list(new["axes"])
    if there != here:
        return f"the order of its axes is {', '.join(there)} there and {', '.join(here)} here"[:200]
    return "its data file or the rules of planning have changed"
