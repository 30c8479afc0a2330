"""How many heads does Theorem 1 need before it says something, and is it then true?"""

from __future__ import annotations

import numpy as np

from manyheads.studies.kit import tasks
from manyheads.studies.kit.estimate import mean, number, ratio
from manyheads.studies.kit.figure import STEP, Axis, Figure, Panel, line, over_seeds, rule
from manyheads.studies.kit.study import Finding, Numbers, Results, Scaled, Study, chosen, conclude, grids, stated
from manyheads.studies.kit.words import heads_text
from manyheads.sweeps.spec import Sweep

CERTIFIED, STEPS = 0.5, 200
MOST_TRIED = 1024  # heads; where none suffices the cell says infinite
DATA = {
    "a": {"num_tokens": 4, "dim": 6, "num_patterns": 2, "sparsity": 0.5, "signal": 1.0, "num_examples": 40},
    "b": {**tasks.MIXTURE, "dim": 12, "signal": 2.0, "noise_norm": 0.5, "num_examples": 100},
}
FRESH = {"a": 200, "b": 400}  # sequences of the first phase
NOTES = {"a": "A: T=4, no noise", "b": "B: T=8, noise"}
ROUTES = {
    "suffices": ("measured", "suffices, measured"),
    "threshold": ("reference", f"ours, for a bound of {CERTIFIED:g}"),
    "asked_ours": ("ours", f"ours, loss 1/{STEPS}"),
    "asked_printed": ("printed", "printed, constant 1"),
    "asked_explicit": ("explicit", "paper's route"),
}


def sweeps(scale: str) -> dict[str, Sweep]:
    made = {
        name: {
            "data": {**DATA[name], "num_test": 0},
            "start": {"num_examples": FRESH[name]},
            "train": {"num_steps": STEPS},
            "seeds": Scaled(3, 5),
            "cell": "manyheads.studies.literal.cells:literal",
            "parameters": {"certified": CERTIFIED, "steps": steps},
        }
        for name, steps in (("a", [300]), ("b", [3000]))
    }
    return grids("literal", scale, a=made["a"], b=Scaled(None, made["b"]))


def finding(results: Results) -> Finding:
    numbers, parts = Numbers(), []
    for name, data in results.items():
        on = name.upper()
        asked, ours = (data[f"asked_{route}"] for route in ("explicit", "ours"))
        heads = numbers.add(
            f"heads.{name}", f"heads for a certified loss below {CERTIFIED:g}, ours, {on}", mean(data["threshold"])
        )
        tight = numbers.add(
            f"tightness.{name}", f"bound / measured mean loss there, {on}", ratio(data["bound"], data["mean_loss"])
        )
        numbers.add(f"saving.{name}", f"heads, paper's route / ours, {on}", ratio(asked, ours))
        enough = mean(data["suffices"].where(~_beyond(data).any()))
        numbers.add(f"suffices.{name}", f"heads that suffice in fact, {on}", enough)
        parts += [
            f"On {on} ours certifies a mean loss below {CERTIFIED:g} from {number(heads.value)} heads on; the run "
            f"there has a bound {tight} times the measured loss.",
            f"For a target with loss 1/{STEPS} the paper's route with its constants asks for "
            f"{number(float(asked.mean()))} heads, ours for {number(float(ours.mean()))}; {_suffices(data)}.",
        ]
    violated, holding = (sum(int(data[word].sum()) for data in results.values()) for word in ("violated", "holding"))
    parts.append(f"{holding} conclusions hold and {violated} are violated over all runs.")
    cells = [data["threshold"] for data in results.values()]
    least = min((float(m) for m in (d.mean() for d in cells) if m == m), default=np.nan)
    conclusion = ""
    if np.isnan(least):
        answer = "Not measured"
    elif violated:
        answer = f"It fails: {violated} conclusions are violated where the hypotheses hold"
    else:
        there = "every conclusion holds" if holding else "no conclusion could be checked"
        answer = f"{number(least, 2)} heads; there {there}"
        conclusion = f"Theorem 1 says nothing below {number(least, 2)} heads; there {there}."
    note = "Heads come in two classes, so these runs are exact, not sampled."
    return conclude(answer, parts, numbers, cells, [note], conclusion)


def _beyond(data):
    """Where no number of heads up to the largest tried suffices."""
    return np.isinf(data["suffices"])


def _suffices(data) -> str:
    draws, beyond = int(data["suffices"].notnull().sum()), int(_beyond(data).sum())
    if draws == 0:
        return "how many suffice in fact was not measured"
    if beyond:
        return f"in {beyond} of {draws} draws more than {heads_text(MOST_TRIED)} heads are needed in fact"
    most = float(data["suffices"].max())
    return f"{heads_text(most)} {'head reaches' if most == 1 else 'heads reach'} the certified loss in fact"


def figures(results: Results) -> list[Figure]:
    marks = []
    for variable, look in ROUTES.items():
        rows = [data[variable].where(~np.isinf(data[variable]).any()).values for data in results.values()]
        marks.append(over_seeds(*look, [name.upper() for name in results], rows, kind="bars", log=True))
    panels = []
    for name, data in results.items():
        for one in (data.isel(seed=seed) for seed in np.flatnonzero(data["threshold"].notnull().values)[:1]):
            curves = [
                line("measured", "loss, measured", one["curve_step"].values, one["curve"].values),
                rule("reference", "mean loss, measured", float(one["mean_loss"])),
                rule("ours", "bound of Theorem 1′ on the mean", float(one["bound"])),
            ]
            title = f"{NOTES[name]}, {number(float(one['threshold']))} heads"
            panels.append(Panel(title, STEP, Axis("train loss", "nats"), curves))
    asked = Figure(
        "literal-heads",
        "How many heads are asked for",
        f"Heads that each version of Theorem 1 asks for (target loss 1/{STEPS}), the smallest number with a bound "
        f"below {CERTIFIED:g}, and what suffices in fact (no bar where some draw needs more than "
        f"{heads_text(MOST_TRIED)}). Means and 95% intervals over seeds.",
        [Panel("", Axis("data", "setting"), Axis("heads", "count", log=True), marks)],
    )
    caption = "A run at the smallest number of heads for which our version certifies the loss; one seed."
    runs = [Figure("literal-run", "Theorem 1 where its hypotheses are true", caption, panels)] if panels else []
    return [asked, *runs]


STUDY = Study(
    name="literal",
    title="Theorem 1, literally",
    question="How many heads does Theorem 1 need before it says something, and is it then true?",
    claim="With √H ≳ d√T R⁵ D³ times the largest norm of a head of the target θ, D = ‖θ - θ_0‖, and a small step size "
    "the mean train loss is at most 2L(θ) + 5D²/(4ηK); the constant behind ≳ is not named.",
    settings=[
        stated("statement", "Theorem 1 with (3) and (4); its hidden constant read as 1 where 'printed'"),
        stated("start", "first phase on fresh data, W = 0"),
        chosen("signs", "balanced"),
        chosen("data A", f"{tasks.describe(DATA['a'])}, {FRESH['a']} of the first phase"),
        chosen("data B (full)", f"{tasks.describe(DATA['b'])}, {FRESH['b']} of the first phase"),
        chosen("target", "along the paper's direction θ_* or the best tangent direction, best scale"),
    ],
    sweeps=sweeps,
    finding=finding,
    figures=figures,
    order=6,
    in_story=True,
)
