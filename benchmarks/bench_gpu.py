"""Question: does the same code on a GPU give the numbers of the CPU, and how fast is one step there?

Run on a machine with a CUDA GPU:  python benchmarks/bench_gpu.py [--out result.json]      One JSON line per case.

First agreement: losses and gradients of the GPU against the CPU's float64, in float32, in float64 and in tf32 (which only
runs when it is asked for), and whole training runs. Then time: ours against plain JAX autodiff, float32 and tf32; and
runs of one shape one after another over all of them together, by the operations of a step. A case is n,T,d,H, or n,T,d,H,r
where the key-query weights are factors of rank r.
"""

import argparse
import json
import statistics
import sys
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import manyheads as mh
from manyheads.model.gradient import head_weights, loss_and_gradient, prepare
from manyheads.training.together import train_together

SHAPES = [
    (100, 10, 50, 8),
    (1000, 10, 50, 64),
    (4096, 16, 64, 64),
    (2048, 16, 128, 64),
    (1024, 64, 64, 32),
]
FACTORED = [(1000, 10, 50, 64, 8)]
TOGETHER = [(20, 8, 12, 2), (100, 8, 12, 8), (200, 10, 50, 8), (1000, 10, 50, 16)]
NUM_RUNS, NUM_STEPS = 16, 200
ALLOWED = {"float32": 1e-5, "float64": 1e-12}


def draw(n, T, d, H, rank=None, seed=0):
    rng = np.random.default_rng(seed)
    X = 2 * rng.standard_normal((n, T, d)) / np.sqrt(d)
    W = (
        rng.standard_normal((H, d, d)) / np.sqrt(d)
        if rank is None
        else tuple(rng.standard_normal((H, d, rank)) / np.sqrt(d) for _ in "qk")
    )
    model = mh.MultiHead.create(W, rng.standard_normal((H, T, d)) / np.sqrt(T))
    return mh.Dataset.from_arrays(X, np.where(rng.random(n) < 0.5, 1.0, -1.0)), model


def program(data, model, dtype, device, precision):
    """The step as a function without arguments, on the device."""
    put = partial(jax.device_put, device=device)
    heads = put(jax.tree.map(lambda leaf: leaf.astype(dtype), model.heads))
    weights, share = (
        put(head_weights(model, dtype)),
        put(np.full(data.num_examples, 1 / data.num_examples, dtype)),
    )
    batch = put(prepare(data, model, dtype, None, device.platform))
    step = jax.jit(partial(loss_and_gradient, precision=precision))
    return lambda: step(heads, weights, batch, share)


def autodiff(data, model, dtype, device, precision):
    """Plain JAX: the formula as one would write it."""
    put = partial(jax.device_put, device=device)
    heads = put(jax.tree.map(lambda leaf: leaf.astype(dtype), tuple(model.heads)))
    X, y = put(data.tokens.astype(dtype)), put(data.labels.astype(dtype))

    def loss(heads, X, y):
        W, U = heads
        if isinstance(W, tuple):
            W = jnp.einsum("hdr,her->hde", *W, precision=precision)
        A = jax.nn.softmax(jnp.einsum("ntd,hde,nse->nhts", X, W, X, precision=precision), axis=-1)
        scores = jnp.einsum("htd,nhts,nsd->n", U, A, X, precision=precision) / W.shape[0] ** 0.5
        return jnp.mean(jnp.logaddexp(0.0, -y * scores))

    step = jax.jit(jax.value_and_grad(loss))
    return lambda: step(heads, X, y)


def error(got, want):
    """Largest relative error (Frobenius) of loss and gradients."""
    pairs = [(np.asarray(a, np.float64), np.asarray(b)) for a, b in zip(got, want, strict=True)]
    return max(float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in pairs)


def flat(result):
    return (result[0], *jax.tree.leaves(result[-1]))


def milliseconds(work, repeats=15):
    jax.block_until_ready(work())
    jax.block_until_ready(work())
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(work())
        times.append(time.perf_counter() - began)
    return 1e3 * statistics.median(times)


def measure(shape, cpu, gpu):
    exact, tf32 = jax.lax.Precision.HIGHEST, jax.lax.Precision.DEFAULT
    data, model = draw(*shape)
    line = {"case": ",".join(map(str, shape)), "error": {}, "milliseconds": {}}
    with jax.enable_x64(True):
        want = flat(program(data, model, np.float64, cpu, exact)())
        for name, dtype, precision in (
            ("float64", np.float64, exact),
            ("float32", np.float32, exact),
            ("tf32", np.float32, tf32),
        ):
            ours, plain = (
                program(data, model, dtype, gpu, precision),
                autodiff(data, model, dtype, gpu, precision),
            )
            line["error"][name] = error(flat(ours()), want)
            line["milliseconds"][f"ours {name}"] = milliseconds(ours)
            line["milliseconds"][f"autodiff {name}"] = milliseconds(plain)
    n, T, d, H = shape[:4]
    flops = n * H * (4 * T * d**2 + 8 * T**2 * d)
    line["teraflops"] = {name: flops / ms / 1e9 for name, ms in line["milliseconds"].items()}
    line["agrees"] = all(line["error"][name] <= allowed for name, allowed in ALLOWED.items())
    return line


def training():
    """A whole run on each device, in both precisions, few heads and 10^12."""
    mix = mh.TokenizedMixture(noise_mu=0.1, noise_nu=0.1, noise_norm=0.5, key=jax.random.key(0))
    fresh, data = mix.sample(200, key=jax.random.key(1)), mix.sample(100, key=jax.random.key(2))
    lines = []
    for heads, dtype, allowed in (
        (8, "float32", 1e-5),
        (8, "float64", 1e-12),
        (1e12, "float64", 1e-12 + 1e6 * 2.2e-16),
    ):
        model = mh.first_phase(fresh, heads)
        runs = [
            mh.train(model, data, rule=mh.GD(0.1), num_steps=300, dtype=dtype, devices=where)
            for where in (jax.devices("cpu")[:1], jax.devices("gpu")[:1])
        ]
        difference = float(np.max(np.abs(runs[0].train_loss - runs[1].train_loss)))
        lines.append(
            {
                "case": f"training, {heads:g} heads, {dtype}",
                "error": difference,
                "agrees": difference <= allowed,
            }
        )
    return lines


def together(shape):
    """Seconds of a step of runs of one shape, one after another over together; agreement of their losses first."""
    data, models = zip(*(draw(*shape, seed=seed) for seed in range(NUM_RUNS)), strict=True)
    common = dict(num_steps=NUM_STEPS, dtype="float32", record=NUM_STEPS)

    def alone():
        return [
            mh.train(m, x, rule=mh.GD(0.1), **common) for m, x in zip(models, data, strict=True)
        ]

    def at_once():
        return train_together(models, data, rules=[mh.GD(0.1)] * NUM_RUNS, **common)

    difference = max(
        float(np.max(np.abs(a.train_loss / b.train_loss - 1)))
        for a, b in zip(alone(), at_once(), strict=True)
    )
    times = {
        name: milliseconds(work, 3) / NUM_STEPS
        for name, work in (("alone", alone), ("together", at_once))
    }
    n, T, d, H = shape
    return {
        "case": f"{NUM_RUNS} runs of {n},{T},{d},{H}",
        "operations per step": n * H * (4 * T * d**2 + 8 * T**2 * d),
        "error": difference,
        "milliseconds": times,
        "ratios": {"alone / together": times["alone"] / times["together"]},
        "agrees": difference <= 1e-4,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=None, help="JSON file to write the result to")
    options = parser.parse_args()
    try:
        cpu, gpu = jax.devices("cpu")[0], jax.devices("gpu")[0]
    except RuntimeError:
        print("nothing was measured: JAX sees no GPU here", file=sys.stderr)
        return 0
    lines = []
    work = [partial(measure, shape, cpu, gpu) for shape in SHAPES + FACTORED] + [
        partial(together, s) for s in TOGETHER
    ]
    for piece in [*work, training]:
        found = piece()
        for line in found if isinstance(found, list) else [found]:
            print(json.dumps(line), flush=True)
            lines.append(line)
    for line in lines:
        ms = line.get("milliseconds", {})
        speed = "  ".join(f"{name} {value:.2f} ms" for name, value in ms.items())
        ratio = "".join(f"  {name} {value:.2f}" for name, value in line.get("ratios", {}).items())
        print(f"{line['case']:<34} {'agrees' if line['agrees'] else 'DIFFERS'}  {speed}{ratio}")
    if options.out:
        where = {"device": gpu.device_kind, "jax": jax.__version__}
        options.out.write_text(
            json.dumps(
                {"question": __doc__.splitlines()[0], "environment": where, "cases": lines},
                indent=1,
            )
            + "\n"
        )
    return 0 if all(line["agrees"] for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
