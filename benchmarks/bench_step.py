"""Question: how near is one loss-and-gradient to the machine's GEMM rate, and how far ahead of autodiff and PyTorch?

Run:  MANYHEADS_TORCH_PYTHON=/path/to/python python benchmarks/bench_step.py     One JSON line per case, then a table.

A case is n,T,d,H-dtype. "share of GEMM" is n·H·(4Td² + 8T²d) flops over the time, over the rate of a 768³ NumPy product in
the same dtype and the same run; the other ratios are the time of the peer over ours. All results are compared first.
"""

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

from manyheads import Dataset, MultiHead  # noqa: E402
from manyheads.model.gradient import head_weights, loss_and_gradient, prepare  # noqa: E402

SHAPES = [(100, 10, 50, 8), (1000, 10, 50, 8), (1000, 10, 50, 64), (200, 8, 20, 256), (500, 16, 128, 32), (500, 64, 64, 8), (64, 128, 64, 4)]  # fmt: skip
CASES = {f"{','.join(map(str, shape))}-{dtype}": (shape, dtype) for dtype in ("float32", "float64") for shape in SHAPES}
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


def measure(case, rounds):
    (n, T, d, H), dtype = CASES[case]
    with jax.enable_x64(dtype == "float64"), tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(0)
        X = 2 * rng.standard_normal((n, T, d)) / np.sqrt(d)
        model = MultiHead.create(
            rng.standard_normal((H, d, d)) / np.sqrt(d), rng.standard_normal((H, T, d)) / np.sqrt(T)
        )
        data = Dataset.from_arrays(X, np.where(rng.random(n) < 0.5, 1.0, -1.0))
        heads = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), model.heads)
        weights = jax.tree.map(jnp.asarray, head_weights(model, dtype))
        batch = jax.tree.map(jnp.asarray, prepare(data, model, dtype))
        share = jnp.full(n, 1 / n, dtype)
        tokens, labels = jnp.asarray(X, dtype), jnp.asarray(data.labels, dtype)
        ours, autodiff = jax.jit(loss_and_gradient), jax.jit(jax.value_and_grad(plain_loss))
        a = rng.standard_normal((768, 768)).astype(dtype)
        variants = {
            "ours": partial(ours, heads, weights, batch, share),
            "autodiff": partial(autodiff, heads, tokens, labels),
            "gemm": lambda: a @ a,
        }
        loss, _, gradient = variants["ours"]()
        mine = (loss, *gradient)
        value, slope = variants["autodiff"]()
        agreement = {"autodiff": disagreement(mine, (value, *slope))}
        notes = []
        if TORCH.missing is None:
            np.savez(Path(folder) / "in.npz", tokens=np.asarray(tokens), labels=np.asarray(labels), key_query=np.asarray(heads[0]), readout=np.asarray(heads[1]))  # fmt: skip
            TORCH.ask(action="load", file=str(Path(folder) / "in.npz"))
            for variant in ("eager", "compiled"):
                try:
                    TORCH.ask(action="check", variant=variant, file=str(Path(folder) / "out.npz"))
                except RuntimeError as error:
                    notes.append(f"torch {variant}: {str(error)[:200]}")
                    continue
                with np.load(Path(folder) / "out.npz") as out:
                    agreement[f"torch {variant}"] = disagreement(mine, (out["loss"], out["key_query"], out["readout"]))
                variants[f"torch {variant}"] = Timed(TORCH, variant=variant)
        else:
            notes.append(TORCH.missing)
        wrong = {name: error for name, error in agreement.items() if not error <= TOLERANCE[dtype]}
        if wrong:
            sys.exit(f"{case}: results differ by more than {TOLERANCE[dtype]:g}: {wrong}; nothing was timed")
        times = race(variants, rounds=rounds)
    seconds = {name: times[name]["median_s"] for name in times}
    flops = n * H * (4 * T * d**2 + 8 * T**2 * d)
    rate = 2 * 768**3 / seconds["gemm"]
    ratios = {
        "share of GEMM": flops / seconds["ours"] / rate,
        "autodiff's share of GEMM": flops / seconds["autodiff"] / rate,
    }
    ratios |= {f"{name} / ours": seconds[name] / seconds["ours"] for name in seconds if name not in ("ours", "gemm")}
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
    try:
        sys.exit(main(__file__, __doc__.splitlines()[0], measure, list(CASES)))
    finally:
        TORCH.close()
