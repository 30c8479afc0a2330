"""Do heads help on real text?"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray

from manyheads.data.text.movies import why_not
from manyheads.studies.kit import tasks
from manyheads.studies.kit.estimate import Estimate, crossed, mean, number
from manyheads.studies.kit.figure import (
    HEADS,
    Axis,
    Figure,
    MapPanel,
    Mark,
    Panel,
    by_heads,
    line,
    rule,
)
from manyheads.studies.kit.selection import at_end
from manyheads.studies.kit.study import (
    Finding,
    Numbers,
    Results,
    Scaled,
    Study,
    chosen,
    conclude,
    grids,
    stated,
)
from manyheads.studies.kit.words import MISSING, choose, heads_text, listed, once, setting
from manyheads.studies.text import conditions
from manyheads.sweeps.spec import Sweep

CELLS = "manyheads.studies.text.cells"
LAYERS = Scaled([0, 6], [0, 3, 6])
SENTENCES = Scaled(2000, 0)  # 0: all
STARTS = Scaled(["first_phase", "gaussian"], ["zero", "first_phase", "gaussian"])
NUM_HEADS = Scaled([1, 8], [1, 2, 4, 8, 16])
STEP_SIZES = Scaled([8.0, 32.0, 128.0], [8.0, 32.0, 128.0, 512.0])
ADAM_STEP_SIZES = Scaled([0.01, 0.04], [0.0025, 0.01, 0.04, 0.16])
STEPS = Scaled(100, 400)
SEEDS = Scaled(3, 5)
SHOWN_LAYER, SHOWN_HEADS = 6, 4
POINT = 0.01  # a difference of errors that counts
LINEAR = {
    "logistic": "logistic regression",
    "svm": "linear SVM",
    "logistic_full": "logistic regression at full width",
    "svm_full": "linear SVM at full width",
}


def sweeps(scale: str) -> dict[str, Sweep]:
    layers, starts = getattr(LAYERS, scale), getattr(STARTS, scale)
    corpus = {"layers": LAYERS, "num_examples": SENTENCES}
    heads = {"model.num_heads": NUM_HEADS}
    descent = {"seeds": SEEDS, "train": {"num_steps": STEPS}}
    made = {
        f"{kind}_{layer}": {
            **descent,
            "start": {"kind": kind},
            "axes": heads,
            "cell": f"{CELLS}:attend",
            "parameters": {**corpus, "layer": layer, "step_sizes": STEP_SIZES},
        }
        for kind in starts
        for layer in layers
    }
    for layer in layers:
        made[f"adam_{layer}"] = {
            "seeds": SEEDS,
            "start": {"kind": "gaussian"},
            "train": {"num_steps": STEPS, "optimizer": "adam"},
            "axes": heads,
            "cell": f"{CELLS}:adam",
            "parameters": {
                **corpus,
                "layer": layer,
                "step_sizes": ADAM_STEP_SIZES,
                "epochs": Scaled(4, 12),
            },
        }
    linear = {
        "axes": {"parameters.layer": LAYERS},
        "seeds": SEEDS,
        "cell": f"{CELLS}:linear",
        "parameters": corpus,
    }
    looks = {
        **descent,
        "seeds": 1,
        "start": {"kind": "gaussian"},
        "model": {"num_heads": SHOWN_HEADS},
        "cell": f"{CELLS}:look",
        "parameters": {**corpus, "layer": SHOWN_LAYER, "step_sizes": STEP_SIZES},
    }
    small = conditions.sweep(CELLS, corpus, LAYERS)
    return grids("text", scale, **made, linear=linear, looks=looks, conditions=small)


def _runs(results: Results, method: str) -> dict[int, xarray.Dataset]:
    """The sweeps of a start, or of Adam, by layer."""
    parts = {
        name.rpartition("_")[2]: data
        for name, data in results.items()
        if name.rpartition("_")[0] == method
    }
    return {int(layer): data for layer, data in parts.items() if layer.isdigit()}


def _starts(results: Results) -> list[str]:
    return [kind for kind in tasks.STARTS if _runs(results, kind)]


def _table(data: xarray.Dataset, variable: str = "wrong", **where) -> np.ndarray:
    """Errors with a row per seed and a column per test sentence."""
    return data[variable].sel(**where).transpose("seed", "sentence").values.astype(float)


def _chosen(by_start: Mapping[str, xarray.Dataset]) -> np.ndarray:
    """Errors of attention at the start and number of heads of least validation loss, for each seed by itself."""
    runs = xarray.concat(list(by_start.values()), "start", join="override")
    loss = (
        runs["validation_loss"]
        .min("rung")
        .stack(choice=("start", "num_heads"))
        .transpose("seed", "choice")
        .values
    )
    wrong = (
        runs["wrong"]
        .stack(choice=("start", "num_heads"))
        .transpose("seed", "choice", "sentence")
        .values
    )
    best = np.argmin(np.where(np.isfinite(loss), loss, np.inf), axis=1)
    return wrong[np.arange(len(best)), best].astype(float)


def finding(results: Results) -> Finding:
    numbers, starts = Numbers(), _starts(results)
    by_start = {kind: _runs(results, kind) for kind in starts}
    layers = list(by_start[starts[0]])
    few, many = (f(by_start[starts[0]][layers[0]]["num_heads"].values) for f in (min, max))
    said, parts = {}, []
    for kind in starts:
        apart = {
            k: _table(d, num_heads=many) - _table(d, num_heads=few)
            for k, d in by_start[kind].items()
        }
        caption = (
            f"test error, {heads_text(many)} heads minus {heads_text(few)}, {tasks.STARTS[kind][1]}"
        )
        together = numbers.add(
            f"heads.{kind}",
            f"{caption}, mean of layers",
            crossed(np.mean([*apart.values()], axis=0)),
        )
        for layer, table in apart.items():
            numbers.add(f"heads.{kind}.{layer}", f"{caption}, layer {layer}", crossed(table))
        said[tasks.STARTS[kind][1]] = choose(
            together,
            within=(-POINT, POINT),
            inside="change the error by less than a point",
            above="make more errors",
            below="make fewer errors",
            undecided="do not clearly change it",
            missing="",
        )
        parts.append(f"{_points(together)} from the {tasks.STARTS[kind][1]}")
        for layer, data in by_start[kind].items():
            for h in data["num_heads"].values.tolist():
                caption = (
                    f"test error, {heads_text(h)} heads, {tasks.STARTS[kind][1]}, layer {layer}"
                )
                numbers.add(
                    f"error.{kind}.{layer}.{h:g}", caption, crossed(_table(data, num_heads=h))
                )
    linear = results["linear"]
    best = {layer: _chosen({kind: by_start[kind][layer] for kind in starts}) for layer in layers}
    sentences = [
        f"{heads_text(many)} heads instead of {heads_text(few)} change the error on new sentences by {listed(parts)}.",
        *(_beside(numbers, layer, best[layer], linear) for layer in reversed(layers)),
        _optimizers(results, numbers, best),
        _moved(numbers, by_start, many),
        _ends(by_start),
        *conditions.sentences(results["conditions"], numbers),
    ]
    count, size = by_start[starts[0]][layers[0]].sizes["sentence"], _size(results)
    lead = _lead(said, few, many)
    where = [
        f"{size} movie reviews",
        f"layers {', '.join(map(str, layers))} of MiniLM",
        "32 components",
    ]
    where += ["step size and step chosen on validation data"]
    notes = [
        f"Errors are those on {count:,} sentences that no choice saw. Intervals count both the seeds (start and "
        "validation data) and the sampling of the test sentences.",
        "Attention of the last token is read out; without attention this is a linear classifier of the mean token.",
    ]
    if size != "all":
        notes.insert(0, "Quick scale: few sentences, layers, heads and seeds.")
    cells = [data["train_error"] for kind in starts for data in by_start[kind].values()]
    return conclude(setting(lead, *where), sentences, numbers, cells, notes, lead)


def _size(results: Results) -> str:
    """How many sentences there are, in words: all at full scale."""
    return f"{SENTENCES.quick:,}" if set(_starts(results)) == set(STARTS.quick) else "all"


def _lead(said: dict[str, str], few: float, many: float) -> str:
    words = set(said.values())
    if words == {""}:
        return MISSING
    answer = {"make fewer errors": "Yes", "make more errors": "No"}
    more = f"{heads_text(many)} heads instead of {heads_text(few)} {once(said, 'from the')}"
    if words & set(answer):
        first = answer[next(iter(words))] if len(words) == 1 else "It depends on the start"
    else:
        first = "No" if words == {"change the error by less than a point"} else "Not seen"
    return f"{first}: {more}"


def _points(estimate: Estimate) -> str:
    """A difference of errors in percentage points, with its sign."""
    return f"{number(100 * estimate.value, 2) if estimate.value <= 0 else '+' + number(100 * estimate.value, 2)} points"


def _percent(estimate: Estimate) -> str:
    return f"{number(100 * estimate.value)}%"


def _beside(numbers: Numbers, layer: int, wrong: np.ndarray, linear: xarray.Dataset) -> str:
    """Attention at its best, chosen on validation data, beside the linear classifiers of a layer."""
    error = numbers.add(
        f"attention.{layer}",
        f"test error, attention chosen on validation data, layer {layer}",
        crossed(wrong),
    )
    words = {}
    for name, label in LINEAR.items():
        other = _table(linear, f"{name}_wrong", layer=layer)
        found = numbers.add(
            f"{name}.{layer}", f"test error, {label}, layer {layer}", crossed(other)
        )
        caption = f"test error, attention minus {label}, layer {layer}"
        apart = numbers.add(f"against.{name}.{layer}", caption, crossed(wrong - other))
        judged = choose(apart, above="better", below="worse", undecided="not clearly different")
        words[name] = f"{_percent(found)}, {judged}"
    return (
        f"Layer {layer}: attention errs on {_percent(error)}, logistic regression on the mean token on "
        f"{words['logistic']}, and at the encoder's full width on {words['logistic_full']}."
    )


def _optimizers(results: Results, numbers: Numbers, best: dict[int, np.ndarray]) -> str:
    """What Adam makes of the same attention, and PyTorch of its own."""
    parts = []
    for layer, data in _runs(results, "adam").items():
        found = {"adam": _chosen({"gaussian": data}), "pytorch": _best_torch(data)}
        for name, label in (
            ("adam", "our attention with Adam"),
            ("pytorch", "PyTorch's attention with Adam"),
        ):
            estimate = numbers.add(
                f"{name}.{layer}", f"test error, {label}, layer {layer}", crossed(found[name])
            )
            caption = f"test error, descent minus {label}, layer {layer}"
            numbers.add(f"against.{name}.{layer}", caption, crossed(best[layer] - found[name]))
            if estimate.count:
                parts.append(f"{label} {_percent(estimate)} at layer {layer}")
    return f"For comparison, {listed(parts)}." if parts else ""


def _best_torch(data: xarray.Dataset) -> np.ndarray:
    """Errors of PyTorch's attention, the mean over numbers of heads: none of them is chosen."""
    return (
        data["torch_wrong"]
        .mean("num_heads", skipna=False)
        .transpose("seed", "sentence")
        .values.astype(float)
    )


def _moved(numbers: Numbers, by_start: dict[str, dict[int, xarray.Dataset]], many: float) -> str:
    """How far the chosen runs move the attention of their heads."""
    moved = []
    for kind, runs in by_start.items():
        for layer, data in runs.items():
            for h in (float(data["num_heads"].values.min()), many):
                caption = f"attention moved from uniform, {heads_text(h)} heads, {tasks.STARTS[kind][1]}, layer {layer}"
                found = numbers.add(
                    f"moved.{kind}.{layer}.{h:g}", caption, mean(data["moved"].sel(num_heads=h))
                )
                moved.append(found.value)
    return (
        f"At the chosen step heads have moved {number(100 * np.nanmin(moved), 2)}% to "
        f"{number(100 * np.nanmax(moved), 2)}% of their attention away from uniform."
    )


def _ends(by_start: dict[str, dict[int, xarray.Dataset]]) -> str:
    """How often the best step size, or the best step, is the last that was tried."""
    ends, late, total = 0, [], 0
    for data in (data for runs in by_start.values() for data in runs.values()):
        for h in data["num_heads"].values.tolist():
            ends += at_end(
                -data["validation_loss"].sel(num_heads=h).transpose("rung", "seed").values
            )
            total += 1
        late.append(data["at_last_step"].mean().item())
    return (
        f"The best step size is an end of its ladder in {ends} of {total} settings (start, layer, heads), and the "
        f"best step the last one in {number(100 * float(np.mean(late)), 2)}% of the runs: there a better choice may "
        "lie beyond."
    )


def figures(results: Results) -> list[Figure]:
    starts = _starts(results)
    layers = list(_runs(results, starts[0]))
    error = Axis("test error", "% of sentences")
    linear, panels = results["linear"], []
    for layer in layers:
        runs = {kind: _runs(results, kind)[layer] for kind in starts}
        marks = [_errors(*tasks.STARTS[kind], data, "wrong") for kind, data in runs.items()]
        adam = _runs(results, "adam")[layer]
        marks.append(_errors("adam", "Adam", adam, "wrong"))
        if bool(adam["torch_wrong"].notnull().any()):
            marks.append(_errors("sharp", "PyTorch", adam, "torch_wrong"))
        for role, name, label in (
            ("linear", "logistic", "logistic, same width"),
            ("reference", "logistic_full", "logistic, full width"),
        ):
            marks.append(
                rule(role, label, 100 * crossed(_table(linear, f"{name}_wrong", layer=layer)).value)
            )
        panels.append(Panel(f"Layer {layer}" if layer else "Word embeddings", HEADS, error, marks))
    last = _runs(results, "gaussian")[layers[-1]]
    steps = Axis("step size", "dimensionless", log=True)
    return [
        Figure(
            "text-heads",
            "Errors on new sentences over the number of heads",
            "Movie reviews as hidden states of MiniLM, 32 principal components. Step size and step are chosen on "
            "validation data. Means with 95% intervals over seeds and test sentences; logistic regression is on the "
            "mean token.",
            panels,
        ),
        Figure(
            "text-step",
            "Validation loss over the step size",
            f"Gaussian start, layer {layers[-1]}, each run at its best step. Means and 95% intervals over seeds.",
            [
                Panel(
                    "",
                    steps,
                    Axis("validation loss", "nats"),
                    by_heads("step_size_tried", last["validation_loss"]),
                )
            ],
        ),
        conditions.figure(results["conditions"]),
        _looks(results["looks"]),
    ]


def _errors(role: str, label: str, data: xarray.Dataset, variable: str) -> Mark:
    heads = data["num_heads"].values
    found = [crossed(_table(data, variable, num_heads=h)) for h in heads]
    value, low, high = (
        [100 * getattr(e, side) for e in found] for side in ("value", "low", "high")
    )
    return line(role, label, heads, value, low, high)


def _looks(data: xarray.Dataset) -> Figure:
    """Where each head looks in five sentences."""
    one = data.isel(seed=0)
    panels = []
    for i in range(one.sizes["shown"]):
        words = [str(word) for word in one["words"].isel(shown=i).values if str(word)]
        seen: dict[str, int] = {}
        for word in words:
            seen[word] = seen.get(word, 0) + 1
        counts: dict[str, int] = {}
        names = []
        for word in words:
            counts[word] = counts.get(word, 0) + 1
            names.append(word if seen[word] == 1 else f"{word} ({counts[word]})")
        weights = one["weights"].isel(shown=i).transpose("head", "place").values[:, : len(words)]
        label, score = str(one["label"].values[i]), float(one["score"].values[i])
        guess = "positive" if score > 0 else "negative"
        panels.append(
            MapPanel(
                f"{label}, predicted {guess}",
                Axis("head", "number"),
                Axis("piece", "word or part of one"),
                Axis("attention", "share"),
                tuple(tuple(row) for row in weights.T.tolist()),
                (0.0, float(np.nanmax(one["weights"].values))),
                tuple(names),
                tuple(str(h + 1) for h in range(len(weights))),
            )
        )
    return Figure(
        "text-looks",
        "What each head looks at in five sentences",
        f"{SHOWN_HEADS} heads from a Gaussian start, layer {SHOWN_LAYER}: the first short test sentences.",
        panels,
    )


def _row(values: list[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def lacks(scale: str) -> str:
    """What is not installed that the sentences need."""
    return why_not(layers=getattr(LAYERS, scale), num_examples=getattr(SENTENCES, scale) or None)


STUDY = Study(
    name="text",
    title="Text",
    question="Do heads help on real text?",
    claim="Multi-head attention as it is used on text is the paper's motivation; its theorems need many heads and do "
    "not say that few are worse.",
    settings=[
        stated("descent", tasks.DESCENT),
        stated("first-phase start", tasks.FIRST_PHASE),
        chosen(
            "data",
            "movie reviews (Rotten Tomatoes), one sentence each, liked or not; no sentence twice",
        ),
        chosen(
            "sentences",
            f"{SENTENCES.quick:,} (quick) or 8,530 (full); a quarter for testing, a fifth of the rest for validation",
        ),
        chosen(
            "tokens",
            "hidden states of all-MiniLM-L6-v2, at most 32 per sentence, 32 principal components of the "
            "sentences that are not for testing",
        ),
        chosen("layers", LAYERS),
        chosen("model", "attention of the last token ([SEP]) is read out"),
        chosen("Gaussian start", tasks.UNIT_GAUSSIAN),
        chosen(
            "step sizes",
            f"{_row(STEP_SIZES.quick)} (quick) or {_row(STEP_SIZES.full)} (full); the best by validation loss",
        ),
        chosen("steps", f"{STEPS}; stopped where the validation loss is least"),
        chosen("linear classifiers", "on the mean token, the penalty by validation error"),
        chosen(
            "P1 to P3",
            f"first phase and Gaussian start, {conditions.NUM_HEADS} heads, on {conditions.COUNT} training sentences, "
            f"{conditions.SEEDS} seeds; heads asked for: every head of the start with its mirror image",
        ),
    ],
    sweeps=sweeps,
    finding=finding,
    figures=figures,
    part="heads",
    order=3,
    in_story=True,
    lacks=lacks,
    seconds=25,
)
