"""Files that say when they are damaged: written whole or not at all, sealed with a checksum, verified before use.

A file of ours ends with the SHA-256 of every byte before it: an .npz in the comment that may follow
a ZIP archive, a JSON file in its last key. So a changed, missing or additional bit anywhere is
found. The user's own files have no checksum; of an .npz each array is then read to its end, where
ZIP's own check is. Nothing is ever unpickled.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import time
import uuid
import warnings
import zipfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np

from manyheads._check import shown
from manyheads.data.budget import fits_unpacked

# of every file that is written here
FORMAT_VERSION = 1
DIGITS = 64
NPZ_MARK = b"manyheads sha256 "
JSON_MARK = b',\n "sha256": "'
JSON_END = b'"\n}'
BLOCK = 1 << 20
# seconds after which a file that is still being written has no writer
ABANDONED = 3600.0
FORMATS = "Data are read from .npz, .npy, .csv and .parquet files, by their ending."


class Damaged(ValueError):
    """A file whose content is not what was written."""


# Writing


@contextlib.contextmanager
def whole_file(path: Path) -> Generator[Any, None, None]:
    """A binary file that appears under its name whole, or not at all."""
    scratch = path.with_name(f"{path.name}.{uuid.uuid4().hex[:12]}.tmp")
    try:
        with open(scratch, "x+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, path)
    except OSError as error:
        # a failed write does not say of what
        error.filename = error.filename or str(path)
        raise
    finally:
        scratch.unlink(missing_ok=True)
    # The new name itself is safe only once the folder is on the disk, which not every system can be asked for.
    if os.name == "posix":
        folder = os.open(path.absolute().parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def remove_leftovers(path: Path) -> None:
    """Remove what killed writers of this file left behind; a writer that lives has written lately."""
    for scratch in path.absolute().parent.glob("*.tmp"):
        if scratch.name.startswith(f"{path.name}."):
            with contextlib.suppress(OSError):
                if time.time() - scratch.stat().st_mtime > ABANDONED:
                    scratch.unlink()


def write_whole(path: Path, content: bytes) -> None:
    """Write bytes under a name, whole or not at all."""
    with whole_file(path) as file:
        file.write(content)


def write_npz(path: str | Path, arrays: dict[str, np.ndarray], meta: dict) -> None:
    """Arrays and a JSON header in one sealed .npz, whole or not at all."""
    path = checked_path(path)
    remove_leftovers(path)
    header = json.dumps(meta | {"format_version": FORMAT_VERSION})
    with whole_file(path) as file:
        everything: dict[str, Any] = {"meta": np.array(header), **arrays}
        np.savez(file, **everything)
        # The archive ends with the length of its comment, which is empty; the seal becomes the comment.
        file.seek(-2, os.SEEK_END)
        file.write((len(NPZ_MARK) + DIGITS).to_bytes(2, "little") + NPZ_MARK)
        file.write(_digest(file, file.tell()))


def write_json(path: Path, content: dict[str, Any]) -> None:
    """A JSON file, sealed by its last key, whole or not at all."""
    text = json.dumps({"format_version": FORMAT_VERSION, **content}, indent=1)
    sealed = text.encode().removesuffix(b"\n}") + JSON_MARK
    write_whole(path, sealed + hashlib.sha256(sealed).hexdigest().encode() + JSON_END)


def checked_path(path: str | Path, name: str = "") -> Path:
    """A path a file can be written to, as far as can be told before it is."""
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"{name or 'path'}={shown(path)} must be a path.")
    said, path = f"{name}={path}" if name else f"{path}", Path(path)
    folder = path.absolute().parent
    if path.is_dir():
        raise ValueError(f"{said} is a folder; pass a file in it.")
    if path.exists() and not path.is_file():
        raise ValueError(f"{said} is a device or a pipe, which is never replaced; pass a file.")
    if not folder.is_dir():
        raise ValueError(f"{said}: the folder does not exist; make it first.")
    if not os.access(folder, os.W_OK):
        raise ValueError(f"{said}: the folder cannot be written to; pass another one.")
    return path


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


# Reading


def read_npz(
    path: str | Path, mapped: tuple[str, ...] = ()
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """What `write_npz` wrote; a plain .npz without a header has an empty one.

    The arrays named in `mapped` stay in the file.
    """
    path = checked_file(path, ".npz")
    if not mapped:
        fits_unpacked(path)
    try:
        with open(path, "rb") as file:
            sealed = _is_sealed(file)
            archive = zipfile.ZipFile(file)
            members = [name for name in archive.namelist() if name.endswith(".npy")]
            names = [name.removesuffix(".npy") for name in members]
            for other in set(archive.namelist()) - set(members):
                # a name stands there twice: a damaged one is found
                archive.open(other).close()
            if len(set(names)) < len(names):
                raise Damaged("it has two arrays of one name")
            arrays = {name: _member(archive, name) for name in names if name not in mapped}
            for name in set(mapped) & set(names):
                arrays[name] = _mapped_member(archive, name, path, sealed)
            meta = arrays.get("meta")
            if meta is None or meta.shape != () or meta.dtype.kind != "U":
                return arrays, {}
            header = json.loads(str(arrays.pop("meta")))
            _check_version(header, sealed)
            return arrays, header
    except Exception as error:  # zipfile, zlib, json, tokenize and numpy each have their own
        raise Damaged(
            f"{path} is not a readable .npz file ({short(error)}); use another copy, or make it "
            f"anew. {FORMATS}"
        ) from None


def read_npy(path: str | Path, mapped: bool = False) -> np.ndarray:
    """The array in an .npy file; it stays there if `mapped`."""
    path = checked_file(path, ".npy")
    try:
        with open(path, "rb") as file:
            return _map_array(file, path) if mapped else _array(file.read())
    except Exception as error:
        raise Damaged(
            f"{path} is not a readable .npy file of numbers or texts ({short(error)}); "
            f"save the array with np.save. {FORMATS}"
        ) from None


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    """What `write_json` wrote, without its last key; `remedy` says what to do about a damaged one."""
    raw = path.read_bytes()
    tail = DIGITS + len(JSON_END)
    before, digest = raw[:-tail], raw[-tail : -len(JSON_END)]
    try:
        sealed = before.endswith(JSON_MARK) and raw.endswith(JSON_END)
        if not sealed or hashlib.sha256(before).hexdigest().encode() != digest:
            raise Damaged("its content does not match its checksum")
        content = json.loads(raw)
        _check_version(content, sealed)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{path} cannot be read ({short(error)}); {remedy}") from None
    del content["sha256"]
    return content


def checked_file(path: str | Path, ending: str) -> Path:
    """The path of a file that can be read."""
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"path={shown(path)} must be the path of an {ending} file.")
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; check the path.")
    if path.is_dir():
        raise ValueError(f"{path} is a folder; pass an {ending} file.")
    if not path.is_file():
        raise ValueError(f"{path} is a device or a pipe; pass an {ending} file.")
    return path


def holds_plain(path: Path, name: str) -> bool:
    """Whether an .npz file holds an array of that name which is not compressed."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.getinfo(f"{name}.npy").compress_type == zipfile.ZIP_STORED
    except Exception:  # not an archive, a damaged one, or without that array
        return False


def short(error: BaseException) -> str:
    """An error's text as a part of a line."""
    return " ".join(str(error).split())[:120] or type(error).__name__


def _is_sealed(file: Any) -> bool:
    """Whether an .npz ends with a seal, which must then be that of its content."""
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        raise Damaged("it is empty")
    file.seek(max(0, size - len(NPZ_MARK) - DIGITS))
    tail = file.read()
    sealed = tail.startswith(NPZ_MARK) and len(tail) == len(NPZ_MARK) + DIGITS
    if sealed and _digest(file, size - DIGITS) != tail[-DIGITS:]:
        raise Damaged("its content does not match its checksum")
    file.seek(0)
    if file.read(6) == np.lib.format.MAGIC_PREFIX:
        raise Damaged("it holds one array without a name")
    file.seek(0)
    return sealed


def _check_version(header: dict[str, Any], sealed: bool) -> None:
    version = header["format_version"]
    if version != FORMAT_VERSION:
        raise Damaged(
            f"it has format_version {shown(version)}, and this version of manyheads reads "
            f"{FORMAT_VERSION}"
        )
    if not sealed:
        raise Damaged("its checksum is missing")


def _member(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    # to its end, where ZIP's own check is
    return _array(archive.read(f"{name}.npy"))


def _array(content: bytes) -> np.ndarray:
    file = io.BytesIO(content)
    shape, is_fortran, dtype = _layout(file)
    if len(content) - file.tell() != dtype.itemsize * int(np.prod(shape, dtype=object)):
        raise Damaged("an array does not hold as much as it says")
    values = np.frombuffer(content, dtype, offset=file.tell()) if file.tell() < len(content) else []
    order = "F" if is_fortran else "C"
    return np.array(values, dtype).reshape(shape, order=order)


def _layout(file: Any) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, order and dtype of the array, in NumPy's format, that begins where a file is."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0
    if version != (1, 0):
        read = np.lib.format.read_array_header_2_0
    shape, is_fortran, dtype = read(file)
    if dtype.hasobject:
        raise Damaged("it holds objects, which are never loaded")
    return shape, is_fortran, dtype


def _mapped_member(
    archive: zipfile.ZipFile, name: str, path: Path, is_verified: bool
) -> np.ndarray:
    """The array where it is in the file, not read; its checksum is verified first."""
    info = archive.getinfo(f"{name}.npy")
    if info.compress_type != zipfile.ZIP_STORED:
        raise Damaged(
            f"the array {name} is compressed; np.savez writes it so that it can be read in place"
        )
    if not is_verified:
        with archive.open(info) as member:
            while member.read(BLOCK):
                pass
    with open(path, "rb") as file:
        # The header of a member is 30 bytes, its name and an extra field; their lengths stand at byte 26.
        file.seek(info.header_offset + 26)
        lengths = file.read(4)
        before = int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")
        file.seek(info.header_offset + 30 + before)
        return _map_array(file, path)


def _map_array(file: Any, path: Path) -> np.ndarray:
    shape, is_fortran, dtype = _layout(file)
    if 0 in shape:
        raise Damaged("it holds nothing")
    return np.memmap(path, dtype, "r", file.tell(), shape, "F" if is_fortran else "C")


def _digest(file: Any, length: int) -> bytes:
    """SHA-256 of the first bytes of a file, in hexadecimal; the file is left behind them."""
    digest = hashlib.sha256()
    file.seek(0)
    while length > 0 and (block := file.read(min(BLOCK, length))):
        digest.update(block)
        length -= len(block)
    return digest.hexdigest().encode()
