"""`manyheads certify`: what the theory says about a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import tyro

from manyheads.cli.colors import hush, show, tell
from manyheads.cli.numbers import Heads, Seed, named
from manyheads.training.start import STARTS

MADE_WITH = ("--heads", "--start", "--scale", "--steps", "--step-size")  # options of a new run
SPLIT = ("--examples", "--first-phase-examples", "--test-examples", "--seed")
DECIDED_BY = {"--plan": (*MADE_WITH, *SPLIT), "--data": MADE_WITH}


def command(
    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[SOURCE]")] = "mixture",
    *,
    data: Annotated[str | None, tyro.conf.arg(metavar="DATA")] = None,
    plan: Annotated[Path | None, tyro.conf.arg(metavar="PLAN.json")] = None,
    statement: Annotated[tuple[str, ...], tyro.conf.arg(metavar="ID [ID ...]")] = (),
    heads: Heads = 16,
    start: Annotated[str, named(STARTS)] = "first_phase",
    scale: Annotated[float | None, tyro.conf.arg(metavar="NUMBER")] = None,
    steps: int = 200,
    step_size: float = 0.1,
    examples: int = 100,
    first_phase_examples: int = 200,
    test_examples: int = 300,
    independent: bool = False,
    token_radius: Annotated[float | None, tyro.conf.arg(metavar="NUMBER")] = None,
    full: bool = False,
    seed: Seed = 0,
    json: bool = False,
    quiet: bool = False,
) -> int:
    """Check which statements of the theory apply to a run, and whether each HOLDS, is VIOLATED or is SILENT.

    SOURCE is a run saved by `manyheads train --out` (then `--data` names what it was trained on, with the same `--seed`
    and numbers of examples), or data: an .npz file or a data source such as mixture, on which a new run is trained with
    the options below. The run is repeated in double precision. SILENT means that a hypothesis fails: the line says
    which, by what factor, and what would make it true. Exit code 1 if a statement is violated, 3 if all are silent.

    Examples:
        manyheads certify mixture --heads 10^6
        manyheads certify run.npz --data my-data.npz --statement thm1 --full
        manyheads certify run.npz --plan plan.json
        manyheads certify my-data.npz --statement identity def1.p3 --json

    Args:
        source: a trajectory or an .npz file with data, or a data source such as mixture, planted, digits.
        data: for a saved run, the data it was trained on.
        plan: for a run made with `manyheads train --plan`, the same plan; by default its promise is checked.
        statement: ids such as thm1, identity, def1.p3, cor1.3, loo; by default all that need no leave-one-out runs.
        heads: number of heads of a new run.
        start: start of a new run.
        scale: norm of each Gaussian head's two weight matrices (only with --start gaussian; 1 if not given).
        steps: steps of a new run.
        step_size: step size of a new run.
        examples: training sequences of a generated task.
        first_phase_examples: fresh sequences for the first phase (other starts set none aside).
        test_examples: sequences for the test loss; 0 leaves it out.
        independent: start, step size, heads and steps were chosen without looking at the training sample.
        token_radius: upper bound on the token norms of the data's distribution (known for mixture, random_labels and
            digits; else the largest norm seen is assumed, and statements about the distribution are silent).
        full: show every version of every bound with its failing hypotheses, instead of one line each.
        seed: seed of everything random.
        json: print JSON instead of text.
        quiet: no progress.
    """
    import jax

    import manyheads as mh
    from manyheads.cli.tasks import (
        fresh_wanted,
        holds_run,
        make_start,
        parts,
        planned,
        stored_run,
        warn_of_time,
    )
    from manyheads.theory.ledger import entry

    for name in statement:
        entry(name)  # before anything is trained
    keys = jax.random.split(jax.random.key(seed), 5)
    task: Any = None
    from_step = None
    if plan is not None:
        if not holds_run(source):
            raise ValueError(
                f"--plan {plan} needs a run saved by `manyheads train --plan --out`; {source} is not one."
            )
        found, dataset, test, _ = planned(plan, data or "")
        run = mh.Trajectory.load(source)
        statement = statement or (found.statement,)
        from_step = found.sharp.from_step if found.sharp else None
    elif holds_run(source):
        run, task, dataset, test = stored_run(
            source, data, keys, examples, first_phase_examples, test_examples
        )
    elif data is not None:
        raise ValueError(
            f"{source} holds data, not a run; leave --data out, or pass a file written by `manyheads train --out`"
        )
    else:
        first = fresh_wanted(start, first_phase_examples)
        task, fresh, dataset, test = parts(source, keys, examples, first, test_examples)
        model = make_start(
            start, heads, scale, dataset=dataset, fresh=fresh, source=task, key=keys[4]
        )
        if not quiet:
            tell(f"training {steps} steps")
            warn_of_time(steps, dataset, model, tell)
        run = mh.train(model, dataset, rule=mh.GD(step_size), num_steps=steps, dtype="float64")
    mixture = (
        task if isinstance(task, mh.TokenizedMixture) and run.start.decoder == "full" else None
    )
    result = mh.certify(
        run,
        dataset,
        statement,
        test=test,
        mixture=mixture,
        independent=independent,
        token_radius=token_radius,
        from_step=from_step,
        progress=None if quiet else tell,
    )
    if not quiet:
        hush()
    if json:
        print(result.to_json())
    else:
        show(str(result) if full else result.brief())
    return {"HOLDS": 0, "VIOLATED": 1, "SILENT": 3}[result.verdict.name]
