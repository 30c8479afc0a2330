r"""Leave-one-out and replace-one stability, by running descent again without each example.

The leave-one-out loss is the paper's $\hat L^{-i} = \frac1n \sum_{j \ne i} \ell_j$: the same
program with weight zero for example i. All runs share one compiled program and one reference run.
Results are exact: each distance is that of a separate training run.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from manyheads import _check
from manyheads._check import check, flag, many, none, options_of, positive, whole
from manyheads.data.dataset import Dataset, is_dataset
from manyheads.data.files import failing_warns, read_npz, write_npz
from manyheads.measures.rounding import gradient_size, score_error
from manyheads.model.attention import MultiHead
from manyheads.model.autodiff import is_model
from manyheads.model.loss import Loss, get_loss, is_loss
from manyheads.model.protocol import norm
from manyheads.training.devices import choose_devices, spread
from manyheads.training.loop import RUNS, Observer, Problem, View, descend, whole_run
from manyheads.training.problem import check_descent, chunk_of, make_problem
from manyheads.training.progress import Bar
from manyheads.training.rules import GD

SAVE_SECONDS = 20.0
# runs side by side: one after another wins on a CPU
BATCH = {"cpu": 1, "gpu": 32}


@dataclass(frozen=True, eq=False)
class Stability:
    r"""What leaving out (or replacing) each example of `indices` did to a run, at each of `steps`.

    `distance` (runs, steps) is $\|\theta_k - \theta_k^{-i}\|$ of the full H-head model;
    `left_out_loss` the loss of example i under the run that did not see it; `seen_loss` its loss
    under the reference run; `readout_norm` is $\|U\|_{2,\infty}$ of each run and
    `reference_readout_norm` (steps,) that of the reference. `expansion` is $\|G(\theta_k) -
    G(\theta_k^{-i})\| / \|\theta_k - \theta_k^{-i}\|$ for one step $G$ of descent on $\hat L^{-i}$,
    the left side of (19) over its right-hand distance: NaN where the distance is zero or it was not
    asked for. `accuracy` is the rounding that a distance may have, and `loss_accuracy` that of a
    loss: the scores of H heads are sums of terms that cancel, which costs $\sqrt H$ roundings at
    every step.
    """

    steps: np.ndarray
    indices: np.ndarray
    distance: np.ndarray
    left_out_loss: np.ndarray
    seen_loss: np.ndarray
    readout_norm: np.ndarray
    reference_readout_norm: np.ndarray
    reference_loss: np.ndarray
    expansion: np.ndarray
    num_examples: int
    kind: str
    status: str
    accuracy: float
    loss_accuracy: float

    @property
    def average(self) -> np.ndarray:
        """Average stability (steps,): the mean of `distance` over the examples left out."""
        return self.distance.mean(axis=0)

    @property
    def standard_error(self) -> np.ndarray:
        """Of `average` as an estimate of the mean over all n examples; zero when all were left out in turn."""
        return _standard_error(self.distance, self.num_examples)

    @property
    def cross_validation(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean left-out loss at each step and its standard error, as an estimate of the mean over all n examples."""
        return self.left_out_loss.mean(axis=0), _standard_error(
            self.left_out_loss, self.num_examples
        )

    def __str__(self) -> str:
        m, n = len(self.indices), self.num_examples
        what = "left out" if self.kind == "leave-one-out" else "replaced"
        lines = [
            f"{self.kind}: {m} of {n} examples {what} in turn, {self.status}, distances to "
            f"{self.accuracy:.1e}, losses "
            f"to {self.loss_accuracy:.1e}"
        ]
        if m == 0:
            return f"{lines[0]}\n  no run was finished"
        loss = self.left_out_loss.mean(axis=0)
        for k, step in enumerate(self.steps):
            error = f" ± {self.standard_error[k]:.2g}" if m < n else ""
            lines.append(
                f"  step {step:>8d}: average stability {self.average[k]:.6g}{error}, times n "
                f"{n * self.average[k]:.4g}, largest {self.distance[:, k].max():.4g}, left-out "
                f"loss {loss[k]:.6g}, "
                f"train loss {self.reference_loss[k]:.6g}"
            )
        return "\n".join(lines)


def _standard_error(values: np.ndarray, population: int) -> np.ndarray:
    m = len(values)
    if m < 2:
        return np.full(values.shape[1], 0.0 if m == population else np.nan)
    return values.std(axis=0, ddof=1) / np.sqrt(m) * np.sqrt(max(1 - m / population, 0.0))


@check(
    model=is_model,
    dataset=is_dataset,
    step_size=positive,
    num_steps=whole(),
    steps=many(whole(0)) | none,
    num_left_out=whole() | none,
    indices=many(whole(-_check.MOST)) | none,
    key=_check.key | none,
    expansion=flag,
    loss=is_loss,
    dtype=_check.dtype,
    batch=whole() | none,
    checkpoint=_check.path | none,
    replacements=is_dataset | none,
)
def leave_one_out(
    model: Any,
    dataset: Dataset,
    *,
    step_size: float,
    num_steps: int,
    steps: Sequence[int] | None = None,
    num_left_out: int | None = None,
    indices: Sequence[int] | None = None,
    key: jax.Array | None = None,
    expansion: bool = False,
    loss: str | Loss = "logistic",
    dtype: str = "float64",
    batch: int | None = None,
    checkpoint: str | Path | None = None,
    replacements: Dataset | None = None,
    devices: str | int | None = None,
) -> Stability:
    """Train without each example in turn and compare with the run on all of them.

    `steps` are the steps at which the runs are compared (the last one is always there). For large
    data leave out `num_left_out` examples drawn with `key`, or these `indices`: averages then carry
    a standard error. `expansion=True` adds the measured factors of (19). `batch` is how many runs
    go side by side (None: one on a CPU, 32 on a GPU). `checkpoint=` keeps finished runs in a file;
    the same call with the same file continues. Ctrl-C returns what is done. With `replacements`
    each example is replaced by theirs instead, as `replace_one` does. `devices` ("all" or a number)
    spreads the runs over that many devices; the numbers are those of one device.
    """
    n, last = dataset.num_examples, num_steps
    compared = np.union1d([] if steps is None else np.asarray(steps), [last]).astype(np.int64)
    if compared[0] < 0 or compared[-1] > last:
        raise ValueError(
            f"steps must lie between 0 and num_steps={last}; got {compared.min()} to "
            f"{compared.max()}."
        )
    chosen = choose_examples(n, num_left_out, indices, key)
    check_descent(model, dataset, last, 1 + len(chosen), records=len(compared) * (1 + n / 2))
    kind, precision, loss = (
        "leave-one-out" if replacements is None else "replace-one",
        np.dtype(dtype),
        get_loss(loss),
    )
    where = choose_devices(devices)
    platform = "cpu" if jax.default_backend() == "cpu" else "gpu"
    size = min(batch or BATCH[platform], len(chosen))
    problem = make_problem(model, dataset, GD(step_size), loss, dtype=precision, platform=platform)
    other = (
        None
        if replacements is None
        else model.objective(replacements, precision, chunk_of(problem), platform)
    )
    with jax.enable_x64(precision == np.float64):
        problem, other = jax.device_put((problem, other))
        reference = descend(problem, {"reference": Observer(_reference, compared)}, last)[1][
            "reference"
        ]
        setup = Setup(problem, other, reference.displacement, compared.astype(np.int32))
        rows, status = _all_runs(setup, chosen, size, expansion, checkpoint, kind, where)
        accuracy, loss_accuracy = _rounding(model, dataset, problem, reference, last)
    done = np.flatnonzero(rows.pop("done"))
    return Stability(
        steps=compared,
        indices=chosen[done],
        seen_loss=reference.losses[:, chosen[done]].T.astype(float),
        reference_readout_norm=reference.readout_norm.astype(float),
        reference_loss=reference.train_loss.astype(float),
        num_examples=n,
        kind=kind,
        status=status,
        accuracy=accuracy,
        loss_accuracy=loss_accuracy,
        **{name: values[done] for name, values in rows.items()},
    )


@check(
    model=is_model,
    dataset=is_dataset,
    replacements=is_dataset,
    step_size=positive,
    num_steps=whole(),
)
def replace_one(
    model: Any,
    dataset: Dataset,
    replacements: Dataset,
    *,
    step_size: float,
    num_steps: int,
    **options,
) -> Stability:
    """Train with each example in turn replaced by the one of `replacements` at the same place; else as `leave_one_out`.

    `left_out_loss` is the loss of the example that was taken out.
    """
    if replacements.tokens.shape != dataset.tokens.shape:
        raise ValueError(
            f"replacements have shape {replacements.tokens.shape}, the data "
            f"{dataset.tokens.shape}; "
            "pass one replacement for every example."
        )
    if (replacements.mask is None) != (dataset.mask is None):
        raise ValueError(
            "either both the data and the replacements have a mask, or neither; pass mask= to both."
        )
    options = options_of(leave_one_out, options)
    options |= {"step_size": step_size, "num_steps": num_steps, "replacements": replacements}
    return leave_one_out(model, dataset, **options)


class Setup(NamedTuple):
    """What all runs on changed data share."""

    problem: Problem
    # the objective of other examples, or None
    replacements: Any
    # displacements of the run on all examples, (steps, ...)
    reference: Any
    # compared, increasing; the last one ends the run
    steps: Any


class Reference(NamedTuple):
    """The run on all examples, at the compared steps."""

    displacement: Any
    distance: jax.Array  # from the start
    readout_norm: jax.Array
    train_loss: jax.Array
    losses: jax.Array  # (steps, n)


class Twin(NamedTuple):
    """A run on changed data, at the compared steps."""

    distance: jax.Array
    left_out_loss: jax.Array
    readout_norm: jax.Array
    expansion: jax.Array


def _reference(view: View) -> Reference:
    losses = view.problem.method.loss.value(view.objective.labels * view.scores)
    return Reference(
        view.displacement,
        norm(view.objective.copies, view.displacement),
        view.readout_norm,
        jnp.sum(view.problem.sample_weight * losses),
        losses,
    )


@partial(jax.jit, static_argnames="expansion")
def twin_runs(setup: Setup, indices: jax.Array, *, expansion: bool) -> Twin:
    """The runs that leave out (or replace) each of `indices`, side by side."""

    def one(i, axis=None):
        problem = setup.problem
        own = problem.objective.some(i[None])
        if setup.replacements is None:
            changed = replace(
                problem, sample_weight=jnp.asarray(problem.sample_weight).at[i].set(0.0)
            )
        else:
            changed = replace(problem, objective=problem.objective.replaced(i, setup.replacements))
        observer = Observer(partial(_twin, expansion), setup.steps, (own, setup.reference))
        return whole_run(changed, {"twin": observer}, setup.steps[-1], axis).kept["twin"]

    if len(indices) == 1:
        return jax.tree.map(lambda a: a[None], one(indices[0]))
    return jax.vmap(partial(one, axis=RUNS), axis_name=RUNS)(indices)


def _twin(expansion: bool, view: View, own: Any, reference: Any) -> Twin:
    problem, objective = view.problem, view.objective
    there = jax.tree.map(lambda a: a[view.row], reference)
    gap = jax.tree.map(jnp.subtract, view.displacement, there)
    distance = norm(objective.copies, gap)
    ratio = jnp.full_like(distance, jnp.nan)
    if expansion:
        step = jax.tree.map(
            lambda e, a, b: e - problem.step_size * (a - b), gap, view.gradient, view.at(there)[2]
        )
        ratio = jnp.where(distance > 0, norm(objective.copies, step) / distance, jnp.nan)
    loss = problem.method.loss.value(own.labels[0] * own.scores(view.point)[0])
    return Twin(distance, loss, view.readout_norm, ratio)


def _rounding(
    model, dataset, problem: Problem, reference: Reference, num_steps: int
) -> tuple[float, float]:
    """What rounding may leave in a distance and in a loss: an error in every slope of every step, at random."""
    last = jax.tree.map(lambda leaf: np.asarray(leaf[-1], float), reference.displacement)
    if isinstance(model, MultiHead):
        points = (model, model.displaced(last))
        score = max(score_error(point, dataset) for point in points)
        size = max(gradient_size(point, dataset) for point in points)
    else:  # measured, where there is no bound
        score, size = map(float, _sizes(problem, jax.tree.map(jnp.asarray, last)))
    eps, walk = float(np.finfo(problem.step_size.dtype).eps), float(np.sqrt(num_steps))
    loss, step_size = problem.method.loss, float(problem.step_size)
    distance = (
        eps
        * walk
        * (float(np.max(reference.distance)) + step_size * loss.smoothness * size * score)
    )
    # of a loss whose score is exact
    rounded = 4 * eps * float(loss.value(jnp.zeros(())))
    return distance, rounded + loss.lipschitz * (eps * score + size * distance)


@jax.jit
def _sizes(problem: Problem, displacement) -> tuple[jax.Array, jax.Array]:
    """The largest score, at least one, and the largest gradient of a score, at the start and at a displacement."""
    objective = problem.objective

    def one(point):
        def gradient_norm(i):
            scores, back = jax.vjp(objective.some(i[None]).scores, point)
            return norm(1 / objective.copies, back(jnp.ones_like(scores))[0])

        return jnp.max(jnp.abs(objective.scores(point))), jax.lax.map(
            gradient_norm, jnp.arange(len(objective.labels))
        )

    start = jax.tree.map(jnp.asarray, problem.start)
    ends = [one(point) for point in (start, jax.tree.map(jnp.add, start, displacement))]
    return jnp.max(jnp.stack([jnp.ones(()), *(s for s, _ in ends)])), jnp.max(
        jnp.stack([g for _, g in ends])
    )


def choose_examples(n: int, count: int | None, indices, key) -> np.ndarray:
    """Which examples to leave out: all, these, or `count` drawn without replacement, in increasing order."""
    if indices is not None:
        chosen = np.unique(np.asarray(indices, dtype=np.int64))
        if len(chosen) == 0 or chosen[0] < 0 or chosen[-1] >= n:
            raise ValueError(
                f"indices must lie between 0 and {n - 1} and not be empty; got {list(indices)[:5]}."
            )
        return chosen
    if count is None or count == n:
        return np.arange(n)
    if not 1 <= count < n:
        raise ValueError(f"num_left_out={count} must be between 1 and the {n} examples there are.")
    if key is None:
        raise ValueError(
            f"num_left_out={count} of {n} examples are drawn at random: pass "
            "key=jax.random.key(0), or indices=."
        )
    return np.sort(np.asarray(jax.random.choice(key, n, (count,), replace=False))).astype(np.int64)


def _all_runs(setup: Setup, chosen, size, expansion, checkpoint, kind, devices):
    """Every run, in blocks of `size` over the devices; what a checkpoint already has is not run again."""
    rows: dict[str, np.ndarray] = {
        name: np.full((len(chosen), len(setup.steps)), np.nan) for name in Twin._fields
    }
    rows["done"] = np.zeros(len(chosen), bool)
    mark = ""
    if checkpoint is not None:
        mark = _fingerprint(setup, chosen, expansion, kind)
        _restore(rows, checkpoint, mark)
    alone = len(devices) == 1
    setups = {
        device: setup if alone else jax.device_put(setup, device)
        for device in devices
        if device.process_index == jax.process_index()
    }

    def run(todo, device):
        # the last block repeats, so that one program does all
        padded = np.resize(todo, size)
        indices = jnp.asarray(chosen[padded], jnp.int32)
        return jax.block_until_ready(twin_runs(setups[device], indices, expansion=expansion))

    left = np.flatnonzero(~rows["done"])
    blocks = [left[first : first + size] for first in range(0, len(left), size)]
    status, saved = "finished", time.monotonic()
    with Bar(kind, len(chosen), int(rows["done"].sum())) as bar:
        try:
            for todo, result in spread(run, blocks, devices):
                for name, values in result._asdict().items():
                    rows[name][todo] = np.asarray(values)[: len(todo)]
                rows["done"][todo] = True
                bar.show(int(rows["done"].sum()))
                if checkpoint is not None and time.monotonic() - saved > SAVE_SECONDS:
                    _save(rows, checkpoint, mark)
                    saved = time.monotonic()
        except KeyboardInterrupt:
            status = "interrupted"
    if checkpoint is not None:
        _save(rows, checkpoint, mark)
    return rows, status


def _fingerprint(setup: Setup, chosen, expansion, kind) -> str:
    """Whether two calls would do the same runs."""
    digest = hashlib.sha256(f"{kind} {setup.problem.method.loss.name} {expansion}".encode())
    for leaf in [*jax.tree.leaves(setup._replace(reference=())), chosen]:
        array = np.ascontiguousarray(leaf)
        digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


def _save(rows, checkpoint, mark) -> None:
    with failing_warns(checkpoint):
        write_npz(checkpoint, rows, {"kind": "stability", "fingerprint": mark})


def _restore(rows, checkpoint, mark) -> None:
    path = Path(checkpoint)
    if not path.resolve().parent.is_dir():
        raise ValueError(f"checkpoint={checkpoint}: the folder does not exist; make it first.")
    if not path.exists():
        return
    arrays, meta = read_npz(path)
    if meta.get("kind") != "stability":
        raise ValueError(
            f"checkpoint={checkpoint} is not a file of this measure and version; pass another path."
        )
    if meta["fingerprint"] != mark:
        raise ValueError(
            f"checkpoint={checkpoint} belongs to other data, another start or other settings; pass "
            "another path, "
            "or make the same call again."
        )
    if any(name not in arrays or arrays[name].shape != rows[name].shape for name in rows):
        raise ValueError(f"checkpoint={checkpoint} does not hold every run; pass another path.")
    for name in rows:
        rows[name][...] = arrays[name]
