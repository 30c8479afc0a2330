"""Every finding follows from the data: the opposite results give the opposite sentence."""

import numpy as np
import pytest
from synthetic import filled, wiggle

from manyheads.certificates.ledger import ledger
from manyheads.studies.attention import study as attention
from manyheads.studies.heads import study as heads
from manyheads.studies.ledger import study as ledger_study
from manyheads.studies.literal import study as literal
from manyheads.studies.margins import study as margins
from manyheads.studies.step_size import study as step_size


def records(values):
    return ("record",), np.asarray(values, dtype=float)


def margins_results(one, many, growing=True):
    """Final margins: `one` of γ_attn for one head, `many` of the linear margin for the most heads."""
    sweeps = margins.sweeps("quick")

    def margin(num_heads, seed, **_):
        last = 3.0 * one if num_heads <= 2 else 0.7 * many
        return records(last * wiggle(seed) * np.array([0.5, 0.6, 0.8, 1.0] if growing else [1.4, 1.3, 1.2, 1.0]))

    values = dict(
        margin=margin,
        focus=lambda num_heads, seed, **_: records(0.3 * wiggle(seed) * np.ones(4)),
        train_loss=lambda **_: records(np.ones(4)),
        linear=lambda **_: 0.55,
        linear_sample=lambda **_: 0.7,
        attention=lambda **_: 3.0,
    )
    steps = ("record", [0, 20, 200, 2000])
    return {name: filled(sweep, **values).assign_coords(step=steps) for name, sweep in sweeps.items()}


def test_margins_reached_or_not():
    short = margins.finding(margins_results(0.7, 0.8))
    assert short.answer.startswith("No: after 2,000 steps one head has 70% of it, many heads stay below the linear")
    assert "still grows" in short.text and "does not get past" in short.text
    there = margins.finding(margins_results(1.2, 1.5, growing=False))
    assert there.answer == "Yes: one head reaches the attention margin, many heads pass the linear margin"
    assert "one head falls" in there.text and "gets past the best linear" in there.text
    assert len(margins.figures(margins_results(0.7, 0.8))) == 2
    near = margins.finding(margins_results(0.7, 1.0))
    assert near.answer.endswith("of it") and "is not clearly different from that of the best linear" in near.text


def test_margins_that_are_missing_decide_nothing():
    some = margins_results(0.7, 0.8)
    before = margins.finding(some)
    some["sparsity"]["margin"][:, 0, 0, 0] = np.nan  # one head at one sparsity: the mean over the others is another
    found = margins.finding(some)
    key = "share.1"
    assert before.numbers[key].estimate.count == 3 and found.numbers[key].estimate.count == 2
    assert found.text.endswith("1 of 54 cells is missing and left out.") and margins.figures(some)
    assert margins.finding(margins_results(np.nan, np.nan)).answer == "Not measured"


TITLES_THAT_ANSWER = ("more", "fewer", "few", "moves", "grows", "falls", "give up", "do not", "better", "worse")


def test_titles_say_what_is_shown_and_not_what_comes_out():
    shown = margins.figures(margins_results(0.7, 0.8))
    for figure in shown + attention.figures(attention_results(0.5, 0.2)):
        assert not any(word in figure.title.lower().split() for word in TITLES_THAT_ANSWER), figure.title


def attention_results(mass, difference, over_time=(0.3, 0.8, 1.0)):
    """Focus that ends at `mass` and goes there by the shares `over_time`."""
    sweep = attention.sweeps("quick")["look"]
    shape = (2, 4, 8, 8)
    data = filled(
        sweep,
        mass=lambda seed, **_: (
            ("sign", "record"),
            np.outer([mass + difference / 2, mass - difference / 2], np.ones(3)) * wiggle(seed),
        ),
        focus=lambda seed, **_: records(mass * wiggle(seed) * np.array(over_time)),
        maps=lambda **_: (("sign", "map", "query", "key_token"), np.full(shape, 0.125)),
        map_step=lambda **_: (("map",), np.array([0, 30, 200, 1000])),
        mean_alignment=lambda seed, **_: (("map",), 0.8 * wiggle(seed) * np.ones(4)),
        spread=lambda seed, **_: 0.2 * wiggle(seed),
        classes=lambda **_: 2,
    )
    return {"look": data.assign_coords(step=("record", [0, 30, 1000]))}


def test_attention_toward_or_away():
    toward = attention.finding(attention_results(0.5, 0.2))
    assert toward.answer.startswith("At the relevant tokens") and "sign + look there more" in toward.text
    away = attention.finding(attention_results(0.1, -0.05))
    assert away.answer.startswith("Away from the relevant tokens") and "sign - look there more" in away.text
    assert len(attention.figures(attention_results(0.5, 0.2))[1].panels) == 6


def test_attention_more_and_more_only_if_it_grows():
    assert attention.finding(attention_results(0.5, 0.2)).answer == "At the relevant tokens, more and more"
    still = attention.finding(attention_results(0.5, 0.2, over_time=(1, 1, 1)))
    assert still.answer == "At the relevant tokens, without a clear further trend from every start"
    less = attention.finding(attention_results(0.5, 0.2, over_time=(0.5, 1.5, 1)))
    assert less.answer == "At the relevant tokens, but less and less"
    mixed = attention_results(0.5, 0.2)
    mixed["look"]["focus"].loc[{"start": "zero"}] = 0.1
    assert attention.finding(mixed).answer == "It depends on the start"
    mixed["look"]["focus"].loc[{"start": "zero"}] = np.nan
    assert attention.finding(mixed).answer.startswith("Undecided")
    assert attention.finding(mixed).text.endswith("3 of 9 cells are missing and left out.")
    assert attention.finding(attention_results(np.nan, 0.2)).answer == "Not measured"


def literal_results(violated, threshold=24_000.0):
    sweep = literal.sweeps("quick")["a"]
    return {
        "a": filled(
            sweep,
            **{name: (lambda seed, **_: 1e6 * wiggle(seed)) for name in literal.ROUTES if name.startswith("asked")},
            threshold=lambda seed, **_: threshold * wiggle(seed),
            suffices=lambda **_: 1.0,
            bound=lambda seed, **_: 0.5 * wiggle(seed),
            mean_loss=lambda **_: 0.1,
            violated=lambda **_: violated,
            holding=lambda **_: 6 - violated,
            curve=lambda **_: (("point",), np.array([0.6, 0.1])),
            curve_step=lambda **_: (("point",), np.array([1, 300])),
        )
    }


def test_the_literal_theorem_holds_or_fails():
    assert literal.finding(literal_results(0)).answer == "24,000 heads; there every conclusion holds"
    assert literal.finding(literal_results(1)).answer.startswith("It fails: 3 conclusions are violated")
    assert literal.finding(literal_results(0, 240.0)).answer.startswith("240 heads")
    assert len(literal.figures(literal_results(0))) == 2


def test_no_number_of_heads_may_suffice():
    made = literal_results(0)
    made["a"]["suffices"][1] = np.inf
    found = literal.finding(made)
    assert "in 1 of 3 draws more than 1,024 heads are needed in fact" in found.text
    assert found.numbers["suffices.a"].estimate.count == 0  # not the mean of those that do
    bars = {mark.label: mark for mark in literal.figures(made)[0].panels[0].marks}
    assert bars["suffices, measured"].rows() == [] and len(bars["ours, loss 1/200"].rows()) == 1


def test_the_literal_theorem_is_not_said_to_hold_where_nothing_was_checked():
    made = literal_results(0)
    made["a"]["holding"][:] = 0
    assert literal.finding(made).answer == "24,000 heads; there no conclusion could be checked"
    made = literal_results(0)
    for name in made["a"]:
        made["a"][name] = made["a"][name].astype(float)
        made["a"][name][0] = np.nan
    found = literal.finding(made)
    assert found.answer.endswith("every conclusion holds") and "1 of 3 cells is missing" in found.text
    assert len(literal.figures(made)[1].panels) == 1
    for name in made["a"]:
        made["a"][name][:] = np.nan
    assert literal.finding(made).answer == "Not measured" and len(literal.figures(made)) == 1


def ledger_results(failing=(), violated=0):
    sweeps = ledger_study.sweeps("quick")
    checks = filled(
        sweeps["checks"],
        holds=lambda statement, **_: statement not in failing,
        trials=lambda **_: 10,
        ours=lambda statement, **_: 0.9 if statement.startswith("prop") else np.nan,
        printed=lambda statement, **_: 0.3,
    )
    run = filled(sweeps["run"], holds=lambda **_: 9, silent=lambda **_: 4, violated=lambda **_: violated)
    return {"checks": checks, "run": run}


def test_the_ledger_holds_or_fails():
    real = sum(entry.weight == "real" for entry in ledger().values())
    whole = ledger_study.finding(ledger_results())
    assert whole.answer.startswith("All ") and whole.answer.endswith(f"{real} are wrong as printed")
    broken = ledger_study.finding(ledger_results(failing=("thm1", "E1")))
    assert broken.answer.endswith("fail even when corrected: thm1") and "1 of " in broken.answer
    assert "violated on an ordinary run" in ledger_study.finding(ledger_results(violated=1)).answer
    assert ledger_study.figures(ledger_results())[0].panels[0].sideways


def test_a_check_that_did_not_run_has_not_failed():
    made = ledger_results()
    made["checks"]["holds"] = made["checks"]["holds"].astype(float)
    made["checks"]["holds"].loc[{"statement": "thm1"}] = np.nan
    found = ledger_study.finding(made)
    assert "that were checked (1 were not) hold once corrected" in found.answer
    assert f"1 of {len(ledger()) + 1} cells is missing" in found.text
    made["checks"]["holds"].loc[{"statement": "lemma1"}] = 0.0
    assert ledger_study.finding(made).answer.endswith("fail even when corrected: lemma1")
    made["checks"]["holds"][:] = np.nan
    for name in ("holds", "silent", "violated"):
        made["run"][name] = made["run"][name] * np.nan
    nothing = ledger_study.finding(made)
    assert nothing.answer == "Not measured" and "The ordinary run with 64 heads is missing." in nothing.text


@pytest.mark.parametrize("study", [heads, margins, attention, literal, step_size, ledger_study])
def test_sweeps_are_valid_at_both_scales(study):
    for scale in ("quick", "full"):
        assert all(sweep.num_cells > 0 for sweep in study.STUDY.plan(scale).values())
    with pytest.raises(ValueError, match="scale='slow' is not known"):
        study.STUDY.plan("slow")
