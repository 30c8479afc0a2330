"""Question: on which real tasks does the forecast promise something with few heads, and is the promise kept?

Run:  python benchmarks/promise_table.py
Half of each task's sequences, at most 90; target loss 0.1. One line of Markdown per task: what is promised, the loss that the
promised run reaches, and the verdict of `certify` on it.
"""

import jax
import numpy as np
from sklearn import datasets

import manyheads as mh
from manyheads.estimator.sharp import Proved, proved
from manyheads.model.loss import get_loss

TARGET, MOST = 0.1, 90


def table(load, tokens, dim, kinds):
    """Rows of a table as sequences of standardized numbers, of two kinds; zeros fill the last token."""
    rows, labels = load(return_X_y=True)
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    rows = np.pad(rows, ((0, 0), (0, tokens * dim - rows.shape[1]))).reshape(len(rows), tokens, dim)
    kept = np.isin(labels, kinds)
    return mh.Dataset.from_arrays(rows[kept], labels[kept])


def quantities(load):
    """Breast cancer: mean, error and worst value of each of ten quantities."""
    rows, labels = load(return_X_y=True)
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    return mh.Dataset.from_arrays(rows.reshape(-1, 3, 10).transpose(0, 2, 1), labels)


TASKS = {
    "digits 3 and 8": (lambda: mh.digits(3, 8), "16 patches of 4 pixels"),
    "digits 1 and 7": (lambda: mh.digits(1, 7), "16 patches of 4 pixels"),
    "wine, first and second kind": (
        lambda: table(datasets.load_wine, 5, 3, (0, 1)),
        "13 measurements as 5 tokens of 3",
    ),
    "wine, second and third kind": (lambda: table(datasets.load_wine, 5, 3, (1, 2)), "the same"),
    "breast cancer": (
        lambda: quantities(datasets.load_breast_cancer),
        "10 quantities with 3 numbers each",
    ),
    "iris, second and third kind": (
        lambda: table(datasets.load_iris, 2, 2, (1, 2)),
        "2 tokens of 2",
    ),
}


def row(make):
    whole = make()
    sample, _ = whole.split(min(MOST, len(whole) // 2), key=jax.random.key(0))
    found = proved(
        sample, TARGET, seed=0, decoder="full", loss=get_loss("logistic"), tell=lambda text: None
    )
    if not isinstance(found, Proved):
        return "", found, "", ""
    (data,) = found.how.data(sample)
    start = found.how.start(found.num_heads, data, "full")
    run = mh.train(
        start,
        data,
        rule=mh.GD(found.step_size),
        num_steps=found.num_steps,
        dtype="float64",
        record="all",
    )
    (certificate,) = mh.certify(run, data, "forecast", from_step=found.how.from_step)
    promised = f"{found.loss:.3g} within {found.num_steps} steps, from step {found.how.from_step}"
    return f"{found.num_heads:.0f}", promised, f"{run.train_loss[-1]:.3g}", certificate.verdict.name


def main():
    print("| task | tokens | heads | promised | reached | certify |\n|---|---|---|---|---|---|")
    for name, (make, tokens) in TASKS.items():
        print("|", " | ".join((name, tokens, *row(make))), "|", flush=True)


if __name__ == "__main__":
    main()
