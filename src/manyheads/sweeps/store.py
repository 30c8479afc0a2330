"""The folder of a sweep: `sweep.json` (spec and plan), one part file per finished batch, a journal. Needs no JAX.

A part file is written to a temporary name, synced and renamed, and never written again: a part that exists is complete.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import time
import zipfile
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from manyheads.data.dataset import whole_file
from manyheads.sweeps.plan import Plan
from manyheads.sweeps.spec import Sweep

FORMAT_VERSION = 1
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
    """A part file that cannot be read."""


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
            if [batch["id"] for batch in old["batches"]] == [batch["id"] for batch in manifest["batches"]]:
                if Sweep.from_dict(old["spec"]) == plan.sweep:
                    return
            elif not extend:
                what = _difference(self.sweep().to_dict(), manifest["spec"])
                raise StoreError(
                    f"{self.path} holds another sweep ({what}); choose another folder, or pass extend to take over the "
                    "batches that both have in common"
                )
        elif self.path.is_dir() and any(p.name not in ("parts", "lock", "journal.jsonl") for p in self.path.iterdir()):
            raise StoreError(f"{self.path} is not empty and holds no sweep; choose a new or empty folder")
        with self._writing():
            self.parts.mkdir(parents=True, exist_ok=True)
            write_whole(self.path / "sweep.json", json.dumps(manifest, indent=1).encode())

    def manifest(self) -> dict[str, Any]:
        """The content of `sweep.json`."""
        path = self.path / "sweep.json"
        if not path.is_file():
            raise FileNotFoundError(f"{self.path} holds no sweep (there is no sweep.json); pass the folder of a sweep.")
        try:
            content = json.loads(path.read_bytes())
            version = content["format_version"]
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"{path} cannot be read ({error}); delete it and run the same spec again, the parts are kept"
            ) from None
        if version > FORMAT_VERSION:
            raise StoreError(
                f"{path} has format_version {version}, newer than the {FORMAT_VERSION} this manyheads reads; update it"
            )
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
            raise StoreError(f"{self.part(batch_id)} exists; a finished batch is never written again")
        arrays, cells = {}, []
        for i, cell in enumerate(result["cells"]):
            described = {}
            for name, (dims, array, attributes) in cell["values"].items():
                arrays[f"{i}/{name}"] = array
                described[name] = dict(
                    dims=list(dims), attributes=attributes, shape=list(array.shape), dtype=array.dtype.str
                )
            cells.append({**{k: cell[k] for k in ("hash", "status", "message", "seconds")}, "values": described})
        header = dict(format_version=FORMAT_VERSION, batch=batch_id, cells=cells, worker=result["worker"])
        with self._writing(), whole_file(self.part(batch_id)) as file:
            np.savez(file, header=np.array(json.dumps(header)), **arrays)

    def header(self, batch_id: str) -> dict[str, Any]:
        """Statuses, shapes and origin of a part, without its arrays."""
        with self._open(batch_id) as file:
            return _header(file, self.part(batch_id))

    def check(self, batch_id: str) -> dict[str, Any]:
        """Read a part to its last byte, and return its header."""
        with self._open(batch_id) as file:
            header = _header(file, self.part(batch_id))
            for name in file.files:
                file[name]  # the zip checksum is compared on reading
        return header

    def read(self, batch_id: str, names: list[str]) -> dict[str, np.ndarray]:
        """Some arrays of a part."""
        with self._open(batch_id) as file:
            return {name: file[name] for name in names}

    @contextlib.contextmanager
    def _open(self, batch_id: str) -> Generator[Any, None, None]:
        path = self.part(batch_id)
        try:
            with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
                yield file
        except (FileNotFoundError, PermissionError, StoreError):
            raise
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, RuntimeError) as error:
            raise CorruptPart(
                f"{path} cannot be read ({_short(error)}); run the sweep again to redo its batch"
            ) from None

    def set_aside(self, batch_id: str, ending: str) -> Path:
        """Rename a part so that its batch counts as missing; nothing is deleted."""
        source = self.part(batch_id)
        for number in range(1, 10_000):
            target = source.with_name(f"{batch_id}.{number}.{ending}")
            if not target.exists():
                source.rename(target)
                return target
        raise StoreError(f"{self.parts} holds thousands of {ending} copies of {batch_id}; delete them")

    def sweep_leftovers(self) -> None:
        """Remove temporary files of writers that were killed (only the holder of the lock may do this)."""
        for scratch in [*self.parts.glob("*.tmp"), *self.path.glob("*.tmp")]:
            scratch.unlink(missing_ok=True)

    def headers(self, manifest: Mapping[str, Any]) -> Generator[tuple[dict, Any], None, None]:
        """(batch, header) of every part that is stored; the error in place of a header that cannot be read."""
        for batch in manifest["batches"]:
            try:
                header = self.header(batch["id"])
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
                raise StoreError(f"another process is working on {self.path}; wait for it, or stop it first") from None
            yield

    @contextlib.contextmanager
    def _writing(self) -> Generator[None, None, None]:
        """Turn an error of the file system into one line that says what to do."""
        try:
            yield
        except OSError as error:
            remedy = REMEDIES.get(error.errno or 0, "fix this and rerun")
            reason = error.strerror or error
            raise StoreError(f"cannot write in {self.path}: {reason}; stored results are safe, {remedy}") from None

    def note(self, event: str, batch_id: str = "", **more: Any) -> None:
        """Add a line to the journal; it is read for rates, and no result depends on it."""
        line = json.dumps({"time": round(time.time(), 3), "event": event, "batch": batch_id, **more}) + "\n"
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
        return [event for event in events if isinstance(event, dict) and "event" in event]


def write_whole(path: Path, content: bytes) -> None:
    """Write bytes under a name, whole or not at all."""
    with whole_file(path) as file:
        file.write(content)


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


def _header(file: Any, path: Path) -> dict[str, Any]:
    header = json.loads(str(file["header"]))
    if header["format_version"] > FORMAT_VERSION:
        raise StoreError(
            f"{path} has format_version {header['format_version']}, newer than the {FORMAT_VERSION} this manyheads "
            "reads; update it"
        )
    return header


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


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__
