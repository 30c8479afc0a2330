"""The result of a run: its start, records and snapshots, and where it ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from manyheads import _check
from manyheads._card import card, curves
from manyheads._check import a, check
from manyheads._names import DECODERS
from manyheads.data.files import Damaged, read_npz, write_npz
from manyheads.data.origin import Origin
from manyheads.model.attention import Factored, Heads, MultiHead
from manyheads.model.protocol import checked_model

RECORDS = (
    "train_loss",
    "gradient_norm",
    "distance",
    "readout_norm",
    "margin",
    "test_loss",
    "attention_mass",
)
OPTIONAL = ("readout_norm", "test_loss", "attention_mass")
STATUSES = ("finished", "diverged", "interrupted", "stopped")


class Unsaved(UserWarning):
    """A run whose file could not be written; `run` is its trajectory."""

    def __init__(self, message: str, run: Trajectory):
        super().__init__(message)
        self.run = run


@dataclass(frozen=True, eq=False, repr=False)
class Trajectory:
    r"""A run of descent. Step 0 is the start.

    Records, one entry per step in `steps`: `train_loss`; `gradient_norm`, `distance` $\|\theta_k-\theta_0\|$ (of the
    full H-head model); `readout_norm` $\max_h\|U_h\|_F$ (None where the model has no readout); `margin` $\min_i
    y_i\tilde\Phi(X_i)$; `test_loss` (None without test data); `attention_mass (records, classes)`, the mean attention
    that falls on relevant tokens (None where those are unknown). `observed` holds what `train(..., observe=...)` asked
    for, one row per record.

    `snapshots` are displacements of the parameters of `start` at `snapshot_steps`; `displacement` is the last one, at
    `last_step`. `status` is "finished", "diverged" (the loss or gradient became non-finite after `last_step`),
    "interrupted" or "stopped" by a condition (`reason` is the sentence that says why). `sources` holds short hashes of
    the data it was made with, which a resumed run must share; `origins` say where the training ("data") and the test
    data ("test") come from.
    """

    start: Any
    steps: np.ndarray
    train_loss: np.ndarray
    gradient_norm: np.ndarray
    distance: np.ndarray
    readout_norm: np.ndarray | None
    margin: np.ndarray
    test_loss: np.ndarray | None
    attention_mass: np.ndarray | None
    snapshot_steps: np.ndarray
    snapshots: Any
    displacement: Any
    last_step: int
    status: str
    settings: dict
    optimizer_state: tuple[np.ndarray, ...] = ()
    sources: dict = field(default_factory=dict)
    observed: dict[str, np.ndarray] = field(default_factory=dict)
    origins: dict[str, Origin] = field(default_factory=dict)

    @property
    def reason(self) -> str:
        """Why a run with status "stopped" ended; empty for others."""
        return self.settings.get("reason", "")

    @property
    def rounding(self) -> float:
        """The share of the last step that is rounding, for rules whose steps do not shrink with the gradient.

        0 where it is below 1% or not known.
        """
        return float(self.settings.get("rounding", 0.0))

    @property
    def final(self) -> Any:
        """The model at the last step."""
        return self.start.displaced(self.displacement)

    def displacement_at(self, step: int) -> Any:
        """How far the parameters had moved at a step that has a snapshot."""
        if step == self.last_step:
            return self.displacement
        if step == 0:
            return jax.tree.map(lambda leaf: np.zeros_like(leaf), self.displacement)
        where = np.flatnonzero(self.snapshot_steps == step)
        if not len(where):
            kept = ", ".join(map(str, self.snapshot_steps[:8])) + (
                ", ..." if len(self.snapshot_steps) > 8 else ""
            )
            kept = f"0, {kept}, {self.last_step}" if kept else f"0, {self.last_step}"
            raise ValueError(
                f"step {step} has no snapshot; there are snapshots at {kept}. Pass snapshots=[...] to train."
            )
        return jax.tree.map(lambda leaf: leaf[where[0]], self.snapshots)

    def model(self, step: int) -> Any:
        """The model at a step that has a snapshot."""
        return self.start.displaced(self.displacement_at(step))

    @check(path=_check.path)
    def save(self, path: str | Path) -> None:
        """Write one .npz that `Trajectory.load` reads back equal."""
        arrays = {
            f"record_{name}": getattr(self, name)
            for name in RECORDS
            if getattr(self, name) is not None
        }
        arrays |= {"steps": self.steps, "snapshot_steps": self.snapshot_steps}
        arrays |= {f"observed_{name}": values for name, values in self.observed.items()}
        trees = {
            "start": self.start.parameters,
            "snapshots": self.snapshots,
            "last": self.displacement,
        }
        for name, tree in (*trees.items(), ("optimizer", self.optimizer_state)):
            arrays |= {
                f"{name}_{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(tree))
            }
        meta = {
            "kind": "trajectory",
            "last_step": int(self.last_step),
            "status": self.status,
            "settings": self.settings,
            "sources": self.sources,
            "origins": {name: origin.fields for name, origin in self.origins.items()},
        }
        arrays |= {
            f"rows_{name}": origin.rows
            for name, origin in self.origins.items()
            if origin.rows is not None
        }
        if isinstance(self.start, MultiHead):
            arrays["multiplicity"] = self.start.multiplicity
            factored = isinstance(self.start.key_query, tuple)
            meta |= {
                "decoder": self.start.decoder,
                "exponent": self.start.exponent,
                "factored": factored,
            }
        else:
            meta["model"] = type(self.start).__name__
        write_npz(path, arrays, meta)

    @classmethod
    @check(path=_check.path)
    def load(cls, path: str | Path, like: Any = None) -> Trajectory:
        """Read a trajectory that `save` wrote. One of another model than a MultiHead needs `like=` such a model."""
        arrays, meta = read_npz(path)
        if meta.get("kind") != "trajectory":
            raise ValueError(
                f"{path} does not hold a trajectory; pass a file written by Trajectory.save or `manyheads train`."
            )
        if "model" in meta and like is None:
            raise ValueError(
                f"{path} holds a run of a {meta['model']}; pass like=, a model of the same shape."
            )
        try:
            if wrong := _misfits(arrays, meta):
                raise Damaged(
                    f"{path} is not a whole trajectory: its {wrong} cannot be right; use another copy."
                )
            return cls._from_parts(arrays, meta, like)
        except KeyError as error:
            raise Damaged(
                f"{path} is not a whole trajectory: {error} is missing; use another copy."
            ) from None

    @classmethod
    def _from_parts(cls, arrays: dict[str, np.ndarray], meta: dict, like: Any) -> Trajectory:
        def named(prefix):
            return {
                name.removeprefix(prefix): values
                for name, values in arrays.items()
                if name.startswith(prefix)
            }

        if "model" in meta:
            leaves, tree = jax.tree.flatten((like := checked_model(like, "like")).parameters)
            if {str(i): np.shape(leaf) for i, leaf in enumerate(leaves)} != {
                k: v.shape for k, v in named("start_").items()
            }:
                raise ValueError(
                    f"the stored run of a {meta['model']} is of another shape than like=."
                )
        else:
            tree = jax.tree.structure(Heads(Factored(0, 0) if meta["factored"] else 0, 0))

        def parameters(name):
            return jax.tree.unflatten(tree, [arrays[f"{name}_{i}"] for i in range(tree.num_leaves)])

        start = parameters("start")
        records: dict[str, Any] = {
            name: arrays[f"record_{name}"] for name in RECORDS if name not in OPTIONAL
        }
        optimizer, rows = named("optimizer_"), named("rows_")
        return cls(
            start=_moved_to(like, start)
            if "model" in meta
            else MultiHead(*start, arrays["multiplicity"], meta["decoder"], meta["exponent"]),
            steps=arrays["steps"],
            snapshot_steps=arrays["snapshot_steps"],
            snapshots=parameters("snapshots"),
            displacement=parameters("last"),
            last_step=meta["last_step"],
            status=meta["status"],
            settings=meta["settings"],
            sources=meta.get("sources", {}),
            optimizer_state=tuple(optimizer[str(i)] for i in range(len(optimizer))),
            observed=named("observed_"),
            origins={
                name: Origin(**fields, rows=rows.get(name))
                for name, fields in meta.get("origins", {}).items()
            },
            **records,
            **{name: arrays.get(f"record_{name}") for name in OPTIONAL},
        )

    def to_xarray(self) -> Any:
        """The records as an xarray Dataset along `step`, with the settings as attributes."""
        import xarray as xr

        records = {
            name: getattr(self, name) for name in RECORDS if getattr(self, name) is not None
        } | self.observed
        return xr.Dataset(
            {
                name: (("step", *(f"{name}_{i}" for i in range(1, v.ndim))), v)
                for name, v in records.items()
            },
            coords={"step": self.steps},
            attrs={"status": self.status, "last_step": self.last_step, **self.settings},
        )

    def to_pandas(self) -> Any:
        """The records as a DataFrame indexed by step; those of several numbers a step have a column for each."""
        import pandas as pd

        table = pd.DataFrame(index=pd.Index(self.steps, name="step"))
        for name, values in self.to_xarray().data_vars.items():
            rows = values.to_numpy().reshape(len(self.steps), -1)
            names = [name] if values.ndim == 1 else [f"{name}_{i}" for i in range(rows.shape[1])]
            table[names] = rows
        return table

    def __str__(self) -> str:
        s = self.settings
        stood = self.status != "diverged" or len(self.steps) > 0
        rate = "" if s.get("step_size") is None else f", step size {s['step_size']:g}"
        lines = [
            str(self.start),
            f"{s.get('optimizer', 'descent')}{rate}, {s.get('loss')} loss, {s.get('dtype')}: "
            + (
                f"{self.status} at step {self.last_step} of {s.get('num_steps')}{self.reason and ': '}{self.reason}"
                if stood
                else "not finite at its start"
            ),
        ]
        if self.rounding:
            alone = "zero, or nothing but" if self.rounding == 1 else f"to {self.rounding:.0%}"
            lines.append(f"its last step is {alone} rounding: use dtype='float64', or fewer steps")
        columns = {
            "step": self.steps,
            "train loss": self.train_loss,
            "test loss": self.test_loss,
            "margin": self.margin,
            "|gradient|": self.gradient_norm,
            "distance": self.distance,
            "focus": None
            if self.attention_mass is None
            else self.attention_mass @ self.start.copies / self.start.copies.sum(),
        }
        columns = {name: values for name, values in columns.items() if values is not None}
        lines.append("  ".join(f"{name:>10}" for name in columns))
        shown = (
            np.unique(np.linspace(0, len(self.steps) - 1, 8).astype(int)) if len(self.steps) else []
        )
        for i in shown:
            cells = (
                f"{v[i]:>10d}" if name == "step" else f"{v[i]:>10.4g}"
                for name, v in columns.items()
            )
            lines.append("  ".join(cells))
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        known = {
            "status": f"{self.status} at step {self.last_step} of {self.settings.get('num_steps')}"
        }
        known |= {
            name: self.settings[name]
            for name in ("optimizer", "step_size", "loss")
            if name in self.settings
        }
        lines = {"train loss": self.train_loss}
        if self.test_loss is not None:
            lines["test loss"] = self.test_loss
        known |= {name: f"{y[-1]:.4g}" for name, y in lines.items() if len(y)}
        return card(
            str(self.start).partition(":")[0],
            known,
            curves(self.steps, lines) if len(self.steps) else "",
        )


def _misfits(arrays: dict[str, np.ndarray], meta: dict) -> str:
    """Which parts of a stored trajectory do not fit the others; a KeyError where one is missing."""

    def are_steps(values: np.ndarray) -> bool:
        return values.ndim == 1 and values.dtype.kind in "iu" and bool(np.all(np.diff(values) > 0))

    steps, marks, last = arrays["steps"], arrays["snapshot_steps"], meta["last_step"]
    fits = {
        "steps": are_steps(steps),
        "snapshot_steps": are_steps(marks),
        "last_step": isinstance(last, int)
        and last >= max([0, *steps[-1:].ravel(), *marks[-1:].ravel()]),
        "status": meta["status"] in STATUSES,
        "settings": isinstance(meta["settings"], dict)
        and isinstance(meta.get("sources", {}), dict),
    }
    for name in RECORDS:
        if name not in OPTIONAL or f"record_{name}" in arrays:
            values = arrays[f"record_{name}"]
            dims = 2 if name == "attention_mass" else 1
            fits[name] = (
                values.ndim == dims and len(values) == len(steps) and values.dtype.kind == "f"
            )
    for name, values in arrays.items():
        kind, _, number = name.rpartition("_")
        if name.startswith("observed_"):
            fits[name] = values.shape[:1] == steps.shape
        elif kind in ("snapshots", "last"):
            like = arrays[f"start_{number}"]
            shape = (marks.shape if kind == "snapshots" else ()) + like.shape
            fits[name] = values.shape == shape and values.dtype.kind == like.dtype.kind
    if "model" not in meta:
        readout = arrays[f"start_{1 + bool(meta['factored'])}"]
        fits["multiplicity"] = arrays["multiplicity"].shape == readout.shape[:1]
        fits["decoder"] = meta["decoder"] in DECODERS and isinstance(meta["exponent"], int | float)
    return " and ".join(name for name, fine in fits.items() if not fine)


def _moved_to(model: Any, parameters: Any) -> Any:
    """A model of the same shape at these parameters."""
    for _ in range(2):  # the second move removes the rounding of the first
        model = model.displaced(
            jax.tree.map(lambda a, b: a - np.asarray(b), parameters, model.parameters)
        )
    return model


is_trajectory = a(Trajectory, "train makes one, and Trajectory.load reads one")
