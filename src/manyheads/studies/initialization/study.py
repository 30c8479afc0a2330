"""Which start is better at an equal number of heads?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from manyheads.studies.kit import tasks
from manyheads.studies.kit.estimate import Estimate, mean, number, ratio
from manyheads.studies.kit.figure import (
    STEP,
    TANGENT_MARGIN,
    TRAIN_LOSS,
    Axis,
    Figure,
    Mark,
    Panel,
    over_seeds,
    rule,
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
    stated,
)
from manyheads.studies.kit.words import capital, choose, heads, heads_text, listed
from manyheads.sweeps.spec import Sweep

PAPERS = "first_phase"  # the reference for comparisons, fixed in advance and not chosen by the data
NORMS = {"small": 0.3, "gaussian": 1.0, "large": 3.0}  # of a head's W and U at a Gaussian start
STARTS = {
    "zero": ("zero", "zero", {"kind": "zero"}),
    PAPERS: ("first phase", "first phase", {"kind": "first_phase"}),
    "drawn": ("first phase, drawn", "drawn α", {"kind": "first_phase", "signs": "uniform"}),
    "gaussian": ("gaussian", "Gaussian", {"kind": "gaussian"}),
}
LABELS = {name: label for name, (_, label, _) in STARTS.items()}
SIZE = {"num_examples": Scaled(40, 80), "num_test": 0}
DATA = {
    "easy": ("easy mixture", {**tasks.MIXTURE, **SIZE}),
    "hard": ("hard mixture", {**tasks.HARD_MIXTURE, **SIZE}),
    "random": ("random labels", {**tasks.RANDOM_LABELS, "num_tokens": 8, "dim": 10, **SIZE}),
}
ROLES = {"easy": "mixture", "hard": "construction", "random": "random labels"}
STEP_SIZE, STEPS = 0.5, Scaled(200, 1000)
ALIKE = (1 / 1.15, 1.15)  # losses closer than this factor count as alike


def sweeps(scale: str) -> dict[str, Sweep]:
    common = {
        "train": {"step_size": STEP_SIZE, "num_steps": STEPS},
        "axes": {"model.num_heads": Scaled([2, 16], [2, 4, 16, 32])},
        "seeds": Scaled(4, 6),
    }
    starts: dict[str, Any] = {
        name: start for name, (_, _, start) in STARTS.items() if name != "gaussian"
    }
    starts |= {
        name: {"kind": "gaussian", "key_query_scale": norm, "readout_scale": norm}
        for name, norm in NORMS.items()
    }
    runs = {
        f"{data}_{name}": {**common, "data": section, "start": start}
        for data, (_, section) in DATA.items()
        for name, start in starts.items()
    }
    cell, easy = "manyheads.studies.initialization.cells:look", {**DATA["easy"][1], "num_test": 0}
    looks = {
        name: {
            **common,
            "data": easy,
            "start": start,
            "cell": cell,
            "parameters": {"card": capital(label)},
        }
        for name, (_, label, start) in STARTS.items()
    }
    return grids("initialization", scale, **looks, **runs)


def _last(results: Results, data: str, start: str, count: float):
    """The final train loss of the runs from a start, one per seed."""
    return results[f"{data}_{start}"]["train_loss"].isel(record=-1).sel(num_heads=count)


def finding(results: Results) -> Finding:
    numbers, properties = Numbers(), results["zero"]
    few, many = float(properties["num_heads"].min()), float(properties["num_heads"].max())
    steps = number(int(results[f"easy_{PAPERS}"]["step"].max()))
    cells = [
        data["train_loss"].isel(record=-1) for name, data in results.items() if name not in STARTS
    ]
    factors = {
        count: {data: _factors(results, numbers, data, count) for data in DATA}
        for count in (many, few)
    }
    if not any(e.count for each in factors[many].values() for e in each.values()):
        return conclude("Not measured", ["There are no two starts to compare."], numbers, cells)
    where = f"{heads(many)}, {steps} steps of {STEP_SIZE:g}"
    answer = f"{_verdict(factors[many])}; {where}, train loss over that from the first phase"
    sentences = [
        f"In full, with {heads(many)}: {_said(factors[many])}.",
        f"With {heads(few)}: {_said(factors[few])}.",
        *_definition(results, numbers, many),
    ]
    note = (
        "Heads that start equal get equal gradients and stay equal on any data: this holds by construction (they are "
        "stored as one) and was not measured. H then only scales the steps."
    )
    return conclude(answer, sentences, numbers, cells, [note])


def _factors(results: Results, numbers: Numbers, data: str, count: float) -> dict[str, Estimate]:
    """The train loss from every start over that from the first phase, on the same data."""
    reference, at = _last(results, data, PAPERS, count), f"{DATA[data][0]}, H = {heads_text(count)}"
    return {
        name: numbers.add(
            f"loss_ratio.{data}.{name}.{count:g}",
            f"train loss, {_label(name)} / first phase, {at}",
            ratio(_last(results, data, name, count), reference),
        )
        for name in ("zero", "drawn", *NORMS)
    }


def _on(data: str) -> str:
    name = DATA[data][0]
    return f"on the {name}" if name.endswith("mixture") else f"on {name}"


def _label(name: str) -> str:
    return f"Gaussian {NORMS[name]:g}" if name in NORMS else LABELS[name]


def _said(factors: Mapping[str, Mapping[str, Estimate]]) -> str:
    """The factors in words, the Gaussian ones as a range over the norms."""
    parts = []
    for data, each in factors.items():
        gaussian = {NORMS[name]: e.value for name, e in each.items() if name in NORMS and e.count}
        words = [f"{LABELS[name]} {each[name]}" for name in ("zero", "drawn")]
        if gaussian:
            ends = sorted(gaussian, key=lambda norm: gaussian[norm])
            least, most = (
                f"{number(gaussian[norm])} (norm {norm:g})" for norm in (ends[0], ends[-1])
            )
            words.append(f"Gaussian {least} to {most}")
        parts.append(f"{', '.join(words)} {_on(data)}")
    return "; ".join(parts)


def _verdict(factors: Mapping[str, Mapping[str, Estimate]]) -> str:
    """What the intervals decide on each kind of data, and whether all agree."""
    parts, outcomes = [], set()
    for data, each in factors.items():
        words = {name: _word(e) for name, e in each.items()}
        on, values = _on(data), [e.value for e in each.values() if e.count]
        decided = {name: word for name, word in words.items() if word in ("faster", "slower")}
        outcomes.add(tuple(sorted(decided.items())))
        span = f"{number(min(values))} to {number(max(values))}" if values else ""
        if not values:
            parts.append(f"{on} not measured")
        elif decided:
            said = [_decided(each, decided, word) for word in dict.fromkeys(decided.values())]
            parts.append(f"{on} {' and '.join(said)}")
        elif set(words.values()) == {"alike"}:
            parts.append(f"{on} all alike ({span})")
        else:
            parts.append(f"{on} no clear winner ({span})")
    lead = "It depends on the data" if len(outcomes) > 1 else "The same on all data"
    return f"{lead}: {'; '.join(parts)}"


def _word(factor: Estimate) -> str:
    return choose(
        factor, at=ALIKE, above="slower", below="faster", inside="alike", undecided="unclear"
    )


def _decided(each: Mapping[str, Estimate], decided: Mapping[str, str], word: str) -> str:
    """Which starts are faster (or slower), and by which factors."""
    names = [name for name, said in decided.items() if said == word]
    values = sorted(each[name].value for name in names)
    span = number(values[0]) if len(values) == 1 else f"{number(values[0])} to {number(values[-1])}"
    starts = [LABELS[name] for name in names if name not in NORMS]
    if norms := [f"{NORMS[name]:g}" for name in names if name in NORMS]:
        starts.append(f"Gaussian heads of norm {listed(norms)}")
    return f"{word} from {listed(starts)} ({span})"


def _definition(results: Results, numbers: Numbers, many: float) -> list[str]:
    """Definition 1 on the easy mixture, before training."""
    captions = {
        "distinct": "distinct heads",
        "b2": "P1, largest norm of a head",
        "b_phi": "P2, largest score",
        "p3_margin": "P3, tangent margin",
    }
    last = {name: results[name].sel(num_heads=many) for name in STARTS}
    for variable, caption in captions.items():
        for name, data in last.items():
            where = f"{caption}, {LABELS[name]}, easy mixture, H = {heads_text(many)}"
            numbers.add(f"{variable}.{name}", where, mean(data[variable]))
    margins = ", ".join(
        f"{LABELS[name]} {numbers[f'p3_margin.{name}'].estimate}" for name in STARTS
    )
    known = {
        name: data["distinct"]
        for name, data in last.items()
        if bool(data["distinct"].notnull().any())
    }
    counts = ", ".join(f"{LABELS[name]} {int(count.max())}" for name, count in known.items())
    return [
        f"On the easy mixture with {heads(many)} the tangent margins (P3) are: {margins}.",
        f"Different heads out of {heads_text(many)}: {counts}." if known else "",
    ]


def figures(results: Results) -> list[Figure]:
    counts = sorted(results["zero"]["num_heads"].values.tolist())
    names, many = [heads_text(h) for h in counts], counts[-1]
    count = Axis("heads", "count")

    def bars(variable: str, scale: str = "") -> list[Mark]:
        values = {n: results[n][variable].transpose("num_heads", "seed") for n in STARTS}
        return [
            over_seeds(role, label, names, values[n], scale, kind="bars")
            for n, (role, label, _) in STARTS.items()
        ]

    def curves(data: str) -> list[Mark]:
        at = {
            n: results[f"{data}_{n}"]["train_loss"].sel(num_heads=many).isel(record=slice(1, None))
            for n in STARTS
        }
        return [
            over_seeds(role, label, "step", at[n], log=True)
            for n, (role, label, _) in STARTS.items()
        ]

    def by_norm(data: str, role: str) -> Mark:
        first = _last(results, data, PAPERS, many)
        values = [(_last(results, data, name, many) / first).values for name in NORMS]
        return over_seeds(role, DATA[data][0], list(NORMS.values()), values, log=True)

    norm, factor = (
        Axis("norm of a head's W and U", "1", log=True),
        Axis("loss / first phase's", "factor", log=True),
    )
    return [
        Figure(
            "initialization-time",
            "Four starts in training, on three kinds of data",
            f"{heads(many)}, step size {STEP_SIZE:g}; Gaussian heads of norm 1. Geometric means and 95% intervals over "
            "seeds.",
            [Panel(capital(on), STEP, TRAIN_LOSS, curves(data)) for data, (on, _) in DATA.items()],
        ),
        Figure(
            "initialization-scale",
            "The scale of a Gaussian start",
            f"Final train loss over that from the first phase on the same data, {heads(many)}, over the norm of a head "
            "at the start. Geometric means and 95% intervals over seeds.",
            [
                Panel(
                    "",
                    norm,
                    factor,
                    [
                        *(by_norm(data, role) for data, role in ROLES.items()),
                        rule("reference", "first phase", 1.0),
                    ],
                )
            ],
        ),
        Figure(
            "initialization-properties",
            "Four starts before training, easy mixture",
            "How many heads are distinct, and Definition 1 as measured, at equal numbers of heads. Means and "
            "95% intervals over seeds; the tangent margins are proved lower ends.",
            [
                Panel(
                    "Different heads",
                    count,
                    Axis("different heads", "count", log=True),
                    bars("distinct"),
                ),
                Panel("P1: largest norm of a head", count, Axis("B₂", "norm"), bars("b2")),
                Panel("P2: largest score", count, Axis("B_Φ", "score"), bars("b_phi")),
                Panel(
                    "P3: margin of the tangent kernel",
                    count,
                    TANGENT_MARGIN,
                    bars("p3_margin", "P3"),
                ),
            ],
        ),
    ]


STUDY = Study(
    name="initialization",
    title="Initialization",
    question="Which start is better at an equal number of heads?",
    claim="Definition 1 requires bounded heads (P1), bounded scores (P2) and a margin in the tangent kernel (P3); the "
    "first phase, one randomized step from zero, has all three on the mixture (Proposition 2).",
    settings=[
        stated("first phase", "one step from zero on fresh data, step α_h√H, α_h = +1 or -1"),
        chosen(
            "signs",
            "balanced; 'drawn α' has α_h uniform on [-1, 1] instead, so that all heads differ",
        ),
        chosen(
            "Gaussian start",
            "independent entries; a head's W and U have root mean square norm 0.3, 1 or 3",
        ),
        *(chosen(on, tasks.describe(data)) for on, data in DATA.values()),
        chosen("first phase's data", "200 sequences that are not trained on"),
        chosen("descent", f"step size {STEP_SIZE:g}, {STEPS} steps"),
    ],
    sweeps=sweeps,
    finding=finding,
    figures=figures,
    part="heads",
    order=4,
)
