"""From which step on can the theory prove that the loss will halve?

The forecast looks at one point of a run and proves what the next steps of gradient descent reach; it needs no other run
and asks for no large number of heads. The model is trained from the paper's first phase (heads of two signs, so two
heads are distinct; one where there is one head), in the paper's scaling at one step size. The forecast is asked at steps
0, 3, 10, 30, 50 and 100, and the first answer that proves half of the loss is compared with what the run then does.

Two mixtures: "easy" has 4 tokens in dimension 6 and no noise, step size 1; "noisy" has 8 tokens in dimension 12, a
quarter of them relevant, with noise, step size 0.1. "Distinct" heads start as Gaussian draws and all differ.
"""

import jax
import numpy as np

import manyheads as mh
from manyheads import lab

ASKED = (0, 3, 10, 30, 50, 100)
PIECES = 40  # of the region that is followed: enough for more than one nat
NEVER = 1000  # stands for "at none of these steps" on a logarithmic axis
MIXTURES = {
    "easy": dict(num_tokens=4, dim=6, num_patterns=2, sparsity=0.5, signal=1.0),
    "noisy": dict(
        num_tokens=8,
        dim=12,
        num_patterns=4,
        sparsity=0.25,
        signal=2.0,
        noise_mu=0.1,
        noise_nu=0.1,
        noise_norm=0.5,
    ),
}
STEP = {"easy": 1.0, "noisy": 0.1}


GRID = lab.Grid(
    data=["easy", "noisy"],
    start=["first phase", "distinct"],
    heads=[1, 2, 8, 64, 1024],
    seeds=6,
    # Heads that all differ are computed one by one.
    where=lambda start, heads, **_: start == "first phase" or heads == 8,
)
QUICK = GRID.replace(data=["easy"], heads=[8, 1024], seeds=2)
TRY = [dict(data="easy", start="first phase", heads=8)]


def drawn(data, start, heads, seed):
    """A start and 40 sequences that it has not seen."""
    keys = jax.random.split(jax.random.key(seed), 4)
    task = mh.TokenizedMixture(**MIXTURES[data], key=keys[0])
    sample = task.sample(40, key=keys[1])
    if start == "first phase":
        return mh.first_phase(task.sample(200, key=keys[2]), num_heads=heads), sample
    size = {"num_tokens": sample.num_tokens, "dim": sample.dim}
    return mh.gaussian_start(heads, **size, key=keys[3]), sample


def cell(data, start, heads, seeds):
    found = {name: [] for name in ("first", "in_time", "promised", "taken", "kept")}
    for seed in seeds:
        model, sample = drawn(data, start, heads, seed)
        rule = mh.GD(STEP[data])
        run = mh.train(
            model, sample, rule=rule, num_steps=max(ASKED), dtype="float64", snapshots=ASKED
        )
        at = {step: run.model(step) for step in ASKED}
        promises = (
            (k, mh.forecast(at[k], sample, step_size=STEP[data], most_pieces=PIECES)) for k in ASKED
        )
        step, promise = next(((k, p) for k, p in promises if p.speaks), (NEVER, None))
        found["first"].append(max(step, 1))
        found["in_time"].append(step < NEVER)
        for name, value in kept(at, sample, step, promise).items():
            found[name].append(value)
    return found


def kept(models, sample, step, promise):
    """Steps promised for half of the loss, steps taken, and the share of all promised levels reached in time."""
    if promise is None:
        return {"promised": 1, "taken": 1, "kept": 1.0}  # nothing was promised or broken
    rule = mh.GD(promise.step_size)
    count = promise.steps_to_reduce
    run = mh.train(models[step], sample, rule=rule, num_steps=count, dtype="float64", record="all")
    best = np.minimum.accumulate(run.train_loss)
    within = promise.steps <= count
    reached = best[promise.steps[within]] <= promise.certified_loss[within] * (1 + 1e-9)
    taken = int(np.argmax(best <= promise.loss / 2))
    share = float(np.mean(reached)) if len(reached) else 1.0
    return {"promised": count, "taken": taken, "kept": share}


def of_mixtures(results, ask, **setting):
    """One estimate for each mixture."""
    known = results.data.data.values.tolist()
    return [ask(data=data, **{"start": "first phase"} | setting) for data in known]


def sharpness(results):
    return results.add(share=lambda d: d.taken / d.promised)


CLAIMS = [
    lab.Claim(
        "At 8 heads, within the first 100 steps, the theory proves that the loss will halve.",
        lambda r: lab.smallest(of_mixtures(r, r.share, name="in_time", heads=8)),
        above=0.5,
        unit="share of runs on the mixture where it does so least often",
    ),
    lab.Claim(
        "What it promises happens in time, at every level.",
        lambda r: lab.smallest(of_mixtures(r, r.mean, name="kept", heads=8)),
        near=1,
        within=0,
        unit="share of promised levels that the run reached in time",
    ),
    lab.Claim(
        "The promise is sharp: halving takes at least a fifth of the promised steps.",
        lambda r: lab.smallest(of_mixtures(r, sharpness(r).mean, name="share", heads=8)),
        above=0.2,
        unit="steps taken over steps promised",
    ),
    lab.Claim(
        "At 1,024 heads of two kinds it proves this before the first step.",
        lambda r: lab.largest(of_mixtures(r, r.mean, name="first", heads=1024)),
        below=3,
        unit="first step that proves a halving (0 is counted as 1; asked at 0, 3, 10, ...)",
    ),
    lab.Claim(
        "It speaks about 8 heads that all differ, too.",
        lambda r: lab.smallest(of_mixtures(r, r.share, name="in_time", heads=8, start="distinct")),
        above=0.5,
        unit="share of runs on the mixture where it does so least often",
    ),
]


def figure(results, axes):
    lab.lines(axes, results, "first", "heads", "data", start="first phase")
    axes.set(
        title="The earlier, the more heads",
        xlabel="heads",
        ylabel="first step that proves a halving",
    )
