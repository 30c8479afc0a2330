"""Cell functions and measures that sweeps under test name; importable, so that workers find them."""

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np

from manyheads.sweeps.cell import train_and_measure


def arithmetic(cell, *, slope=1.0, fail=False, size=3):
    """No training: quick, exact values that depend on everything a test varies."""
    if fail:
        raise ValueError("asked to fail")
    curve = slope * np.arange(size) + cell.seed
    return {
        "curve": (("place",), curve, {"units": "1"}),
        "total": curve.sum(),
        "place": (("place",), np.arange(size), {"coordinate": True}),
        "label": f"seed {cell.seed}",
        "count": size,
        "whole": cell.seed % 2 == 0,
    }


def slow(cell, *, log="", gate="", passed=0):
    """Notes in a file that it ran; while there is a file `gate`, only so many seeds pass."""
    note(log, cell.hash)
    while gate and cell.seed >= passed and Path(gate).exists():
        time.sleep(0.05)
    return {"value": np.float64(cell.seed) ** 0.5}


def busy(cell, *, seconds=1.0):
    """Computes for about so many seconds of one core."""
    end = time.process_time() + seconds
    count = 0
    while time.process_time() < end:
        np.linalg.norm(np.ones((60, 60)) @ np.ones((60, 60)))
        count += 1
    return {"value": cell.seed}


def deadly(cell, *, marker, gate=""):
    """Kills its own process, once, or always while there is a file `gate`."""
    path = Path(marker)
    if cell.seed == 1 and (Path(gate).is_file() or not path.exists()):
        path.touch()
        os.kill(os.getpid(), 9)
    return {"value": cell.seed}


def noted_training(cell, *, log):
    """Plain training, noted in a file."""
    note(log, cell.hash)
    wait_at_the_gate(cell)
    return train_and_measure(cell)


def careless(cell, *, log=""):
    """Trains and looks at no status; an interruption becomes an error of its own."""
    from manyheads.sweeps.setup import set_up
    from manyheads.training.descent import train
    from manyheads.training.rules import GD

    setup = set_up(cell)
    if log:
        threading.Thread(target=note_training, args=(log,), daemon=True).start()
    try:
        run = train(
            setup.start,
            setup.dataset,
            rule=GD(cell.train.step_size),
            num_steps=cell.train.num_steps,
        )
    except KeyboardInterrupt:
        raise RuntimeError("said in another way") from None
    return {"train_loss": float(run.train_loss[-1]), "last_step": run.last_step}


def note_training(log):
    """Note that a run has begun: from then on it looks for Ctrl-C itself, between stretches of steps."""
    from manyheads.training.keyboard import CtrlC

    while not isinstance(getattr(signal.getsignal(signal.SIGINT), "__self__", None), CtrlC):
        time.sleep(0.02)
    note(log, "training")


def wait_at_the_gate(cell):
    """While the file SWEEP_GATE exists, the cell whose hash is in it waits, and its sweep does not end."""
    gate = Path(os.environ["SWEEP_GATE"])
    while gate.exists() and gate.read_text() == cell.hash:
        time.sleep(0.05)


def note(log, text):
    """Append one line with a single write, which the system does not tear."""
    with open(log, "ab", buffering=0) as file:
        file.write(f"{time.time()} {text}\n".encode())


def noted(run):
    """A measure that notes which cell ran; the file is named in the environment."""
    note(os.environ["SWEEP_LOG"], run.setup.cell.hash)
    wait_at_the_gate(run.setup.cell)
    return {}


def product(run):
    """A matrix product whose last bits depend on the number of XLA's threads."""
    import jax

    rows = np.random.default_rng(run.setup.cell.seed).normal(size=(8000, 60)).astype(np.float32)
    return {"product": (("i", "j"), np.asarray(jax.jit(lambda a: a.T @ a)(rows)))}


def small_loss(run):
    """A certificate that no run can pass, and a check of the numbers that it is given."""
    from manyheads.theory.verdict import OURS, Bound, Certificate

    return Certificate(
        "descent",
        "the loss is at most zero",
        float(run.trajectory.train_loss[-1]),
        (Bound(OURS, 0.0),),
    )


def drawn(cell, *, size=40, seconds=0.02):
    """Notes that it ran, takes a while, and returns numbers that its seed fixes; no training."""
    note(os.environ["SWEEP_LOG"], cell.hash)
    time.sleep(seconds)
    curve = np.random.default_rng(cell.seed).normal(size=size)
    return {
        "curve": (("place",), curve, {"units": "1"}),
        "total": curve.sum(),
        "label": f"seed {cell.seed}",
    }
