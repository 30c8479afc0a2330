"""What do the published experiments show, as far as their settings are known?"""

from __future__ import annotations

import xarray

from manyheads.studies import palette, tasks
from manyheads.studies.estimate import Estimate, heads_text, lacking, mean, number, ratio
from manyheads.studies.figure import Axis, Figure, Mark, Panel, over_seeds
from manyheads.studies.study import Finding, Results, Study, chosen, grid, stated
from manyheads.sweeps.spec import Sweep

TRIALS = 5
STARTS = {"zero": "zero", "first_phase": "first-phase", "gaussian": "Gaussian"}
ROLES = {"zero": "zero", "first_phase": "first phase", "gaussian": "gaussian"}
NAMES = {"mixture": "the mixture", "planted": "planted data"}
PLANTED = {"kind": "planted", "num_tokens": 4, "dim": 5, "teacher_heads": 4, "teacher_scale": 2.0}


def sweeps(scale: str) -> dict[str, Sweep]:
    quick = scale == "quick"
    mixture = grid(
        name="paper-mixture",
        data={**tasks.MIXTURE, "num_examples": 100, "num_test": 300},
        train={"step_size": 1.0, "num_steps": 200 if quick else 2000},
        axes={
            "start.kind": ["zero", "first_phase"],
            "model.num_heads": [1, 8, 64, 1024] if quick else [1, 2, 4, 8, 16, 32, 64, 256, 1024],
        },
        measures=["risk", "attention"],
        seeds=TRIALS,
    )
    planted = grid(
        name="paper-planted",
        data={**PLANTED, "num_examples": 1000, "num_test": 3000},
        train={"step_size": 1.0, "num_steps": 100 if quick else 1000},
        axes={"start.kind": ["zero", "gaussian"], "model.num_heads": [1, 4, 12] if quick else [1, 2, 4, 8, 16]},
        measures=["risk"],
        seeds=TRIALS,
    )
    return {"mixture": mixture, "planted": planted}


def finding(results: Results) -> Finding:
    numbers: dict[str, Estimate] = {}
    words = {}
    for name, data in results.items():
        few, many = (float(f(data["num_heads"])) for f in (min, max))
        for start in data["start"].values.tolist():
            for what in ("train", "test"):
                loss = data[f"final_{what}_loss"].sel(start=start)
                factor = ratio(loss.sel(num_heads=many), loss.sel(num_heads=few))
                numbers[_key(name, start, what, few, many)] = factor
            words[name, start] = (_better(factor), factor, few, many)
        numbers |= {
            f"test error, {name}, {STARTS[start]} start, H = {heads_text(h)}": mean(
                data["final_test_error"].sel(start=start, num_heads=h)
            )
            for start in data["start"].values.tolist()
            for h in (few, many)
        }
    answer = "; ".join(
        _answer(name, {start: words[name, start][0] for start in data["start"].values.tolist()})
        for name, data in results.items()
    )
    parts = [
        f"On {NAMES[name]} with {heads_text(many)} heads instead of {heads_text(few)} and a {STARTS[start]} start the "
        f"test loss is {factor} times as large."
        for (name, start), (_, factor, few, many) in words.items()
    ]
    distinct = distinct_heads(results["mixture"].sel(start="zero"))
    if distinct == 1:
        parts.append("From zero there is 1 distinct head at every H.")
    elif distinct:
        parts.append(f"From zero there are up to {number(distinct)} distinct heads.")
    if gone := lacking(*(data["final_test_loss"] for data in results.values())):
        parts.append(gone)
    notes = (
        "Heads that start equal get equal gradients and stay equal: that there is one head from zero is so by "
        "construction, whatever the data.",
        "What the published figures show is not known to us; only the settings marked as stated are theirs.",
    )
    if all(factor.count == 0 for _, factor, *_ in words.values()):
        answer = "Not measured"
    return Finding(answer[0].upper() + answer[1:], " ".join(parts), numbers, notes)


def _answer(name: str, words: dict[str, str]) -> str:
    """What more heads do on one kind of data, once if it is the same from every start."""
    if len(set(words.values())) == 1:
        return f"on {NAMES[name]} more heads {next(iter(words.values()))}"
    return (
        f"on {NAMES[name]} more heads {' and '.join(f'{word} from a {STARTS[s]} start' for s, word in words.items())}"
    )


def _key(name: str, start: str, what: str, few: float, many: float) -> str:
    return f"{what} loss, H = {heads_text(many)} / H = {heads_text(few)}, {name}, {STARTS[start]} start"


def _better(factor: Estimate) -> str:
    if factor.count == 0:
        return "were not measured"
    return "are worse" if factor.above(1) else "are better" if factor.below(1) else "make no clear difference"


def distinct_heads(data: xarray.Dataset) -> int:
    """The largest number of head classes of a run: how many different heads it really has."""
    return int(data["attention_mass"].notnull().any("record").sum("head_class").max())


def _against_heads(data: xarray.Dataset, variable: str) -> list[Mark]:
    return [
        over_seeds(
            ROLES[start],
            f"{STARTS[start]} start",
            data["num_heads"].values,
            data[variable].sel(start=start).transpose("num_heads", "seed").values,
        )
        for start in data["start"].values.tolist()
    ]


def figures(results: Results) -> list[Figure]:
    mixture, planted = results["mixture"], results["planted"]
    heads, step = Axis("heads", "count", log=True), Axis("step", "steps", log=True)
    loss, error = Axis("test loss", "nats", log=True), Axis("test error", "share")
    curves = [
        over_seeds(
            palette.heads(h),
            f"{heads_text(h)} {'head' if h == 1 else 'heads'}",
            mixture["step"].values[1:],
            mixture["test_loss"].sel(start="zero", num_heads=h).transpose("record", "seed").values[1:],
        )
        for h in mixture["num_heads"].values
    ]
    final_focus = mixture.assign(focus=mixture["attention_of_heads"].isel(record=-1))
    share = Axis("attention on relevant tokens", "share")
    return [
        Figure(
            "paper-mixture",
            "The mixture experiment",
            "100 training and 300 test sequences, step size 1, five trials. Top: from zero. Below: last step, from "
            "zero and from the first phase. Means and 95% intervals.",
            [
                Panel("Over time, zero start", step, loss, curves),
                Panel("Test loss", heads, loss, _against_heads(mixture, "final_test_loss")),
                Panel("Focus", heads, share, _against_heads(final_focus, "focus")),
            ],
        ),
        Figure(
            "paper-planted",
            "The planted experiment",
            "1,000 training and 3,000 test sequences labeled by a planted model of 4 heads, five trials, last step. "
            "From zero all heads stay equal; Gaussian heads all differ. Means and 95% intervals.",
            [
                Panel("Train loss", heads, Axis("train loss", "nats"), _against_heads(planted, "final_train_loss")),
                Panel("Test loss", heads, Axis("test loss", "nats"), _against_heads(planted, "final_test_loss")),
                Panel("Test error", heads, error, _against_heads(planted, "final_test_error")),
            ],
        ),
    ]


STUDY = Study(
    name="paper",
    title="The published experiments",
    question="What do the published experiments show, as far as their settings are known?",
    claim="The published version reports experiments with the number of heads on the mixture and on planted data; "
    "neither code nor all settings are public.",
    settings=[
        stated("mixture", "100 training and 300 test sequences, 5 trials, start at zero, step size 1"),
        stated("planted data", "1,000 training and 3,000 test sequences, 5 trials"),
        chosen("mixture's parameters", tasks.MIXTURE_TEXT),
        chosen(
            "planted model", "Gaussian tokens, T=4, d=5; 4 heads with N(0, 4/d) weights; label = sign of their score"
        ),
        chosen("heads", "the values of H in the figures"),
        chosen("steps", "mixture 200 (quick) or 2,000 (full); planted 100 or 1,000"),
        chosen("planted: start and step size", "zero, and Gaussian with heads of norm about 1; step size 1"),
        chosen("mixture: second start", "first phase with balanced signs, in case the random first step was used"),
    ],
    sweeps=sweeps,
    finding=finding,
    figures=figures,
)
