"""Bad command lines: unknown options, bad values, files that are missing, wrong, in the way, or named oddly."""

from __future__ import annotations

import contextlib
import io
import os
import traceback
from pathlib import Path

import numpy as np

from manyheads.cli import main as command_line
from torture.judged import FAULTS as FAULTS
from torture.judged import ONE_LINE, RIGHT, Hang, alarm, of_error

KINDS = ("verb", "option", "value", "file", "out", "odd text", "repeated", "report folder")
OPTIONS = {
    "run": {"--scale": "name", "--workers": "count", "--seed": "seed"},
    "studies": {},
    "report": {"--light": "path"},
    "fit": {
        "--out": "path",
        "--heads": "heads",
        "--start": "name",
        "--step-size": "number",
        "--steps": "count",
        "--optimizer": "name",
        "--decoder": "name",
        "--scale": "name",
        "--positions": "name",
        "--held-out": "number",
        "--examples": "count",
        "--positive": "name",
        "--seed": "seed",
    },
    "predict": {"--examples": "count", "--seed": "seed"},
    "look": {
        "--count": "count",
        "--skip": "count0",
        "--columns": "count",
        "--out": "path",
        "--examples": "count",
        "--seed": "seed",
    },
    "train": {
        "--heads": "heads",
        "--start": "name",
        "--scale": "number",
        "--decoder": "name",
        "--steps": "steps",
        "--step-size": "number",
        "--optimizer": "name",
        "--loss": "name",
        "--examples": "count",
        "--first-phase-examples": "count",
        "--test-examples": "count0",
        "--seed": "seed",
        "--dtype": "name",
        "--device": "name",
        "--out": "path",
        "--resume": "path",
        "--plan": "path",
        "--until": "name",
    },
    "certify": {
        "--data": "path",
        "--plan": "path",
        "--statement": "name",
        "--token-radius": "number",
    },
    "forecast": {
        "--data": "path",
        "--reduce": "number",
        "--step-size": "number",
    },
    "plan": {
        "--target-loss": "number",
        "--steps": "steps",
        "--start": "name",
        "--decoder": "name",
        "--loss": "name",
        "--planning-share": "number",
        "--examples": "count",
        "--positive": "name",
        "--out": "path",
        "--seed": "seed",
    },
    "verify": {"--seed": "seed"},
    "explain": {},
    "sweep": {
        "--out": "path",
        "--engine": "name",
        "--workers": "count",
        "--scheduler": "name",
        "--threads": "count",
        "--device": "name",
        "--memory": "name",
        "--walltime": "name",
    },
    "status": {},
    "export": {"--out": "path", "--format": "name"},
}
BAD = {
    "number": (
        "nan",
        "inf",
        "-inf",
        "-1",
        "abc",
        "",
        "1e400",
        "0x10",
        "1,5",
        "1e-320",
        "--",
        "ten",
        "1_0_",
        "٣",
        "1e-400",
        "[1]",
    ),
    "count": (
        "0",
        "-1",
        "2.5",
        "abc",
        "",
        "1e3",
        "99999999999999999999",
        "nan",
        "1_000_",
        "٣",
        str(2**31),
        "2000000000000",
    ),
    "count0": ("-1", "2.5", "abc", "", "99999999999999999999", "nan", str(2**31), "2000000000000"),
    "steps": (
        "-1",
        "2.5",
        "abc",
        "",
        "1e3",
        "nan",
        "99999999999999999999",
        str(2**31),
        "2000000000",
    ),
    "seed": ("-1", "2.5", "abc", "", "1e3", str(2**32), str(2**64), "9" * 400, "nan", "0x1"),
    "heads": (
        "0",
        "-1",
        "1.5",
        "abc",
        "",
        "1e16",
        "10^400",
        "10^99999999",
        "nan",
        "inf",
        "1e12e",
        "^",
        "10^-3",
        "9" * 400,
    ),
    "name": (
        "nonsense",
        "",
        "FULL",
        "é",
        "a b",
        "../x",
        "--",
        "\x1b[31m",
        "[/b]",
        "<script>",
        "full,zero",
    ),
    "path": (),
}
ODD = (
    "",
    " ",
    "é",
    "日本",
    "a\nb",
    "\x1b[31mred",
    "[/b]",
    "<script>alert(1)</script>",
    "-",
    "--",
    "---",
    "-x",
    "--=",
    "--heads=",
    "%s",
    "{}",
    "$(touch x)",
    "a" * 3000,
)
TIME_LIMIT = 300


def trial(kind: str, rng: np.random.Generator, folder: Path):
    """One command line."""

    def pick(values):
        return values[rng.integers(len(values))]

    verb = pick(
        [name for name, options in OPTIONS.items() if options or kind not in ("value", "repeated")]
    )
    place = base(verb, folder)
    if kind == "verb":
        line = [pick((*ODD, "trian", "TRAIN", "help", "--verison", "-V", "train.py", "run;ls"))] + (
            [pick(ODD)] if rng.random() < 0.5 else []
        )
    elif kind == "option":
        line = [
            verb,
            *place,
            f"--{pick(('nonsense', 'head', 'step', 'no-quiet', 'outt', 'é', '', 'seed-', 'json=maybe'))}",
            *([pick(ODD)] if rng.random() < 0.5 else []),
        ]
    elif kind in ("value", "repeated"):
        option = pick(
            [name for name, of in OPTIONS[verb].items() if of != "path"] or list(OPTIONS[verb])
        )
        of = OPTIONS[verb][option]
        value = pick(BAD[of] or [str(folder)])
        line = [verb, *place, *([option, value] if rng.random() < 0.5 else [f"{option}={value}"])]
        if kind == "repeated":
            line += [option, pick(BAD[of] or ["x"]), option]
    elif kind == "file":
        line = [
            verb,
            str(bad_path(rng, folder)),
            *([str(bad_path(rng, folder))] if rng.random() < 0.3 else []),
        ]
    elif kind == "out":
        verb = pick(("train", "export", "sweep", "report"))
        option = "--light" if verb == "report" else "--out"
        line = [verb, *base(verb, folder), option, str(bad_path(rng, folder))]
        line += ["--steps", "2", "--examples", "4", "--quiet"] if verb == "train" else []
    elif kind == "odd text":
        line = [
            verb,
            *(base(verb, folder) if verb in ("run", "train", "certify", "plan", "verify") else []),
            *(pick(ODD) for _ in range(int(rng.integers(1, 4)))),
        ]
    else:
        line = ["report", str(bad_folder(rng, folder))]
    return judged([str(word) for word in line], folder)


def base(verb: str, folder: Path) -> list[str]:
    """Positional arguments with which a verb ends soon, whatever else is right."""
    missing = str(folder / "missing")
    return {
        "train": ["random_labels", "--steps", "2", "--examples", "6", "--test-examples", "4"],
        "certify": [missing, "--statement", "descent"],
        "plan": ["random_labels", "--examples", "24", "--no-trials"],
        "fit": [
            "random_labels",
            "--examples",
            "24",
            "--no-theory",
            "--steps",
            "2",
            "--heads",
            "1",
            "--start",
            "zero",
        ],
        "verify": ["E1", "--quick"],
        "studies": [],
        "explain": [],
        "run": ["no-such-study"],
    }.get(verb, [missing])


def bad_path(rng: np.random.Generator, folder: Path) -> Path | str:
    """A path where something is wrong, or at least unexpected."""
    text, fifo = folder / "text.npz", folder / "pipe"
    text.write_text("tokens\n1\n")
    if fifo.exists():
        return folder / "gone"
    os.mkfifo(fifo)
    (folder / "ö ä; touch b").mkdir(exist_ok=True)
    (folder / "link").symlink_to(folder / "nowhere")
    (folder / "loop").symlink_to(folder / "loop")
    paths = (
        folder,
        text,
        fifo,
        folder / "no" / "such" / "file.npz",
        "",
        "\0",
        "/dev/null",
        "/dev/full",
        "/dev/zero",
        "/proc/self/mem",
        folder / "link",
        folder / "loop",
        folder / "ö ä; touch b",
        folder / "ö ä; touch b" / "x.npz",
        "/",
        ".",
        "a" * 3000,
        text / "x",
        "/nowhere/x\ny",
        "-",
        "mixture\0",
        f"{folder}/../../../../x/y",
    )
    return paths[rng.integers(len(paths))]


def bad_folder(rng: np.random.Generator, folder: Path) -> Path:
    """A folder of a run whose `run.json` is wrong, or names code."""
    mark = folder / "code-ran"
    (folder / "evil.py").write_text(f"import pathlib\npathlib.Path({str(mark)!r}).touch()\n")
    base = '{"format_version": 1, "scale": "quick", "seed": 0, "studies": %s}'
    texts = (
        base % f'["{folder}/evil.py"]',
        base % '["evil.py"]',
        base % '["../evil"]',
        base % "[]",
        base % "[3]",
        base % '"heads"',
        base % "null",
        base % '["no-such-study"]',
        base % '["heads"]',
        '{"format_version": 99, "scale": "quick", "seed": 0, "studies": []}',
        "{}",
        "[]",
        "null",
        "3",
        "",
        "{",
        '{"format_version": "1"}',
        '{"format_version": 1, "scale": 3, "seed": "x", "studies": ["heads"]}',
        '{"format_version": 1, "scale": "huge", "seed": 0, "studies": ["heads"]}',
        base % f'["heads", "{folder}/evil.py"]',
        "[" * 5000,
        "\xff",
    )
    (folder / "run.json").write_bytes(texts[rng.integers(len(texts))].encode("latin-1"))
    return folder


def watched(line: list[str], seen: list[BaseException]) -> int:
    """`main(line)`, with the errors that it turns into lines."""
    one_line = command_line._one_line

    def note(error: BaseException) -> str:
        seen.append(error)
        return one_line(error)

    command_line._one_line = note
    try:
        return command_line.main(line)
    finally:
        command_line._one_line = one_line


def judged(line: list[str], folder: Path) -> tuple[str, str]:
    """Run a command line in this process, in an empty folder, and judge what it printed and how it ended."""
    out, err, about, seen = io.StringIO(), io.StringIO(), " ".join(map(repr, line))[:300], []
    work = folder / "work"
    work.mkdir(exist_ok=True)
    special = [p for p in (folder / "pipe", Path("/dev/null")) if p.exists()]
    before = os.getcwd()
    try:
        os.chdir(work)
        with (
            alarm(TIME_LIMIT),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            np.errstate(all="ignore"),
        ):
            code = watched(line, seen)
    except Hang:
        return "hang", about
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        return "traceback", f"{about}: {traceback.format_exc(limit=-2)}"[:800]
    finally:
        os.chdir(before)
    said = err.getvalue()
    if (folder / "code-ran").exists():
        return "code ran", about
    if any(p.is_file() for p in special):
        return "silent nonsense", f"{about} replaced a pipe or a device"
    if "Traceback" in said or "Traceback" in out.getvalue() or code == 70:
        return "traceback", f"{about}: {said}"[:800]
    for error in seen:  # the line must be ours, or the system's word on a file
        found = of_error(error, about, longest=10**6)  # the command line shortens it
        if not (isinstance(error, OSError) and error.strerror) and found[0] == "traceback":
            return found
    errors = [row for row in said.splitlines() if row.startswith("error: ")]
    if (
        code == 2
        and len(errors) == 1
        and said.rstrip("\n").endswith(errors[0])
        and len(errors[0]) < 900
        and "\x1b" not in said
    ):
        return ONE_LINE, errors[0][:300]
    if code in (0, 1, 3) and not errors:
        shown = out.getvalue()
        if "nan" in shown.lower().replace("finance", "").split() and "diverged" not in shown + said:
            return "silent nonsense", f"{about}: {shown[:300]}"
        return RIGHT, f"{about}: exit {code}"
    return "several lines", f"{about}: exit {code}: {said}"[:800]


assert set(OPTIONS) == set(command_line.VERBS)
