"""`manyheads status DIR`: progress of a sweep."""

import json as json_format
from pathlib import Path
from typing import Annotated

import tyro

from manyheads.cli.colors import show


def command(folder: Annotated[Path, tyro.conf.Positional], *, json: bool = False) -> int:
    """Show the progress of a sweep: cells done, failed (and why) and missing, the rate and the time left.

    Examples:
        manyheads status results/heads
        manyheads status results/heads --json

    Args:
        folder: The folder of the sweep.
        json: Print JSON.
    """
    from manyheads.sweeps.status import status

    found = status(folder)
    print(json_format.dumps(found.to_dict())) if json else show(found)
    return 0
