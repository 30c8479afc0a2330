import numpy as np
from synthetic import filled

from manyheads.certificates.ledger import ledger
from manyheads.studies.ledger import study as ledger_study


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


