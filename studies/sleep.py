"""When does attention wake up?

From zero, attention is uniform: every query looks at all tokens alike. It is awake at the first
step at which some query has moved a twentieth of its attention (total variation distance from
uniform). Data: two tokenized mixtures of 40 sequences, 8 tokens, one easy and one with strong
noise; full-batch descent with steps of size 1/2, or Adam with 0.02. The heads start alike, so one
head of them is distinct, and 1,024 cost as much as one. Three scalings: the paper's (scores divided
by √H, one step size for all weights), the same with the step of the attention weights multiplied by
H, and Adam. A run that is asleep after 20,000 steps counts with 20,000.

Why exp(c√H) where the data are fitted fast: H heads are one head whose attention has the step
1/(2H). The readout of a separable problem grows like log t, the loss falls like 1/t, so W has moved
about (log t)²/H after t steps, until that is of order one. On noisy data the loss falls later, and
attention wakes before that. Theorem W proves a number of steps before the run during which no query
moves more than the share that is asked for; it is for plain descent and for starts with uniform
attention.
"""

import jax
import jax.numpy as jnp
import numpy as np

import manyheads as mh
from manyheads import lab
from studies._scaling import SCALINGS, rule_of

SHARE, STEP, LAST = 0.05, 0.5, 20_000
SIZE = {"num_tokens": 8, "dim": 10}
EASY = dict(sparsity=0.25, noise_mu=0.1, noise_nu=0.1, noise_norm=0.4)
HARD = dict(sparsity=0.125, noise_mu=0.5, noise_nu=0.5, noise_norm=1.5)
MIXTURES = {"easy mixture": EASY, "noisy mixture": HARD}

GRID = lab.Grid(
    data=list(MIXTURES),
    scaling=SCALINGS,
    heads=[1, 4, 16, 64, 1024],
    seeds=10,
    where=lambda scaling, heads, **_: scaling != "paper" or heads <= 64,
)
QUICK = GRID.replace(heads=[1, 4, 16, 64], seeds=4)


def moved(parameters, data):
    """The largest share of a query's attention that is no longer uniform."""
    X = data.tokens
    logits = jnp.einsum("ntd,gde,nse->gnts", X, parameters.key_query, X)
    weights = jax.nn.softmax(logits, axis=-1)
    return jnp.max(jnp.sum(jnp.abs(weights - 1 / X.shape[1]), axis=-1)) / 2


def woken(start, data, rule):
    """The first step at which attention is awake, and whether there was one."""
    for steps in (200, 2_000, LAST):
        how = {"num_steps": steps, "record": "all", "observe": {"moved": moved}}
        run = mh.train(start, data, rule=rule, dtype="float64", **how)
        awake = np.asarray(run.observed["moved"]) > SHARE
        if awake.any():
            return int(np.argmax(awake)), 1
    return LAST, 0


def cell(data, scaling, heads, seeds):
    found = {"steps": [], "awake": [], "promised": []}
    for seed in seeds:
        keys = jax.random.split(jax.random.key(seed))
        mixture = mh.TokenizedMixture(
            num_patterns=4, signal=1.5, key=keys[0], **SIZE, **MIXTURES[data]
        )
        train = mixture.sample(40, key=keys[1])
        start = mh.zero_start(heads, **SIZE)
        step = 1.0 if scaling == "Adam" else STEP
        steps, awake = woken(start, train, rule_of(scaling, heads, step))
        found["steps"].append(steps)
        found["awake"].append(awake)
        promise = mh.theory.attention_sleep(start, train, step_size=STEP, moved=SHARE)
        found["promised"].append(promise.steps)
    if scaling != "paper":
        del found["promised"]
    return found


def growth(results, data):
    """How much log(steps) grows from 16 to 64 heads, over its growth from 4 to 16."""
    at = {"data": data, "scaling": "paper"}
    few, some, many = (np.log(results.values("steps", heads=h, **at)) for h in (4, 16, 64))
    return results.of((many - some) / (some - few))


def kept(results):
    """The promised steps over those that 64 heads slept."""
    shares = results.add(share=lambda data: data.promised / data.steps)
    each = [shares.mean("share", data=data, scaling="paper", heads=64) for data in MIXTURES]
    return lab.largest(each)


def latest(results):
    """The steps until attention wakes under Adam, at their largest."""
    heads = results.data.heads.values.tolist()
    each = [{"data": data, "heads": one} for data in MIXTURES for one in heads]
    return lab.largest([results.mean("steps", scaling="Adam", **one) for one in each])


CLAIMS = [
    lab.Claim(
        "In the paper's scaling, heads that start alike sleep for about exp(c√H) steps on the easy "
        "mixture.",
        lambda r: growth(r, "easy mixture"),
        near=2,
        within=0.5,
        unit="growth of log(steps) from 16 to 64 heads over that from 4 to 16: 1 for powers of H, "
        "2 for exp(c√H), 4 for exp(cH)",
    ),
    lab.Claim(
        "On the noisy mixture they sleep longer too: 64 heads more than five times as long as 4.",
        lambda r: r.ratio("steps", data="noisy mixture", scaling="paper", heads=(64, 4)),
        above=5,
        unit="steps with 64 heads over steps with 4",
    ),
    lab.Claim(
        "With the step of W multiplied by H, the number of heads does not matter.",
        lambda r: lab.cover(
            [r.ratio("steps", data=d, heads=(64, 1), scaling="W times H") for d in MIXTURES]
        ),
        near=1,
        within=0.01,
        unit="steps with 64 heads over steps with one",
    ),
    lab.Claim(
        "Adam wakes them within ten steps, however many they are.",
        latest,
        below=10,
        unit="steps, the largest mean over data and numbers of heads",
    ),
    lab.Claim(
        "Theorem W's promise for 64 heads is kept, and less than a hundredth of their sleep.",
        kept,
        below=0.01,
        unit="promised over measured steps, at its largest",
    ),
]
TRY = [dict(data="easy mixture", scaling="paper", heads=4)]


def figure(results, axes):
    lab.lines(axes, results, "steps", "heads", "scaling", data="easy mixture")
    axes.set(xlabel="heads, all alike", ylabel="steps until attention wakes, easy mixture")
