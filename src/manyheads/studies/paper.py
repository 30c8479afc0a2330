"""What do the published experiments show, as far as their settings are known?"""

from __future__ import annotations

import xarray

from manyheads.studies.kit import tasks
from manyheads.studies.kit.estimate import mean, number, ratio
from manyheads.studies.kit.figure import FOCUS, HEADS, STEP, TEST_LOSS, Axis, Figure, Panel, by_heads, by_start
from manyheads.studies.kit.study import Finding, Numbers, Results, Scaled, Study, chosen, conclude, grids, stated
from manyheads.studies.kit.tasks import STARTS
from manyheads.studies.kit.words import choose, heads_text, once
from manyheads.sweeps.spec import Sweep

TRIALS, STEP_SIZE = 5, 1.0
NAMES = {"mixture": "the mixture", "planted": "planted data"}
PLANTED = {"kind": "planted", "num_tokens": 4, "dim": 5, "teacher_heads": 4, "teacher_scale": 2.0}
SIZES = {"mixture": {"num_examples": 100, "num_test": 300}, "planted": {"num_examples": 1000, "num_test": 3000}}
STEPS = {"mixture": Scaled(200, 2000), "planted": Scaled(100, 1000)}


def sweeps(scale: str) -> dict[str, Sweep]:
    def common(name: str) -> dict:
        return {"train": {"step_size": STEP_SIZE, "num_steps": STEPS[name]}, "seeds": TRIALS}

    mixture = {
        "data": {**tasks.MIXTURE, **SIZES["mixture"]},
        "axes": {
            "start.kind": ["zero", "first_phase"],
            "model.num_heads": Scaled([1, 8, 64, 1024], [1, 2, 4, 8, 16, 32, 64, 256, 1024]),
        },
        "measures": ["risk", "attention"],
    }
    planted = {
        "data": {**PLANTED, **SIZES["planted"]},
        "axes": {"start.kind": ["zero", "gaussian"], "model.num_heads": Scaled([1, 4, 12], [1, 2, 4, 8, 16])},
        "measures": ["risk"],
    }
    return grids("paper", scale, mixture=mixture | common("mixture"), planted=planted | common("planted"))


def finding(results: Results) -> Finding:
    numbers, answers, sentences, measured = Numbers(), [], [], False
    for name, data in results.items():
        few, many = (float(f(data["num_heads"])) for f in (min, max))
        words = {}
        for start in data["start"].values.tolist():
            at, label = data.sel(start=start), STARTS[start][1]
            for what in ("train", "test"):
                loss = at[f"final_{what}_loss"]
                caption = f"{what} loss, H = {heads_text(many)} / H = {heads_text(few)}, {name}, {label}"
                factor = ratio(loss.sel(num_heads=many), loss.sel(num_heads=few))
                numbers.add(f"{what}_loss_ratio.{name}.{start}", caption, factor)
            for h in (few, many):
                error = mean(at["final_test_error"].sel(num_heads=h))
                numbers.add(
                    f"test_error.{name}.{start}.{h:g}", f"test error, {name}, {label}, H = {heads_text(h)}", error
                )
            words[label] = choose(
                factor,
                at=1,
                above="are worse",
                below="are better",
                undecided="make no clear difference",
                missing="were not measured",
            )
            measured |= factor.count > 0
            sentences.append(
                f"On {NAMES[name]} with {heads_text(many)} heads instead of {heads_text(few)} and a {label} the test "
                f"loss is {factor} times as large."
            )
        answers.append(f"on {NAMES[name]} more heads {once(words, 'from a')}")
    distinct = distinct_heads(results["mixture"].sel(start="zero"))
    if distinct == 1:
        sentences.append("From zero there is 1 distinct head at every H.")
    elif distinct:
        sentences.append(f"From zero there are up to {number(distinct)} distinct heads.")
    notes = (
        "Heads that start equal get equal gradients and stay equal: that there is one head from zero is so by "
        "construction, whatever the data.",
        "What the published figures show is not known to us; only the settings marked as stated are theirs.",
    )
    cells = [data["final_test_loss"] for data in results.values()]
    return conclude("; ".join(answers) if measured else "Not measured", sentences, numbers, cells, notes)


def distinct_heads(data: xarray.Dataset) -> int:
    """The largest number of head classes of a run: how many different heads it really has."""
    return int(data["attention_mass"].notnull().any("record").sum("head_class").max())


def figures(results: Results) -> list[Figure]:
    mixture, planted = results["mixture"], results["planted"]
    over_time = by_heads("step", mixture["test_loss"].sel(start="zero").isel(record=slice(1, None)))
    train, test, error = Axis("train loss", "nats"), Axis("test loss", "nats"), Axis("test error", "share")
    sizes = {name: f"{s['num_examples']:,} training and {s['num_test']:,} test sequences" for name, s in SIZES.items()}
    return [
        Figure(
            "paper-mixture",
            "The mixture experiment",
            f"{sizes['mixture']}, step size {STEP_SIZE:g}, {TRIALS} trials. @1: from zero. @2 and @3: last step, from "
            "zero and from the first phase. Means and 95% intervals.",
            [
                Panel("Over time, zero start", STEP, TEST_LOSS, over_time),
                Panel("Test loss", HEADS, TEST_LOSS, by_start("num_heads", mixture["final_test_loss"])),
                Panel("Focus", HEADS, FOCUS, by_start("num_heads", mixture["attention_of_heads"].isel(record=-1))),
            ],
        ),
        Figure(
            "paper-planted",
            "The planted experiment",
            f"{sizes['planted']} labeled by a planted model of {PLANTED['teacher_heads']} heads, {TRIALS} trials, last "
            "step. From zero all heads stay equal; Gaussian heads all differ. Means and 95% intervals.",
            [
                Panel("Train loss", HEADS, train, by_start("num_heads", planted["final_train_loss"])),
                Panel("Test loss", HEADS, test, by_start("num_heads", planted["final_test_loss"])),
                Panel("Test error", HEADS, error, by_start("num_heads", planted["final_test_error"])),
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
        stated("mixture", f"100 training and 300 test sequences, {TRIALS} trials, start at zero, step size 1"),
        stated("planted data", f"1,000 training and 3,000 test sequences, {TRIALS} trials"),
        chosen("mixture's parameters", tasks.describe(tasks.MIXTURE)),
        chosen("planted model", f"{tasks.describe(PLANTED)}; label = sign of the score"),
        chosen("heads", "the values of H in the figures"),
        chosen("steps", f"mixture {STEPS['mixture']}; planted {STEPS['planted']}"),
        chosen("planted: start and step size", f"zero, and {tasks.UNIT_GAUSSIAN}; step size {STEP_SIZE:g}"),
        chosen("mixture: second start", "first phase with balanced signs, in case the random first step was used"),
    ],
    sweeps=sweeps,
    finding=finding,
    figures=figures,
    order=11,
)
