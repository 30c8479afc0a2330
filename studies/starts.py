"""Which start is best?

Four starts of 16 heads: zero (all heads alike, one is distinct); the paper's first phase, one large
gradient step from zero on other sequences (heads of two signs, two are distinct); Gaussian weights
of scale 1, and of scale 3 (all heads distinct). Full-batch descent, 300 steps, in the paper's
scaling (scores divided by √H, one step size for all weights), with the step of the attention
weights multiplied by H, and by Adam. Data: the noisy tokenized mixture, and Gaussian sequences
labeled by a random model of four heads; 80 sequences of 8 tokens, 2,000 to test on. Each start is
compared with its own best step size of a ladder, 4 times apart, which the other seeds choose by the
test error; and all of them at one step size.

That large random starts fit fast is in part lazy training: with large scores small moves of the
weights suffice (Chizat, Oyallon and Bach 2019). Fitting faster is not the same as erring less on
new sequences, so both are asked.
"""

import jax
import numpy as np

import manyheads as mh
from manyheads import lab
from studies._scaling import SCALINGS, rule_of

HEADS, EXAMPLES, STEPS = 16, 80, 300
SIZE = {"num_tokens": 8, "dim": 10}
NOISY = dict(num_patterns=4, sparsity=0.125, signal=1.5)
NOISY |= dict(noise_mu=0.5, noise_nu=0.5, noise_norm=1.5)
GAUSSIAN = {"Gaussian": 1.0, "large Gaussian": 3.0}
DATA = ["noisy mixture", "planted labels"]

GRID = lab.Grid(
    data=DATA,
    scaling=SCALINGS,
    start=["zero", "first phase", *GAUSSIAN],
    step=[1 / 64, 1 / 16, 1 / 4, 1, 4, 16],
    seeds=10,
)
QUICK = GRID.replace(scaling=["paper"], step=[1 / 4, 1], seeds=4)


def sequences(data, seed):
    """Sequences of the first phase, for training and for testing."""
    counts = np.cumsum([EXAMPLES, EXAMPLES, 2000])
    keys = jax.random.split(jax.random.key(seed))
    if data == "noisy mixture":
        drawn = mh.TokenizedMixture(key=keys[0], **SIZE, **NOISY).sample(
            int(counts[-1]), key=keys[1]
        )
        tokens, labels = drawn.tokens, drawn.labels
    else:
        tokens = np.random.default_rng(seed).standard_normal((counts[-1], 8, 10))
        unknown = mh.Dataset(tokens, np.resize([1.0, -1.0], len(tokens)))
        teacher = mh.gaussian_start(4, key=keys[0], **SIZE)
        labels = np.sign(teacher.scores(unknown))
    parts = [
        slice(end - size, end) for size, end in zip([EXAMPLES, EXAMPLES, 2000], counts, strict=True)
    ]
    return [mh.Dataset(tokens[part], labels[part]) for part in parts]


def cell(data, scaling, start, step, seeds):
    found = {"loss": [], "error": []}
    for seed in seeds:
        fresh, train, test = sequences(data, seed)
        if start in GAUSSIAN:
            key, scale = jax.random.key(seed + 10**6), GAUSSIAN[start]
            scales = {"key_query_scale": scale, "readout_scale": scale}
            model = mh.gaussian_start(HEADS, key=key, **SIZE, **scales)
        else:
            model = (
                mh.zero_start(HEADS, **SIZE) if start == "zero" else mh.first_phase(fresh, HEADS)
            )
        how = {"num_steps": STEPS, "record": [STEPS], "dtype": "float64"}
        run = mh.train(model, train, rule=rule_of(scaling, HEADS, step), **how)
        found["loss"].append(run.train_loss[-1] if run.last_step == STEPS else np.nan)
        found["error"].append(np.mean(run.final.scores(test) * test.labels <= 0))
    return found


def settings(results):
    """All data and scalings that were run."""
    scalings = results.data.scaling.values.tolist()
    return [{"data": data, "scaling": scaling} for data in DATA for scaling in scalings]


def faster(results):
    """The loss from the large start over that from the first phase, at one step size."""
    same = {"start": ("large Gaussian", "first phase"), "scaling": "paper", "step": 1 / 4}
    return lab.largest([results.ratio("loss", data=data, **same) for data in DATA])


def tuned(results):
    """With the best step size of each by the test error; what diverged errs on everything."""
    finite = results.add(error=lambda data: data.error.where(np.isfinite(data.loss), 1.0))
    return finite.tuned("error", over="step")


def errs(results, one, other, data):
    """The test error from one start minus that from another, best step of each, by scaling."""
    best = tuned(results)
    known = [setting for setting in settings(results) if setting["data"] == data]
    return [best.difference("error", start=(one, other), **setting) for setting in known]


CLAIMS = [
    lab.Claim(
        "On labels of a planted model, large random weights err more than the paper's first phase.",
        lambda r: lab.largest(errs(r, "first phase", "large Gaussian", "planted labels")),
        below=0,
        unit="test error from the first phase minus that from large weights, best step of each",
    ),
    lab.Claim(
        "On the noisy mixture it does not matter: within one percent of the sequences.",
        lambda r: lab.cover(errs(r, "first phase", "large Gaussian", "noisy mixture")),
        near=0,
        within=0.01,
        unit="the same difference there",
    ),
    lab.Claim(
        "At one step size, large random weights fit faster than the first phase.",
        faster,
        below=1,
        unit="train loss from the large start over that from the first phase, at its largest",
    ),
    lab.Claim(
        "The first phase errs as much as the zero start, within three percent of the sequences.",
        lambda r: lab.cover([e for data in DATA for e in errs(r, "first phase", "zero", data)]),
        near=0,
        within=0.03,
        unit="difference of test errors, over all data and scalings",
    ),
]


def figure(results, axes):
    best = tuned(results)
    for axis, data in zip(axes, DATA, strict=True):
        lab.lines(axis, best, "error", "start", "scaling", data=data, log=False)
        axis.set(title=data, ylabel="test error, best step of each start")
        axis.tick_params(axis="x", labelrotation=20)


PANELS = 2
