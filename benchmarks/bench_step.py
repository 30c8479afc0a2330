"""Question: how near is one loss-and-gradient to the machine's GEMM rate, and how far ahead of autodiff and PyTorch?

Run:  MANYHEADS_TORCH_PYTHON=/path/to/python python benchmarks/bench_step.py     One JSON line per case, then a table.

A case is n,T,d,H-dtype. "share of GEMM" is n·H·(4Td² + 8T²d) flops over the time, over the rate of a 768³ NumPy product in
the same dtype and the same run; "share of XLA's GEMM" the same for XLA's own product, which may use wider vectors. The
other ratios are the time of the peer over ours; all results are compared first. "one core / all cores" is the time of
the whole call here over that in a process with JAX's own settings. A case growth-SIZE-dtype doubles one size three times
and fits the exponent with which the time grows, beside that of the flops; `heads` are those of two classes.
"""

import math
import os
import sys
import tempfile
from functools import partial
from pathlib import Path

from harness import Peer, Timed, main, one_core, race

one_core()
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false " + os.environ.get("XLA_FLAGS", "")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from step_case import random_case, step_of  # noqa: E402

SHAPES = [
    (100, 10, 50, 8),
    (1000, 10, 50, 8),
    (1000, 10, 50, 64),
    (200, 8, 20, 256),
    (500, 16, 128, 32),
    (500, 64, 64, 8),
    (64, 128, 64, 4),
]
CASES = {
    f"{','.join(map(str, shape))}-{dtype}": (shape, dtype)
    for dtype in ("float32", "float64")
    for shape in SHAPES
}
GROWN = {  # (n, T, d, classes, heads), each growth starting from the smallest
    "n": [(100 * k, 16, 32, 8) for k in (1, 2, 4, 8)],
    "T": [(100, 8 * k, 32, 8) for k in (1, 2, 4, 8)],
    "d": [(100, 16, 16 * k, 8) for k in (1, 2, 4, 8)],
    "heads": [(100, 16, 32, 2, 8 * k) for k in (1, 2, 4, 8)],
    "classes": [(100, 16, 32, 4 * k) for k in (1, 2, 4, 8)],
}
GROWTHS = {
    f"growth-{size}-{dtype}": (size, dtype) for dtype in ("float32", "float64") for size in GROWN
}
TOLERANCE = {"float32": 2e-5, "float64": 1e-12}


def plain_loss(heads, X, y):
    """The formula as one would write it."""
    W, U = heads
    A = jax.nn.softmax(jnp.einsum("ntd,hde,nse->nhts", X, W, X), axis=-1)
    scores = jnp.einsum("htd,nhts,nsd->n", U, A, X) / W.shape[0] ** 0.5
    return jnp.mean(jnp.logaddexp(0.0, -y * scores))


def disagreement(ours, theirs):
    pairs = [(np.asarray(a), np.asarray(b)) for a, b in zip(ours, theirs, strict=True)]
    return max(float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in pairs)


def flops(n, T, d, classes, heads=None):
    return n * classes * (4 * T * d**2 + 8 * T**2 * d)


def growth(case, rounds):
    """Least-squares slopes of log time and log flops over log size."""
    size, dtype = GROWTHS[case]
    shapes = GROWN[size]
    with jax.enable_x64(dtype == "float64"):
        times = race(
            {shape: step_of(*random_case(*shape), dtype) for shape in shapes}, rounds=rounds
        )
    seconds = [times[shape]["median_s"] for shape in shapes]
    doublings = range(len(shapes))

    def exponent(values):
        return (
            round(float(np.polyfit(doublings, [math.log2(value) for value in values], 1)[0]), 4)
            + 0.0
        )

    return {
        "case": case,
        "ratios": {
            "exponent of the time": exponent(seconds),
            "exponent of the flops": exponent([flops(*s) for s in shapes]),
        },
        "milliseconds": {str(shape): 1e3 * s for shape, s in zip(shapes, seconds, strict=True)},
        "spread_ms": {str(shape): 1e3 * times[shape]["spread_s"] for shape in shapes},
    }


def measure(case, rounds):
    if case in GROWTHS:
        return growth(case, rounds)
    shape, dtype = CASES[case]
    with jax.enable_x64(dtype == "float64"), tempfile.TemporaryDirectory() as folder:
        model, data = random_case(*shape)
        heads = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), model.heads)
        tokens, labels = jnp.asarray(data.tokens, dtype), jnp.asarray(data.labels, dtype)
        a = np.random.default_rng(1).standard_normal((768, 768)).astype(dtype)
        variants = {
            "ours": step_of(model, data, dtype),
            "autodiff": partial(jax.jit(jax.value_and_grad(plain_loss)), heads, tokens, labels),
            "gemm": lambda: a @ a,
            "xla gemm": partial(
                jax.jit(partial(jnp.dot, precision="highest")), jnp.asarray(a), jnp.asarray(a)
            ),
        }
        loss, _, gradient = variants["ours"]()
        mine = (loss, *gradient)
        value, slope = variants["autodiff"]()
        agreement = {"autodiff": disagreement(mine, (value, *slope))}
        notes = []
        if TORCH.missing is None:
            np.savez(
                Path(folder) / "in.npz",
                tokens=np.asarray(tokens),
                labels=np.asarray(labels),
                key_query=np.asarray(heads[0]),
                readout=np.asarray(heads[1]),
            )
            TORCH.ask(action="load", file=str(Path(folder) / "in.npz"))
            for variant in ("eager", "compiled"):
                try:
                    TORCH.ask(action="check", variant=variant, file=str(Path(folder) / "out.npz"))
                except RuntimeError as error:
                    notes.append(f"torch {variant}: {str(error)[:200]}")
                    continue
                with np.load(Path(folder) / "out.npz") as out:
                    agreement[f"torch {variant}"] = disagreement(
                        mine, (out["loss"], out["key_query"], out["readout"])
                    )
                variants[f"torch {variant}"] = Timed(TORCH, variant=variant)
        else:
            notes.append(TORCH.missing)
        if ALL_CORES.missing is None:
            ALL_CORES.ask(action="load", shape=shape, dtype=dtype)
            variants["all cores"] = Timed(ALL_CORES)
        else:
            notes.append(ALL_CORES.missing)
        wrong = {name: error for name, error in agreement.items() if not error <= TOLERANCE[dtype]}
        if wrong:
            sys.exit(
                f"{case}: results differ by more than {TOLERANCE[dtype]:g}: {wrong}; nothing was timed"
            )
        times = race(variants, rounds=rounds)
    seconds = {name: times[name]["median_s"] for name in times}
    rate = 2 * 768**3 / seconds["gemm"]
    ours, share = seconds["ours"], flops(*shape) / seconds["ours"] / rate
    ratios = {
        "share of GEMM": share,
        "share of XLA's GEMM": share * seconds["xla gemm"] / seconds["gemm"],
        "autodiff's share of GEMM": share * ours / seconds["autodiff"],
    }
    peers = [name for name in seconds if name in ("autodiff", "torch eager", "torch compiled")]
    ratios |= {f"{name} / ours": seconds[name] / ours for name in peers}
    if "all cores" in seconds:
        ratios["one core / all cores"] = ours / seconds["all cores"]
    return {
        "case": case,
        "ratios": ratios,
        "milliseconds": {name: 1e3 * s for name, s in seconds.items()},
        "spread_ms": {name: 1e3 * t["spread_s"] for name, t in times.items()},
        "gemm_gflops": rate / 1e9,
        "disagreement": agreement,
        "notes": notes,
    }


if __name__ == "__main__":
    TORCH = Peer("PyTorch", "MANYHEADS_TORCH_PYTHON", "torch_step.py")
    ALL_CORES = Peer("all cores", "MANYHEADS_PYTHON", "step_all_cores.py", default=sys.executable)
    if os.environ.get("MANYHEADS_BENCH_CLOCK") == "cpu":
        ALL_CORES.missing = "all cores: not measured, MANYHEADS_BENCH_CLOCK=cpu adds up the cores"
    try:
        sys.exit(main(__file__, __doc__.splitlines()[0], measure, [*CASES, *GROWTHS]))
    finally:
        TORCH.close()
        ALL_CORES.close()
