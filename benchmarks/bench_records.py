"""Question: how much do records, relevant tokens and the progress bar slow the loop of descent?

Run:  python benchmarks/bench_records.py     One JSON line per case, then a table.

A case is n,T,d,H x steps, in float32. "everything / ends" is the time of `train` with about 60 records, the attention mass
on relevant tokens and a bar (not on a terminal), over its time with nothing but the two ends; "everything / bare loop" is
the same over a compiled loop that does nothing but descend. The final parameters are compared first.
"""

import contextlib
import io
import os
import sys
from functools import partial

from harness import main, one_core, race

one_core()
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false " + os.environ.get("XLA_FLAGS", "")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import manyheads as mh  # noqa: E402
from manyheads.model.gradient import head_weights, loss_and_gradient, prepare  # noqa: E402

CASES = {
    "100,10,50,8 x 1000": ((100, 10, 50, 8), 1000),
    "1000,10,50,8 x 200": ((1000, 10, 50, 8), 200),
}
STEP = 0.05


def everything(model, data, num_steps):
    with contextlib.redirect_stderr(io.StringIO()), mh.progress():
        return mh.train(model, data, rule=mh.GD(STEP), num_steps=num_steps, record="log")


def ends(model, data, num_steps):
    return mh.train(model, data, rule=mh.GD(STEP), num_steps=num_steps, record=[])


@partial(jax.jit, static_argnums=4)
def bare(start, weights, batch, share, num_steps):
    def step(_, moved):
        gradient = loss_and_gradient(jax.tree.map(jnp.add, start, moved), weights, batch, share)[2]
        return jax.tree.map(lambda d, g: d - STEP * g, moved, gradient)

    return jax.lax.fori_loop(0, num_steps, step, jax.tree.map(jnp.zeros_like, start))


def measure(case, rounds):
    (n, T, d, H), num_steps = CASES[case]
    task = mh.TokenizedMixture(
        num_tokens=T,
        dim=d,
        num_patterns=6,
        sparsity=0.2,
        noise_mu=0.1,
        noise_nu=0.1,
        noise_norm=0.5,
        key=jax.random.key(0),
    )
    known = task.sample(n, key=jax.random.key(1))
    unknown = mh.Dataset(known.tokens, known.labels)  # the relevant tokens are not told
    model = mh.gaussian_start(H, num_tokens=T, dim=d, key=jax.random.key(2))
    start = jax.tree.map(lambda leaf: jnp.asarray(leaf, "float32"), model.heads)
    weights = jax.tree.map(jnp.asarray, head_weights(model, "float32"))
    batch = jax.tree.map(jnp.asarray, prepare(known, model, "float32"))
    variants = {
        "everything": partial(everything, model, known, num_steps),
        "ends": partial(ends, model, unknown, num_steps),
        "bare loop": partial(bare, start, weights, batch, jnp.full(n, 1 / n, "float32"), num_steps),
    }
    full, few = variants["everything"](), variants["ends"]()
    assert (
        len(full.steps) > 40
        and full.attention_mass is not None
        and few.steps.tolist() == [0, num_steps]
    )
    for name, other in (("ends", few.displacement), ("bare loop", variants["bare loop"]())):
        off = max(
            float(np.abs(a - b).max() / np.abs(b).max())
            for a, b in zip(full.displacement, other, strict=True)
        )
        if not off <= 1e-4:
            sys.exit(
                f"{case}: the final parameters differ from those of {name} by {off:.1e}; nothing was timed"
            )
    times = race(variants, rounds=rounds)
    seconds = {name: times[name]["median_s"] for name in times}
    return {
        "case": case,
        "ratios": {
            f"everything / {name}": seconds["everything"] / seconds[name]
            for name in ("ends", "bare loop")
        },
        "seconds": seconds,
        "spread_s": {name: t["spread_s"] for name, t in times.items()},
        "records": len(full.steps),
    }


if __name__ == "__main__":
    sys.exit(main(__file__, __doc__.splitlines()[0], measure, list(CASES)))
