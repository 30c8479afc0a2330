import numpy as np
from synthetic import filled, wiggle

from manyheads.studies.literal import study as literal

PAPER, TANGENT = 24_000.0, 8_000.0
MIDDLE = np.mean([wiggle(seed) for seed in range(3)])


def literal_results(violated=0, paper=PAPER, tangent=TANGENT, half_of=2.0):
    """Heads along both directions for a loss below 0.5, `half_of` times fewer below log 2; on D a tenth of that."""

    def heads(share):
        def made(seed, **_):
            below_half = share * np.array([paper, tangent]) * wiggle(seed) / MIDDLE
            return ("level", "direction"), np.stack([below_half, below_half / half_of])

        return made

    def by_level(value):
        return lambda **_: (("level",), np.array([value, value]))

    return {
        name: filled(
            sweep,
            **{
                name: (lambda seed, **_: 1e6 * wiggle(seed))
                for name in literal.ROUTES
                if name.startswith("asked")
            },
            heads=heads({"a": 1.0, "d": 0.1}[name]),
            suffices=by_level(1.0),
            bound=lambda seed, **_: (("level",), np.array([0.5, 0.69]) * wiggle(seed)),
            mean_loss=by_level(0.1),
            violated=lambda **_: violated,
            holding=lambda **_: 6 - violated,
            curve=lambda **_: (("point",), np.array([0.6, 0.1])),
            curve_step=lambda **_: (("point",), np.array([1, 300])),
        )
        for name, sweep in literal.sweeps("quick").items()
    }


def test_the_number_of_heads_is_the_smallest_over_directions_data_and_losses():
    """24,000 along the paper's direction is not what the theorem needs: 8,000 along the best, 400 on D below log 2."""
    found = literal.finding(literal_results())
    assert found.answer == (
        "400 heads at the least, for a mean loss below log 2 on the easiest mixture, D; there every conclusion holds (Theorem 1′, the best "
        "of two directions, mixtures A and D)"
    )
    assert "below 0.5 with 8,000 heads on A and 800 heads on D" in found.sentence
    assert (
        "with 4,000 heads on A and 400 heads on D" in found.sentence
        and "24,000" not in found.sentence
    )
    value = {
        name: found.numbers[f"heads.{name}"].estimate.value
        for name in ("a.below_half.paper", "d.below_log2.tangent")
    }
    np.testing.assert_allclose([*value.values()], [24_000, 400], rtol=0.01)
    other = literal.finding(literal_results(paper=500.0))
    assert (
        "below 0.5 with 500 heads on A and 50 heads on D" in other.sentence
    )  # the paper's direction may be the better one
    bars = {mark.label: mark.y for mark in literal.figures(literal_results())[0].panels[0].marks}
    np.testing.assert_allclose(bars["Theorem 1′, below 0.5"], [8000, 800], rtol=0.01)
    np.testing.assert_allclose(bars["Theorem 1′, below log 2"], [4000, 400], rtol=0.01)


def test_a_direction_that_does_not_separate_is_left_out():
    made = literal_results()
    for data in made.values():
        data["heads"][..., 1] = np.nan
    found = literal.finding(made)
    assert "below 0.5 with 24,000 heads on A" in found.sentence and "needs" not in found.sentence


def test_the_literal_theorem_holds_or_fails():
    assert literal.finding(literal_results(violated=1)).answer.startswith(
        "It fails: 6 conclusions are violated"
    )
    assert len(literal.figures(literal_results())) == 2


def test_no_number_of_heads_may_suffice():
    made = literal_results()
    made["a"]["suffices"][1, 0] = np.inf
    found = literal.finding(made)
    assert (
        "more than 1,024 heads are needed in 1 of 3 draws on A and 1 head reaches a mean loss below 0.5 on D"
        in found.text
    )
    assert found.numbers["suffices.a"].estimate.count == 0  # not the mean of those that do
    bars = {mark.label: mark for mark in literal.figures(made)[0].panels[0].marks}
    assert (
        len(bars["suffices, measured"].rows()) == 1
        and len(bars["Theorem 1′, below 0.5"].rows()) == 2
    )


def test_the_literal_theorem_is_not_said_to_hold_where_nothing_was_checked():
    made = literal_results()
    for data in made.values():
        data["holding"][:] = 0
    assert "there no conclusion could be checked" in literal.finding(made).answer
    made = literal_results()
    for name in made["a"]:
        made["a"][name] = made["a"][name].astype(float)
        made["a"][name][0] = np.nan
    found = literal.finding(made)
    assert "every conclusion holds" in found.answer and "1 of 6 cells is missing" in found.text
    assert len(literal.figures(made)[1].panels) == 2
    for data in made.values():
        for name in data:
            data[name] = data[name].astype(float) * np.nan
    assert literal.finding(made).answer == "Not measured" and len(literal.figures(made)) == 1
