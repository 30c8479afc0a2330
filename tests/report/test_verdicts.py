import json
from dataclasses import replace

import xarray

from manyheads.report.verdicts import MOST_REASONS, good_starts, ledger_table
from manyheads.studies.kit.estimate import number
from manyheads.sweeps.plan import make_plan
from manyheads.sweeps.setup import set_up
from manyheads.sweeps.spec import Sweep
from manyheads.theory.verdict import OURS, Bound, Certificate, Hypothesis


def results(**texts):
    return [
        {
            "runs": xarray.Dataset(
                {name: ("seed", [json.dumps(items)]) for name, items in texts.items()}
            )
        }
    ]


def certificate(measured, *, hypothesis=True):
    return Certificate(
        "thm1", "the claim", measured, (Bound(OURS, 1.0, (Hypothesis("a condition", hypothesis),)),)
    )


def row(table, name):
    (found,) = [r for r in table["statements"] + table["errata"] if r["entry"].id == name]
    return found


def test_verdicts_are_computed_again_and_the_worst_come_first():
    items = [{"run": "good", "certificate": certificate(0.5).to_dict()}]
    items += [{"run": "silent", "certificate": certificate(0.5, hypothesis=False).to_dict()}]
    lying = {**certificate(2.0).to_dict(), "verdict": "HOLDS"}
    items += [{"run": "bad", "certificate": lying}]
    thm1 = row(ledger_table(results(certificates=items)), "thm1")
    assert [chip["name"] for chip in thm1["chips"]] == ["VIOLATED", "HOLDS", "SILENT"]
    assert thm1["verdicts"][0]["run"] == "bad"


def test_many_runs_are_counted_and_only_some_are_written_out():
    items = [{"run": f"run {i}", "certificate": certificate(0.5).to_dict()} for i in range(20)]
    thm1 = row(ledger_table(results(certificates=items)), "thm1")
    assert thm1["chips"] == [{"name": "HOLDS", "text": "HOLDS × 20"}]
    assert len(thm1["verdicts"]) == MOST_REASONS and thm1["more"] == 20 - MOST_REASONS


def test_an_erratum_is_reproduced_or_not():
    check = {
        "statement": "E1",
        "trials": 3,
        "ours": 1e-16,
        "printed": 4.0,
        "verdict": "HOLDS",
        "detail": "as said",
    }
    table = ledger_table(results(ledger=[check]))
    assert row(table, "E1")["verdicts"][0]["text"] == "REPRODUCED"
    assert table["counts"] == [{"name": "none", "text": "1 errata reproduced"}]
    failed = ledger_table(results(ledger=[{**check, "verdict": "VIOLATED"}]))
    assert row(failed, "E1")["verdicts"][0]["text"] == "NOT REPRODUCED"


def test_a_start_that_does_not_separate_is_called_so():
    start = {
        "name": "a start",
        "about": "",
        "b2": 1.0,
        "b_phi": 0.5,
        "p3_margin": 0.7,
        "distinct": "2 of 8",
    }
    start |= {"p3_upper": 0.71}
    (good,) = good_starts(results(good_start=[start]))
    assert (good["mood"], good["judgment"], good["margin"]) == ("holds", "good", "0.7")
    (bad,) = good_starts(results(good_start=[{**start, "p3_margin": 0.0, "p3_upper": 1e-9}]))
    assert bad["mood"] == "silent" and "not proved to separate, none above 1e-9" in bad["judgment"]


def test_the_bound_in_the_table_is_the_one_that_the_cell_measured(monkeypatch):
    from manyheads.studies.initialization import cells as initialization

    data = {"num_examples": 8, "num_test": 4, "num_tokens": 4, "dim": 6, "signal": 1.5}
    sweep = Sweep(
        data=data, start={"kind": "zero"}, model={"num_heads": 2}, train={"num_steps": 2}, seeds=[3]
    )
    (cell,) = make_plan(sweep).cells
    setup = set_up(cell)
    twice = setup.dataset.subset([0, 1, 2, 3, 0, 1, 2, 3])
    twice.labels[4:] *= -1  # every sequence with both labels: nothing separates them
    monkeypatch.setattr(initialization, "set_up", lambda _: replace(setup, dataset=twice))
    found = initialization.look(cell, card="Zero")
    assert found["p3_margin"] == 0
    (card,) = good_starts(
        [{"runs": xarray.Dataset({"good_start": ("seed", [found["good_start"]])})}]
    )
    assert (
        card["mood"] == "silent" and f"none above {number(found['p3_upper'])}" in card["judgment"]
    )


def test_a_start_has_one_row_whatever_its_seeds():
    start = {
        "name": "a start",
        "about": "",
        "b2": 1.0,
        "b_phi": 0.5,
        "p3_margin": 0.7,
        "distinct": "2 of 8",
    }
    texts = [["", json.dumps([start])], ["[]", json.dumps([{**start, "name": "other"}])]]
    dataset = xarray.Dataset({"good_start": (("num_heads", "seed"), texts)})
    assert [card["name"] for card in good_starts([{"runs": dataset}])] == ["a start", "other"]
    both = xarray.Dataset({"good_start": ("seed", [json.dumps([start])] * 3)})
    assert len(good_starts([{"runs": both}])) == 1


def test_a_page_lists_no_statement_that_was_not_run():
    assert ledger_table([]) | {"about": ""} == {
        "about": "",
        "counts": [],
        "statements": [],
        "errata": [],
    }
