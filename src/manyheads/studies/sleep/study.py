"""When does attention wake?"""

from __future__ import annotations

import re

import numpy as np
import xarray

from manyheads.studies.kit import tasks
from manyheads.studies.kit.estimate import NONE, Estimate, mean, power, ratio, rows
from manyheads.studies.kit.figure import HEADS, Axis, Figure, Panel, line, over_seeds
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
from manyheads.studies.kit.tasks import STARTS
from manyheads.studies.kit.words import choose, heads_text, listed
from manyheads.sweeps.spec import Sweep

CELL = "manyheads.studies.sleep.cells:wake"
DATA = {**tasks.MIXTURE, "num_examples": 40, "num_test": 0}
HARD = {**tasks.HARD_MIXTURE, "num_examples": 40, "num_test": 0}
STEP_SIZE, LENGTH, SHARE = (
    0.3,
    0.1,
    0.05,
)  # of plain descent, of a normalized step, of the attention
SHARES = Scaled([0.02, SHARE], [0.01, 0.02, SHARE, 0.1])
STEPS, SOONER = (
    Scaled(4000, 400_000),
    Scaled(800, 20_000),
)  # from the zero start on the easy mixture; elsewhere
PLAIN_HEADS = Scaled([4, 8, 16, 32, 64], [4, 8, 16, 32, 64, 128])
SPARSITIES = Scaled([0.25], [0.125, 0.25, 0.5])
SEEDS = Scaled(3, 10)
LEVELS = Scaled([0.5], [0.5, 0.3, 0.2, 0.1])


def sweeps(scale: str) -> dict[str, Sweep]:
    zero = {
        "data": DATA,
        "start": {"kind": "zero"},
        "train": {"step_size": STEP_SIZE, "num_steps": STEPS},
        "axes": {"data.sparsity": SPARSITIES, "model.num_heads": PLAIN_HEADS},
        "seeds": SEEDS,
        "cell": CELL,
        "parameters": {"shares": SHARES},
    }
    sooner = {"train": {"step_size": STEP_SIZE, "num_steps": SOONER}}
    first = {**zero, **sooner, "start": {"kind": "first_phase"}}
    hard = {**zero, **sooner, "data": HARD, "axes": {"model.num_heads": PLAIN_HEADS}}
    normalized = {
        **zero,
        "train": {"optimizer": "normalized", "step_size": LENGTH, "num_steps": Scaled(400, 4000)},
        "axes": {"model.num_heads": Scaled([16, 64, 256, 1024], [16, 64, 256, 1024, 4096, 16384])},
    }
    speaks = {
        "data": DATA,
        "start": {"kind": "zero"},
        "seeds": Scaled(2, 10),
        "cell": "manyheads.studies.sleep.cells:where_theorem_1_speaks",
        "parameters": {"levels": LEVELS},
    }
    return grids(
        "sleep", scale, zero=zero, first=first, hard=hard, normalized=normalized, speaks=speaks
    )


def finding(results: Results) -> Finding:
    numbers, main = Numbers(), _main(results["zero"])
    woke = main["woke"].sel(share=SHARE)
    steps = [
        numbers.add(
            f"woke.{h:g}",
            f"steps until {SHARE:.0%} has moved, H = {heads_text(h)}, zero start",
            _waking(woke.sel(num_heads=h)),
        )
        for h in woke["num_heads"].values
    ]
    better = {}
    for name, values in _series(results).items():
        root, log = (
            _misfit(values.sel(share=SHARE), np.sqrt),
            _misfit(values.sel(share=SHARE), np.log),
        )
        key = re.sub("[^a-z0-9.]+", "_", name.replace("ζ", "zeta"))
        better[name] = numbers.add(
            f"misfit.{key}",
            f"error of log k against √H over error against log H, {name}",
            ratio(root, log),
        )
    slopes = {
        share: numbers.add(
            f"slope.{share:g}",
            f"growth of log k with √H, over √δ, δ = {share:g}, zero start",
            mean(_slopes(main["woke"].sel(share=share)) / np.sqrt(share)),
        )
        for share in main["share"].values
    }
    normalized = results["normalized"]["woke"].sel(share=SHARE)
    exponent = numbers.add(
        "normalized",
        "exponent of H in the steps of normalized descent",
        power("num_heads", normalized),
    )
    promised = main["promised"].sel(share=SHARE)
    share = numbers.add(
        "promised", "steps promised by Theorem W over steps measured", ratio(promised, woke)
    )
    edge = results["speaks"].isel(level=0)
    heads = numbers.add(
        "edge.heads",
        "heads for which Theorem 1′ certifies a mean loss below .5",
        mean(edge["heads"]),
    )
    moved = numbers.add("edge.moved", "share of attention moved in that run", mean(edge["moved"]))
    allowed = numbers.add(
        "edge.allowed", "the share that Theorem W allows there", mean(edge["allowed"])
    )
    few, many = (
        heads_text(h) for h in (woke["num_heads"].values.min(), woke["num_heads"].values.max())
    )
    law = choose(
        better["zero start"],
        at=1.0,
        below="exponentially with the root of the number of heads",
        above="like a power of the number of heads",
        undecided="with the number of heads, by a law that these runs do not decide",
        missing="",
    )
    said = {
        name: choose(
            e,
            at=1.0,
            below="√H",
            above="log H",
            undecided="neither clearly",
            missing="nothing measured",
        )
        for name, e in better.items()
    }
    counts = listed(
        [f"{e} with {heads_text(h)}" for h, e in zip(woke["num_heads"].values, steps, strict=True)]
    )
    sentences = [
        f"On the easy mixture ({tasks.describe(DATA)}), from the zero start with step size {STEP_SIZE:g}, some query "
        f"has moved {SHARE:.0%} of its attention after this many steps: {counts} heads.",
        f"Theorem 1′ applies there from {heads} heads on, and there attention sleeps: in the run that it certifies "
        f"{moved} of the attention moves, and Theorem W proves that it is at most {allowed}.",
        "Which line the logarithm of the steps follows: "
        + listed([f"{word} ({name})" for name, word in said.items()])
        + f". Normalized descent needs H^{exponent} steps.",
        f"Over √δ the growth with √H is {listed([f'{e} for δ = {d:g}' for d, e in slopes.items()])}.",
        f"Theorem W promises {share} of the steps measured, at {few} to {many} heads.",
    ]
    answer = (
        f"On the easy mixture the steps until it wakes grow {law} (H = {few} to {many})"
        if law
        else "Not measured"
    )
    conclusion = ""
    if law:
        conclusion = (
            f"On the easy mixture the steps until attention wakes grow {law} (H = {few} to {many}); where Theorem 1′ "
            "applies, it has not woken."
        )
    cells = [
        results[name]["woke"].isel(share=0) for name in ("zero", "first", "hard", "normalized")
    ]
    return conclude(answer, sentences, numbers, [*cells, edge["heads"]], conclusion=conclusion)


def _main(data: xarray.Dataset) -> xarray.Dataset:
    return data.sel(sparsity=DATA["sparsity"])


def _series(results: Results) -> dict[str, xarray.DataArray]:
    """Steps to wake of plain descent, by name."""
    found = {}
    for name, start in (("zero", "zero start"), ("first", "first-phase start")):
        woke = results[name]["woke"]
        for sparsity in woke["sparsity"].values:
            at = "" if sparsity == DATA["sparsity"] else f", ζ = {sparsity:g}"
            found[f"{start}{at}"] = woke.sel(sparsity=sparsity)
    return found | {"hard mixture": results["hard"]["woke"]}


def _waking(values: xarray.DataArray) -> Estimate:
    """The mean over the seeds, infinite where one has not woken."""
    v = np.asarray(values, float)
    if np.isinf(v).any():
        return Estimate(np.inf, np.inf, np.inf, int(np.sum(~np.isnan(v))))
    return mean(v)


def _fits(values: xarray.DataArray, of) -> list[tuple[float, float]]:
    """Slope and root mean square error of log k against `of(H)`, per seed, over the heads that woke at all."""
    x, table = rows("num_heads", values)
    found = []
    for column in table.T:
        known = np.isfinite(column) & (column > 0)
        if known.sum() < 3:
            found.append((np.nan, np.nan))
            continue
        at, y = of(x[known].astype(float)), np.log(column[known])
        slope, base = np.polyfit(at, y, 1)
        found.append((slope, float(np.sqrt(np.mean((y - base - slope * at) ** 2)))))
    return found


def _misfit(values: xarray.DataArray, of) -> np.ndarray:
    return np.array([error for _, error in _fits(values, of)])


def _slopes(values: xarray.DataArray) -> np.ndarray:
    return np.array([slope for slope, _ in _fits(values, np.sqrt)])


def figures(results: Results) -> list[Figure]:
    wake = Axis("steps until it moves", "steps", log=True)
    zero, first = (_main(results[name]).sel(share=SHARE) for name in ("zero", "first"))
    marks = [
        _over_root(*STARTS["zero"], zero["woke"]),
        _over_root(*STARTS["first_phase"], first["woke"]),
        _over_root(
            "gaussian", "zero start, hard mixture", results["hard"]["woke"].sel(share=SHARE)
        ),
        _over_root("ours", "Theorem W promises, zero start", zero["promised"]),
    ]
    normalized = results["normalized"].sel(share=SHARE)
    unit = [
        over_seeds("normalized", "measured", "num_heads", _finite(normalized["woke"]), log=True),
        over_seeds(
            "ours", "Theorem W promises", "num_heads", _finite(normalized["promised"]), log=True
        ),
    ]
    panels = [
        Panel("Plain descent", Axis("√heads", "root of a count"), wake, marks),
        Panel("Normalized descent", HEADS, wake, unit),
    ]
    caption = (
        f"@1: steps of plain descent until a query has moved {SHARE:.0%} of its attention, against the root of the "
        "number of heads: a straight line is exponential growth. @2: steps of normalized descent. "
    )
    speaks = results["speaks"]
    if len(speaks["level"]) > 1:
        caption += (
            "@3: attention moved at the smallest number of heads for which Theorem 1′ applies. "
        )
        edge = [
            over_seeds("measured", "measured", "level", _finite(speaks["moved"]), log=True),
            over_seeds("ours", "Theorem W allows", "level", _finite(speaks["allowed"]), log=True),
        ]
        level = Axis("mean loss that Theorem 1′ certifies", "nats", log=True)
        panels.append(
            Panel(
                "Where Theorem 1′ applies", level, Axis("attention moved", "share", log=True), edge
            )
        )
    return [
        Figure(
            "sleep", "When attention wakes", caption + "Means and 95% intervals over seeds.", panels
        )
    ]


def _finite(values: xarray.DataArray) -> xarray.DataArray:
    return values.where(np.isfinite(values) & (values > 0))


def _over_root(role: str, label: str, values: xarray.DataArray):
    heads, table = rows("num_heads", _finite(values))
    estimates = [ratio(row) if np.isfinite(row).all() else NONE for row in table]
    y, low, high = ([getattr(e, side) for e in estimates] for side in ("value", "low", "high"))
    return line(role, label, np.sqrt(heads.astype(float)), y, low, high)


STUDY = Study(
    name="sleep",
    title="Sleep",
    question="When does attention wake?",
    claim="The paper requires many heads and does not say when attention itself begins to move. Ours: if the data are "
    "separable without it, not before exp(c √H) steps.",
    settings=[
        stated("descent", tasks.DESCENT),
        chosen("data", tasks.describe(DATA)),
        chosen("hard mixture", tasks.describe(HARD)),
        chosen("heads", PLAIN_HEADS),
        chosen("step size", f"{STEP_SIZE:g}; normalized descent: steps of length {LENGTH:g}"),
        chosen("steps", f"{STEPS}; first phase and hard mixture {SOONER}"),
        chosen(
            "woken",
            f"some query of some head has moved {SHARE:.0%} of its attention (total variation)",
        ),
    ],
    sweeps=sweeps,
    finding=finding,
    figures=figures,
    part="attention",
    order=2,
    in_story=True,
)
