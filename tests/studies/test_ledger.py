import numpy as np
from synthetic import filled

from manyheads.studies.ledger import study as ledger_study
from manyheads.theory.ledger import ledger


def ledger_results(failing=(), violated=0, trials=lambda statement: 10):
    sweeps = ledger_study.sweeps("quick")
    checks = filled(
        sweeps["checks"],
        holds=lambda statement, **_: statement not in failing,
        trials=lambda statement, **_: trials(statement),
        ours=lambda statement, **_: 0.9 if statement.startswith("prop") else np.nan,
        printed=lambda statement, **_: 0.3,
    )
    run = filled(
        sweeps["run"], holds=lambda **_: 9, silent=lambda **_: 4, violated=lambda **_: violated
    )
    return {"checks": checks, "run": run}


def test_the_ledger_holds_or_fails():
    real = sum(entry.weight == "real" for entry in ledger().values())
    whole = ledger_study.finding(ledger_results())
    assert whole.answer.startswith("All ") and whole.answer.endswith(
        f"{real} are wrong as printed (10 inputs or more for each statement)"
    )
    broken = ledger_study.finding(ledger_results(failing=("thm1", "E1")))
    assert broken.answer.endswith("fail even when corrected: thm1") and "1 of " in broken.answer
    assert "violated on an ordinary run" in ledger_study.finding(ledger_results(violated=1)).answer
    assert ledger_study.figures(ledger_results())[0].panels[0].sideways


def test_one_lemma_with_many_trials_does_not_hide_that_theorem_1_had_seven():
    few = {"thm1": 7, "thm2": 1, "lemma3": 1, "lemmaC": 20_001}
    made = ledger_results(trials=lambda statement: few.get(statement, 400))
    found = ledger_study.finding(made)
    assert found.answer.endswith("(1 input or more for each statement)")
    assert "from 1, of thm2 and lemma3, to 20,001, of lemmaC; the median is 400" in found.sentence
    assert found.numbers["depth.thm1"].estimate.value == 7
    drawn = ledger_study.figures(made)[1].panels[0].marks[0]
    assert dict(zip(drawn.x, drawn.y, strict=True))["thm1"] == 7 and not any(
        name.startswith("E") for name in drawn.x
    )


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
    assert (
        nothing.answer == "Not measured"
        and "The ordinary run with 64 heads is missing." in nothing.text
    )
