"""Question: what do two simulated devices on two cores gain over one core, and over one device on two cores?

Run:  python benchmarks/bench_devices.py
One JSON line per case, then a table. A case is n,T,d,H, in float64: whole calls of `train`, compiled before, each kind in
a process of its own. "one core" is one device with one thread; "two cores" is one device whose program XLA splits over two
threads by itself; "two devices" is two devices of a CPU, each with its half of the sequences. All runs agree to 1e-12
before anything is timed.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from harness import Peer, Timed, main, race

from manyheads import Dataset, MultiHead, Trajectory

CASES = {  # n, T, d, H, and the steps of a call
    "100,8,12,8": (100, 8, 12, 8, 400),
    "2000,10,50,8": (2000, 10, 50, 8, 4),
    "500,32,64,8": (500, 32, 64, 8, 4),
}
KINDS = {
    "one core": dict(cores=1, devices=1),
    "two cores": dict(cores=2, devices=1),
    "two devices": dict(cores=2, devices=2),
}


def measure(case, rounds):
    n, T, d, H, steps = CASES[case]
    rng = np.random.default_rng(0)
    X = 2 * rng.standard_normal((n, T, d)) / np.sqrt(d)
    data = Dataset.from_arrays(X, np.where(rng.random(n) < 0.5, 1.0, -1.0))
    model = MultiHead.create(
        rng.standard_normal((H, d, d)) / np.sqrt(d), rng.standard_normal((H, T, d)) / np.sqrt(T)
    )
    options = dict(num_steps=steps, dtype="float64")
    peers = {
        name: Peer(name, "MANYHEADS_NO_SUCH_PYTHON", "device_runs.py", sys.executable)
        for name in KINDS
    }
    try:
        with tempfile.TemporaryDirectory() as folder:
            given = str(Path(folder) / "in.npz")
            np.savez(
                given,
                tokens=data.tokens,
                labels=data.labels,
                key_query=model.key_query,
                readout=model.readout,
            )
            runs = {}
            for name, peer in peers.items():
                peer.ask(action="load", file=given, options=options, **KINDS[name])
                peer.ask(action="check", file=str(Path(folder) / f"{name}.npz"))
                runs[name] = Trajectory.load(Path(folder) / f"{name}.npz").displacement
        agreement = {
            name: max(
                float(np.linalg.norm(a - b) / np.linalg.norm(a))
                for a, b in zip(runs["one core"], run, strict=True)
            )
            for name, run in runs.items()
        }
        if not max(agreement.values()) <= 1e-12:
            sys.exit(f"{case}: the runs differ: {agreement}; nothing was timed")
        times = race({name: Timed(peer) for name, peer in peers.items()}, rounds=rounds)
    finally:
        for peer in peers.values():
            peer.close()
    seconds = {name: t["median_s"] / steps for name, t in times.items()}
    return {
        "case": case,
        "ratios": {
            "one core / two devices": seconds["one core"] / seconds["two devices"],
            "one core / two cores": seconds["one core"] / seconds["two cores"],
            "two cores / two devices": seconds["two cores"] / seconds["two devices"],
        },
        "milliseconds_per_step": {name: 1e3 * s for name, s in seconds.items()},
        "spread_ms": {name: 1e3 * t["spread_s"] / steps for name, t in times.items()},
        "disagreement": agreement,
    }


if __name__ == "__main__":
    sys.exit(main(__file__, __doc__.splitlines()[0], measure, list(CASES)))
