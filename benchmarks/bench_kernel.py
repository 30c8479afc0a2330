"""Question: how much faster is the closed-form tangent kernel than autodiff, torch.func and neural-tangents?

Run:  MANYHEADS_TORCH_PYTHON=... MANYHEADS_NT_PYTHON=... python benchmarks/bench_kernel.py
One JSON line per case, then a table. A case is n,T,d,H-dtype. Ratios are the time of the peer over ours; "in one JAX" compares
our closed form and neural-tangents (its fastest implementation) in the old JAX that neural-tangents needs. "trillion heads" is
the time of two classes with 5·10^11 heads each over that of two classes with two heads each.
"""

import os
import subprocess
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
from manyheads.measures import tangent_kernel  # noqa: E402

SHAPES = [(200, 8, 128, 16), (200, 4, 64, 64), (1000, 10, 50, 8)]
CASES = {
    f"{','.join(map(str, shape))}-{dtype}": (shape, dtype)
    for dtype in ("float32", "float64")
    for shape in SHAPES
}
TOLERANCE = {"float32": 1e-5, "float64": 1e-12}
ROUNDS = 7


def problem(n, T, d, H):
    rng = np.random.default_rng(0)
    X = 2 * rng.standard_normal((n, T, d)) / np.sqrt(d)
    data = Dataset.from_arrays(X, np.where(np.arange(n) % 2, 1.0, -1.0))
    return MultiHead.create(
        rng.standard_normal((H, d, d)) / np.sqrt(d), rng.standard_normal((H, T, d)) / np.sqrt(T)
    ), data


@jax.jit
def autodiff(heads, X):
    """Per-sample gradients of the plain formula, and their Gram matrix."""

    def score(heads, x):
        W, U = heads
        A = jax.nn.softmax(jnp.einsum("td,hde,se->hts", x, W, x), axis=-1)
        return jnp.einsum("htd,hts,sd->", U, A, x) / W.shape[0] ** 0.5

    rows = [leaf.reshape(X.shape[0], -1) for leaf in jax.vmap(jax.grad(score), (None, 0))(heads, X)]
    return sum(J @ J.T for J in rows)


def extra_megabytes(shape, dtype):
    """Peak memory of one kernel in a fresh process, above what it held before the call (Linux; compiled before)."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import bench_kernel as b; "
        f"m = b.problem(*{shape}); b.tangent_kernel(*m, dtype='{dtype}'); "
        "open('/proc/self/clear_refs', 'w').write('5'); "  # the peak starts again from here
        "peak = lambda: int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0]) / 1024; "
        f"before = peak(); b.tangent_kernel(*m, dtype='{dtype}'); print(peak() - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


def measure(case, rounds):
    shape, dtype = CASES[case]
    model, data = problem(*shape)
    notes, agreement = [], {}
    with jax.enable_x64(dtype == "float64"), tempfile.TemporaryDirectory() as folder:
        heads = tuple(jnp.asarray(leaf, dtype) for leaf in model.heads)
        X = jnp.asarray(data.tokens, dtype)
        ours = tangent_kernel(model, data, dtype=dtype)
        variants = {
            "ours": partial(tangent_kernel, model, data, dtype=dtype),
            "autodiff": partial(autodiff, heads, X),
        }

        def compare(name, kernel):
            agreement[name] = float(np.abs(kernel - ours.matrix).max() / np.abs(ours.matrix).max())

        compare("autodiff", np.asarray(autodiff(heads, X)))
        given, out = str(Path(folder) / "in.npz"), str(Path(folder) / "out.npz")
        np.savez(
            given,
            tokens=np.asarray(X),
            key_query=np.asarray(heads[0]),
            readout=np.asarray(heads[1]),
        )
        tangents = ("closed form", "jacobian contraction", "structured derivatives")
        for peer, names in ((TORCH, ("torch.func",)), (TANGENTS, tangents)):
            if peer.missing is not None:
                notes.append(peer.missing)
                continue
            peer.ask(action="load", file=given)
            for name in names:
                try:
                    peer.ask(action="check", variant=name, file=out)
                except RuntimeError as error:
                    notes.append(f"{name}: {str(error)[:200]}")
                    continue
                with np.load(out) as file:
                    compare(name, file["kernel"])
                variants[name] = Timed(peer, variant=name)
        wrong = {name: error for name, error in agreement.items() if not error <= TOLERANCE[dtype]}
        if wrong:
            sys.exit(
                f"{case}: results differ by more than {TOLERANCE[dtype]:g}: {wrong}; nothing was timed"
            )
        two = MultiHead.create(model.key_query[:2], model.readout[:2], multiplicity=[2, 2])
        many = MultiHead(two.key_query, two.readout, np.array([5e11, 5e11]))
        variants |= {"four heads": partial(tangent_kernel, two, data, dtype=dtype)}
        variants |= {"trillion heads": partial(tangent_kernel, many, data, dtype=dtype)}
        times = race(variants, rounds=rounds)
    seconds = {name: t["median_s"] for name, t in times.items()}
    ratios = {
        f"{name} / ours": seconds[name] / seconds["ours"]
        for name in ("autodiff", "torch.func")
        if name in seconds
    }
    theirs = [seconds[name] for name in tangents[1:] if name in seconds]
    if theirs:
        ratios["neural-tangents / ours in one JAX"] = min(theirs) / seconds["closed form"]
        ratios["neural-tangents / ours"] = min(theirs) / seconds["ours"]
    ratios["trillion heads / four heads"] = seconds["trillion heads"] / seconds["four heads"]
    return {
        "case": case,
        "ratios": ratios,
        "form": ours.form,
        "extra_megabytes": extra_megabytes(shape, dtype),
        "milliseconds": {name: 1e3 * s for name, s in seconds.items()},
        "spread_ms": {name: 1e3 * t["spread_s"] for name, t in times.items()},
        "disagreement": agreement,
        "notes": notes,
    }


if __name__ == "__main__":
    TORCH = Peer("PyTorch", "MANYHEADS_TORCH_PYTHON", "torch_kernel.py")
    TANGENTS = Peer("neural-tangents", "MANYHEADS_NT_PYTHON", "tangents_kernel.py")
    try:
        sys.exit(main(__file__, __doc__.splitlines()[0], measure, list(CASES), rounds=ROUNDS))
    finally:
        TORCH.close()
        TANGENTS.close()
