"""Question: how much faster are Hessian-vector products and extreme eigenvalues than curvlinops, to equal accuracy?

Run:  MANYHEADS_TORCH_PYTHON=... python benchmarks/bench_curvature.py
One JSON line per case, then a table. A case is n,T,d,H, in float64. Ratios are the time of the peer over ours. curvlinops'
eigenvalues come from the same two ARPACK calls with the same tolerance and start vector as ours. "autodiff product" is a jitted
jvp of the gradient of the plain formula. "trillion heads" is the time of two classes of 5·10^11 heads over two classes of two: for
one product, and at the small case for whole calls of `loss_curvature` by Lanczos. The two Hessians differ, and so does the number of
products that a tolerance takes ("products to tolerance") or at which a call gives up ("products of a whole call"), so whole calls are
compared by their time per product.
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
from manyheads.measures import loss_curvature  # noqa: E402
from manyheads.measures.hessian import HessianOperator  # noqa: E402
from manyheads.model.loss import LOGISTIC  # noqa: E402

SMALL = "200,8,20,16"
CASES = {"1000,10,50,8": (1000, 10, 50, 8), SMALL: (200, 8, 20, 16)}
TOLERANCE = 1e-7  # of the residual, relative to the largest eigenvalue
WHOLE = dict(
    method="lanczos", tolerance=1e-16, max_products=120, seed=0
)  # out of reach: the products end the call


@jax.jit
def autodiff_product(heads, move, X, y):
    def loss(heads):
        W, U = heads
        A = jax.nn.softmax(jnp.einsum("ntd,hde,nse->nhts", X, W, X), axis=-1)
        scores = jnp.einsum("htd,nhts,nsd->n", U, A, X) / W.shape[0] ** 0.5
        return jnp.mean(jnp.logaddexp(0.0, -y * scores))

    return jax.jvp(jax.grad(loss), (heads,), (move,))[1]


def measure(case, rounds):
    n, T, d, H = CASES[case]
    rng = np.random.default_rng(0)
    X = 2 * rng.standard_normal((n, T, d)) / np.sqrt(d)
    data = Dataset.from_arrays(X, np.where(rng.random(n) < 0.5, 1.0, -1.0))
    model = MultiHead.create(
        rng.standard_normal((H, d, d)) / np.sqrt(d), rng.standard_normal((H, T, d)) / np.sqrt(T)
    )
    notes, agreement, products, to_tolerance = [], {}, {}, {}
    with jax.enable_x64(True), tempfile.TemporaryDirectory() as folder:
        operator = HessianOperator.of_loss(model, data, LOGISTIC)
        vector = np.random.default_rng(0).standard_normal(operator.size)
        heads, move = (
            tuple(jnp.asarray(leaf) for leaf in pair)
            for pair in (model.heads, operator.direction(vector))
        )
        tokens, labels = jnp.asarray(data.tokens), jnp.asarray(data.labels)
        eigenvalues = partial(
            loss_curvature, model, data, method="lanczos", tolerance=TOLERANCE, seed=0
        )
        ours, found = operator(vector), eigenvalues()
        if not found.converged:
            sys.exit(f"{case}: our eigenvalues did not converge; nothing was timed")
        by_autodiff = np.concatenate(
            [np.ravel(leaf) for leaf in autodiff_product(heads, move, tokens, labels)]
        )
        agreement["autodiff product"] = float(
            np.linalg.norm(by_autodiff - ours) / np.linalg.norm(ours)
        )
        variants = {
            "our product": partial(operator, vector),
            "autodiff product": partial(autodiff_product, heads, move, tokens, labels),
        }
        slow = {"our eigenvalues": eigenvalues}
        if CURVLINOPS.missing is None:
            given, out = str(Path(folder) / "in.npz"), str(Path(folder) / "out.npz")
            np.savez(
                given,
                tokens=data.tokens,
                labels=data.labels,
                key_query=model.key_query,
                readout=model.readout,
                vector=vector,
            )
            CURVLINOPS.ask(action="load", file=given, tolerance=TOLERANCE / 4)
            CURVLINOPS.ask(action="check", variant="product", file=out)
            with np.load(out) as file:
                agreement["curvlinops product"] = float(
                    np.linalg.norm(file["result"] - ours) / np.linalg.norm(ours)
                )
            CURVLINOPS.ask(action="check", variant="eigenvalues", file=out)
            pair = np.array([found.smallest.value, found.largest.value])
            with np.load(out) as file:
                agreement["curvlinops eigenvalues"] = float(
                    np.abs(file["result"] - pair).max() / np.abs(pair).max()
                )
            variants["curvlinops product"] = Timed(CURVLINOPS, variant="product")
            slow["curvlinops eigenvalues"] = Timed(CURVLINOPS, variant="eigenvalues")
        else:
            notes.append(CURVLINOPS.missing)
        limits = {name: 10 * TOLERANCE if "eigenvalues" in name else 1e-10 for name in agreement}
        wrong = {name: error for name, error in agreement.items() if not error <= limits[name]}
        if wrong:
            sys.exit(f"{case}: results differ: {wrong}; nothing was timed")
        two = MultiHead.create(model.key_query[:2], model.readout[:2] / 1e6, multiplicity=[2, 2])
        many = MultiHead(two.key_query, two.readout, np.array([5e11, 5e11]))
        for name, counted in (("four heads", two), ("trillion heads", many)):
            variants[name] = partial(
                HessianOperator.of_loss(counted, data, LOGISTIC), vector[: operator.size * 2 // H]
            )
            if case == SMALL:
                variants[f"{name}, whole call"] = partial(loss_curvature, counted, data, **WHOLE)
                products[f"{name}, whole call"] = variants[f"{name}, whole call"]().num_products
                to_tolerance[name] = loss_curvature(
                    counted, data, method="lanczos", tolerance=TOLERANCE
                ).num_products
        times = race(variants, rounds=rounds) | race(slow, rounds=min(3, rounds), warm=True)
    seconds = {name: t["median_s"] for name, t in times.items()}
    ratios = {"autodiff product / ours": seconds["autodiff product"] / seconds["our product"]}
    if CURVLINOPS.missing is None:
        ratios["curvlinops product / ours"] = seconds["curvlinops product"] / seconds["our product"]
        ratios["curvlinops eigenvalues / ours"] = (
            seconds["curvlinops eigenvalues"] / seconds["our eigenvalues"]
        )
    ratios["trillion heads / four heads"] = seconds["trillion heads"] / seconds["four heads"]
    if products:
        trillion, four = (
            seconds[name] / products[name]
            for name in ("trillion heads, whole call", "four heads, whole call")
        )
        ratios["trillion heads / four heads, whole call, per product"] = trillion / four
    return {
        "case": case,
        "ratios": ratios,
        "eigenvalues": [found.smallest.value, found.largest.value],
        "residuals": [found.smallest.residual, found.largest.residual],
        "products": found.num_products,
        "products of a whole call": products,
        "products to tolerance": to_tolerance,
        "milliseconds": {name: 1e3 * s for name, s in seconds.items()},
        "spread_ms": {name: 1e3 * t["spread_s"] for name, t in times.items()},
        "disagreement": agreement,
        "notes": notes,
    }


if __name__ == "__main__":
    CURVLINOPS = Peer("curvlinops", "MANYHEADS_TORCH_PYTHON", "torch_curvature.py")
    try:
        sys.exit(main(__file__, __doc__.splitlines()[0], measure, list(CASES)))
    finally:
        CURVLINOPS.close()
