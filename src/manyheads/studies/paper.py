"""What do the published experiments show, as far as their settings are known?"""

from __future__ import annotations

import itertools

import xarray

from manyheads.studies.kit import tasks
from manyheads.studies.kit.estimate import mean, number, ratio
from manyheads.studies.kit.figure import (
    FOCUS,
    HEADS,
    STEP,
    TEST_LOSS,
    Axis,
    Figure,
    Panel,
    by_heads,
    by_start,
)
from manyheads.studies.kit.study import (
    Finding,
    Numbers,
    Results,
    Scaled,
    Study,
    chosen,
    conclude,
    grids,
    reported,
)
from manyheads.studies.kit.tasks import STARTS
from manyheads.studies.kit.words import MISSING, choose, heads_text, listed, once, setting
from manyheads.sweeps.spec import Sweep

TRIALS, STEP_SIZE = 5, 1.0
NAMES = {"mixture": "the mixture", "planted": "planted data"}
PLANTED = {"kind": "planted", "num_tokens": 4, "dim": 5, "teacher_heads": 4, "teacher_scale": 2.0}
SIZES = {
    "mixture": {"num_examples": 100, "num_test": 300},
    "planted": {"num_examples": 1000, "num_test": 3000},
}
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
        "axes": {
            "start.kind": ["zero", "gaussian"],
            "model.num_heads": Scaled([1, 4, 12], [1, 2, 4, 8, 16]),
        },
        "measures": ["risk"],
    }
    return grids(
        "paper", scale, mixture=mixture | common("mixture"), planted=planted | common("planted")
    )


def finding(results: Results) -> Finding:
    numbers, answers, sentences, measured = Numbers(), [], [], False
    for name, data in results.items():
        few, many = (float(f(data["num_heads"])) for f in (min, max))
        words, parts, errors = {}, [], []
        for start in data["start"].values.tolist():
            at, label = data.sel(start=start), STARTS[start][1]
            for what in ("train", "test"):
                loss = at[f"final_{what}_loss"]
                caption = (
                    f"{what} loss, H = {heads_text(many)} / H = {heads_text(few)}, {name}, {label}"
                )
                factor = ratio(loss.sel(num_heads=many), loss.sel(num_heads=few))
                numbers.add(f"{what}_loss_ratio.{name}.{start}", caption, factor)
            losses, wrong = (
                {
                    h: numbers.add(
                        f"{what}.{name}.{start}.{h:g}",
                        f"{what.replace('_', ' ')}, {name}, {label}, H = {heads_text(h)}",
                        mean(at[f"final_{what}"].sel(num_heads=h)),
                    )
                    for h in data["num_heads"].values
                }
                for what in ("test_loss", "test_error")
            )
            words[label] = _over_heads(at["final_test_loss"])
            errors += [e.value for e in wrong.values() if e.count]
            measured |= any(e.count for e in losses.values())
            parts.append(
                f"from a {label} the test loss is {_row(losses)} and the test error {_row(wrong)} at H = "
                f"{listed([heads_text(h) for h in losses])}"
            )
        sentences.append(f"On {NAMES[name]} {'; '.join(parts)}.")
        answers.append(
            f"on {NAMES[name]} the test loss {once(words, 'from a')}, the test error is {_range(errors)}"
        )
    distinct = distinct_heads(results["mixture"].sel(start="zero"))
    if distinct == 1:
        sentences.append("From zero there is 1 distinct head at every H.")
    elif distinct:
        sentences.append(f"From zero there are up to {number(distinct)} distinct heads.")
    notes = (
        "Heads that start equal get equal gradients and stay equal, so from zero there is one distinct head by "
        "construction, on any data.",
        "We have not seen the published figures, and know their settings only as far as others report them; the rest "
        "is our choice.",
    )
    cells = [data["final_test_loss"] for data in results.values()]
    steps = ", ".join(
        f"{int(data['step'].max()):,} steps on {NAMES[name]}" for name, data in results.items()
    )
    where = [f"H = {_heads(results)}", f"step size {STEP_SIZE:g}", steps]
    answer = setting("; ".join(answers), *where) if measured else MISSING
    return conclude(answer, sentences, numbers, cells, notes)


def _over_heads(loss: xarray.DataArray) -> str:
    """Whether a loss rises or falls from each number of heads to the next, as far as the intervals decide."""
    numbers_of_heads = loss["num_heads"].values.tolist()
    said = {}
    for one, other in itertools.pairwise(numbers_of_heads):
        step = ratio(loss.sel(num_heads=other), loss.sel(num_heads=one))
        said[one, other] = choose(
            step, at=1, above="rises", below="falls", undecided="", missing=""
        )
    moves = [(pair, word) for pair, word in said.items() if word]
    if not loss.notnull().any():
        return "was not measured"
    if not moves:
        return "does not clearly depend on H"
    if len({word for _, word in moves}) == 1:
        ends = (
            ""
            if len(moves) == len(said)
            else f" from {heads_text(moves[0][0][0])} to {heads_text(moves[-1][0][1])}"
        )
        return f"{moves[0][1]} with H{ends}"
    turns = [(a, b) for (a, first), (b, second) in itertools.pairwise(moves) if first != second]
    (_, top), _ = turns[0]
    word = moves[0][1]
    return f"is not monotone in H ({word} up to H = {heads_text(top)}, then {'falls' if word == 'rises' else 'rises'})"


def _row(estimates) -> str:
    said = [number(e.value) if e.count else "not measured" for e in estimates.values()]
    return f"{said[0]} throughout" if len(set(said)) == 1 else listed(said)


def _range(errors: list[float]) -> str:
    if not errors:
        return "not measured"
    low, high = number(min(errors)), number(max(errors))
    return f"{low} at every H" if low == high else f"{low} to {high}"


def _heads(results: Results) -> str:
    """All numbers of heads, of either data."""
    every = sorted({float(h) for data in results.values() for h in data["num_heads"].values})
    return f"{heads_text(every[0])} to {heads_text(every[-1])}"


def distinct_heads(data: xarray.Dataset) -> int:
    """The largest number of head classes of a run: how many distinct heads it has."""
    return int(data["attention_mass"].notnull().any("record").sum("head_class").max())


def figures(results: Results) -> list[Figure]:
    mixture, planted = results["mixture"], results["planted"]
    over_time = by_heads("step", mixture["test_loss"].sel(start="zero").isel(record=slice(1, None)))
    train, test, error = (
        Axis("train loss", "nats"),
        Axis("test loss", "nats"),
        Axis("test error", "share"),
    )
    whole = Axis(
        "test error", "share", limits=(0.0, 0.5)
    )  # 0.5 is guessing; the error may be 0 at every H
    sizes = {
        name: f"{s['num_examples']:,} training and {s['num_test']:,} test sequences"
        for name, s in SIZES.items()
    }
    return [
        Figure(
            "paper-mixture",
            "The mixture experiment",
            f"{sizes['mixture']}, step size {STEP_SIZE:g}, {TRIALS} trials, last step, from zero and from the first "
            "phase. Means and 95% intervals.",
            [
                Panel(
                    "Test loss", HEADS, TEST_LOSS, by_start("num_heads", mixture["final_test_loss"])
                ),
                Panel(
                    "Test error", HEADS, whole, by_start("num_heads", mixture["final_test_error"])
                ),
                Panel(
                    "Focus",
                    HEADS,
                    FOCUS,
                    by_start("num_heads", mixture["attention_of_heads"].isel(record=-1)),
                ),
            ],
        ),
        Figure(
            "paper-time",
            "The mixture experiment over time",
            f"{sizes['mixture']}, step size {STEP_SIZE:g}, {TRIALS} trials, from zero. Means and 95% intervals.",
            [Panel("", STEP, TEST_LOSS, over_time)],
        ),
        Figure(
            "paper-planted",
            "The planted experiment",
            f"{sizes['planted']} labeled by a planted model of {PLANTED['teacher_heads']} heads, {TRIALS} trials, last "
            "step. From zero all heads stay equal; Gaussian heads all differ. Means and 95% intervals.",
            [
                Panel(
                    "Train loss", HEADS, train, by_start("num_heads", planted["final_train_loss"])
                ),
                Panel("Test loss", HEADS, test, by_start("num_heads", planted["final_test_loss"])),
                Panel(
                    "Test error", HEADS, error, by_start("num_heads", planted["final_test_error"])
                ),
            ],
        ),
    ]


STUDY = Study(
    name="paper",
    title="The published experiments",
    question="What do the published experiments show, as far as their settings are known?",
    claim="The published version reports experiments with the number of heads on the mixture and on planted data; "
    "neither code nor all settings are public, and what we know of them is what others report.",
    settings=[
        reported(
            "mixture",
            f"100 training and 300 test sequences, {TRIALS} trials, start at zero, step size 1",
        ),
        reported("planted data", f"1,000 training and 3,000 test sequences, {TRIALS} trials"),
        chosen("mixture's parameters", tasks.describe(tasks.MIXTURE)),
        chosen("planted model", f"{tasks.describe(PLANTED)}; label = sign of the score"),
        chosen("heads", "the values of H in the figures"),
        chosen("steps", f"mixture {STEPS['mixture']}; planted {STEPS['planted']}"),
        chosen(
            "planted: start and step size",
            f"zero, and {tasks.UNIT_GAUSSIAN}; step size {STEP_SIZE:g}",
        ),
        chosen(
            "mixture: second start",
            "first phase with balanced signs, in case the random first step was used",
        ),
    ],
    sweeps=sweeps,
    finding=finding,
    figures=figures,
    part="claims",
    order=1,
    in_story=True,
    seconds=0.5,
)
