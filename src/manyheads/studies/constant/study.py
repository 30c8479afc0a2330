"""What is the constant of the 1/n law of the gap, and does it depend on the number of heads?"""

from __future__ import annotations

import numpy as np
import xarray

from manyheads.studies.kit import tasks
from manyheads.studies.kit.estimate import Estimate, at_level, mean, quotient
from manyheads.studies.kit.figure import Axis, Figure, Panel, by_heads, over_seeds
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
from manyheads.studies.kit.words import choose, choose_all, heads_text, listed
from manyheads.sweeps.spec import Sweep

CELLS = "manyheads.studies.constant.cells"
DATA = {"easy": tasks.MIXTURE, "hard": tasks.HARD_MIXTURE}
STEP_SIZE, STEPS, FRESH = 0.2, 100, 100
RECORDS = [10, 20, 30, 45, 60, 80]  # and the last step; here runs are compared at equal train loss
SIZES, TOTAL = (
    Scaled([40], [40, 80, 160, 320]),
    Scaled(320, 1920),
)  # sequences in all samples of a seed together
PROBES, LEFT_OUT = (
    Scaled(8, 12),
    Scaled(40, 80),
)  # derivatives of the trace; largest n with leave-one-out
CLOSE = (0.85, 1.15)  # a ratio whose interval lies in between counts as 1
ALIKE = (1 / 1.05, 1.05)  # ratios of two numbers of heads that lie in between count as equal


def sweeps(scale: str) -> dict[str, Sweep]:
    common = {
        "start": {"kind": "first_phase", "num_examples": FRESH},
        "train": {"step_size": STEP_SIZE, "num_steps": STEPS},
        "axes": {"model.num_heads": Scaled([2, 1e6], [2, 16, 1e6]), "data.num_examples": SIZES},
        "seeds": Scaled(4, 8),
        "cell": f"{CELLS}:constant",
        "parameters": {
            "total": TOTAL,
            "records": RECORDS,
            "probes": PROBES,
            "most_left_out": LEFT_OUT,
        },
    }
    return grids(
        "constant",
        scale,
        **{name: {**common, "data": {**data, "num_test": 0}} for name, data in DATA.items()},
    )


def finding(results: Results) -> Finding:
    numbers, laws, shares, sentences, cells = Numbers(), {}, {}, [], []
    for name in DATA:
        data = _ordered(results[name])
        laws[name], sentence = _constant(name, data, numbers)
        shares[name], about = _heads(name, data, numbers)
        sentences += [sentence, about]
        cells.append(data["gap"].isel(record=-1))
    sentences = [*sentences[::2], *sentences[1::2]]
    if not any(e.count for e in laws.values()):
        return conclude("Not measured", sentences, numbers, cells)
    n, where = int(data["num_examples"][-1]), f"first phase, {STEPS} steps of {STEP_SIZE:g}"
    far = [e for e in laws.values() if e.count and not (e.above(CLOSE[0]) and e.below(CLOSE[1]))]
    if not far:
        verb = f"equals the trace along the run, within {100 * (CLOSE[1] - 1):.0f}%"
    elif any(e.above(1) or e.below(1) for e in far):
        verb = "still differs from the trace along the run, its limit"
    else:
        verb = "is consistent with the trace along the run, its limit"
    values = " and ".join(f"{e} on the {name} mixture" for name, e in laws.items())
    alike = choose_all(
        shares.values(),
        at=1,
        above="at equal train loss gap / test loss grows with the number of heads",
        below="at equal train loss gap / test loss falls with the number of heads",
        undecided="at equal train loss gap / test loss does not clearly depend on the number of heads",
    )
    notes = (
        "The trace and leave-one-out use one sample and no test set; the trace is exact except for its random probes.",
        "Leave-one-out runs have weights 1/(n-1); with the paper's 1/n they train less, which adds an O(1/n) term.",
        "The gap is measured by testing each run on the samples of the others.",
    )
    answer = f"The gap times n {verb}: n × gap / trace = {values} (n = {n}, {where}); {alike}"
    return conclude(answer, sentences, numbers, cells, notes)


def _ordered(data: xarray.Dataset) -> xarray.Dataset:
    return data.transpose("num_heads", "num_examples", "seed", "record", ...)


def _constant(name: str, data: xarray.Dataset, numbers: Numbers) -> tuple[Estimate, str]:
    """n times the gap over the trace and over leave-one-out, at the end of the run, at every n and H together."""
    last = data.isel(record=-1)
    for h in last["num_heads"].values:
        for n in last["num_examples"].values:
            here, at = (
                last.sel(num_heads=h, num_examples=n),
                f"{name} mixture, H = {heads_text(h)}, n = {n}",
            )
            key = f"{name}.{h:g}.{n}".replace("+", "")
            numbers.add(f"gap.{key}", f"n × gap, {at}", mean(here["gap"]))
            numbers.add(f"trace.{key}", f"trace, {at}", mean(here["trace"]))
            numbers.add(
                f"over_trace.{key}", f"n × gap / trace, {at}", quotient(here["gap"], here["trace"])
            )
            if bool(here["left_out"].notnull().any()):
                over = quotient(here["gap"], here["left_out"])
                numbers.add(f"over_left_out.{key}", f"n × gap / leave-one-out, {at}", over)
    sizes = last["num_examples"].values
    overall = [_overall(last.sel(num_examples=n), "trace") for n in sizes]
    for n, estimate in zip(sizes, overall, strict=True):
        numbers.add(
            f"over_trace.{name}.{n}", f"n × gap / trace, {name} mixture, all H, n = {n}", estimate
        )
    known = [n for n in sizes if bool(last["left_out"].sel(num_examples=n).notnull().any())]
    left = [_overall(last.sel(num_examples=n), "left_out") for n in known]
    for n, estimate in zip(known, left, strict=True):
        numbers.add(
            f"over_left_out.{name}.{n}",
            f"n × gap / leave-one-out, {name} mixture, all H, n = {n}",
            estimate,
        )
    text = f"On the {name} mixture n × gap is {listed([str(e) for e in overall])} times the trace at n = "
    text += listed([str(n) for n in sizes])
    if left:
        text += f", and {listed([str(e) for e in left])} times leave-one-out at n = {listed([str(n) for n in known])}"
    return overall[-1], f"{text}."


def _overall(here: xarray.Dataset, below: str) -> Estimate:
    """The quotient for all H together: runs of one seed share data and start, so each seed counts once."""
    sums = [here[variable].sum("num_heads", skipna=False) for variable in ("gap", below)]
    return quotient(*(values.values for values in sums))


def _heads(name: str, data: xarray.Dataset, numbers: Numbers) -> tuple[Estimate, str]:
    """The most heads over the fewest at the largest n: gap, trace and gap / test loss, at equal train loss."""
    last = data.isel(num_examples=-1)
    ends = [last.isel(num_heads=k) for k in (0, -1)]
    few, many = (heads_text(float(end["num_heads"])) for end in ends)
    levels = np.maximum(*(end["train_loss"].isel(record=-1).values for end in ends))
    at = f"H = {many} / H = {few}, {name} mixture, n = {int(last['num_examples'])}"

    def compared(variable: str) -> tuple[np.ndarray, np.ndarray]:
        low, high = (
            at_level(end["train_loss"].values, end[variable].values, levels) for end in ends
        )
        return high, low

    gap, trace, test = (compared(variable) for variable in ("gap", "trace", "test_loss"))
    found = {
        "gap_matched": ("gap, at equal train loss", quotient(*gap)),
        "trace_matched": ("trace, at equal train loss", quotient(*trace)),
        "share_matched": ("gap / test loss, at equal train loss", _shares(gap, test)),
    }
    steps = [
        [end[v].isel(record=-1).values for end in reversed(ends)] for v in ("gap", "test_loss")
    ]
    found["share"] = ("gap / test loss, after equal steps", _shares(*steps))
    for key, (caption, estimate) in found.items():
        numbers.add(f"{key}.{name}", f"{caption}, {at}", estimate)
    share, equal = found["share_matched"][1], found["share"][1]
    word = choose(
        share,
        at=1,
        within=ALIKE,
        inside=f"hardly depends on H, {share} times",
        above=f"is larger, {share} times",
        below=f"is smaller, {share} times",
        undecided=f"is not clearly different, {share} times",
    )
    return share, (
        f"With {many} heads instead of {few} ({name} mixture, n = {int(last['num_examples'])}) gap / test loss {word}, "
        f"at equal train loss ({mean(levels)} nats), and {equal} times after equal steps; the trace predicts "
        f"{found['trace_matched'][1]} times the gap at equal train loss, and {found['gap_matched'][1]} is measured."
    )


def _shares(gaps, tests) -> Estimate:
    """The quotient of two shares gap / test loss; the test loss hardly varies, so its mean is used."""
    return quotient(
        *(np.asarray(gap) / mean(test).value for gap, test in zip(gaps, tests, strict=True))
    )


def figures(results: Results) -> list[Figure]:
    size, both = (
        Axis("sequences n", "count", log=True),
        {name: _ordered(results[name]) for name in DATA},
    )
    series = (
        ("measured", "n × gap", "gap"),
        ("ours", "trace", "trace"),
        ("reference", "leave-one-out", "left_out"),
    )
    panels = []
    for name, data in both.items():
        many = data.isel(num_heads=-1, record=-1)
        marks = [over_seeds(role, label, "num_examples", many[v]) for role, label, v in series]
        panels.append(Panel(f"{name.capitalize()} mixture", size, Axis("n × gap", "nats"), marks))
    shares = []
    for name, data in both.items():
        last = data.isel(num_examples=-1)
        share = last["gap"] / last["test_loss"]
        axes = Axis("step", "steps"), Axis("n × gap / test loss", "1")
        shares.append(Panel(f"{name.capitalize()} mixture", *axes, by_heads("step", share)))
    most = heads_text(float(both["easy"]["num_heads"][-1]))
    return [
        Figure(
            "constant-trace",
            "The constant of the 1/n law",
            f"n times the gap, the trace along the run and leave-one-out, {most} heads, after {STEPS} steps of "
            f"{STEP_SIZE:g}. Means and 95% intervals.",
            panels,
        ),
        Figure(
            "constant-share",
            "The gap as a share of the test loss",
            f"n × gap / test loss along the run, n = {int(both['easy']['num_examples'][-1])}. Means and 95% intervals.",
            shares,
        ),
    ]


STUDY = Study(
    name="constant",
    title="Constant of the 1/n law",
    question="What is the constant of the 1/n law of the gap, and does it depend on the number of heads?",
    claim="Theorem 2: the gap is at most (4/n)(2K·loss(θ) + 9‖θ-θ_0‖²/(4η)). The paper has no asymptotics.",
    settings=[
        stated("descent", tasks.DESCENT),
        stated("start", tasks.FIRST_PHASE),
        chosen("easy mixture", tasks.describe(tasks.MIXTURE)),
        chosen("hard mixture", tasks.describe(tasks.HARD_MIXTURE)),
        chosen(
            "descent",
            f"step size {STEP_SIZE:g}, {STEPS} steps, {FRESH} sequences of the first phase",
        ),
        chosen("samples", f"{TOTAL} sequences for each seed, cut into samples of n"),
        chosen("trace", f"all derivatives, or {PROBES} random directions where n is larger"),
        chosen("leave-one-out", f"exact, up to n = {LEFT_OUT}"),
    ],
    sweeps=sweeps,
    finding=finding,
    figures=figures,
    part="generalization",
    order=2,
    seconds=2,
)
