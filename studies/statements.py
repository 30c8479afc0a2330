"""Which statements about the training of attention hold, and how tight are they?

Every statement of the ledger is evaluated on random inputs, on inputs that ascend towards a
violation, and on inputs built to attain the bound. 37 statements stand in the main text of Deora,
Ghaderi, Taheri and Thrampoulidis, "On the Optimization and Generalization of Multi-Head Attention"
(TMLR 2024). They were read in the copy that went to review; the published version was not compared,
and it may have mended what is said here. The others are of two further papers' kinds: ours
(forecasts, sleep, parity, equal heads), and those about token selection of Tarzanagh and others
(2023).

Of 26 places that read wrong, most are misprints or matters of taste. Five are wrong in substance:
the softmax Jacobian at zero (E2), the order of the radius in the training theorem (E7), the radius
of Corollary 2 (E11), the coefficient of the first phase (E12) and the order of the margins (E15).
All but one are about constants; none breaks a conclusion of the paper. Each is shown by an input on
which the text as read fails; the docs list all.
"""

import numpy as np

import manyheads as mh
from manyheads import lab

LEDGER = mh.ledger()
SUBSTANCE = ["E2", "E7", "E11", "E12", "E15"]


def is_theirs(name):
    """Whether a statement stands in the main text of the paper."""
    entry = LEDGER[name]
    if entry.paper != "deora2023" or entry.is_erratum:
        return False
    return "ours" not in entry.place and not name.endswith(".carried")


STATEMENTS = [name for name, entry in LEDGER.items() if not entry.is_erratum]
THEIRS = [name for name in STATEMENTS if is_theirs(name)]
OTHERS = [name for name in STATEMENTS if name not in THEIRS]

SOON = [*THEIRS, *SUBSTANCE]  # at quick scale; at full scale they are tried on more inputs
EFFORT = {name: "full" if name in SOON else "quick" for name in LEDGER}

GRID = lab.Grid(
    effort=["quick", "full"],
    statement=list(LEDGER),
    where=lambda effort, statement: effort == EFFORT[statement],
)
QUICK = GRID.replace(
    where=lambda effort, statement: effort == "quick" and EFFORT[statement] == "full"
)


def cell(effort, statement, seeds):
    """Whether a statement held, or an erratum was reproduced; the share of the bound that was reached."""
    found = {"holds": [], "reached": [], "inputs": []}
    for seed in seeds:
        (finding,) = mh.verify([statement], quick=effort == "quick", seed=seed).findings
        found["holds"].append(finding.verdict is mh.Verdict.HOLDS)
        found["reached"].append(np.nan if finding.ours is None else finding.ours)
        found["inputs"].append(finding.trials)
    return found


def held(results, names):
    """How many of them hold; an exact count, lost where a check is missing."""
    known = results.data.holds.isel(seed=0).max("effort").sel(statement=names).values
    return lab.exact(known.sum(), f"of {len(names)}")


def tightness(results, names):
    """The share of the bound that the inputs reached, one number per statement that has one."""
    reached = results.data.reached.isel(seed=0).max("effort").sel(statement=names).values
    known = reached[np.isfinite(reached)]
    note = f"mean over the {len(known)} of {len(names)} statements that bound a number"
    return results.of(known, note=f"{note}; the interval is over statements")


CLAIMS = [
    lab.Claim(
        "All 37 statements of the paper's main text hold, with five corrections.",
        lambda r: held(r, THEIRS),
        near=37,
        within=0,
        unit="statements that hold as corrected, in the copy that went to review",
    ),
    lab.Claim(
        "Five places are wrong in substance, all but one about constants.",
        lambda r: held(r, SUBSTANCE),
        near=5,
        within=0,
        unit="errata whose counterexample fails the text as read",
    ),
    lab.Claim(
        "All other statements of the ledger hold.",
        lambda r: held(r, OTHERS),
        near=len(OTHERS),
        within=0,
        unit="statements, ours and about token selection",
    ),
    lab.Claim(
        "The bounds are tight: on average, inputs reach more than half of them.",
        lambda r: tightness(r, STATEMENTS),
        above=0.5,
        unit="largest measured value over bound",
    ),
]
TRY = [dict(effort="quick", statement="lemma1"), dict(effort="quick", statement="prop1.gradient")]


def figure(results, axes):
    """The share of each bound that was reached, in order."""
    reached = results.data.reached.isel(seed=0).max("effort").sel(statement=STATEMENTS)
    known = np.sort(reached.values[np.isfinite(reached.values)])
    axes.plot(np.arange(1, len(known) + 1), known, "o", color="#0072b2")
    axes.axhline(1, color="#555", linewidth=1)
    axes.set(ylim=(0, 1.05), xlabel="statements, in order", ylabel="share of the bound reached")
