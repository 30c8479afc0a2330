"""Run studies and write their page: `python -m studies [NAME ...] --scale quick|full --out FOLDER`.

Finished cells are kept in FOLDER/cells, so that the same command resumes after an interruption.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parent
# The order of the story.
STORY = ["scaling", "sleep", "starts", "optimizers", "parity", "forecast", "literal"]
STORY += ["generalization", "statements", "probes", "practice"]
TITLE = "What more heads do, and what the theory of training them says"
INTRO = (
    "A theory of training multi-head attention by gradient descent proves that enough heads reach a low loss. This page "
    "tries out what it says and what it leaves open. Each answer is a sentence with a number, and the number alone decides "
    "whether it is supported, refuted or undecided; what was refuted stays, struck through."
)
# Short runs spend much of their time compiling; results change by rounding only.
COMPILE_QUICKLY = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"


def names() -> list[str]:
    """All studies: the files beside this one, in the order of the story."""
    found = {file.stem for file in HERE.glob("[a-z]*.py")}
    return [name for name in STORY if name in found] + sorted(found - set(STORY))


def study(name: str) -> ModuleType:
    """A study by its name."""
    return importlib.import_module(f"studies.{name}")


def grid_of(module: ModuleType, scale: str, first_seed: int = 0):
    """The grid of a study, with its seeds from `first_seed` on."""
    grid = module.GRID if scale == "full" else module.QUICK
    return grid.replace(seeds=[seed + first_seed for seed in grid.seeds])


def commit() -> str:
    """The commit of the working tree, and whether it was changed since."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(HERE), *arguments]
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "src", "studies")
        return git("rev-parse", "--short=10", "HEAD") + (" with changes" if changed else "")
    except OSError:  # no git here
        return ""


def chapter(name: str, data):
    """What the page shows of a study."""
    from manyheads import lab

    module = study(name)
    question, _, setting = module.__doc__.strip().partition("\n")
    results, panels = lab.Results(data), getattr(module, "PANELS", 1)
    painters = [module.figure, *getattr(module, "MORE", [])]
    # The panels are those of the main figure; further figures have one each.
    sizes = [panels] + [1] * (len(painters) - 1)
    pictures = [lab.draw(paint, results, n) for paint, n in zip(painters, sizes, strict=True)]
    return lab.Chapter(name, question, setting, lab.decide(module.CLAIMS, data), pictures, data)


def run(options: argparse.Namespace, client=None) -> list:
    """The chapters of all chosen studies."""
    from manyheads import lab

    about = {"commit": commit()}
    chapters = []
    for name in options.names or names():
        began = time.monotonic()

        def show(done: int, total: int, name: str = name) -> None:
            if sys.stderr.isatty():
                print(f"\r{name}: {done} of {total} cells", end="", file=sys.stderr, flush=True)

        module = study(name)
        grid = grid_of(module, options.scale, options.first_seed)
        folder = options.out / "cells"
        data = lab.sweep(module.cell, grid, out=folder, client=client, about=about, progress=show)
        chapters.append(chapter(name, data))
        print(f"\r{name}, {time.monotonic() - began:.0f} s: {chapters[-1].question}", flush=True)
        for one in chapters[-1].decided:
            print(f"  {one.verdict:10} {one.estimate}  {one.claim.sentence}", flush=True)
    return chapters


def write(chapters: list, options: argparse.Namespace, seconds: float) -> Path:
    """The page, the numbers that documents quote, the values of all seeds, and the figures."""
    from manyheads import lab

    out = options.page or options.out
    facts = {"title": TITLE, "intro": INTRO, "scale": options.scale, "seconds": seconds}
    lab.write_report(chapters, out, **facts)
    for one in chapters:
        for k, picture in enumerate(one.figures if options.pdf else []):
            lab.save(picture, out / f"{one.name}-{k + 1}.pdf")
    return out / "index.html"


QUOTE = re.compile(r"\[(-?[\d.,e-]+|…)\]\(((?:docs/)?report/index\.html#(\w+)-(\d+))\)")


def update_quotes(chapters: list) -> None:
    """Write today's numbers into the documents that quote them; their verdicts are left to a person."""
    claims = {chapter.name: chapter.summary()["claims"] for chapter in chapters}

    def today(found: re.Match) -> str:
        _, link, name, place = found.groups()
        return f"[{claims[name][int(place) - 1]['shown']}]({link})" if name in claims else found[0]

    for page in [HERE.parent / "README.md", *(HERE.parent / "docs").glob("*.md")]:
        text = page.read_text()
        updated = QUOTE.sub(today, text)
        if updated != text:
            page.write_text(updated)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m studies", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names())}")
    parser.add_argument("--scale", choices=["quick", "full"], default="quick")
    parser.add_argument("--out", type=Path, default=Path("results"), help="where cells are kept")
    parser.add_argument("--page", type=Path, help="where the page goes, if not there")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes (Dask)")
    parser.add_argument("--first-seed", type=int, default=0, help="1000, say, for a replication")
    parser.add_argument("--pdf", action="store_true", help="write the figures as PDF too")
    options = parser.parse_args()
    if unknown := set(options.names) - set(names()):
        parser.exit(2, f"error: no study {min(unknown)!r}; there are {', '.join(names())}\n")
    if options.workers < 1 or options.first_seed < 0:
        parser.exit(2, "error: --workers must be at least 1, and --first-seed at least 0\n")
    options.out = options.out / options.scale
    if options.scale == "quick":
        os.environ.setdefault("XLA_FLAGS", COMPILE_QUICKLY)
    # Workers share what one of them has compiled.
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str((options.out / "compiled").absolute()))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")
    began = time.monotonic()
    if options.workers == 1:
        chapters = run(options)
    else:
        from dask.distributed import Client, LocalCluster

        with (
            LocalCluster(options.workers, threads_per_worker=1, dashboard_address=None) as cluster,
            Client(cluster) as client,
        ):
            chapters = run(options, client)
    print(write(chapters, options, time.monotonic() - began))
    if options.page and options.page.resolve() == HERE.parent / "docs" / "report":
        update_quotes(chapters)


if __name__ == "__main__":
    main()
