"""`manyheads sweep SPEC.toml`: run a grid of trainings, or resume one that was interrupted."""

import json as json_format
from pathlib import Path
from typing import Annotated, Literal

import tyro

from manyheads.cli.colors import say, show

EXAMPLE = """# A sweep: every combination of the axes, once for each seed.
name = "heads"
seeds = 3                        # or a list: [0, 7, 42]
measures = ["risk"]              # computed from each run; also margins, attention, focus, curvature

[data]                           # the paper's tokenized mixture
num_examples = 60
num_tokens = 8
dim = 10
sparsity = 0.25
signal = 1.5
noise_mu = 0.1
noise_nu = 0.1
noise_norm = 0.4

[start]
kind = "first_phase"             # or zero, gaussian, population

[train]
step_size = 0.2
num_steps = 150

[axes]                           # any field of data, start, model, train
"model.num_heads" = [1, 4, 16, 1e6]
"""


def command(
    spec: Annotated[Path | None, tyro.conf.Positional] = None,
    *,
    out: Path | None = None,
    engine: Literal["here", "processes", "dask", "slurm"] = "here",
    workers: int | None = None,
    scheduler: str | None = None,
    threads: int = 1,
    device: Literal["cpu", "gpu"] | None = None,
    devices: Annotated[str | None, tyro.conf.arg(metavar="{all,INT}")] = None,
    cache: bool = True,
    retry_failed: bool = False,
    extend: bool = False,
    dry_run: bool = False,
    example: bool = False,
    partition: str | None = None,
    account: str | None = None,
    memory: str = "4GB",
    walltime: str = "01:00:00",
    json: bool = False,
    quiet: bool = False,
) -> int:
    """Run a grid of trainings, or resume one that was interrupted: only what is missing runs.

    Begin with `manyheads sweep --example > heads.toml`, then `manyheads sweep heads.toml --engine processes`.
    Inspect it with `manyheads status DIR`, with `manyheads.open_sweep(DIR)` in Python, or with `manyheads export DIR`.
    Exit code 1 if a statement is violated, or if cells have failed or are missing.

    Examples:
        manyheads sweep --example > heads.toml
        manyheads sweep heads.toml --engine processes
        manyheads sweep heads.toml --engine slurm --workers 8 --dry-run

    Args:
        spec: The TOML file that describes the sweep.
        out: Folder of the results; results/NAME by default. Give the same folder again to resume.
        engine: This process, several processes, a Dask cluster, or SLURM jobs. The results are the same.
        workers: Processes or jobs; one per processor by default, 4 for SLURM.
        scheduler: Address of a running Dask scheduler, such as tcp://host:8786.
        threads: Threads of each worker. The last bits of results depend on it.
        device: Where to compute.
        devices: Work on all devices of this machine at a time, or on this many; with --engine here.
        cache: Keep compiled programs for the next run; --no-cache compiles everything again.
        retry_failed: Run failed cells again.
        extend: Reuse a folder for a changed spec, keeping the batches that both have in common.
        dry_run: Check the spec and show the plan (and the SLURM job script), run nothing.
        example: Print a commented spec to begin with.
        partition: SLURM partition.
        account: SLURM account.
        memory: Memory of a SLURM job.
        walltime: Time limit of a SLURM job.
        json: Print the final status as JSON.
        quiet: No progress on standard error.
    """
    if example:
        print(EXAMPLE, end="")
        return 0
    if spec is None:
        raise ValueError(
            "pass the TOML file of a sweep; `manyheads sweep --example` prints one to begin with"
        )
    from manyheads.sweeps.cluster import Slurm
    from manyheads.sweeps.engine import describe, make_engine, run
    from manyheads.sweeps.spec import Sweep
    from manyheads.sweeps.status import status
    from manyheads.sweeps.summary import by_axis

    sweep = Sweep.from_toml(spec)
    folder = out or Path("results") / sweep.name
    chosen = make_engine(engine, workers, scheduler)
    if isinstance(chosen, Slurm):
        chosen = Slurm(chosen.workers, memory, walltime, partition, account)
    if dry_run:
        text = describe(sweep, chosen, folder, threads=threads, device=device)
        print(text) if isinstance(chosen, Slurm) else show(text)  # a job script is shown as it is
        return 0
    results = run(
        sweep,
        folder,
        engine=chosen,
        progress=not quiet,
        threads=threads,
        device=device,
        devices=int(devices) if devices and devices.isdecimal() else devices,
        cache=cache,
        retry_failed=retry_failed,
        extend=extend,
    )
    done = status(folder)
    if json:
        print(json_format.dumps(done.to_dict()))
    else:
        show(done)
        if done.failed + done.missing < done.cells:
            show(f"\n{by_axis(results)}")
    verdicts = [name for name in results.data_vars if str(name).endswith("_verdict")]
    violated = [str(name) for name in verdicts if (results[name] == "VIOLATED").any()]
    if violated:
        say(f"violated: {', '.join(name.removesuffix('_verdict') for name in violated)}")
    return 1 if violated or done.failed or done.missing else 0
