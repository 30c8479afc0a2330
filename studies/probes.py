"""How many heads does an attention probe on frozen embeddings need?

A probe learns a query for each head and a value for each head and label; nothing is drawn, so a seed is a split of the
data and not a start. 300 images of scikit-learn's digits train it and the others test it; an image is 16 patches of
4 numbers, with a feature for the place of each. Two tasks: even or odd, and all ten digits. The penalty is chosen on
the training images by cross-validation, as for the two rivals: logistic regression on the mean token, and on all 64
numbers. The heads of a probe all differ, and its scores are sums over heads: training is by L-BFGS, which has no step
size, so the scaling of the paper makes no difference.

These are small images and not embeddings of a large model; the command `manyheads fit` asks the same of other data.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegressionCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import manyheads as mh
from manyheads import lab

SIZE = 300
RIVALS = ["mean token", "all tokens"]


def is_run(method, heads, **_):
    return method == "probe" or heads == 1


GRID = lab.Grid(
    data=["even or odd", "ten digits"],
    method=["probe", *RIVALS],
    heads=[1, 2, 4, 8, 16],
    seeds=6,
    where=is_run,
)
QUICK = GRID.replace(data=["even or odd"], heads=[1, 4], seeds=2)


def sequences(data, seed):
    """Patches (images, 16, 4) and labels of the training and of the test images."""
    images, digit = load_digits(return_X_y=True)
    patches = images.reshape(-1, 4, 2, 4, 2).transpose(0, 1, 3, 2, 4).reshape(-1, 16, 4)
    order = np.random.default_rng(seed).permutation(len(digit))
    labels = digit % 2 if data == "even or odd" else digit
    train, test = order[:SIZE], order[SIZE:]
    return patches[train], labels[train], patches[test], labels[test]


def fitted(method, heads, X, y):
    """A fitted classifier of sequences."""
    if method == "probe":
        probe = mh.AttentionProbe(num_heads=heads, positions=True, start_norm=4.0)
        return probe.fit(X, y).predict
    # With a mean over tokens places are lost; with all numbers each place has weights of its own.
    flat = (
        (lambda Z: Z.mean(axis=1)) if method == "mean token" else (lambda Z: Z.reshape(len(Z), -1))
    )
    linear = LogisticRegressionCV(
        Cs=np.logspace(-3, 1, 5),
        cv=5,
        max_iter=2000,
        use_legacy_attributes=False,
        l1_ratios=(0,),
        scoring="neg_log_loss",
    )
    model = make_pipeline(StandardScaler(), linear).fit(flat(X), y)
    return lambda Z: model.predict(flat(Z))


def cell(data, method, heads, seeds):
    errors = []
    for seed in seeds:
        X, y, new, labels = sequences(data, seed)
        predict = fitted(method, heads, X, y)
        errors.append(np.mean(predict(new) != labels))
    return {"error": errors}


def compared(results, **pair):
    """A difference of test errors, the least favorable of the tasks."""
    tasks = results.data.data.values.tolist()
    setting = {"method": "probe", "heads": 4} | pair
    return lab.largest([results.difference("error", data=task, **setting) for task in tasks])


def against(results, rival):
    """The error of a probe of four heads minus that of a rival, least favorable of the tasks."""
    tasks = results.data.data.values.tolist()
    found = []
    for task in tasks:
        probe = results.values("error", data=task, method="probe", heads=4)
        other = results.values("error", data=task, method=rival, heads=1)
        found.append(results.of(probe - other))
    return lab.largest(found)


CLAIMS = [
    lab.Claim(
        "Four heads err less than one.",
        lambda r: compared(r, heads=(4, 1)),
        below=0,
        unit="difference of test errors, the least favorable of both tasks",
    ),
    lab.Claim(
        "A probe of four heads errs less than logistic regression on the mean token.",
        lambda r: against(r, "mean token"),
        below=0,
        unit="difference of test errors, the least favorable of both tasks",
    ),
    lab.Claim(
        "It errs less than logistic regression on all tokens.",
        lambda r: against(r, "all tokens"),
        below=0,
        unit="difference of test errors, the least favorable of both tasks",
    ),
]


def figure(results, axes):
    probes = results.at(method="probe")
    lab.lines(axes, probes, "error", "heads", "data")
    axes.set(title="Attention probes of digits", xlabel="heads", ylabel="test error")
