"""`manyheads run`: run studies, draw the report, print the answers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import tyro

from manyheads.cli.colors import say
from manyheads.cli.numbers import Seed
from manyheads.data.budget import processors

NO_RESULTS = 2  # a study that was asked for has no results


def command(
    studies: Annotated[tuple[str, ...], tyro.conf.Positional] = (),
    scale: Literal["quick", "full"] = "quick",
    out: Path | None = None,
    workers: int | None = None,
    seed: Seed = 0,
    retry_failed: bool = False,
    json: bool = False,
    quiet: bool = False,
) -> int:
    """Run studies: train, measure, and write one page with the answers.

    Without names it runs the main studies, in a few minutes; `manyheads studies` lists all. An interrupted run keeps
    its finished cells; the same command resumes it.

    Examples:
        manyheads run
        manyheads run heads margins --scale full
        manyheads run my_study.py --workers 1

    Args:
        studies: names of studies, paths of your own (.py), or `all`.
        scale: quick takes minutes, full up to an hour.
        out: folder of the results and the page (default: results/SCALE).
        workers: number of worker processes (default: one per processor).
        seed: added to the seeds of every study.
        retry_failed: run failed cells again.
        json: print the findings as JSON.
        quiet: no progress.
    """
    from manyheads.report.build import build
    from manyheads.report.page import require_javascript
    from manyheads.studies.kit.catalog import find
    from manyheads.studies.kit.catalog import studies as every
    from manyheads.studies.kit.run import plan_jobs, run_studies

    require_javascript()
    asked = (
        studies
        if studies not in ((), ("all",))
        else tuple(n for n, s in every().items() if studies or s.in_story)
    )
    lacking = {name: why for name in asked if (why := find(name).lacks(scale))}
    if lacking and asked == studies:
        raise ValueError("; ".join(f"study {name}: {why}" for name, why in lacking.items()))
    names = tuple(name for name in asked if name not in lacking)
    for name, why in lacking.items():
        print(f"{name} is left out: {why}", file=sys.stderr)
    folder = out or Path("results") / scale
    workers = processors() if workers is None else workers
    with _Progress(plan_jobs(names, folder, scale, seed), quiet) as progress:
        try:
            options = {
                "scale": scale,
                "workers": workers,
                "seed": seed,
                "retry_failed": retry_failed,
            }
            run_studies(names, folder, **options, tell=progress.show)
        except KeyboardInterrupt:
            progress.note(
                f"finished cells are stored in {folder}; run the same command again to resume"
            )
            raise
        report = build(
            folder,
            studies=[s for s in names if s.endswith(".py")],
            workers=workers,
            tell=progress.say,
        )
    if json:
        print((folder / "data" / "findings.json").read_text())
    else:
        show_answers(report)
    show_absent(report)
    return NO_RESULTS if any(find(name).name in report.absent for name in names) else 0


def show_answers(report) -> None:
    """The findings in the order of the story, the open questions, and the path of the page."""
    from rich.console import Console
    from rich.table import Table

    from manyheads.studies.kit.story import OPEN, OPEN_HEADING, told

    console = Console(highlight=False, markup=False)
    width = max(len(chapter.study.name) for chapter in report.chapters)
    for heading, chapters in told((chapter.study, chapter) for chapter in report.chapters):
        table = Table(
            box=None, padding=(0, 2, 0, 0), show_edge=False, show_header=False, expand=True
        )
        table.add_column("study", width=width)
        table.add_column("question", ratio=2, overflow="fold")
        table.add_column("answer", ratio=3, overflow="fold")
        for chapter in chapters:
            table.add_row(chapter.study.name, chapter.study.question, chapter.finding.answer)
        console.print(f"\n{heading}", style="bold")
        console.print(table)
    console.print(f"\n{OPEN_HEADING}", style="bold")
    for item in OPEN:
        console.print(f"- {item}")
    figures = "1 figure" if report.num_figures == 1 else f"{report.num_figures} figures"
    console.print(f"\n{figures}, the data and the page: ", end="")
    print(report.page)


def show_absent(report) -> None:
    """Which studies of the folder have no results yet, and what to do about it."""
    for name, why in report.absent.items():
        say(f"no results yet for {name}: {why}")
    if report.remedy:
        say(report.remedy)


class _Progress:
    """One bar per sweep on a terminal, a line per finished sweep elsewhere."""

    def __init__(self, jobs: list, quiet: bool):
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )

        self.quiet = quiet
        console = Console(stderr=True)
        self.live = console.is_terminal and not quiet
        self.bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            refresh_per_second=4,
            disable=not self.live,
        )
        self.tasks = {
            job.folder: self.bars.add_task(job.name, total=job.sweep.num_cells) for job in jobs
        }
        self.report = self.bars.add_task("report", total=1, visible=False)
        self.told: set = set()

    def __enter__(self) -> _Progress:
        self.bars.start()
        return self

    def __exit__(self, *_) -> None:
        self.bars.stop()

    def show(self, job, state) -> None:
        self.bars.update(self.tasks[job.folder], completed=state.done, total=state.total)
        if (
            state.done == state.total
            and not self.live
            and not self.quiet
            and job.folder not in self.told
        ):
            self.told.add(job.folder)
            print(f"{job.name}: {state.done} cells done", file=sys.stderr, flush=True)

    def note(self, line: str) -> None:
        """Print a line above the bars."""
        if not self.quiet:
            self.bars.stop()
            print(line, file=sys.stderr, flush=True)

    def say(self, line: str) -> None:
        self.bars.update(self.report, description=line, visible=True)
        if not self.live and not self.quiet and line.startswith("writing"):
            print(line, file=sys.stderr, flush=True)
