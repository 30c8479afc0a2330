"""What every peer does: answer one JSON line per JSON line, and time its own work."""

import json
import os
import sys
import time

CLOCK = time.process_time if os.environ.get("MANYHEADS_BENCH_CLOCK") == "cpu" else time.perf_counter


def serve(answer) -> None:
    """Answer requests from standard input until it ends; an error is an answer too."""
    for line in sys.stdin:
        try:
            reply = answer(json.loads(line))
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), flush=True)


def timed(work, repeats: int) -> dict:
    """Seconds of one call, the mean of several."""
    start = CLOCK()
    for _ in range(repeats):
        work()
    return {"seconds": (CLOCK() - start) / repeats}
