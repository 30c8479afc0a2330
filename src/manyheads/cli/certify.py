"""`manyheads certify`: what the theory says about a run."""

from __future__ import annotations

from typing import Annotated

import tyro

from manyheads.cli.options import Data, Number, show, telling

EXIT = {"HOLDS": 0, "VIOLATED": 1, "SILENT": 3}


def command(
    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    *,
    data: Data = None,
    statement: Annotated[tuple[str, ...], tyro.conf.arg(metavar="ID [ID ...]")] = (),
    independent: bool = False,
    token_radius: Number = None,
    full: bool = False,
    json: bool = False,
    quiet: bool = False,
) -> int:
    """Check what the theory says about a run: each statement holds, is violated, or is silent.

    RUN is a file written by `manyheads train --out`. It knows which sequences it was trained on, so
    `--data` names the whole file. The run is repeated and compared with all its records. SILENT
    means that a hypothesis fails: the line says which, by what factor, and what would make it true.
    Exit code 1 if a statement is violated, 3 if all are silent.

    Examples:
        manyheads train my-data.npz --seed 3 --out run.npz
        manyheads certify run.npz --data my-data.npz
        manyheads certify run.npz --statement thm1 identity --full

    Args:
        run: a run saved by `manyheads train --out`.
        data: the file or the data source it was trained on; by default the one that the run names.
        statement: ids such as thm1, identity, def1.p3, cor1.3, loo; by default all that need no
            leave-one-out runs.
        independent: start, step size, heads and steps were chosen without looking at the training
            sample.
        token_radius: upper bound on the token norms of the data's distribution (known for mixture,
            random_labels and digits; else the largest norm seen is assumed, and statements about the
            distribution are silent).
        full: show every version of every bound with its failing hypotheses, instead of one line
            each.
        json: print JSON instead of text.
        quiet: no progress.
    """
    import manyheads as mh
    from manyheads.cli.data import stored_run
    from manyheads.theory.ledger import entry

    for name in statement:
        # before anything is read
        entry(name)
    saved, task, dataset, test = stored_run(run, data)
    full_readout = isinstance(task, mh.TokenizedMixture) and saved.start.decoder == "full"
    with telling(quiet) as tell:
        result = mh.certify(
            saved,
            dataset,
            statement,
            test=test,
            mixture=task if full_readout else None,
            independent=independent,
            token_radius=token_radius,
            progress=tell,
        )
    if json:
        print(result.to_json())
    else:
        show(result if full else result.brief())
    return EXIT[result.verdict.name]
