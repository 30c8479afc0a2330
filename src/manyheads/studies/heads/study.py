"""Does training get faster, or more convex, with more heads?"""

from __future__ import annotations

import numpy as np

from manyheads.studies.kit import tasks
from manyheads.studies.kit.estimate import mean, number, power, ratio, rows
from manyheads.studies.kit.figure import (
    FOCUS,
    HEADS,
    TEST_LOSS,
    TRAIN_LOSS,
    Axis,
    Figure,
    Panel,
    by_heads,
    by_start,
    line,
    over_seeds,
)
from manyheads.studies.kit.study import Finding, Numbers, Results, Scaled, Study, chosen, conclude, grids, stated
from manyheads.studies.kit.words import choose, heads_text, once
from manyheads.sweeps.spec import Sweep

CELLS = "manyheads.studies.heads.cells"
STARTS = {kind: tasks.STARTS[kind] for kind in ("first_phase", "gaussian")}
DATA = {"convexity_mixture": "the mixture", "convexity_random": "random labels"}
MIXTURE = {**tasks.HARD_MIXTURE, "num_examples": 60, "num_test": 300}
STEP_SIZE, DOUBLINGS, STEPS, RANDOM_STEPS = 0.1, 6, 150, 200
GAUSSIAN_SCALE = 3.0  # of the starts on random labels
MATTERS = 0.02  # an exponent of H below this is no effect: 9% from 1 to 64 heads
SEEN = 1e-6  # a convexity gap below this share of the loss counts as none


def sweeps(scale: str) -> dict[str, Sweep]:
    many = {"model.num_heads": Scaled([1, 4, 16, 64], [1, 2, 4, 8, 16, 64, 256])}
    few = {"model.num_heads": Scaled([1, 2, 4, 8, 16], [1, 2, 4, 8, 16, 32, 64])}
    starts, seeds = {"start.kind": list(STARTS)}, Scaled(4, 10)
    untested = {**MIXTURE, "num_test": 0}
    train = {"step_size": STEP_SIZE, "num_steps": STEPS}
    return grids(
        "heads",
        scale,
        speed={
            "data": MIXTURE,
            "train": train,
            "axes": {**starts, **many},
            "seeds": seeds,
            "cell": f"{CELLS}:speed",
            "parameters": {"doublings": DOUBLINGS},
        },
        convexity_mixture={
            "data": untested,
            "train": train,
            "axes": few,
            "seeds": seeds,
            "cell": f"{CELLS}:convexity",
        },
        convexity_random={
            "data": tasks.RANDOM_LABELS,
            "start": {"kind": "gaussian", "key_query_scale": GAUSSIAN_SCALE, "readout_scale": GAUSSIAN_SCALE},
            "train": {**train, "num_steps": RANDOM_STEPS},
            "axes": few,
            "seeds": Scaled(8, 20),  # a run from a Gaussian start depends much on the draw
            "cell": f"{CELLS}:convexity",
        },
        curvature={"data": untested, "axes": {**starts, **many}, "seeds": seeds, "cell": f"{CELLS}:curvature"},
    )


def finding(results: Results) -> Finding:
    numbers, speed = Numbers(), results["speed"]
    last, most = speed["train_loss"].isel(record=-1), float(speed["num_heads"].max())
    said: dict[str, dict[str, str]] = {"equal": {}, "best": {}}
    for kind, (_, label) in STARTS.items():
        for which, losses in (("equal", last), ("best", speed["best_loss"])):
            exponent = numbers.add(
                f"loss_exponent.{which}.{kind}",
                f"exponent of the final loss in H, {which} step size, {label}",
                power("num_heads", losses.sel(start=kind)),
            )
            said[which][label] = choose(
                exponent,
                at=(-MATTERS, MATTERS),
                above="slower",
                below="faster",
                inside="equally fast",
                undecided="not clearly different",
            )
        one, many = (last.sel(start=kind, num_heads=h) for h in (speed["num_heads"].min(), most))
        numbers.add(f"loss_ratio.{kind}", f"final loss, {heads_text(most)} heads over 1, {label}", ratio(many, one))
    factor = numbers["loss_ratio.first_phase"].estimate
    trained = f"With {heads_text(most)} heads the loss after {_steps(speed)} steps is {factor} times that of one head; "
    if set(said["equal"].values()) == set(said["best"].values()) in ({"slower"}, {"faster"}):
        trained += "the order stays the same when every number of heads has its best step size."
    else:
        trained += f"with the best step size for each, more heads are {once(said['best'], 'from the')}."
    convexity, cost, losing = _convexity(results, numbers)
    cells = [last, *(results[name]["gap"] for name in DATA), results["curvature"]["smallest"]]
    note = (
        "Each head moves its attention by a step of order 1/√H; the second figure shows how much attention ends on "
        "the relevant tokens."
    )
    sentences, speed_answer = [trained, cost, *losing, _curvature(results, numbers)], _speed(said["equal"])
    conclusion = f"{speed_answer.removeprefix('No: ').removeprefix('Yes: ')}; {convexity}."
    return conclude(f"{speed_answer}; {convexity}", sentences, numbers, cells, [note], conclusion)


def _steps(speed) -> int:
    return int(speed["step"].values[-1])


def _speed(words: dict[str, str]) -> str:
    """The answer about speed, from what is said of each start."""
    answers = {
        "not measured": "Not measured",
        "slower": "No: on the mixture more heads train slower at equal step size",
        "faster": "Yes: on the mixture more heads train faster at equal step size",
        "equally fast": "No effect of heads on speed at equal step size",
    }
    each = once(words, "from the")
    if each in answers:
        return answers[each]
    vague = {"not clearly different", "not measured"} & set(words.values())
    return f"{'Undecided' if vague else 'It depends on the start'}: at equal step size more heads are {each}"


def _convexity(results: Results, numbers: Numbers) -> tuple[str, str, list[str]]:
    """The answer about convexity, what non-convexity costs, and how much more it costs few heads."""
    changes, parts, losing = [], [], []
    for name, label in DATA.items():
        data = results[name]
        H, share = rows("num_heads", data["gap"] / data["mean_loss"])
        half, short = len(share) // 2, label.removeprefix("the ")
        few, many = share[:half].mean(axis=0), share[half:].mean(axis=0)
        numbers.add(f"{name}.few", f"convexity gap / mean loss, few heads, {short}", mean(few))
        numbers.add(f"{name}.many", f"convexity gap / mean loss, many heads, {short}", mean(many))
        more = numbers.add(f"{name}.difference", f"few minus many, {short}", mean(few - many))
        none = mean(few).value < SEEN and mean(many).value < SEEN
        changes.append("always" if none else choose(more, above="more", below="less", undecided="undecided"))
        by_number = np.array([mean(row).value for row in share])
        if np.isnan(by_number).all():
            parts.append(f"on {label} an amount that was not measured")
            continue
        top = int(np.nanargmax(by_number))
        end = "none" if by_number[-1] < SEEN else f"{number(100 * by_number[-1])}%"
        parts.append(
            f"on {label} at most {number(100 * by_number[top])}% of the mean loss (at H = {heads_text(H[top])}) and "
            f"{end} at {heads_text(H[-1])}"
        )
        losing.append(f"On {label} few heads lose a share of {more} more than many.")
    said = {
        (): "it is convex along the run at every number of heads",
        ("more",): "descent gets more convex with heads",
        ("less",): "descent gets less convex with heads",
        ("less", "more"): "the effect on convexity depends on the data",
        ("not measured",): "the effect on convexity is not measured",
    }
    answer = said.get(tuple(sorted(set(changes) - {"always"})), "the effect on convexity is undecided")
    return answer, f"Non-convexity costs descent {'; '.join(parts)}.", losing


def _depth(results: Results):
    """The most negative eigenvalue over the loss, without its sign."""
    return -(results["curvature"]["smallest"] / results["curvature"]["loss"])


def _curvature(results: Results, numbers: Numbers) -> str:
    depth = _depth(results)
    several = depth.sel(num_heads=depth["num_heads"] >= 4)  # two heads of each sign: from there on 1/√H exactly
    parts = []
    for kind, (_, label) in STARTS.items():
        found = power("num_heads", several.sel(start=kind))
        numbers.add(f"curvature_exponent.{kind}", f"exponent of -λ_min/loss in H, {label}", found)
        parts.append(f"{found} from the {label}")
    return (
        "From 4 heads on the most negative curvature over the loss is like a power of H: "
        f"{' and '.join(parts)}; the bound has -0.5."
    )


def figures(results: Results) -> list[Figure]:
    speed = results["speed"]
    steps, last = _steps(speed), speed["train_loss"].isel(record=-1)
    curves = by_heads("step", speed["train_loss"].sel(start="first_phase"), log=True)
    ends = {"equal step size": last, "best step size": speed["best_loss"]}
    largest = STEP_SIZE * 2**DOUBLINGS
    return [
        Figure(
            "heads-speed",
            "Loss over time and over the number of heads",
            f"Loss on the tokenized mixture. @1: over time. @2: after {steps} steps at step size {STEP_SIZE:g}. @3: at "
            f"the best of {DOUBLINGS + 1} step sizes from {STEP_SIZE:g} to {largest:g} for each number of heads. "
            "Geometric means and 95% intervals over seeds.",
            [
                Panel("Over time, first-phase start", Axis("step", "steps"), TRAIN_LOSS, curves),
                *(
                    Panel(f"After {steps} steps, {title}", HEADS, TRAIN_LOSS, by_start("num_heads", values, log=True))
                    for title, values in ends.items()
                ),
            ],
        ),
        Figure(
            "heads-focus",
            "Focus and test loss over the number of heads",
            f"After {steps} steps at step size {STEP_SIZE:g}. @1: the attention on relevant tokens (focus; "
            f"{MIXTURE['sparsity']:g} if uniform). @2: the loss on fresh sequences.",
            [
                Panel("Focus", HEADS, FOCUS, by_start("num_heads", speed["focus"])),
                Panel(
                    "Test loss", HEADS, TEST_LOSS, by_start("num_heads", speed["test_loss"].isel(record=-1), log=True)
                ),
            ],
        ),
        _convexity_figure(results),
    ]


def _convexity_figure(results: Results) -> Figure:
    marks = []
    for name, label in DATA.items():
        role = label.removeprefix("the ")
        marks.append(over_seeds(role, role, "num_heads", 100 * (results[name]["gap"] / results[name]["mean_loss"])))
    depth = _depth(results)
    H, first = rows("num_heads", depth.sel(start="first_phase"))
    slope = line("reference", "slope -1/2", H, mean(first[-1]).value * np.sqrt(H[-1] / H))
    curvature = Axis("-λ_min / loss", "dimensionless", log=True)
    return Figure(
        "heads-convexity",
        "Non-convexity over the number of heads",
        "@1: the share of the mean train loss that is due to non-convexity along the run (proximal target). @2: "
        "the most negative eigenvalue of the Hessian at the start over the loss; Corollary 1 bounds it by b3/√H.",
        [
            Panel("Cost of non-convexity", HEADS, Axis("convexity gap", "% of mean loss"), marks),
            Panel("Negative curvature", HEADS, curvature, [*by_start("num_heads", depth, log=True), slope]),
        ],
    )


STUDY = Study(
    name="heads",
    title="Heads",
    question="Does training get faster, or more convex, with more heads?",
    claim="The landscape gets less non-convex, λ_min >= -β3·loss/√H (Corollary 1); the theorems need many heads. "
    "Nothing is claimed about speed, but readers expect it.",
    settings=[
        stated("descent", f"{tasks.DESCENT}, scores scaled by 1/√H"),
        stated("first-phase start", tasks.FIRST_PHASE),
        chosen("data", tasks.describe(MIXTURE)),
        chosen("second data", tasks.describe(tasks.RANDOM_LABELS)),
        chosen("Gaussian start", f"E|W_h|^2 = E|U_h|^2 = 1 on the mixture, {GAUSSIAN_SCALE**2:g} on random labels"),
        chosen("step size", f"{STEP_SIZE:g}, and {STEP_SIZE:g} times 1, 2, ..., {2**DOUBLINGS}"),
        chosen("steps", f"{STEPS} on the mixture, {RANDOM_STEPS} on random labels"),
    ],
    sweeps=sweeps,
    finding=finding,
    figures=figures,
    part="heads",
    order=2,
    in_story=True,
)
