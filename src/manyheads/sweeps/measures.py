"""Measures of a run, by name. Each imports what it needs when it is called, so that workers start fast."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from manyheads._fields import SpecError, shown
from manyheads._registry import Registry, nearest
from manyheads.data.mixture import TokenizedMixture
from manyheads.sweeps.setup import Setup
from manyheads.training.trajectory import Trajectory

MEASURES: Registry[Callable[[Run], Mapping[str, Any]]] = Registry("measure")
"""Name -> a function of a Run that returns {name: scalar, array, (dims, array) or (dims, array, attributes)}."""


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run and its setup: the argument of measures and certificates."""

    setup: Setup
    trajectory: Trajectory

    @property
    def mixture(self) -> TokenizedMixture | None:
        """The tokenized mixture, where the data come from one."""
        return self.setup.task if isinstance(self.setup.task, TokenizedMixture) else None


def resolve(reference: str) -> Callable:
    """The function that "module:function" names; a SpecError if there is none."""
    module, _, name = reference.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), name)):
        raise SpecError(
            f"{shown(reference)} names no function; write it as 'package.module:function'"
        )
    try:
        home = importlib.import_module(module)
    except Exception as error:  # whatever the module raises
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise SpecError(
            f"cannot import {module!r} of {reference!r} ({text}); is it on Python's path?"
        ) from None
    if not callable(getattr(home, name, None)):
        known = [n for n in dir(home) if not n.startswith("_")]
        raise SpecError(f"{module} has no function {name!r}; {nearest(name, known)}")
    return getattr(home, name)


def find_measure(name: str) -> Callable[[Run], Mapping[str, Any]]:
    """A measure by its registered name, or by "module:function" of your own."""
    if ":" in name:
        return resolve(name)
    if name not in MEASURES:
        raise SpecError(
            f"measures has no {name!r}; {nearest(name, MEASURES)} (or write 'module:function' of your own)"
        )
    return MEASURES[name]


@MEASURES.register("risk")
def risk(run: Run) -> dict[str, Any]:
    """Loss and share of errors at the end, on train and test data, and the gap between the losses."""
    from manyheads.measures.held_out import risk as risk_of

    dataset, test = run.setup.dataset, run.setup.test
    found = risk_of(run.trajectory.final, dataset, test or dataset, loss=run.setup.cell.train.loss)
    values = {"final_train_loss": found.train_loss, "final_train_error": found.train_error}
    if test is not None:
        values |= {
            "final_test_loss": found.test_loss,
            "final_test_error": found.test_error,
            "final_test_loss_standard_error": found.test_loss_error,
            "gap": found.gap,
        }
    return values


@MEASURES.register("margins")
def margins(run: Run) -> dict[str, Any]:
    """The margin of every training sequence at the end."""
    data = run.setup.dataset
    return {"final_margins": (("sequence",), run.trajectory.final.scores(data) * data.labels)}


@MEASURES.register("attention")
def attention(run: Run) -> dict[str, Any]:
    """Attention on relevant tokens, averaged over all heads: one number per record."""
    mass = run.trajectory.attention_mass
    if mass is None:
        raise ValueError(
            "the data do not say which tokens are relevant; take 'attention' out of measures."
        )
    start = run.trajectory.start
    return {"attention_of_heads": (("record",), mass @ start.multiplicity / start.num_heads)}


@MEASURES.register("focus")
def focus(run: Run) -> dict[str, Any]:
    """Saturation, alignment with the mixture's W* and U*, and specialization of the heads at the end."""
    from manyheads.measures.focus import attention_focus

    found = attention_focus(run.trajectory.final, run.setup.dataset, mixture=run.mixture)
    by_class = (
        "saturation",
        "underflow",
        "key_query_norm",
        "key_query_alignment",
        "readout_alignment",
    )
    values: dict[str, Any] = {
        f"final_{name}": (("head_class",), getattr(found, name)[0]) for name in by_class
    }
    return values | {
        "effective_heads": found.effective_heads[0],
        "specialization": found.specialization[0],
    }


@MEASURES.register("curvature")
def curvature(run: Run) -> dict[str, Any]:
    """Extreme eigenvalues of the train loss's Hessian at the end, with their residuals."""
    from manyheads.measures.curvature import loss_curvature

    found = loss_curvature(run.trajectory.final, run.setup.dataset, loss=run.setup.cell.train.loss)
    return {
        "smallest_eigenvalue": found.smallest.value,
        "smallest_eigenvalue_residual": found.smallest.residual,
        "largest_eigenvalue": found.largest.value,
        "largest_eigenvalue_residual": found.largest.residual,
    }
