"""Question: what does one leave-one-out run cost, against a plain jitted loop and a PyTorch loop?

Run:  MANYHEADS_TORCH_PYTHON=... python benchmarks/bench_leave_one_out.py
One JSON line per case, then a table. A case is n,T,d,H, in float64, 50 steps. Times are per run, without compilation. The "jitted
loop" runs one loop of steps after another from Python and ends with the same distance and loss, with our closed-form gradient
("closed form") and with autodiff of the plain formula; the ratio is to the faster of the two. "trillion heads" is the time of two
classes of 5·10^11 heads over two classes of two: of the runs alone, and of whole calls of `leave_one_out`. "all exact runs
/ screening" is the time of all n runs of `leave_one_out` over that of the estimate of them from 8 kernels, with the correlation of
the two sets of distances beside it.
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
from manyheads.measures import leave_one_out  # noqa: E402
from manyheads.measures.stability import Setup, twin_runs  # noqa: E402
from manyheads.measures.stability_estimate import screen  # noqa: E402
from manyheads.model.gradient import head_weights, loss_and_gradient, prepare  # noqa: E402
from manyheads.model.loss import LOGISTIC  # noqa: E402
from manyheads.training.loop import descend  # noqa: E402
from manyheads.training.problem import make_problem  # noqa: E402
from manyheads.training.rules import GD  # noqa: E402

CASES = {
    "50,8,12,8": (50, 8, 12, 8),
    "100,10,50,8": (100, 10, 50, 8),
    "100,8,20,64": (100, 8, 20, 64),
}
SCREENED = ("50,8,12,8", "100,10,50,8")
STEP_SIZE, NUM_STEPS, INDICES = 0.1, 50, (0, 1, 2)
RUN = dict(step_size=STEP_SIZE, num_steps=NUM_STEPS)


def gap_and_loss(final, reference, score, label):
    """The results of a leave-one-out run: the distance from the reference, and the loss of the left-out example."""
    squares = sum(
        jnp.sum((a - b) ** 2)
        for a, b in zip(jax.tree.leaves(final), jax.tree.leaves(reference), strict=True)
    )
    return jnp.sqrt(squares), jnp.logaddexp(0.0, -label * score)


@jax.jit
def closed_form_run(heads, weights, batch, sample_weight, X, y, i, reference):
    def step(_, heads):
        gradient = loss_and_gradient(heads, weights, batch, sample_weight)[2]
        return jax.tree.map(lambda p, g: p - STEP_SIZE * g, heads, gradient)

    final = jax.lax.fori_loop(0, NUM_STEPS, step, heads)
    return gap_and_loss(final, reference, plain_scores(final, X[i][None])[0], y[i]), final


def plain_scores(heads, X):
    W, U = heads
    A = jax.nn.softmax(jnp.einsum("ntd,hde,nse->nhts", X, W, X), axis=-1)
    return jnp.einsum("htd,nhts,nsd->n", U, A, X) / W.shape[0] ** 0.5


@jax.jit
def autodiff_run(heads, X, y, sample_weight, i, reference):
    def loss(heads):
        return jnp.sum(sample_weight * jnp.logaddexp(0.0, -y * plain_scores(heads, X)))

    def step(_, heads):
        return jax.tree.map(lambda p, g: p - STEP_SIZE * g, heads, jax.grad(loss)(heads))

    final = jax.lax.fori_loop(0, NUM_STEPS, step, heads)
    return gap_and_loss(final, reference, plain_scores(final, X[i][None])[0], y[i]), final


def twins(model, data):
    """Our runs without the reference, compiled once: what `leave_one_out` repeats for every example."""
    problem = make_problem(model, data, GD(STEP_SIZE))
    run, _ = descend(problem, {}, NUM_STEPS)
    reference = jax.tree.map(lambda leaf: leaf[None], run.displacement)
    setup = jax.device_put(Setup(problem, None, reference, np.array([NUM_STEPS], np.int32)))
    return lambda: [twin_runs(setup, jnp.array([i], jnp.int32), expansion=False) for i in INDICES]


def measure(case, rounds):
    n, T, d, H = CASES[case]
    rng = np.random.default_rng(0)
    X = 2 * rng.standard_normal((n, T, d)) / np.sqrt(d)
    data = Dataset.from_arrays(X, np.where(rng.random(n) < 0.5, 1.0, -1.0))
    model = MultiHead.create(
        rng.standard_normal((H, d, d)) / np.sqrt(d), rng.standard_normal((H, T, d)) / np.sqrt(T)
    )
    ours = leave_one_out(model, data, indices=INDICES, **RUN).distance[:, -1]
    notes, agreement = [], {}
    with jax.enable_x64(True), tempfile.TemporaryDirectory() as folder:
        heads = jax.tree.map(jnp.asarray, model.heads)
        weights, batch = jax.tree.map(jnp.asarray, (head_weights(model), prepare(data, model)))
        tokens, labels = jnp.asarray(data.tokens), jnp.asarray(data.labels)
        everyone = jnp.full(n, 1 / n)
        loops = {
            "closed form": lambda w, i, r: closed_form_run(
                heads, weights, batch, w, tokens, labels, i, r
            ),
            "autodiff": lambda w, i, r: autodiff_run(heads, tokens, labels, w, i, r),
        }

        def runs(loop, reference):
            return [loop(everyone.at[i].set(0.0), i, reference)[0] for i in INDICES]

        references = {name: loop(everyone, 0, heads)[1] for name, loop in loops.items()}
        for name, loop in loops.items():
            found = np.array([float(distance) for distance, _ in runs(loop, references[name])])
            agreement[name] = float(np.abs(found / ours - 1).max())
        variants = {"ours": twins(model, data)}
        variants |= {
            name: (lambda loop=loop, name=name: runs(loop, references[name]))
            for name, loop in loops.items()
        }
        if TORCH.missing is None:
            given, out = str(Path(folder) / "in.npz"), str(Path(folder) / "out.npz")
            np.savez(
                given,
                tokens=data.tokens,
                labels=data.labels,
                key_query=model.key_query,
                readout=model.readout,
            )
            TORCH.ask(action="load", file=given, step_size=STEP_SIZE, num_steps=NUM_STEPS)
            TORCH.ask(action="check", indices=INDICES, file=out)
            with np.load(out) as file:
                agreement["torch loop"] = float(np.abs(file["distance"] / ours - 1).max())
            variants["torch loop"] = Timed(TORCH, indices=INDICES)
        else:
            notes.append(TORCH.missing)
        wrong = {name: error for name, error in agreement.items() if not error <= 1e-9}
        if wrong:
            sys.exit(f"{case}: distances differ: {wrong}; nothing was timed")
        two = MultiHead.create(model.key_query[:2], model.readout[:2] / 1e6, multiplicity=[2, 2])
        many = MultiHead(two.key_query, two.readout, np.array([5e11, 5e11]))
        for name, counted in (("four heads", two), ("trillion heads", many)):
            variants[name] = twins(counted, data)
            variants[f"{name}, whole call"] = partial(
                leave_one_out, counted, data, indices=INDICES, **RUN
            )
        times = race(variants, rounds=rounds)
        slow, correlation = {}, None
        if case in SCREENED:
            slow["all exact runs"] = partial(leave_one_out, model, data, **RUN)
            slow["screening"] = partial(screen, model, data, STEP_SIZE, NUM_STEPS, 8, LOGISTIC)
            exact, estimate = slow["all exact runs"]().distance[:, -1], slow["screening"]()[0]
            correlation = float(np.corrcoef(exact, estimate)[0, 1])
        times |= race(slow, rounds=min(3, rounds), warm=True)
    each = {name: 1 if name in slow or name == "torch loop" else len(INDICES) for name in times}
    seconds = {name: t["median_s"] / each[name] for name, t in times.items()}
    ratios = {
        "fastest jitted loop / ours": min(seconds["closed form"], seconds["autodiff"])
        / seconds["ours"]
    }
    if "torch loop" in seconds:
        ratios["torch loop / ours"] = seconds["torch loop"] / seconds["ours"]
    ratios["trillion heads / four heads"] = seconds["trillion heads"] / seconds["four heads"]
    whole = [seconds[f"{name} heads, whole call"] for name in ("trillion", "four")]
    ratios["trillion heads / four heads, whole call"] = whole[0] / whole[1]
    if correlation is not None:
        ratios["all exact runs / screening"] = seconds["all exact runs"] / seconds["screening"]
        ratios["correlation of screening and exact"] = correlation
    return {
        "case": case,
        "ratios": ratios,
        "milliseconds_per_run": {name: 1e3 * s for name, s in seconds.items()},
        "spread_ms": {name: 1e3 * t["spread_s"] for name, t in times.items()},
        "disagreement": agreement,
        "notes": notes,
    }


if __name__ == "__main__":
    TORCH = Peer("PyTorch", "MANYHEADS_TORCH_PYTHON", "torch_runs.py")
    try:
        sys.exit(main(__file__, __doc__.splitlines()[0], measure, list(CASES)))
    finally:
        TORCH.close()
