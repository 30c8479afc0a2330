r"""Leave-one-out and replace-one stability, by running descent again without each example.

The leave-one-out loss is the paper's $\hat L^{-i} = \frac1n \sum_{j \ne i} \ell_j$: the same program with weight zero
for example i. All runs share one compiled program and one reference run. Results are exact: each distance is that of a
separate training run.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from manyheads.data.dataset import Dataset, read_npz, write_npz
from manyheads.measures.rounding import gradient_size, score_error
from manyheads.measures.twins import Setup, reference_run, twin_runs
from manyheads.model.attention import MultiHead
from manyheads.model.gradient import head_weights, prepare
from manyheads.model.loss import Loss, get_loss
from manyheads.training.progress import Bar

FORMAT_VERSION = 1
SAVE_SECONDS = 20.0
BATCH = {"cpu": 1, "gpu": 32}  # runs side by side: one after another wins on a CPU


@dataclass(frozen=True, eq=False)
class Stability:
    r"""What leaving out (or replacing) each example of `indices` did to a run, at each of `steps`.

    `distance` (runs, steps) is $\|\theta_k - \theta_k^{-i}\|$ of the full H-head model; `left_out_loss` the loss of
    example i under the run that did not see it; `seen_loss` its loss under the reference run; `readout_norm` is
    $\|U\|_{2,\infty}$ of each run and `reference_readout_norm` (steps,) that of the reference. `expansion` is
    $\|G(\theta_k) - G(\theta_k^{-i})\| / \|\theta_k - \theta_k^{-i}\|$ for one step $G$ of descent on $\hat L^{-i}$,
    the left side of (19) over its right-hand distance: NaN where the distance is zero or it was not asked for.
    `accuracy` is the rounding that a distance may have, and `loss_accuracy` that of a loss: the scores of H heads are
    sums of terms that cancel, which costs $\sqrt H$ roundings at every step.
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
        return self.left_out_loss.mean(axis=0), _standard_error(self.left_out_loss, self.num_examples)

    def __str__(self) -> str:
        m, n = len(self.indices), self.num_examples
        what = "left out" if self.kind == "leave-one-out" else "replaced"
        lines = [
            f"{self.kind}: {m} of {n} examples {what} in turn, {self.status}, distances to {self.accuracy:.1e}, losses "
            f"to {self.loss_accuracy:.1e}"
        ]
        if m == 0:
            return f"{lines[0]}\n  no run was finished"
        loss = self.left_out_loss.mean(axis=0)
        for k, step in enumerate(self.steps):
            error = f" ± {self.standard_error[k]:.2g}" if m < n else ""
            lines.append(
                f"  step {step:>8d}: average stability {self.average[k]:.6g}{error}, times n "
                f"{n * self.average[k]:.4g}, largest {self.distance[:, k].max():.4g}, left-out loss {loss[k]:.6g}, "
                f"train loss {self.reference_loss[k]:.6g}"
            )
        return "\n".join(lines)


def _standard_error(values: np.ndarray, population: int) -> np.ndarray:
    m = len(values)
    if m < 2:
        return np.full(values.shape[1], 0.0 if m == population else np.nan)
    return values.std(axis=0, ddof=1) / np.sqrt(m) * np.sqrt(max(1 - m / population, 0.0))


def leave_one_out(
    model: MultiHead,
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
    progress: bool = False,
    checkpoint: str | Path | None = None,
) -> Stability:
    """Train without each example in turn and compare with the run on all of them.

    `steps` are the steps at which the runs are compared (the last one is always there). For large data leave out
    `num_left_out` examples drawn with `key`, or these `indices`: averages then carry a standard error. `expansion=True`
    adds the measured factors of (19). `batch` is how many runs go side by side (None: one on a CPU, 32 on a GPU).
    `checkpoint=` keeps finished runs in a file; the same call with the same file continues. Ctrl-C returns what is
    done.
    """
    return _compare(
        "leave-one-out", model, dataset, None, step_size, num_steps, steps, num_left_out, indices, key, expansion,
        get_loss(loss), dtype, batch, progress, checkpoint,
    )  # fmt: skip


def replace_one(
    model: MultiHead, dataset: Dataset, replacements: Dataset, *, step_size: float, num_steps: int, **options
) -> Stability:
    """Train with each example in turn replaced by the one of `replacements` at the same place; else as `leave_one_out`.

    `left_out_loss` is the loss of the example that was taken out.
    """
    if replacements.tokens.shape != dataset.tokens.shape:
        raise ValueError(
            f"replacements have shape {replacements.tokens.shape}, the data {dataset.tokens.shape}; "
            "pass one replacement for every example."
        )
    if (replacements.mask is None) != (dataset.mask is None):
        raise ValueError("either both the data and the replacements have a mask, or neither; pass mask= to both.")
    defaults: dict[str, Any] = dict(
        steps=None, num_left_out=None, indices=None, key=None, expansion=False, loss="logistic", dtype="float64",
        batch=None, progress=False, checkpoint=None,
    )  # fmt: skip
    unknown = set(options) - set(defaults)
    if unknown:
        raise ValueError(f"replace_one has no option {', '.join(sorted(unknown))}; it has {', '.join(defaults)}.")
    o = defaults | options
    return _compare(
        "replace-one", model, dataset, replacements, step_size, num_steps, o["steps"], o["num_left_out"], o["indices"],
        o["key"], o["expansion"], get_loss(o["loss"]), o["dtype"], o["batch"], o["progress"], o["checkpoint"],
    )  # fmt: skip


def _compare(kind, model, dataset, replacements, step_size, num_steps, steps, num_left_out, indices, key, expansion,
             loss, dtype, batch, progress, checkpoint) -> Stability:  # fmt: skip
    n = dataset.num_examples
    if not (np.isfinite(step_size) and step_size > 0):
        raise ValueError(f"step_size={step_size} must be a finite number > 0.")
    if num_steps < 1:
        raise ValueError(f"num_steps={num_steps} must be at least 1.")
    compared = np.union1d([] if steps is None else np.asarray(steps), [num_steps]).astype(np.int64)
    if compared[0] < 0 or compared[-1] > num_steps:
        raise ValueError(
            f"steps must lie between 0 and num_steps={num_steps}; got {compared.min()} to {compared.max()}."
        )
    chosen = choose_examples(n, num_left_out, indices, key)
    if batch is not None and not batch >= 1:
        raise ValueError(f"batch={batch} must be a whole number >= 1, or None to choose it.")
    dtype = np.dtype(dtype)
    platform = "cpu" if jax.default_backend() == "cpu" else "gpu"
    size = min(batch or BATCH[platform], len(chosen))
    with jax.enable_x64(dtype == np.float64):
        data = prepare(dataset, model, dtype, None, platform)
        other = None if replacements is None else prepare(replacements, model, dtype, data.labels.shape[1], platform)
        setup = jax.device_put(
            Setup(
                start=jax.tree.map(lambda a: np.asarray(a, dtype), model.heads),
                weights=head_weights(model, dtype),
                counts=model.multiplicity.astype(dtype),
                batch=data,
                replacements=other,
                sample_weight=np.full(n, 1 / n, dtype),
                step_size=np.asarray(step_size, dtype),
                steps=compared.astype(np.int32),
            )
        )
        reference = jax.block_until_ready(reference_run(setup, loss))
        rows, status = _all_runs(setup, reference, chosen, size, loss, expansion, progress, checkpoint, kind)
        reference = jax.tree.map(np.asarray, reference)
    accuracy, loss_accuracy = _rounding(model, dataset, reference, step_size, num_steps, loss, dtype)
    done = np.flatnonzero(rows["done"])
    return Stability(
        steps=compared,
        indices=chosen[done],
        distance=rows["distance"][done].astype(float),
        left_out_loss=rows["loss"][done].astype(float),
        seen_loss=reference.losses[:, chosen[done]].T.astype(float),
        readout_norm=rows["readout_norm"][done].astype(float),
        reference_readout_norm=reference.readout_norm.astype(float),
        reference_loss=reference.train_loss.astype(float),
        expansion=rows["expansion"][done].astype(float),
        num_examples=n,
        kind=kind,
        status=status,
        accuracy=accuracy,
        loss_accuracy=loss_accuracy,
    )


def _rounding(model, dataset, reference, step_size, num_steps, loss, dtype) -> tuple[float, float]:
    """What rounding may leave in a distance and in a loss: an error in every slope of every step, at random."""
    last = model.displaced(jax.tree.map(lambda leaf: np.asarray(leaf[-1], float), reference.displacement))
    score = max(score_error(point, dataset) for point in (model, last))
    size = max(gradient_size(point, dataset) for point in (model, last))
    eps, walk = float(np.finfo(dtype).eps), float(np.sqrt(num_steps))
    distance = eps * walk * (float(np.max(reference.distance)) + step_size * loss.smoothness * size * score)
    return distance, loss.lipschitz * (eps * score + size * distance)


def choose_examples(n: int, count: int | None, indices, key) -> np.ndarray:
    """Which examples to leave out: all, these, or `count` drawn without replacement, in increasing order."""
    if indices is not None:
        chosen = np.unique(np.asarray(indices, dtype=np.int64))
        if len(chosen) == 0 or chosen[0] < 0 or chosen[-1] >= n:
            raise ValueError(f"indices must lie between 0 and {n - 1} and not be empty; got {list(indices)[:5]}.")
        return chosen
    if count is None or count == n:
        return np.arange(n)
    if not 1 <= count < n:
        raise ValueError(f"num_left_out={count} must be between 1 and the {n} examples there are.")
    if key is None:
        raise ValueError(
            f"num_left_out={count} of {n} examples are drawn at random: pass key=jax.random.key(0), or indices=."
        )
    return np.sort(np.asarray(jax.random.choice(key, n, (count,), replace=False))).astype(np.int64)


def _all_runs(setup, reference, chosen, size, loss, expansion, progress, checkpoint, kind):
    """Every run, in blocks of `size`; what a checkpoint already has is not run again."""
    shape = (len(chosen), len(setup.steps))
    rows: dict[str, np.ndarray] = {
        name: np.full(shape, np.nan) for name in ("distance", "loss", "readout_norm", "expansion")
    }
    rows["done"] = np.zeros(len(chosen), bool)
    mark = _fingerprint(setup, chosen, loss, expansion, kind) if checkpoint is not None else ""
    if checkpoint is not None:
        _restore(rows, checkpoint, mark)
    run = partial(twin_runs, setup, reference, loss=loss, expansion=expansion)
    status, saved = "finished", time.monotonic()
    with Bar(len(chosen), int(rows["done"].sum()), progress, kind) as bar:
        try:
            while not rows["done"].all():
                todo = np.flatnonzero(~rows["done"])[:size]
                padded = np.resize(todo, size)  # the last block repeats, so that one program does all
                result = jax.block_until_ready(run(jnp.asarray(chosen[padded], jnp.int32)))
                for name, values in result._asdict().items():
                    rows[name][todo] = np.asarray(values)[: len(todo)]
                rows["done"][todo] = True
                bar.show(int(rows["done"].sum()), unit="runs")
                if checkpoint is not None and time.monotonic() - saved > SAVE_SECONDS:
                    _save(rows, checkpoint, mark)
                    saved = time.monotonic()
        except KeyboardInterrupt:
            status = "interrupted"
    if checkpoint is not None:
        _save(rows, checkpoint, mark)
    return rows, status


def _fingerprint(setup, chosen, loss, expansion, kind) -> str:
    """Whether two calls would do the same runs."""
    digest = hashlib.sha256(f"{kind} {loss.name} {expansion}".encode())
    for leaf in [*jax.tree.leaves(setup), chosen]:
        array = np.ascontiguousarray(leaf)
        digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


def _save(rows, checkpoint, mark) -> None:
    write_npz(checkpoint, rows, {"format_version": FORMAT_VERSION, "kind": "stability", "fingerprint": mark})


def _restore(rows, checkpoint, mark) -> None:
    path = Path(checkpoint)
    if not path.resolve().parent.is_dir():
        raise ValueError(f"checkpoint={checkpoint}: the folder does not exist; make it first.")
    if not path.exists():
        return
    arrays, meta = read_npz(path)
    if meta.get("kind") != "stability" or meta.get("format_version", 0) > FORMAT_VERSION:
        raise ValueError(f"checkpoint={checkpoint} is not a file of this measure and version; pass another path.")
    if meta["fingerprint"] != mark:
        raise ValueError(
            f"checkpoint={checkpoint} belongs to other data, another start or other settings; pass another path, "
            "or make the same call again."
        )
    for name in rows:
        rows[name][...] = arrays[name]
