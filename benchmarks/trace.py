"""Question: how many of our files does one call enter, that is, what must a reader open to follow it?

Run:  python benchmarks/trace.py            one line a call: the number of files, and their names with --names
A file counts when one of its functions runs. Imports happen before, and what they run does not count.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import pkgutil
import sys
import tempfile
import threading
from pathlib import Path

import manyheads

ROOT = Path(__file__).resolve().parents[1]


def entered(call) -> list[str]:
    """The files of the repository in which a function runs during `call()`."""
    files: set[str] = set()

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_name not in ("<module>", "<lambda>"):
            files.add(frame.f_code.co_filename)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    ours = [Path(name) for name in files if Path(name).is_relative_to(ROOT)]
    kept = [path for path in ours if path.suffix == ".py" and ".venv" not in path.parts]
    return sorted(str(path.relative_to(ROOT)) for path in kept if path != Path(__file__))


def import_everything() -> None:
    """Load all modules first, so that an import during the call enters nothing."""
    for module in pkgutil.walk_packages(manyheads.__path__, "manyheads."):
        with contextlib.suppress(ImportError):
            importlib.import_module(module.name)


def run_study(name: str, out: str) -> None:
    """One study as `python -m studies` runs it."""
    from studies.__main__ import main

    sys.argv[1:] = [name, "--out", out, "--workers", "1"]
    main()


def calls(folder: Path):
    """Name -> a call as a user makes it. The commands are those of the README."""
    from manyheads.cli.main import main

    sys.path.insert(0, str(ROOT))

    data, run = str(folder / "data.npz"), str(folder / "run.npz")
    import jax

    key = jax.random.key(0)
    task = manyheads.TokenizedMixture(
        num_tokens=4, dim=6, num_patterns=2, sparsity=0.5, signal=1.0, key=key
    )
    task.sample(40, key=key).save(data)
    return {
        "explain": lambda: main(["explain", "thm1"]),
        "train": lambda: main(["train", data, "--heads", "8", "--steps", "50", "--out", run]),
        "certify": lambda: main(["certify", run, "--data", data]),
        "one study": lambda: run_study("literal", str(folder / "results")),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--names", action="store_true", help="print the names of the files too")
    options = parser.parse_args()
    import_everything()
    with tempfile.TemporaryDirectory() as folder:
        for name, call in calls(Path(folder)).items():
            files = entered(call)
            print(f"{name:10} {len(files)} files", flush=True)
            if options.names:
                print(*(f"    {file}" for file in files), sep="\n")
