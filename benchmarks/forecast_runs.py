"""Question: does any run break a promise of the forecast, or any point of a ball one of its local bounds?

Run:  python benchmarks/forecast_runs.py --out runs.jsonl --runs 2000 --seeds 4 --processes 16     goes on where it stopped
      python benchmarks/forecast_runs.py --out runs.jsonl --print                                  what is there
      python benchmarks/forecast_runs.py --out rules.jsonl --rules --runs 500 --seeds 0            normalized and Polyak steps
Run i is drawn from seed i: heads 1, 2, 8, 64, 1024 or 10^12, three starts, three decoders, two losses, masks, a constant or
a falling step size up to the limit at which the bounds still allow descent, and the step from which the forecast speaks. The measured
side is a descent by automatic differentiation of the plain formula. Each of `--seeds` tries 900 points of random balls on six
inequalities, by 200 steps of ascent.
"""

import argparse
import itertools
import json
import math
import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path

EXAMPLES, TOKENS, DIM = 24, 4, 6
HEADS = (1, 2, 8, 64, 1024, 1e12)
STARTS = ("first_phase", "zero", "gaussian")
MOST_PIECES, MOST_STEPS, STRETCH = 60, 4096, 256
HALVINGS = 8  # of a step size that the bounds do not allow
MOST_DIFFERENT = 8  # heads of a Gaussian start, which are all different
SETTINGS = {
    "JAX_PLATFORMS": "cpu",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true",
}  # of every process; what is set already stays


def drawn(index, rules=False):
    """What run `index` is, in plain values; runs of one `shape` share compiled code.

    With `rules` its steps are normalized or Polyak's, of a constant length or largest size.
    """
    import numpy as np

    rng = np.random.default_rng(index)
    start, heads = STARTS[rng.integers(3)], HEADS[rng.integers(len(HEADS))]
    case = {
        "index": index,
        "start": start,
        "heads": min(heads, MOST_DIFFERENT) if start == "gaussian" else heads,
        "decoder": ("full", "pooled", "last")[rng.integers(3)],
        "loss": ("logistic", "hyperbolic")[rng.integers(2)],
        "masked": bool(rng.integers(2)),
        "falling": bool(rng.integers(2)),
        "share": float(rng.choice([0.05, 0.2, 0.5, 0.9, 0.99])),  # of the largest step size
        "before": int(rng.choice([0, 1, 5, 20, 80, 300])),  # steps made before the forecast
        "signal": float(rng.choice([0.7, 1.0, 1.5, 2.5])),
        "noise": float(rng.choice([0.1, 0.5, 1.0])),
    }
    case["rule"] = "gd"
    if rules:
        case |= {"rule": ("normalized", "polyak")[rng.integers(2)], "falling": False}
    different = case["heads"] if start == "gaussian" else 1 if heads == 1 or start == "zero" else 2
    return case | {
        "shape": [case["decoder"], case["loss"], case["masked"], different, case["rule"]]
    }


def problem(case):
    """The start and the data of a run."""
    import jax
    import numpy as np

    import manyheads as mh

    keys = jax.random.split(jax.random.key(case["index"]), 4)
    mixture = mh.TokenizedMixture(
        num_tokens=TOKENS,
        dim=DIM,
        num_patterns=2,
        sparsity=0.5,
        signal=case["signal"],
        noise_mu=0.3 * case["noise"],
        noise_nu=0.3 * case["noise"],
        noise_norm=case["noise"],
        key=keys[0],
    )
    data, fresh = (
        mixture.sample(count, key=key)
        for key, count in zip(keys[1:3], (EXAMPLES, 100), strict=True)
    )
    if case["masked"]:
        real = np.random.default_rng(case["index"]).integers(2, TOKENS + 1, EXAMPLES)
        data = mh.Dataset.from_arrays(
            data.tokens, data.labels, mask=np.arange(TOKENS) < real[:, None]
        )
    shape = {"num_tokens": TOKENS, "dim": DIM, "decoder": case["decoder"]}
    if case["start"] == "zero":
        return mh.zero_start(case["heads"], **shape), data
    if case["start"] == "gaussian":
        return mh.gaussian_start(case["heads"], **shape, key=keys[3]), data
    return mh.first_phase(fresh, case["heads"], decoder=case["decoder"], loss=case["loss"]), data


@cache
def descent(decoder, loss, masked, rule):
    """A stretch of descent, compiled: losses and distances from `origin` before every step.

    `sizes` are step sizes, lengths of normalized steps, or the largest sizes of Polyak's.
    """
    import jax
    import jax.numpy as jnp

    import manyheads as mh
    from manyheads.model.loss import get_loss

    value = get_loss(loss).value

    def mean_loss(heads, counts, tokens, mask, labels):
        model = mh.MultiHead(*heads, counts, decoder)
        return jnp.mean(
            value(labels * jax.vmap(lambda x, m: model(x, m if masked else None))(tokens, mask))
        )

    def each(tree, counts, function):
        return jax.tree.map(
            lambda leaf: function(leaf, counts.reshape(-1, *(1,) * (leaf.ndim - 1))), tree
        )

    @jax.jit
    def stretch(heads, origin, counts, arrays, sizes):
        def step(now, eta):
            found, slope = jax.value_and_grad(mean_loss)(now, counts, *arrays)
            away = each(
                jax.tree.map(jnp.subtract, now, origin),
                counts,
                lambda leaf, N: jnp.sum(N * leaf**2),
            )
            one_head = each(slope, counts, lambda leaf, N: leaf / N)
            squares = each(one_head, counts, lambda leaf, N: jnp.sum(N * leaf**2))
            square = sum(jax.tree.leaves(squares))
            if rule == "normalized":
                eta = eta / jnp.sqrt(square)
            elif rule == "polyak":
                eta = jnp.minimum(eta, found / square)
            moved = jax.tree.map(lambda a, g: a - eta * g, now, one_head)
            return moved, (found, jnp.sqrt(sum(jax.tree.leaves(away))))

        return jax.lax.scan(step, heads, sizes)

    return stretch


def one_run(case):
    """The promises of one forecast held against the descent they are about."""
    import jax
    import numpy as np

    import manyheads as mh
    from manyheads.model.loss import get_loss
    from manyheads.theory.manyheads2026.region import (
        ENLARGE,
        Center,
        smoothness_bound,
        smoothness_per_loss,
    )
    from manyheads.training.rules import RULES

    model, data = problem(case)
    arrays = [
        np.asarray(a)
        for a in (
            data.tokens,
            np.ones(data.tokens.shape[:2], bool) if data.mask is None else data.mask,
            data.labels,
        )
    ]
    loss, how = get_loss(case["loss"]), (case["decoder"], case["loss"], case["masked"])
    plain, go = descent(*how, "gd"), descent(*how, case["rule"])

    def limit(model):
        center = Center.at(model, data, loss)
        level = float(np.mean(loss.at(center.margins)))
        most = 2 / smoothness_bound(center, center.ball.drift(0.0), 0.0, level)
        if case["rule"] == "normalized":  # a length, at the slope that is there
            return (
                max(center.direction[1], 0.0)
                * 2
                / smoothness_per_loss(center, center.ball.drift(0.0))
            )
        return most

    with jax.enable_x64(True):
        counts = np.asarray(model.multiplicity, np.float64)
        heads = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), model.heads)
        sizes = np.zeros(2 * STRETCH)
        center = Center.at(model, data, loss)
        level = float(np.mean(loss.at(center.margins)))
        sizes[: case["before"]] = 0.6 / smoothness_bound(center, center.ball.drift(0.0), 0.0, level)
        for part in np.split(sizes, 2):
            heads, _ = plain(heads, heads, counts, arrays, part)
        model = mh.MultiHead.create(
            *map(np.asarray, heads), multiplicity=counts, decoder=case["decoder"]
        )
        sizes = (
            case["share"]
            * limit(model)
            / (1 + np.arange(MOST_STEPS) / 100) ** (0.5 * case["falling"])
        )
        for _ in range(HALVINGS):  # until the bounds over the region allow it as well
            size = sizes if case["falling"] else float(sizes[0])
            by = (
                {"step_size": size} if case["rule"] == "gd" else {"rule": RULES[case["rule"]](size)}
            )
            promise = mh.forecast(model, data, **by, loss=loss, most_pieces=MOST_PIECES)
            if promise.pieces or promise.reason not in ("step", "slow"):
                break
            sizes = sizes / 2
        row = {
            **case,
            "nats": promise.nats,
            "reason": promise.reason,
            "levels": 0,
            "broken": 0,
            "tightest": 0.0,
        }
        if not promise.pieces:
            return row
        now, losses, away = heads, [], []
        for part in sizes.reshape(-1, STRETCH):
            now, (found, distance) = go(now, heads, counts, arrays, part)
            losses, away = (
                [*losses, *np.asarray(found).tolist()],
                [*away, *np.asarray(distance).tolist()],
            )
            if len(losses) > promise.steps[-1] or min(losses) <= promise.certified_loss[-1]:
                break
    losses, away = np.array(losses), np.array(away)
    best, known = np.minimum.accumulate(losses), promise.steps < len(losses)
    if len(losses) < MOST_STEPS:  # stopped early because the last level was reached
        known, best = (
            np.ones(len(known), bool),
            np.pad(best, (0, int(promise.steps[-1])), mode="edge"),
        )
    shares = best[promise.steps[known]] / promise.certified_loss[known]
    reached = np.flatnonzero(losses <= promise.certified_loss[-1])
    until = int(reached[0]) if len(reached) else len(losses) - 1
    wrong = int(np.sum(~(shares <= 1 + ENLARGE)))
    wrong += int(np.sum(np.diff(losses[: until + 1]) > 0)) + int(
        not away[: max(until, 1)].max() <= 2 * promise.radius
    )
    return row | {
        "levels": int(known.sum()),
        "broken": wrong,
        "tightest": float(shares.max(initial=0.0)),
        "speaks": bool(promise.speaks),
    }


def points(seed):
    """Ascent on every local bound, with seeds that `verify` does not use first."""
    from manyheads.theory.finding import Effort, Tally
    from manyheads.theory.manyheads2026 import attack

    tally = Tally()
    shares = attack.local_bounds(tally, Effort(quick=False, seed=seed))
    return {"index": -1 - seed, "points": tally.trials, "broken": tally.broken, "shares": shares}


def group(out, cases):
    """Runs that share compiled code, or one seed of points, each written as soon as it is known."""
    for case in cases:
        row = points(case["seed"]) if "seed" in case else one_run(case)
        with out.open("a") as file:  # one short write: lines of several processes do not mix
            file.write(json.dumps(row) + "\n")


def summary(rows):
    runs, balls = [r for r in rows if "start" in r], [r for r in rows if "points" in r]
    spoke = [r for r in runs if r["levels"]]
    lines = [
        f"{len(runs):,} runs; {len(spoke):,} forecasts promised something, {sum(r.get('speaks', False) for r in runs):,} half the "
        f"loss or more; {sum(r['levels'] for r in runs):,} certified levels compared, {sum(r['broken'] for r in runs)} violations; "
        f"measured / certified loss at most {max((r['tightest'] for r in spoke), default=math.nan):.6f}"
    ]
    for name in ("heads", "start", "decoder", "loss", "masked", "falling", "share", "rule"):
        made, promised = (
            Counter(r.get(name, "gd") for r in runs),
            Counter(r.get(name, "gd") for r in spoke),
        )
        lines.append(
            f"  {name}: "
            + ", ".join(f"{v} {promised[v]} of {made[v]}" for v in sorted(made, key=str))
        )
    if balls:
        names = balls[0]["shares"]
        most = ", ".join(f"{name} {max(r['shares'][name] for r in balls):.6f}" for name in names)
        lines.append(
            f"{sum(r['points'] for r in balls):,} adversarial points, {sum(r['broken'] for r in balls)} violations; {most}"
        )
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=4, help="of 5,400 adversarial points each")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--rules", action="store_true", help="normalized and Polyak steps")
    parser.add_argument("--print", action="store_true")
    options = parser.parse_args()
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    if not options.print:
        lines = options.out.read_text().splitlines() if options.out.exists() else []
        known = {json.loads(line)["index"] for line in lines}
        cases = [drawn(i, options.rules) for i in range(options.runs) if i not in known]
        cases.sort(key=lambda case: (str(case["shape"]), case["index"]))
        groups = [list(found) for _, found in itertools.groupby(cases, lambda case: case["shape"])]
        seeds = [[{"seed": seed}] for seed in range(options.seeds) if -1 - seed not in known]
        groups = [*seeds, *sorted(groups, key=len, reverse=True)]
        with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
            list(pool.map(partial(group, options.out), groups))
    rows = [json.loads(line) for line in options.out.read_text().splitlines()]
    print(summary(rows))
    raise SystemExit(1 if any(r["broken"] for r in rows) else 0)


if __name__ == "__main__":
    main()
