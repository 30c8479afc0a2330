"""The generalization gap over the sample size, and leave-one-out runs with what the theory says about them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from manyheads.data.dataset import Dataset
from manyheads.studies.kit.cells import coordinate, descend, mixture_of, verdicts
from manyheads.sweeps.plan import Cell
from manyheads.sweeps.setup import Setup, set_up, stream
from manyheads.theory.deora2023.generalization import (
    certify_generalization,
    gap_bound,
    generalization_conditions,
    measure_leave_one_out,
    stability_bound,
)
from manyheads.theory.deora2023.regime import Ray
from manyheads.theory.deora2023.training import Case
from manyheads.theory.targets import losses_along, mixture_direction, train_loss
from manyheads.theory.verdict import OURS

REFERENCE = 8  # stream of a seed for the sequences of the reference run
SCALES = np.geomspace(0.05, 50, 80)  # targets tried along the paper's direction


def gap(cell: Cell, *, sizes: list[int], records: list[int]) -> dict:
    r"""`gap`: test loss minus train loss along the run, and both losses, for the first n sequences of the sample.

    The gap of a reference run is subtracted: a run with the same settings on other sequences, measured on the same test
    and train sequences. It has seen neither, so its gap is zero in expectation, and subtracting it only removes noise
    (a control variate). `plain` is the gap without that. Unused sequences have weight zero, so that all sizes share one
    compiled program.
    """
    setup = set_up(cell)
    if setup.test is None:
        raise ValueError(
            "data.num_test = 0: the gap needs fresh sequences; write, for example, data.num_test = 1000."
        )
    data, K = setup.dataset, cell.train.num_steps
    options: dict[str, Any] = {"test": setup.test, "record": [*records, K], "snapshots": "records"}
    others = setup.task.sample(data.num_examples, key=stream(cell.seed, REFERENCE))
    reference = descend(
        replace(setup, dataset=others), sample_weight=_first(data, data.num_examples), **options
    )
    scores = np.stack([reference.model(int(step)).scores(data) for step in reference.steps])
    theirs = np.logaddexp(
        0.0, -data.labels * scores
    )  # losses of the reference on the sample, one row per record
    rows = []
    for size in sizes:
        run = descend(setup, sample_weight=_first(data, size), **options)
        noise = np.asarray(reference.test_loss) - theirs[:, :size].mean(axis=1)
        rows.append(
            (
                run.train_loss,
                np.asarray(run.test_loss),
                np.asarray(run.test_loss) - run.train_loss,
                noise,
            )
        )
    train, test, plain, noise = np.array(rows).transpose(1, 0, 2)
    dims = ("size", "record")
    return {
        "sizes": coordinate("size", sizes),
        "step": (("record",), reference.steps, {"units": "steps", "coordinate": True}),
        "train_loss": (dims, train),
        "test_loss": (dims, test),
        "plain": (dims, plain),
        "gap": (dims, plain - noise),
    }


def _first(data: Dataset, size: int) -> np.ndarray:
    """Equal weights on the first sequences, none on the others."""
    return np.where(np.arange(data.num_examples) < size, 1 / size, 0.0)


def leave_one_out(cell: Cell, *, samples: int) -> dict:
    """Descent on several samples, and again without each of their sequences.

    Per sample: `stability`, the mean distance caused by leaving one sequence out; `test_loss` and its `certificate`;
    `left_out_loss`, the cross-validation part of the certificate; `gap` and its bound `lemma3`; `theorem2` and
    `stability_bound`, Theorem 2 for the best target along the paper's direction, whose hypotheses hold if `hypotheses`
    is 1. `certificates` are the verdicts in expectation over the samples.
    """
    runs, rows, cases = [], [], []
    for sample in range(samples):
        setup = set_up(
            replace(cell, seed=cell.seed * samples + sample)
        )  # so that no two seeds share a sample
        run = measure_leave_one_out(
            setup.start,
            setup.dataset,
            step_size=cell.train.step_size,
            num_steps=cell.train.num_steps,
            test=setup.test,
            token_radius=mixture_of(setup).token_radius,
            independent=True,
        )
        case, n = best_case(setup), setup.dataset.num_examples
        cases.append(case)
        runs.append(run)
        rows.append(
            {
                "stability": run.stability,
                "stability_bound": stability_bound(case, n),
                "test_loss": run.test_loss,
                "train_loss": run.train_loss,
                "gap": run.test_loss - run.train_loss,
                "left_out_loss": float(run.left_out_losses.mean()),
                "certificate": run.test_certificate,
                "lemma3": run.lemma3,
                "theorem2": gap_bound(case, n),
                "hypotheses": _holds(case, n),
            }
        )
    name = f"{cell.model.num_heads:.3g} heads, {cell.data.num_examples} sequences, step size {cell.train.step_size:g}"
    certificates = certify_generalization(runs, cases)
    return {
        **{key: (("sample",), np.array([row[key] for row in rows], float)) for key in rows[0]},
        "certificates": verdicts(name, certificates),
    }


def best_case(setup: Setup) -> Case:
    """Theorem 2's numbers for the target along the paper's direction with the smallest bound."""
    train_spec, heads = setup.cell.train, setup.start.num_heads
    task = mixture_of(setup)
    direction = mixture_direction(setup.start, task)
    ray = Ray(setup.start, setup.dataset, direction, task.token_radius)
    losses = losses_along(direction, SCALES, setup.start, setup.dataset)
    start_loss = train_loss(setup.start, setup.dataset)
    cases = [
        replace(
            ray.case(heads, scale, train_spec.num_steps, loss, start_loss),
            step_size=train_spec.step_size,
        )
        for scale, loss in zip(SCALES.tolist(), losses.tolist(), strict=True)
    ]
    literal = [case for case in cases if _holds(case, setup.dataset.num_examples)]
    return min(literal or cases, key=lambda case: gap_bound(case, setup.dataset.num_examples))


def _holds(case: Case, num_examples: int) -> bool:
    """Whether the hypotheses of our version of Theorem 2 hold."""
    versions = generalization_conditions(case, num_examples, independent=True)
    return next(c for c in versions if c.variant == OURS).holds
