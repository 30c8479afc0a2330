"""What can be computed from a run by name: measures, and certificates. One line each in the tables below."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from manyheads.data.dataset import Dataset
from manyheads.model.loss import get_loss
from manyheads.sweeps.fields import SpecError, nearest
from manyheads.sweeps.setup import Setup
from manyheads.training.trajectory import Trajectory

# name -> "module:function" that takes a Run and returns {name: scalar, array, (dims, array) or (dims, array, attrs)}.
MEASURES = {
    "risk": "manyheads.sweeps.measures:risk",
    "margins": "manyheads.sweeps.measures:margins",
    "attention": "manyheads.sweeps.measures:attention",
}
# statement id -> "module:function" that takes a Run and returns a Certificate.
CERTIFICATES: dict[str, str] = {}


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run and all it came from: what measures and certificates look at."""

    setup: Setup
    trajectory: Trajectory


def resolve(reference: str) -> Callable:
    """The function that "module:function" names; an import that fails says which."""
    module, _, name = reference.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise SpecError([f"cannot import {module!r} of {reference!r} ({error}); is it on Python's path?"]) from None
    except AttributeError:
        known = [n for n in dir(importlib.import_module(module)) if not n.startswith("_")]
        raise SpecError([f"{module} has no function {name!r}; {nearest(name, known)}"]) from None


def find(name: str, which: str) -> Callable:
    """A measure or certificate by its name in the table, or by "module:function" of your own."""
    table = {"measures": MEASURES, "certificates": CERTIFICATES}[which]
    if name not in table and ":" not in name:
        hint = nearest(name, table) if table else "there are none yet"
        raise SpecError([f"{which} has no {name!r}; {hint} (or write 'module:function' of your own)"])
    return resolve(table.get(name, name))


def risk(run: Run) -> dict[str, Any]:
    """Loss and share of errors at the end, on train and test data, with the standard error of the test loss."""
    model, loss = run.trajectory.final, get_loss(run.setup.cell.train.loss)
    values: dict[str, Any] = {}
    for name, data in (("train", run.setup.dataset), ("test", run.setup.test)):
        if data is None:
            continue
        losses = _losses(model, data, loss)
        values[f"final_{name}_loss"] = losses.mean()
        values[f"final_{name}_error"] = float(np.mean(model.scores(data) * data.labels <= 0))
        if name == "test":
            values["final_test_loss_standard_error"] = (
                losses.std(ddof=1) / np.sqrt(len(losses)) if len(losses) > 1 else np.nan
            )
            values["gap"] = losses.mean() - values["final_train_loss"]
    return values


def _losses(model: Any, data: Dataset, loss: Any) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(loss.value(model.scores(data) * data.labels), np.float64)


def margins(run: Run) -> dict[str, Any]:
    """The margin of every training sequence at the end."""
    data = run.setup.dataset
    return {"final_margins": (("sequence",), run.trajectory.final.scores(data) * data.labels)}


def attention(run: Run) -> dict[str, Any]:
    """Attention on relevant tokens, averaged over all heads: one number per record."""
    mass = run.trajectory.attention_mass
    if mass is None:
        raise ValueError("the data do not say which tokens are relevant; take 'attention' out of measures.")
    start = run.trajectory.start
    return {"attention_of_heads": (("record",), mass @ start.multiplicity / start.num_heads)}
