"""Files that say when they are damaged: written whole, sealed with a checksum, verified before use. Needs no JAX.

A file of ours ends with the SHA-256 of every byte before it: an .npz in the comment that may follow a ZIP archive, a
JSON file in its last key. So a changed, missing or additional bit anywhere is found. Files of format_version 1 and the
user's own have no checksum; of an .npz each array is then read to its end, where ZIP's own check is.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import io
import json
import math
import os
import warnings
import zipfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np

from manyheads._check import shown
from manyheads.data.budget import fits_unpacked

SEALED_SINCE = 2  # the format_version from which on every file has a checksum
DIGITS = 64
NPZ_MARK = b"manyheads sha256 "
JSON_MARK = b',\n "sha256": "'
JSON_END = b'"\n}'
BARE_END = 22  # bytes of the record that ends a ZIP archive without a comment
BLOCK = 1 << 20
FORMATS = "Data are read from .npz, .npy, .csv and .parquet files, by their ending."


class Damaged(ValueError):
    """A file whose content is not what was written."""


@contextlib.contextmanager
def whole_file(path: Path) -> Generator[Any, None, None]:
    """A binary file that appears under its name whole, or not at all."""
    scratch = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with _locked(scratch) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(scratch, path)
    except OSError as error:
        error.filename = error.filename or str(path)  # a failed write does not say of what
        raise
    finally:
        scratch.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _locked(scratch: Path) -> Any:
    """A new file, locked for as long as its writer lives, where the file system has locks."""
    while True:
        file = open(scratch, "w+b")
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # taken for a leftover just before it was locked


def remove_leftovers(path: Path) -> None:
    """Remove what killed writers of this file left behind; a writer that lives has locked its own."""
    with os.scandir(path.absolute().parent) as entries:
        ours = [
            entry.path
            for entry in entries
            if entry.name.startswith(f"{path.name}.") and entry.name[-4:] == ".tmp"
        ]
    for scratch in ours:
        number = scratch[:-4].rpartition(".")[2]
        with contextlib.suppress(OSError):
            if number.isdigit():
                with open(scratch, "rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(scratch)


def write_whole(path: Path, content: bytes) -> None:
    """Write bytes under a name, whole or not at all."""
    with whole_file(path) as file:
        file.write(content)


def why_not(path: str | Path, error: Exception) -> str:
    """That a file could not be written, and why."""
    return f"{path} could not be written ({getattr(error, 'strerror', None) or error})"


@contextlib.contextmanager
def failing_warns(path: str | Path) -> Generator[None, None, None]:
    """A checkpoint that cannot be written, on a full disk for example, must not end what it is a copy of."""
    try:
        yield
    except (OSError, ValueError) as error:
        warnings.warn(f"{why_not(path, error)}; the work goes on", stacklevel=4)


def checked_path(path: str | Path, name: str = "") -> Path:
    """A path a file can be written to, as far as can be told before it is."""
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"{name or 'path'}={shown(path)} must be a path.")
    said, path = f"{name}={path}" if name else f"{path}", Path(path)
    if path.is_dir():
        raise ValueError(f"{said} is a folder; pass a file in it.")
    if path.exists() and not path.is_file():
        raise ValueError(f"{said} is a device or a pipe, which is never replaced; pass a file.")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"{said}: the folder does not exist; make it first.")
    if not os.access(path.absolute().parent, os.W_OK):
        raise ValueError(f"{said}: the folder cannot be written to; pass another one.")
    return path


def set_aside(path: Path, stem: str, ending: str = "corrupt") -> Path:
    """Rename a file to STEM.NUMBER.ENDING, the first number that is free; nothing is deleted."""
    for number in range(1, 10_000):
        target = path.with_name(f"{stem}.{number}.{ending}")
        if not target.exists():
            path.rename(target)
            return target
    raise ValueError(f"{path.parent} holds thousands of {ending} copies of {stem}; delete them")


def write_npz(path: str | Path, arrays: dict[str, np.ndarray], meta: dict) -> None:
    """Arrays and a JSON header in one sealed .npz, whole or not at all."""
    path = checked_path(path)
    remove_leftovers(path)
    with whole_file(path) as file:
        save_npz(file, {"meta": np.array(json.dumps(meta)), **arrays})


def save_npz(file: Any, arrays: dict[str, Any]) -> None:
    """Arrays as an .npz in a new file, sealed by its last bytes."""
    np.savez(file, **arrays)
    file.seek(-2, os.SEEK_END)  # the length of the comment
    file.write((len(NPZ_MARK) + DIGITS).to_bytes(2, "little") + NPZ_MARK)
    file.write(_digest(file, file.tell()))


class Archive:
    """An open .npz that was verified as far as it can be: as a whole where it is sealed, else each array on reading."""

    def __init__(self, file: Any):
        if os.fstat(file.fileno()).st_size <= BLOCK:
            file = io.BytesIO(file.read())  # once: there may be thousands
        self.sealed = _verified(file)
        self.zip = zipfile.ZipFile(file)
        members = [name for name in self.zip.namelist() if name.endswith(".npy")]
        self.names = [name.removesuffix(".npy") for name in members]
        if len(set(members)) < len(members):
            raise Damaged("it has two arrays of one name")
        if not self.sealed and len(self.zip.namelist()) & 0xFFFF != _num_members(file):
            raise Damaged("its table of contents is damaged")
        for name in set(self.zip.namelist()) - set(members):
            self.zip.open(
                name
            ).close()  # not an array whose name was damaged: names are there twice

    def __getitem__(self, name: str) -> np.ndarray:
        content = self.zip.read(f"{name}.npy")  # to its end, where ZIP's own check is
        start = 10 + int.from_bytes(content[8:10], "little")
        if content[:8] != np.lib.format.magic(1, 0):
            raise Damaged(f"the array {name} is not in NumPy's format 1.0")
        shape, is_fortran, dtype = _layout(content[8:start])
        if dtype.hasobject or len(content) - start != dtype.itemsize * math.prod(shape):
            raise Damaged(f"the array {name} holds objects, or not as much as it says")
        if len(content) == start:
            return np.zeros(shape, dtype)
        array = np.frombuffer(content, dtype, offset=start)
        return array.reshape(shape, order="F" if is_fortran else "C").copy(order="K")

    def mapped(self, name: str, path: Path) -> np.ndarray:
        """The array where it is in the file, not read; its checksum is verified first."""
        info = self.zip.getinfo(f"{name}.npy")
        if info.compress_type != zipfile.ZIP_STORED:
            raise Damaged(
                f"the array {name} is compressed; np.savez writes it so that it can be read in place"
            )
        if not self.sealed:
            with self.zip.open(info) as member:
                while member.read(BLOCK):
                    pass
        with open(path, "rb") as file:
            file.seek(info.header_offset + 26)
            lengths = file.read(4)  # of the name and of the extra field
            begin = (
                info.header_offset
                + 30
                + sum(int.from_bytes(lengths[k : k + 2], "little") for k in (0, 2))
            )
            file.seek(begin)
            return _map_array(file, path)

    def text(self, name: str) -> str:
        """An array that holds one text; "" if there is no such array."""
        array = self[name] if name in self.names else np.zeros(0)
        return str(array) if array.shape == () and array.dtype.kind == "U" else ""

    def check_version(self, version: Any, newest: int | None) -> None:
        """Refuse a version that is none, is newer than `newest`, or should have a checksum."""
        _check_version(version, newest, self.sealed)


def read_npz(
    path: str | Path, newest: int | None = None, mapped: tuple[str, ...] = ()
) -> tuple[dict[str, np.ndarray], dict]:
    """What `write_npz` wrote; a plain .npz without a header has an empty one. Never unpickles.

    A file whose `format_version` is above `newest` is refused. The arrays named in `mapped` stay in the file.
    """
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"path={shown(path)} must be the path of an .npz file.")
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; check the path.")
    if path.is_dir():
        raise ValueError(f"{path} is a folder; pass an .npz file.")
    if not path.is_file():
        raise ValueError(f"{path} is a device or a pipe; pass an .npz file.")
    if not mapped:
        fits_unpacked(path)
    try:
        with open(path, "rb") as raw:
            archive = Archive(raw)
            text = archive.text("meta")
            meta = json.loads(text) if text else {}
            archive.check_version(meta.get("format_version", 0), newest)
            names = [name for name in archive.names if not (name == "meta" and text)]
            return {
                name: archive.mapped(name, path) if name in mapped else archive[name]
                for name in names
            }, meta
    except Newer as error:
        raise Newer(f"{path} {error}") from None
    except Exception as error:  # zipfile, zlib, json, tokenize and numpy each have their own
        raise Damaged(
            f"{path} is not a readable .npz file ({short(error)}); use another copy, or make it anew. {FORMATS}"
        ) from None


def read_npy(path: str | Path) -> np.ndarray:
    """The array in an .npy file. Never unpickles."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist or is not a file; check the path.")
    try:
        with open(path, "rb") as file:
            return np.lib.format.read_array(file, allow_pickle=False)
    except Exception:  # NumPy's own words would advise to load it unsafely
        raise Damaged(
            f"{path} is not a readable .npy file of numbers or texts; save the array with np.save. {FORMATS}"
        ) from None


def map_npy(path: str | Path) -> np.ndarray:
    """The array in an .npy file, which stays there."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist or is not a file; check the path.")
    try:
        with open(path, "rb") as file:
            return _map_array(file, path)
    except Exception:
        raise Damaged(
            f"{path} is not a readable .npy file of numbers; save the array with np.save. {FORMATS}"
        ) from None


def _map_array(file: Any, path: Path) -> np.ndarray:
    """The array, in NumPy's format, that begins where an open file is."""
    version = np.lib.format.read_magic(file)
    read = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    shape, is_fortran, dtype = read(file)
    if dtype.hasobject or not math.prod(shape):
        raise Damaged("it holds objects, or nothing")
    return np.memmap(path, dtype, "r", file.tell(), shape, "F" if is_fortran else "C")


def holds_plain(path: Path, name: str) -> bool:
    """Whether an .npz file holds an array of that name which is not compressed."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.getinfo(f"{name}.npy").compress_type == zipfile.ZIP_STORED
    except Exception:  # not an archive, a damaged one, or without that array
        return False


def write_json(path: Path, content: dict[str, Any]) -> None:
    """A JSON file, sealed by its last key, whole or not at all."""
    sealed = json.dumps(content, indent=1).encode().removesuffix(b"\n}") + JSON_MARK
    write_whole(path, sealed + hashlib.sha256(sealed).hexdigest().encode() + JSON_END)


def read_json(path: Path, newest: int, remedy: str) -> dict[str, Any]:
    """What `write_json` wrote, without its last key; `remedy` says what to do about a damaged one.

    One without a checksum is read with a warning if its version had none.
    """
    raw = path.read_bytes()
    try:
        before, digest = (
            raw[: -DIGITS - len(JSON_END)],
            raw[-DIGITS - len(JSON_END) : -len(JSON_END)],
        )
        sealed = before.endswith(JSON_MARK) and raw.endswith(JSON_END)
        if sealed and hashlib.sha256(before).hexdigest().encode() != digest:
            raise Damaged("its content does not match its checksum")
        content = json.loads(raw)
        if not isinstance(content, dict):
            raise Damaged("it holds no table")
        _check_version(content.get("format_version"), newest, sealed)
        if "sha256" in content and not sealed:
            raise Damaged("something follows its checksum")
    except Newer as error:
        raise Newer(f"{path} {error}") from None
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{path} cannot be read ({short(error)}); {remedy}") from None
    if not sealed:
        warnings.warn(
            f"{path} is of an older version and has no checksum; the next run here adds one",
            stacklevel=3,
        )
    content.pop("sha256", None)
    return content


class Newer(ValueError):
    """A file of a version that is not known yet."""


def _check_version(version: Any, newest: int | None, sealed: bool) -> None:
    if not isinstance(version, int) or isinstance(version, bool) or version < 0:
        raise Damaged(f"format_version {shown(version)}")
    if newest is not None and version > newest:
        raise Newer(
            f"has format_version {version}, newer than the {newest} this version of manyheads reads; update manyheads."
        )
    if version >= SEALED_SINCE and not sealed:
        raise Damaged("its checksum is missing")


def _verified(file: Any) -> bool:
    """Whether an .npz is sealed; one that is not must end as an archive without a comment does."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - len(NPZ_MARK) - DIGITS))
    tail = file.read()
    if tail.startswith(NPZ_MARK) and len(tail) == len(NPZ_MARK) + DIGITS:
        if _digest(file, size - DIGITS) != tail[-DIGITS:]:
            raise Damaged("its content does not match its checksum")
        return True
    if size == 0:
        raise Damaged("it is empty")
    file.seek(0)
    if file.read(6) == np.lib.format.MAGIC_PREFIX:
        raise Damaged("it holds one array without a name")
    if not (tail[-BARE_END:].startswith(b"PK\5\6") and tail.endswith(b"\0\0")):
        raise Damaged("it does not end as such a file does")
    return False


@functools.lru_cache(maxsize=1024)  # the arrays of many files are alike
def _layout(header: bytes) -> tuple[tuple[int, ...], bool, np.dtype]:
    return np.lib.format.read_array_header_1_0(io.BytesIO(header))


def _num_members(file: Any) -> int:
    """How many members the record at the end of an archive without a comment says there are, modulo 65536."""
    file.seek(-BARE_END, os.SEEK_END)
    return int.from_bytes(file.read(BARE_END)[10:12], "little")


def _digest(file: Any, length: int) -> bytes:
    """SHA-256 of the first bytes of a file, in hexadecimal; the file is left behind them."""
    digest = hashlib.sha256()
    file.seek(0)
    while length > 0 and (block := file.read(min(BLOCK, length))):
        digest.update(block)
        length -= len(block)
    return digest.hexdigest().encode()


def short(error: BaseException) -> str:
    """An error's text as a part of a line."""
    return " ".join(str(error).split())[:120] or type(error).__name__
