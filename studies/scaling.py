"""What do more heads do?

One layer of attention with a pooled readout learns by full-batch descent, 300 steps. Random labels:
32 sequences of 8 tokens. Planted labels: 128 Gaussian sequences, labeled by a random model of four
heads. Digits: 64 images, even or odd, as 16 patches with their row and column; 1,000 further
sequences test the last two. Heads that start alike (zero) stay one head for ever; heads that start
as different Gaussian draws differ. Three scalings: the paper's (scores divided by √H, one step size
for all weights), the same with the step of the attention weights W multiplied by H, and Adam. A
ladder of step sizes, 4 times apart, multiplies 1 (Adam: 0.02). "Tuned" takes, for each seed, the
step with which the other seeds err least. At equal parameters one head has attention weights of
rank 10, seven heads have rank 1. Which scalings the last two claims are about was chosen after a
first look; with the step of W multiplied by H, and in the paper's scaling at equal parameters, the
numbers below leave it open.

The identity: heads that start at zero get equal gradients, so they stay equal. Put V = √H U. Scores
are those of one head with readout V, and the chain rule gives U's gradient the factor 1/√H and W's
the factor 1/H. So a step s moves V by s times the gradient of one head, and W by s/H times it. From
the first phase, heads of two signs, it is two heads whose W has the step 2s/H. That training in
such a scaling is lazy, and that inner steps must grow with the width, is known (Chizat, Oyallon and
Bach 2019; Yang and Hu 2021). The paper's bounds hold in this lazy regime.
"""

import functools

import jax
import numpy as np
from sklearn.datasets import load_digits

import manyheads as mh
from manyheads import lab
from studies._scaling import SCALINGS, Split, rule_of

STEPS, MANY = 300, 1023
RANK = {1: 10, 7: 1}  # H (2 rank + 1) = 21: equal numbers of parameters
LEARNED = ["planted labels", "digits"]
FITTED = ["random labels", "planted labels"]


def is_run(data, start, heads, step, **_):
    """The combinations that are run: one step size where labels have no rule to learn."""
    if start == "alike":
        return step == 1 / 4 and data != "digits"
    few = start == "equal parameters" or data == "digits"
    fits = heads in RANK if few else heads < MANY
    return fits and (data != "random labels" or (start == "distinct" and step == 1 / 4))


GRID = lab.Grid(
    data=["random labels", *LEARNED],
    start=["alike", "distinct", "equal parameters"],
    scaling=SCALINGS,
    heads=[1, 7, 21, MANY],
    step=[1 / 64, 1 / 16, 1 / 4, 1, 4, 16],
    seeds=10,
    where=is_run,
)
QUICK = GRID.replace(data=FITTED, step=[1 / 4, 1], seeds=3)

TRY = [
    dict(data="planted labels", start="alike", scaling="paper", heads=MANY, step=1 / 4),
]


def sequences(data, seed):
    """Training and test sequences; half of the tokens of digits say where a patch lies."""
    random, key, size = np.random.default_rng(seed), jax.random.key(seed), 64
    if data == "random labels":
        return (mh.data.RandomLabels(num_tokens=8, dim=10).sample(32, key=key),) * 2
    if data == "digits":
        images, digit = load_digits(return_X_y=True)
        patches = images.reshape(-1, 4, 2, 4, 2).transpose(0, 1, 3, 2, 4).reshape(-1, 16, 4)
        place = np.eye(4)[np.array(np.divmod(np.arange(16), 4)).T].reshape(16, 8)
        chosen = random.permutation(len(images))[: size + 1000]
        tokens = np.concatenate([patches[chosen] / 8 - 1, [place] * len(chosen)], axis=2)
        labels = np.where(digit[chosen] % 2, 1.0, -1.0)
    else:
        size, tokens = 128, random.standard_normal((1128, 8, 10))
        teacher = mh.gaussian_start(4, num_tokens=8, dim=10, decoder="pooled", key=key)
        labels = np.sign(teacher.scores(mh.Dataset(tokens, np.resize([1.0, -1.0], 1128))))
    train, test = slice(size), slice(size, None)
    return mh.Dataset(tokens[train], labels[train]), mh.Dataset(tokens[test], labels[test])


def identity(data, heads, step):
    """The largest relative difference of H alike heads to one or two with a smaller step on W."""
    train = functools.partial(mh.train, num_steps=STEPS, dtype="float64", record="all")
    zero = mh.zero_start(heads, num_tokens=data.num_tokens, dim=data.dim, decoder="pooled")
    worst = 0.0
    for many in (zero, mh.first_phase(data, heads, decoder="pooled")):
        copies = heads / many.num_classes
        readout = np.sqrt(copies) * many.readout
        few = mh.MultiHead.create(many.key_query, readout, decoder="pooled")
        whole = train(many, data, rule=mh.GD(step)).train_loss
        other = train(few, data, rule=Split(step, 1 / copies)).train_loss
        worst = max(worst, float(np.max(np.abs(whole / other - 1))))
    return worst


def cell(data, start, scaling, heads, step, seeds):
    found = {"loss": [], "error": [], "differs": []}
    for seed in seeds:
        train, test = sequences(data, seed)
        size = {"num_tokens": train.num_tokens, "dim": train.dim, "decoder": "pooled"}
        rank = RANK[heads] if start == "equal parameters" else None
        drawn = functools.partial(mh.gaussian_start, key=jax.random.key(seed + 10**6), rank=rank)
        model = mh.zero_start(heads, **size) if start == "alike" else drawn(heads, **size)
        rule = rule_of(scaling, heads, step)
        run = mh.train(model, train, rule=rule, num_steps=STEPS, dtype="float64", record=[STEPS])
        found["loss"].append(run.train_loss[-1] if run.last_step == STEPS else np.nan)
        found["error"].append(np.mean(run.final.scores(test) * test.labels <= 0))
        if start == "alike" and scaling == "paper" and heads == MANY:
            found["differs"].append(identity(train, heads + 1, step))
    if data == "random labels":
        del found["error"]
    return {name: values for name, values in found.items() if values}


def fitted(results, scaling):
    """The train loss of 21 different heads over that of one at the same step size."""
    same = {"heads": (21, 1), "start": "distinct", "step": 1 / 4, "scaling": scaling}
    return [results.ratio("loss", data=data, **same) for data in FITTED]


def tuned(results):
    """With the best step size of each by the test error; what diverged errs on everything."""
    finite = results.add(error=lambda data: data.error.where(np.isfinite(data.loss), 1.0))
    # What was not run at all stays unknown.
    ran = results.data.loss.notnull().any("seed")
    return finite.add(error=lambda data: data.error.where(ran)).tuned("error", over="step")


def gained(results, start, scalings):
    """The test error of 7 heads minus that of one, each with its own best step, at its largest."""
    best = tuned(results)
    known = [data for data in LEARNED if data in results.data.data]
    settings = [{"data": data, "scaling": scaling} for data in known for scaling in scalings]
    same = {"heads": (7, 1), "start": start}
    return lab.largest([best.difference("error", **same, **setting) for setting in settings])


def differs(results):
    """How far the identity is from exact."""
    alike = {"start": "alike", "scaling": "paper", "heads": MANY, "step": 1 / 4}
    return lab.largest([results.mean("differs", data=data, **alike) for data in FITTED])


CLAIMS = [
    lab.Claim(
        "In the paper's scaling, heads that start alike are one head whose attention learns H "
        "times slower.",
        differs,
        below=1e-9,
        unit="largest relative difference between the losses of 1,024 heads and of that head",
    ),
    lab.Claim(
        "At one step size for all weights, 21 different heads fit more slowly than one.",
        lambda r: lab.smallest(fitted(r, "paper")),
        above=1,
        unit="train loss of 21 heads over that of one, on random and planted labels",
    ),
    lab.Claim(
        "With the step of W multiplied by H they fit faster than one.",
        lambda r: lab.largest(fitted(r, "W times H")),
        below=1,
        unit="the same ratio in this scaling",
    ),
    lab.Claim(
        "With the best step size of each, 7 different heads err less on new sequences than one, in "
        "the paper's scaling and under Adam.",
        lambda r: gained(r, "distinct", ["paper", "Adam"]),
        below=0,
        unit="difference of test errors, the least favorable of planted labels and digits",
    ),
    lab.Claim(
        "Under Adam so do 7 heads that have no more parameters than the one.",
        lambda r: gained(r, "equal parameters", ["Adam"]),
        below=0,
        unit="the same difference for 7 heads of rank 1 and one of rank 10",
    ),
]
PANELS = 2


def figure(results, axes):
    same = {"start": "alike", "step": 1 / 4, "data": "random labels"}
    lab.lines(axes[0], results, "loss", "heads", "scaling", **same)
    axes[0].set(title="Heads that start alike", xlabel="heads", ylabel="train loss, random labels")
    distinct = tuned(results).at(heads=[1, 7, 21], data="planted labels")
    lab.lines(axes[1], distinct, "error", "heads", "scaling", start="distinct", log=False)
    axes[1].set(title="Different heads, best step", xlabel="heads", ylabel="test error, planted")
