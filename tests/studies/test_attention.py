import numpy as np
from synthetic import filled, wiggle

from manyheads.studies.attention import study as attention


def records(values):
    return ("record",), np.asarray(values, dtype=float)


def attention_results(mass, difference, over_time=(0.3, 0.8, 1.0), minus=None):
    """Focus that ends at `mass` and goes there by the shares `over_time`.

    `minus` gives the attention of the - heads over time for a number of heads; by default it only grows.
    """
    sweeps = attention.sweeps("quick")
    shape = (2, 4, 8, 8)
    minus = minus or (lambda num_heads: np.linspace(0.25, 0.4, 6))
    look = filled(
        sweeps["look"],
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

    def by_sign(num_heads, seed, **_):
        off = (minus(num_heads) - 0.25) * wiggle(seed)
        return ("sign", "record"), 0.25 + np.stack([np.abs(off), off])

    signs = filled(sweeps["signs"], mass=by_sign).assign_coords(
        step=("record", [0, 10, 30, 100, 300, 1000])
    )
    return {"look": look.assign_coords(step=("record", [0, 30, 1000])), "signs": signs}


def test_minus_heads_that_first_look_away_are_said_to():
    """At the end the - heads of two heads look at the relevant tokens, those of 64 still do not."""

    def minus(num_heads):
        few, many = [0.25, 0.243, 0.248, 0.26, 0.4, 0.6], [0.25, 0.249, 0.247, 0.245, 0.243, 0.244]
        return np.array(few if num_heads == 2 else many)

    found = attention.finding(attention_results(0.5, 0.2, minus=minus))
    assert "heads with sign - first look away, and with 64 heads still do" in found.answer
    assert (
        "with 2 heads it falls to 0.243 and is above it again after about 100 steps"
        in found.sentence
    )
    assert (
        "with 64 heads it falls to 0.243 and is still below it after 1,000 steps" in found.sentence
    )
    assert found.numbers["minus_end.64"].estimate.below(0) and "minus_back.64" not in found.numbers


def test_minus_heads_that_come_back_or_never_left():
    def dips(num_heads):
        return np.array([0.25, 0.243, 0.248, 0.26, 0.4, 0.6])

    back = attention.finding(attention_results(0.5, 0.2, minus=dips))
    assert (
        "heads with sign - first look away, then follow" in back.answer
        and "still" not in back.answer
    )
    never = attention.finding(attention_results(0.5, 0.2))
    assert (
        "look away" not in never.answer
        and "with 64 heads it never falls clearly below it" in never.sentence
    )


def test_attention_toward_or_away():
    toward = attention.finding(attention_results(0.5, 0.2))
    assert (
        toward.answer.startswith("At the relevant tokens")
        and "sign + look there more" in toward.text
    )
    away = attention.finding(attention_results(0.1, -0.05))
    assert (
        away.answer.startswith("Away from the relevant tokens")
        and "sign - look there more" in away.text
    )
    assert len(attention.figures(attention_results(0.5, 0.2))[1].panels) == 6
    assert [
        mark.label for mark in attention.figures(attention_results(0.5, 0.2))[0].panels[2].marks
    ][:2] == [
        "2 heads",
        "64 heads",
    ]


def test_attention_more_and_more_only_if_it_grows():
    assert attention.finding(attention_results(0.5, 0.2)).answer == (
        "At the relevant tokens, more and more (8 heads unless stated, mixture with ζ = 0.25, 80 sequences, 1,000 steps "
        "of size 0.2)"
    )
    still = attention.finding(attention_results(0.5, 0.2, over_time=(1, 1, 1)))
    assert still.answer.startswith(
        "At the relevant tokens, without a clear further trend from every start"
    )
    less = attention.finding(attention_results(0.5, 0.2, over_time=(0.5, 1.5, 1)))
    assert less.answer.startswith("At the relevant tokens, but less and less")
    mixed = attention_results(0.5, 0.2)
    mixed["look"]["focus"].loc[{"start": "zero"}] = 0.1
    assert attention.finding(mixed).answer.startswith("It depends on the start")
    mixed["look"]["focus"].loc[{"start": "zero"}] = np.nan
    assert attention.finding(mixed).answer.startswith("Undecided")
    assert attention.finding(mixed).text.endswith("3 of 15 cells are missing and left out.")
    assert attention.finding(attention_results(np.nan, 0.2)).answer == "Not measured"
