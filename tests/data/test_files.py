import json
import os
import time
import warnings

import numpy as np
import pytest

from manyheads.data import files
from manyheads.data.files import (
    Damaged,
    checked_path,
    read_json,
    read_npz,
    whole_file,
    write_json,
    write_npz,
)

ARRAYS = {"a": np.arange(3.0), "mask": np.array([True, False])}
META = {"format_version": 1, "name": "x"}


EVERY = pytest.mark.parametrize("stride", [41, pytest.param(1, marks=pytest.mark.full)])


def flips(content, stride=1):
    """The content with one bit flipped, for every bit, or some."""
    for i in range(0, 8 * len(content), stride):
        flipped = bytearray(content)
        flipped[i // 8] ^= 1 << i % 8
        yield bytes(flipped)


def is_same(path):
    arrays, meta = read_npz(path)
    same = arrays.keys() == ARRAYS.keys() and all(
        np.array_equal(arrays[k], ARRAYS[k]) for k in ARRAYS
    )
    return same and all(arrays[k].dtype == ARRAYS[k].dtype for k in ARRAYS) and meta == META


@EVERY
def test_every_flipped_bit_of_an_npz_is_found(tmp_path, stride):
    path = tmp_path / "x.npz"
    write_npz(path, ARRAYS, META)
    content = path.read_bytes()
    assert is_same(path) and np.array_equal(np.load(path)["a"], ARRAYS["a"])
    for flipped in flips(content, stride):
        path.write_bytes(flipped)
        with pytest.raises(Damaged, match="is not a readable .npz file"):
            read_npz(path)
    for size in range(0, len(content), stride):
        for wrong in (
            content[:size],
            content[:size] + bytes(len(content) - size),
            content + content[:size] + b"\0",
        ):
            path.write_bytes(wrong)
            with pytest.raises(Damaged):
                read_npz(path)


@EVERY
def test_no_flipped_bit_of_a_plain_npz_gives_other_arrays(tmp_path, stride):
    """ZIP's own check is at the end of a member, so every member is read to its end."""
    path = tmp_path / "x.npz"
    np.savez(path, **ARRAYS)
    content, refused = path.read_bytes(), []
    for flipped in flips(content, stride):
        path.write_bytes(flipped)
        try:
            arrays, found = read_npz(path)
        except ValueError:
            refused.append(flipped)
            continue
        assert found == {} and arrays.keys() == ARRAYS.keys()
        assert all(
            np.array_equal(arrays[k], v) and arrays[k].dtype == v.dtype for k, v in ARRAYS.items()
        )
    assert (
        len(refused) > 4 * len(content) / stride
    )  # the others change dates, flags or versions that mean nothing


@EVERY
def test_every_flipped_bit_of_a_json_file_is_found(tmp_path, stride):
    path, content = (
        tmp_path / "x.json",
        {"format_version": 1, "list": [1, 2.5, "é"], "table": {"a": None}},
    )
    write_json(path, content)
    assert read_json(path, "run it again") == content
    raw = path.read_bytes()
    assert list(json.loads(raw))[-1] == "sha256"
    damaged = [
        *flips(raw, stride),
        *(raw[:size] for size in range(0, len(raw), stride)),
        raw + b" ",
        raw.replace(b"2.5", b"2.50"),
    ]
    for wrong in damaged:
        path.write_bytes(wrong)
        with pytest.raises(
            ValueError, match="cannot be read .*; run it again|newer than"
        ) as caught:
            read_json(path, "run it again")
        assert "\n" not in str(caught.value)


def test_a_file_that_lost_its_checksum_is_refused(tmp_path):
    np.savez(tmp_path / "x.npz", meta=np.array(json.dumps(META)), **ARRAYS)
    with pytest.raises(Damaged, match="its checksum is missing"):
        read_npz(tmp_path / "x.npz")
    for text in (
        '{"format_version": 1}',
        '{"format_version": 1, "sha256": "00"}',
        '{"a": 1}',
        "[2]",
        "[" * 100_000,
    ):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(Damaged, match="cannot be read"):
            read_json(tmp_path / "x.json", "run it again")


def test_files_of_another_version_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "FORMAT_VERSION", 3)
    write_npz(tmp_path / "x.npz", ARRAYS, {})
    write_json(tmp_path / "x.json", {})
    monkeypatch.undo()
    words = "format_version 3, and this version of manyheads reads 1"
    with pytest.raises(Damaged, match=words):
        read_npz(tmp_path / "x.npz")
    with pytest.raises(Damaged, match=words):
        read_json(tmp_path / "x.json", "")


def test_the_files_of_users_are_read(tmp_path):
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "x.npz", **ARRAYS)
        arrays, meta = read_npz(tmp_path / "x.npz")
        assert meta == {} and all(np.array_equal(arrays[k], ARRAYS[k]) for k in ARRAYS)


def test_an_archive_that_would_fill_the_memory_is_refused(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "x.npz", tokens=np.zeros(10**6))
    monkeypatch.setenv("MANYHEADS_MEMORY", "0.004")
    with pytest.raises(
        ValueError, match="x.npz unpacked needs about 0.00745 GiB, and 0.004 GiB are free"
    ):
        read_npz(tmp_path / "x.npz")


def test_the_same_content_is_the_same_file(tmp_path):
    for name in ("a.npz", "b.npz"):
        write_npz(tmp_path / name, ARRAYS, META)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_what_killed_writers_left_is_removed_and_the_file_of_a_living_one_is_not(tmp_path):
    path = tmp_path / "run.npz"
    for name in ("run.npz.1.tmp", "run.npz.2.tmp", "run2.npz.1.tmp"):
        (tmp_path / name).write_bytes(b"half")
    long_ago = time.time() - 2 * files.ABANDONED
    for name in ("run.npz.1.tmp", "run2.npz.1.tmp"):
        os.utime(tmp_path / name, (long_ago, long_ago))
    write_npz(path, ARRAYS, META)
    assert sorted(os.listdir(tmp_path)) == ["run.npz", "run.npz.2.tmp", "run2.npz.1.tmp"]
    with whole_file(path) as file:
        file.write(b"new")
        write_npz(path, ARRAYS, META)  # another writer of the same file
        assert is_same(path)
    assert path.read_bytes() == b"new"


def test_a_file_with_objects_is_refused_and_never_unpickled(tmp_path):
    np.savez(tmp_path / "x.npz", tokens=np.array([{}], dtype=object))
    with pytest.raises(Damaged, match="it holds objects, which are never loaded"):
        read_npz(tmp_path / "x.npz")


def test_a_pipe_or_device_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/null"):
        with pytest.raises(ValueError, match="is a device or a pipe, which is never replaced"):
            checked_path(path)
    with pytest.raises(ValueError, match="is a device or a pipe; pass an .npz file"):
        read_npz(tmp_path / "pipe")


def test_names_with_spaces_and_letters_of_any_alphabet(tmp_path):
    folder = tmp_path / "été; touch b" / "データ"
    folder.mkdir(parents=True)
    write_npz(folder / "a b.npz", ARRAYS, META)
    write_json(folder / "a b.json", META)
    assert is_same(folder / "a b.npz")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_json(folder / "a b.json", "") == META
