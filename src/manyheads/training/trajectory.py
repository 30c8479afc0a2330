"""The result of a run: its start, records and snapshots, and where it ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from manyheads import _check
from manyheads._card import card, curves
from manyheads._check import a, check, checked
from manyheads.data.files import Damaged, read_npz, write_npz
from manyheads.data.origin import Origin
from manyheads.model.attention import Factored, Heads, MultiHead
from manyheads.model.autodiff import is_model

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


class Unsaved(UserWarning):
    """A run whose file could not be written; `run` is its trajectory."""

    def __init__(self, message: str, run: Trajectory):
        super().__init__(message)
        self.run = run


@dataclass(frozen=True, eq=False, repr=False)
class Trajectory:
    r"""A run of descent. Step 0 is the start.

    Records, one entry per step in `steps`: `train_loss`; `gradient_norm`, `distance`
    $\|\theta_k-\theta_0\|$ (of the full H-head model); `readout_norm` $\max_h\|U_h\|_F$ (None where
    the model has no readout); `margin` $\min_i y_i\tilde\Phi(X_i)$; `test_loss` (None without test
    data); `attention_mass (records, classes)`, the mean attention that falls on relevant tokens
    (None where those are unknown). `observed` holds what `train(..., observe=...)` asked for, one
    row per record.

    `snapshots` are displacements of the parameters of `start` at `snapshot_steps`; `displacement`
    is the last one, at `last_step`. `status` is "finished", "diverged" (the loss or gradient became
    non-finite after `last_step`), "interrupted" or "stopped" by a condition (`reason` is the
    sentence that says why). `sources` holds short hashes of the data it was made with, which a
    resumed run must share; `origins` say where the training ("data") and the test data ("test")
    come from.
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
            some = [0, *self.snapshot_steps[:8].tolist(), self.last_step]
            raise ValueError(
                f"step {step} has no snapshot; there are snapshots at {', '.join(map(str, some))}"
                f"{', among others' * (len(self.snapshot_steps) > 8)}. Pass snapshots=[...] to "
                "train."
            )
        return jax.tree.map(lambda leaf: leaf[where[0]], self.snapshots)

    def model(self, step: int) -> Any:
        """The model at a step that has a snapshot."""
        return self.start.displaced(self.displacement_at(step))

    @property
    def records(self) -> dict[str, np.ndarray]:
        """Every record that the run has, by its name."""
        found = {name: getattr(self, name) for name in RECORDS}
        return {name: values for name, values in found.items() if values is not None}

    @check(path=_check.path)
    def save(self, path: str | Path) -> None:
        """Write one .npz that `Trajectory.load` reads back equal."""
        meta = {
            "kind": "trajectory",
            "last_step": int(self.last_step),
            "status": self.status,
            "settings": self.settings,
            "sources": self.sources,
            "origins": {name: origin.fields for name, origin in self.origins.items()},
        }
        arrays = {"steps": self.steps, "snapshot_steps": self.snapshot_steps}
        parts: dict[str, dict] = {
            "record": self.records,
            "observed": self.observed,
            "rows": {name: origin.rows for name, origin in self.origins.items()},
        }
        trees = {
            "start": self.start.parameters,
            "snapshots": self.snapshots,
            "last": self.displacement,
            "optimizer": self.optimizer_state,
        }
        parts |= {name: dict(enumerate(jax.tree.leaves(tree))) for name, tree in trees.items()}
        for part, named in parts.items():
            present = {name: values for name, values in named.items() if values is not None}
            arrays |= {f"{part}_{name}": np.asarray(values) for name, values in present.items()}
        start = self.start
        if isinstance(start, MultiHead):
            arrays["multiplicity"] = start.multiplicity
            meta |= {"decoder": start.decoder, "exponent": start.exponent}
            meta["factored"] = isinstance(start.key_query, tuple)
        else:
            meta["model"] = type(start).__name__
        write_npz(path, arrays, meta)

    @classmethod
    @check(path=_check.path)
    def load(cls, path: str | Path, like: Any = None) -> Trajectory:
        """Read a trajectory that `save` wrote. One of another model than a MultiHead needs `like=` such a model."""
        arrays, meta = read_npz(path)
        if meta.get("kind") != "trajectory":
            raise ValueError(
                f"{path} does not hold a trajectory; pass a file written by Trajectory.save or "
                "`manyheads train`."
            )
        if "model" in meta and like is None:
            raise ValueError(
                f"{path} holds a run of a {meta['model']}; pass like=, a model of the same shape."
            )
        try:
            return cls._from_parts(arrays, meta, like)
        except KeyError as error:
            raise Damaged(
                f"{path} is not a whole trajectory: {error} is missing; use another copy."
            ) from None

    @classmethod
    def _from_parts(cls, arrays: dict[str, np.ndarray], meta: dict, like: Any) -> Trajectory:
        def named(part):
            prefix = f"{part}_"
            found = {name: values for name, values in arrays.items() if name.startswith(prefix)}
            return {name.removeprefix(prefix): values for name, values in found.items()}

        def tree_of(part):
            count = range(tree.num_leaves)
            return jax.tree.unflatten(tree, [arrays[f"{part}_{i}"] for i in count])

        if "model" in meta:
            like = checked("like", like, is_model)
            leaves, tree = jax.tree.flatten(like.parameters)
            stored = named("start")
            if [np.shape(leaf) for leaf in leaves] != [v.shape for v in stored.values()]:
                raise ValueError(
                    f"the stored run of a {meta['model']} is of another shape than like=."
                )
            start = _moved_to(like, tree_of("start"))
        else:
            tree = jax.tree.structure(Heads(Factored(0, 0) if meta["factored"] else 0, 0))
            heads, copies = tree_of("start"), arrays["multiplicity"]
            start = MultiHead(*heads, copies, meta["decoder"], meta["exponent"])
        records, rows, optimizer = named("record"), named("rows"), named("optimizer")
        missing = dict.fromkeys(OPTIONAL)
        return cls(
            start=start,
            steps=arrays["steps"],
            snapshot_steps=arrays["snapshot_steps"],
            snapshots=tree_of("snapshots"),
            displacement=tree_of("last"),
            last_step=meta["last_step"],
            status=meta["status"],
            settings=meta["settings"],
            sources=meta["sources"],
            optimizer_state=tuple(optimizer[str(i)] for i in range(len(optimizer))),
            observed=named("observed"),
            origins={n: Origin(**o, rows=rows.get(n)) for n, o in meta["origins"].items()},
            **{name: (missing | records)[name] for name in RECORDS},
        )

    def to_xarray(self) -> Any:
        """The records as an xarray Dataset along `step`, with the settings as attributes."""
        import xarray as xr

        variables = {}
        for name, values in (self.records | self.observed).items():
            dims = [f"{name}_{i}" for i in range(1, values.ndim)]
            variables[name] = (("step", *dims), values)
        about = {"status": self.status, "last_step": self.last_step, **self.settings}
        return xr.Dataset(variables, coords={"step": self.steps}, attrs=about)

    def to_pandas(self) -> Any:
        """The records as a DataFrame indexed by step; those of several numbers a step have a column for each."""
        import pandas as pd

        table = pd.DataFrame(index=pd.Index(self.steps, name="step"))
        for name, values in self.to_xarray().data_vars.items():
            rows = values.to_numpy().reshape(len(self.steps), int(np.prod(values.shape[1:])))
            names = [name] if values.ndim == 1 else [f"{name}_{i}" for i in range(rows.shape[1])]
            table[names] = rows
        return table

    @property
    def _ending(self) -> str:
        if self.status == "diverged" and not len(self.steps):
            return "not finite at its start"
        why = f": {self.reason}" if self.reason else ""
        return f"{self.status} at step {self.last_step} of {self.settings.get('num_steps')}{why}"

    def __str__(self) -> str:
        s = self.settings
        rate = "" if s.get("step_size") is None else f", step size {s['step_size']:g}"
        how = f"{s.get('optimizer', 'descent')}{rate}, {s.get('loss')} loss, {s.get('dtype')}"
        head = [str(self.start), f"{how}: {self._ending}"]
        if self.rounding:
            alone = "zero, or nothing but" if self.rounding == 1 else f"to {self.rounding:.0%}"
            head.append(f"its last step is {alone} rounding: use dtype='float64', or fewer steps")
        columns = {
            "train loss": self.train_loss,
            "test loss": self.test_loss,
            "margin": self.margin,
            "|gradient|": self.gradient_norm,
            "distance": self.distance,
        }
        if self.attention_mass is not None:
            copies = self.start.copies
            columns["focus"] = self.attention_mass @ copies / copies.sum()
        columns = {name: values for name, values in columns.items() if values is not None}
        lines = ["  ".join(f"{name:>10}" for name in ("step", *columns))]
        last = len(self.steps) - 1
        for i in np.unique(np.linspace(0, last, 8).astype(int)) if last >= 0 else []:
            numbers = [f"{values[i]:>10.4g}" for values in columns.values()]
            lines.append("  ".join([f"{self.steps[i]:>10d}", *numbers]))
        return "\n".join([*head, *lines])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        names = ("optimizer", "step_size", "loss")
        known = {"status": self._ending}
        known |= {name: self.settings[name] for name in names if name in self.settings}
        lines = {"train loss": self.train_loss}
        if self.test_loss is not None:
            lines["test loss"] = self.test_loss
        known |= {name: f"{y[-1]:.4g}" for name, y in lines.items() if len(y)}
        drawn = curves(self.steps, lines) if len(self.steps) else ""
        return card(str(self.start).partition(":")[0], known, drawn)


def _moved_to(model: Any, parameters: Any) -> Any:
    """A model of the same shape at these parameters."""
    # the second move removes the rounding of the first
    for _ in range(2):
        model = model.displaced(
            jax.tree.map(lambda a, b: a - np.asarray(b), parameters, model.parameters)
        )
    return model


is_trajectory = a(Trajectory, "train makes one, and Trajectory.load reads one")
