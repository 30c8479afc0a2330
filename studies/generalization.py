"""How fast does the gap between test loss and train loss close with more data?

The paper's Theorem 2 says at most like 1/n in the number of sequences n, up to a constant. Here n sequences are drawn
again and again, each sample is trained on by gradient descent from the same start, and every run is measured on all the
samples: the gap is the mean loss of a sample under the runs on the *others* minus that under its own run, whose
expectation is exactly the gap. The constant beside it is the trace of a matrix that needs one run only (Efron 1986 for
linear models; infinitesimal leave-one-out): the sum over sequences of how far a sequence pulls its own loss down.

The mixture has 8 tokens in dimension 14, a quarter of them relevant, with noise. "Flipped" has a tenth of its labels
turned around. Heads start at the paper's first phase (two signs, so two heads are distinct). Scaling "paper": one step
size, 0.2, for all weights; "W times H": that of the attention weights W multiplied by the number of heads.
"""

import jax
import numpy as np

import manyheads as mh
from manyheads import lab
from studies._scaling import rule_of

STEPS = [30, 100, 300]
STEP_SIZE = 0.2
TOTAL = 640  # sequences, in samples of n
MIXTURE = dict(
    num_tokens=8,
    dim=14,
    num_patterns=6,
    sparsity=0.25,
    signal=1.5,
    noise_mu=0.3,
    noise_nu=0.3,
    noise_norm=1.2,
)

GRID = lab.Grid(
    data=["mixture", "flipped"],
    scaling=["paper", "W times H"],
    heads=[2, 64],
    n=[40, 80, 160, 320],
    seeds=6,
)
QUICK = GRID.replace(scaling=["paper"], n=[40, 160], heads=[2], seeds=3)
TRY = [dict(data="flipped", scaling="paper", heads=2, n=160)]


def drawn(data, heads, seed):
    """The start, and all sequences."""
    keys = jax.random.split(jax.random.key(seed), 4)
    task = mh.TokenizedMixture(**MIXTURE, key=keys[0])
    start = mh.first_phase(task.sample(100, key=keys[1]), num_heads=heads)
    sample = task.sample(TOTAL, key=keys[2])
    if data == "flipped":
        flips = np.asarray(jax.random.bernoulli(keys[3], 0.1, (TOTAL,)))
        sample = mh.Dataset(sample.tokens, np.where(flips, -sample.labels, sample.labels))
    return start, sample


def gap(start, sample, rule, n):
    """The gap and the train loss at each of the steps."""
    count = TOTAL // n
    losses = np.zeros((len(STEPS), count, count))  # step, run, measured on
    for run in range(count):
        block = sample.subset(range(run * n, (run + 1) * n))
        path = mh.train(
            start, block, rule=rule, num_steps=STEPS[-1], dtype="float64", snapshots=STEPS
        )
        for k, step in enumerate(STEPS):
            margins = sample.labels * path.model(step).scores(sample)
            losses[k, run] = np.logaddexp(0.0, -margins).reshape(count, n).mean(axis=1)
    own = np.einsum("kss->k", losses) / count
    other = (losses.sum(axis=(1, 2)) - count * own) / (count * (count - 1))
    return other - own, own


def cell(data, scaling, heads, n, seeds):
    found = {"gap": [], "constant": []}
    for seed in seeds:
        start, sample = drawn(data, heads, seed)
        rule = rule_of(scaling, heads, STEP_SIZE)
        measured, _ = gap(start, sample, rule, n)
        found["gap"].append(measured)
        if scaling == "paper":
            first = sample.subset(range(n))
            options = {"step_size": STEP_SIZE, "num_steps": STEPS[-1], "steps": STEPS}
            many = {} if n <= 40 else {"num_probes": 10, "key": jax.random.key(seed + 10**6)}
            found["constant"].append(mh.measures.optimism(start, first, **options, **many).trace)
    if scaling != "paper":
        del found["constant"]
    return {name: (("step",), np.array(values)) for name, values in found.items()} | {"step": STEPS}


def law(results, data, heads=2, scaling="paper", step=100):
    return results.exponent("gap", "n", data=data, heads=heads, scaling=scaling, step=step)


def constant(results, data):
    """n times the gap over the constant that one run says, at the largest n."""
    share = results.add(share=lambda d: d.n * d.gap / d.constant)
    largest = int(results.data.n.max())
    return share.mean("share", data=data, heads=2, scaling="paper", step=100, n=largest)


CLAIMS = [
    lab.Claim(
        "On the mixture the gap closes like 1/n.",
        lambda r: law(r, "mixture"),
        near=-1,
        within=0.2,
        unit="exponent of the gap in n, after 100 steps of 2 heads",
    ),
    lab.Claim(
        "So it does where a tenth of the labels is wrong.",
        lambda r: law(r, "flipped"),
        near=-1,
        within=0.2,
        unit="exponent of the gap in n, after 100 steps of 2 heads",
    ),
    lab.Claim(
        "One run says the constant: n times the gap is the trace that the run itself gives.",
        lambda r: constant(r, "flipped"),
        near=1,
        within=0.25,
        unit="n times the measured gap over that trace, at the largest n, with flipped labels",
    ),
    lab.Claim(
        "Longer training opens the gap where labels are wrong.",
        lambda r: r.difference(
            "gap", data="flipped", heads=2, scaling="paper", n=160, step=(300, 30)
        ),
        above=0,
        unit="gap after 300 steps minus that after 30, at n = 160",
    ),
    lab.Claim(
        "Where all labels are right it closes it.",
        lambda r: r.difference(
            "gap", data="mixture", heads=2, scaling="paper", n=160, step=(300, 30)
        ),
        below=0,
        unit="gap after 300 steps minus that after 30, at n = 160",
    ),
]
PANELS = 2


def figure(results, axes):
    for one, data in zip(axes, ("mixture", "flipped"), strict=True):
        label = "{:g} steps".format
        same = {"data": data, "heads": 2, "scaling": "paper"}
        lab.lines(one, results, "gap", "n", "step", label=label, **same)
        one.set(title=data, xlabel="sequences n", ylabel="test loss minus train loss")
