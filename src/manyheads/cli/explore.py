"""`manyheads explore`: the explorer with the library behind it."""

from __future__ import annotations

import sys


def command(port: int = 0, no_browser: bool = False) -> int:
    """Open a page that trains attention while you watch, with the library's verdicts on the run.

    The page in docs/explorer works without this command. Served by it, the page can also ask the library: all theorems
    about the run shown, the good-start card, hard margins, and your own data from an .npz or .csv file. Only this
    machine can reach it (127.0.0.1); to use it over SSH, forward the port. Ctrl-C stops it and its processes.

    Examples:
        manyheads explore
        manyheads explore --port 8000 --no-browser

    Args:
        port: port of 127.0.0.1; 0 picks a free one.
        no_browser: only print the address.
    """
    if not 0 <= port <= 65535:
        raise ValueError(f"--port {port} must be from 0 to 65535; 0 picks a free one.")
    try:
        from manyheads.explorer.server import serve
    except ImportError as error:
        raise ValueError(
            f"{error.name} is missing: install it with `pip install 'manyheads[explore]'`."
        ) from None

    def started(address: str) -> None:
        print(address, flush=True)
        print("Ctrl-C stops it.", file=sys.stderr, flush=True)
        if not no_browser:
            import webbrowser

            webbrowser.open(address)

    serve(port, started)
    return 0
