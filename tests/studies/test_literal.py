import numpy as np
from synthetic import filled, wiggle

from manyheads.studies.literal import study as literal


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


