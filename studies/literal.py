"""How many heads, and which step size, does Theorem 1 ask for?

Theorem 1 promises a small train loss if the number of heads is large enough and the step size small enough. Both are
computed here for a mixture, at the smallest number of heads for which the sharpened theorem (Theorem 1') certifies a
mean loss below 1/2 for the best of several numbers of steps. Such a run is then really made, which costs no more than
two heads, since heads of the first phase are of two kinds. In the paper's scaling at one step size.

"easy" has 4 tokens in dimension 6 and no noise; "noisy" has 8 tokens in dimension 12, a quarter of them relevant, with
noise. What suffices is the smallest power of two whose run, with the same step size and number of steps, stays below
that loss on average. The step size that descends is the largest power of two for which the loss never rises in 200
steps of 8 heads.
"""

import math

import jax
import numpy as np

import manyheads as mh
from manyheads import lab

LEVEL = 0.5
TRIED = [100, 1_000, 10_000]  # numbers of steps
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
HEADS = 8
LARGEST = 2.0**8  # the largest step size that is tried

GRID = lab.Grid(data=["easy", "noisy"], seeds=6)
QUICK = GRID.replace(data=["easy"], seeds=2)


def drawn(data, heads, seed):
    keys = jax.random.split(jax.random.key(seed), 3)
    task = mh.TokenizedMixture(**MIXTURES[data], key=keys[0])
    fresh, sample = task.sample(200, key=keys[1]), task.sample(40, key=keys[2])
    return mh.first_phase(fresh, num_heads=heads), sample, task


def mean_loss(start, sample, step, count):
    """The mean of the train loss over steps 1 to `count`."""
    run = mh.train(start, sample, rule=mh.GD(step), num_steps=count, dtype="float64", record="all")
    return float(np.mean(run.train_loss[1:]))


def suffices(data, seed, step, count):
    """The smallest power of two of heads whose run stays below the level; infinite above 1,024."""
    for heads in 2 ** np.arange(11):
        start, sample, _ = drawn(data, int(heads), seed)
        if mean_loss(start, sample, step, count) < LEVEL:
            return float(heads)
    return np.inf


def descends(data, seed):
    """The largest power of two, up to a limit, with which the loss never rises."""
    start, sample, _ = drawn(data, HEADS, seed)
    step = LARGEST
    while True:
        rule = mh.GD(step)
        run = mh.train(start, sample, rule=rule, num_steps=200, dtype="float64", record="all")
        if run.last_step == 200 and np.all(np.diff(run.train_loss) <= 0):
            return step
        step /= 2


def cell(data, seeds):
    found = {name: [] for name in ("heads", "suffices", "bound", "loss", "step", "descends")}
    for seed in seeds:
        start, sample, task = drawn(data, HEADS, seed)
        good = mh.theory.good_start(start, sample, token_radius=task.token_radius)
        least = mh.theory.smallest_heads(
            start,
            sample,
            [good.theta_star()],
            certified=LEVEL,
            num_steps=TRIED,
            token_radius=task.token_radius,
        )
        step, count = least.case.step_size, least.case.num_steps
        heads = 2 * math.ceil(least.num_heads / 2)  # heads of both signs, equally many
        many, sample, _ = drawn(data, heads, seed)
        found["heads"].append(heads)
        found["bound"].append(least.bound)
        found["loss"].append(mean_loss(many, sample, step, count))
        found["suffices"].append(suffices(data, seed, step, count))
        found["step"].append(step)
        found["descends"].append(descends(data, seed))
    return found


def each(results, name):
    """One estimate for each mixture."""
    return [results.mean(name, data=data) for data in results.data.data.values.tolist()]


CLAIMS = [
    lab.Claim(
        "Theorem 1' certifies a mean loss below 1/2 only from more than 1,000 heads on.",
        lambda r: lab.smallest(each(r, "heads")),
        above=1000,
        unit="heads that it asks for, on the mixture where they are fewest",
    ),
    lab.Claim(
        "The run that it speaks about does what it says.",
        lambda r: lab.largest(each(r.add(used=lambda d: d.loss / d.bound), "used")),
        below=1,
        unit="measured mean loss over the certified one",
    ),
    lab.Claim(
        "A hundredth of these heads suffices for the same loss, step size and number of steps.",
        lambda r: lab.largest(each(r.add(share=lambda d: d.suffices / d.heads), "share")),
        below=0.01,
        unit="heads that suffice over heads that the theorem asks for",
    ),
    lab.Claim(
        "Gradient descent on 8 heads never raises the loss with a step size 30 times as large.",
        lambda r: lab.smallest(each(r.add(times=lambda d: d.descends / d.step), "times")),
        above=30,
        unit="largest step size that descends (256 is the largest tried) over the theorem's",
    ),
]


def figure(results, axes):
    mixtures = results.data.data.values.tolist()
    for name, marker, text in (("heads", "o", "Theorem 1' asks for"), ("suffices", "s", "suffice")):
        found = [results.of(results.values(name, data=data), log=True).value for data in mixtures]
        axes.plot(mixtures, found, marker, label=text)
    axes.set_yscale("log")
    axes.legend()
    axes.margins(x=0.4)
    axes.set(title="Heads for a mean loss below 1/2", ylabel="heads", xlabel="mixture")
