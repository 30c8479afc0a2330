import jax
import numpy as np
import pytest
import xarray
from scipy.optimize import linprog

from manyheads.model.attention import MultiHead
from manyheads.studies.needed_heads import study as needed_heads
from manyheads.studies.needed_heads.cells import count_parity, memorize, parity
from manyheads.studies.needed_heads.study import heads_bound
from manyheads.sweeps.plan import make_plan
from manyheads.sweeps.spec import Sweep
from manyheads.training.start import first_phase


def results(random_labels, planted, parity_needed, one_head=False):
    sizes, lengths = [16, 32, 64], [2, 3, 4]

    def sweep(dim, name, values, heads):
        needed = np.array(heads, float)
        shape = ("seed", dim)
        return xarray.Dataset(
            {"needed": (shape, needed)}, {name: (dim, values), "seed": range(len(needed))}
        )

    made = {
        "random_labels": sweep("size", "sizes", sizes, random_labels),
        "planted": sweep("size", "sizes", sizes, planted),
        "parity": sweep("length", "lengths", lengths, parity_needed),
    }
    made["parity"]["one_head"] = (("seed", "length"), np.full((len(parity_needed), 3), one_head))
    made["parity"] = made["parity"].assign_coords(heads=("head", [1, 2, 4]))
    steps = np.array(
        [[np.inf, np.inf], [np.inf, 50.0], [20.0, 30.0]]
    )  # one head never, two half of the time
    made["parity"]["steps"] = (
        ("seed", "length", "head", "drawn"),
        np.tile(steps, (len(parity_needed), 3, 1, 1)),
    )
    made["parity"]["limit"] = ("seed", np.full(len(parity_needed), 400))
    for data in made.values():
        data["largest"] = ("seed", np.full(data.sizes["seed"], 16))
    return made


GROWING, FLAT = [[1, 2, 4], [1, 2, 5], [1, 3, 4]], [[1, 1, 1], [1, 1, 2], [1, 1, 1]]
FITTED = [[2, 1, 2], [2, 1, 3], [2, 2, 2]]


def test_the_answer_follows_the_runs():
    found = needed_heads.finding(results(GROWING, FLAT, FITTED))
    assert found.answer.startswith("Yes: one head never fits")
    assert (
        "need more heads the more sequences" in found.text
        and "Random labels need more than" in found.text
    )
    other = needed_heads.finding(results(FLAT, GROWING, FITTED, one_head=True))
    assert other.answer == "No: one head fits the construction"
    assert "no clear trend" in other.text and "Random labels need fewer than" in other.text
    falling = needed_heads.finding(results([row[::-1] for row in GROWING], FLAT, FITTED))
    assert "need fewer heads the more sequences" in falling.text


def test_a_run_below_the_proved_number_is_reported_as_a_contradiction():
    found = needed_heads.finding(results(GROWING, FLAT, [[2, 1, 1], [2, 1, 3]]))
    assert found.answer.startswith("The proof is contradicted: parity of 4 tokens")


def test_nothing_fitted_is_not_called_a_proof():
    nothing = needed_heads.finding(results(GROWING, FLAT, np.full((2, 3), np.inf)))
    assert nothing.answer.endswith("neither did any number tried")
    assert (
        "To fit parity, training needed more than 16 heads for 2 tokens in 2 of 2 draws"
        in nothing.text
    )


def test_a_cell_that_failed_does_not_say_that_one_head_fits():
    made = results(GROWING, FLAT, FITTED)
    made["parity"]["one_head"] = made["parity"]["one_head"].astype(float)
    for name in ("needed", "one_head", "steps"):
        made["parity"][name][1] = np.nan
    found = needed_heads.finding(made)
    assert found.answer.startswith("Yes: one head never fits")
    assert found.text.endswith("1 of 9 cells is missing and left out.") and needed_heads.figures(
        made
    )
    for data in made.values():
        for name in data:
            data[name] = data[name].astype(float) * np.nan
    nothing = needed_heads.finding(made)
    assert nothing.answer == "Not measured" and "were not measured" in nothing.text


def test_draws_that_need_more_than_was_tried_are_not_left_out():
    beyond = [[1, 4, 14], [2, 5, 16], [1, 4, np.inf], [2, 5, np.inf]]
    made = results(beyond, [*FLAT, [1, 1, 1]], FITTED)
    found = needed_heads.finding(made)
    assert found.numbers["needed.random_labels.64"].estimate.value == 15.5
    assert found.numbers["needed.random_labels.64"].caption.endswith(
        "(lower bound: 2 of 4 need more)"
    )
    assert (
        "need more than 16 heads at n = 64 in 2 of 4 draws" in found.text
        and "no exponent" in found.text
    )
    assert found.numbers["exponent.random_labels"].estimate.count == 0
    assert found.numbers["random_over_planted"].estimate.count == 0
    figure, _ = needed_heads.figures(made)
    assert figure.panels[0].marks[0].y[-1] == 15.5 and "a lower bound" in figure.caption
    assert "lower bound" not in needed_heads.figures(results(GROWING, FLAT, FITTED))[0].caption


def test_figures_show_what_is_proved_beside_what_was_needed():
    figure, steps = needed_heads.figures(results(GROWING, FLAT, FITTED))
    proved, measured = figure.panels[1].marks
    assert proved.y == (2, 1, 2)
    shares, medians = (panel.marks for panel in steps.panels)
    assert [mark.y[0] for mark in shares] == [0, 0.5, 1] and medians[-1].y[0] == 20
    assert all(
        np.isfinite(mark.y).any() and mark.label != "1 head" for mark in medians
    )  # one head never fits
    assert measured.y == pytest.approx((2, 4 / 3, 7 / 3))


def test_how_often_and_how_fast_parity_is_fitted():
    found = needed_heads.finding(results(GROWING, FLAT, FITTED))
    assert found.numbers["fitted.4.2"].estimate.value == 0.5 and "fitted.4.1" not in found.numbers
    assert (
        found.numbers["steps.4.4"].estimate.value == 20
        and found.numbers["steps.4.4"].estimate.high == 30
    )
    assert (
        "fit 4 tokens within 400 steps of Adam" in found.text
        and "1 with 4 heads (median 20 steps)" in found.text
    )


def test_the_interval_of_a_median_covers_it():
    rng = np.random.default_rng(0)
    inside = [
        (e := needed_heads._median(rng.exponential(size=24))).low <= np.log(2) <= e.high
        for _ in range(400)
    ]
    assert np.mean(inside) >= 0.93  # order statistics promise 95%; two standard errors of 400 draws
    assert needed_heads._median(np.array([np.inf, 3.0, np.inf, 4.0, 5.0])).value == 5
    assert needed_heads._median(np.array([np.nan])).count == 0


def count_values(tokens, first, second):
    """What the permutations of a sequence with r tokens p average to, for a head with preferences c, c' (Proposition 2)."""
    rho = np.arange(tokens + 1) / tokens
    return rho**2 / (rho + (1 - rho) * first) + rho * (1 - rho) / (rho + (1 - rho) * second)


def best_margin(tokens, preferences):
    """The largest margin on the parity of counts for heads with these preferences, readouts free: a linear program."""
    y = (-1.0) ** np.arange(tokens + 1)
    F = y[:, None] * np.stack(
        [np.ones(tokens + 1), *(count_values(tokens, *c) for c in preferences)], axis=1
    )
    rows = np.concatenate([-F, np.ones((tokens + 1, 1))], axis=1)
    bounds = [(-1, 1)] * F.shape[1] + [(None, None)]
    goal = np.zeros(F.shape[1] + 1)
    goal[-1] = -1
    return -linprog(goal, A_ub=rows, b_ub=np.zeros(tokens + 1), bounds=bounds, method="highs").fun


@pytest.mark.parametrize("tokens", [2, 4, 5, 6])
def test_fewer_heads_than_the_bound_never_fit_parity(tokens):
    rng = np.random.default_rng(tokens)
    heads = heads_bound(tokens) - 1
    draws = (np.exp(rng.normal(0, rng.choice([1, 4, 8]), (heads, 2))) for _ in range(150))
    assert max(best_margin(tokens, c) for c in draws) < 1e-12


@pytest.mark.parametrize("tokens", [2, 3, 4])
def test_the_bound_is_reached_for_short_sequences(tokens):
    rng = np.random.default_rng(tokens)
    draws = (
        np.exp(rng.normal(0, rng.choice([1, 4]), (heads_bound(tokens), 2))) for _ in range(100)
    )
    assert max(best_margin(tokens, c) for c in draws) > 1e-3


def test_permutations_average_to_the_formula_of_the_proof():
    data = count_parity(4)
    rng = np.random.default_rng(0)
    W, U = rng.normal(0, 0.5, (1, 2, 2)), rng.normal(size=(1, 4, 2))
    scores = MultiHead.create(W, U).scores(data)
    count = (data.tokens[:, :, 0] > 0).sum(axis=1)
    averages = np.array([scores[count == r].mean() for r in range(5)])
    p, q = 2 * np.eye(2)
    v_p, v_q = U[0].sum(axis=0) @ p, U[0].sum(axis=0) @ q
    c, other = np.exp(p @ W[0] @ q - p @ W[0] @ p), np.exp(q @ W[0] @ q - q @ W[0] @ p)
    np.testing.assert_allclose(averages, v_q + (v_p - v_q) * count_values(4, c, other), atol=1e-12)


def test_as_many_heads_as_tokens_interpolate_any_labels_of_the_counts():
    tokens = 5
    data = count_parity(tokens)
    p, q = 2 * np.eye(2)
    c = np.array([0.05, 0.3, 1.0, 4.0, 20.0])
    g = np.stack([count_values(tokens, each, each) for each in c], axis=1)
    wanted = np.array([1.0, -1.0, -1.0, 1.0, -1.0, 1.0])  # by the number of p, not even parity
    share = np.linalg.solve(np.column_stack([np.ones(tokens + 1), g]), wanted)
    W = -np.log(c)[:, None, None] * np.outer(p + q, p) / 16
    values = share[1:, None] * p / 4 + (share[0] / tokens) * (p + q)[None] / 4
    U = np.repeat(values[:, None, :], tokens, axis=1) * np.sqrt(tokens) / tokens
    scores = MultiHead.create(W, U).scores(data)
    np.testing.assert_allclose(scores, wanted[(data.tokens[:, :, 0] > 0).sum(axis=1)], atol=1e-8)


def test_parity_counts_the_second_token_and_masks_the_padding():
    data = count_parity(2, padded_to=3)
    assert data.labels.tolist() == [1, -1, -1, 1] and data.mask.sum() == 8
    np.testing.assert_array_equal(data.tokens[1], [[2, 0], [0, 2], [0, 0]])


def test_training_needs_two_heads_where_one_is_proved_not_to_do():
    spec = {"optimizer": "adam", "step_size": 0.05, "num_steps": 300}
    parameters = {"lengths": [2], "heads": [1, 2, 3], "starts": 4}
    sweep = Sweep(
        start={"kind": "gaussian"},
        train=spec,
        cell=f"{needed_heads.CELLS}:parity",
        parameters=parameters,
    )
    (cell,) = make_plan(sweep).cells
    found = parity(cell, **parameters)
    assert found["needed"][1].tolist() == [2] and found["one_head"][1].tolist() == [False]
    steps = found["steps"][1]
    assert steps.shape == (1, 3, 4) and np.isinf(steps[0, 0]).all() and 0 < np.nanmin(steps) < 300


def test_a_larger_sample_may_need_fewer_heads(monkeypatch):
    """Whatever training does with one size does not move the search for another."""
    from manyheads.studies.needed_heads import cells

    fits = {8: 4, 16: 2}  # the smaller sample was unlucky
    monkeypatch.setattr(
        cells,
        "_fit",
        lambda cell, data, size, candidates, heads, restarts: (heads >= fits[size], 1),
    )
    monkeypatch.setattr(cells, "set_up", lambda cell: type("Setup", (), {"dataset": None}))
    found = memorize(None, sizes=[8, 16], candidates=[1, 2, 4], restarts=1)
    assert found["needed"][1].tolist() == [4, 2] and found["largest"] == 4
    fits[16] = 9
    assert memorize(None, sizes=[8, 16], candidates=[1, 2, 4], restarts=1)["needed"][
        1
    ].tolist() == [4, np.inf]


def test_memorizing_one_token_needs_a_separable_sample():
    spec = {"optimizer": "adam", "step_size": 0.05, "num_steps": 200}
    parameters = {"sizes": [2, 16], "candidates": [1, 2], "restarts": 1}
    data = {"kind": "random_labels", "num_tokens": 1, "dim": 2, "num_examples": 16, "num_test": 0}
    sweep = Sweep(
        data=data, start={"kind": "gaussian"}, train=spec, cell=f"{needed_heads.CELLS}:memorize"
    )
    (cell,) = make_plan(sweep).cells
    found = memorize(cell, **parameters)["needed"][1]
    # one token of norm 2 in the plane: a linear classifier through the origin, whatever the heads
    from manyheads.sweeps.setup import set_up

    whole = set_up(cell).dataset
    angles = np.linspace(0, 2 * np.pi, 3600, endpoint=False)
    directions = np.stack([np.cos(angles), np.sin(angles)])
    signed = whole.labels[:, None] * whole.tokens[:, 0]
    separable = [bool((signed[:n] @ directions > 0).all(axis=0).any()) for n in (2, 16)]
    assert np.isfinite(found).tolist() == separable == [True, False]


def test_heads_without_weight_change_nothing():
    from manyheads.training.descent import train
    from manyheads.training.rules import Adam
    from manyheads.training.start import gaussian_start

    data = count_parity(2)
    drawn = gaussian_start(3, num_tokens=2, dim=2, key=jax.random.key(0))
    padded = MultiHead(drawn.key_query, drawn.readout, np.array([1.0, 1.0, 0.0]))
    alone = MultiHead.create(drawn.key_query[:2], drawn.readout[:2])
    plan = {"rule": Adam(0.05), "num_steps": 20, "dtype": "float64"}
    np.testing.assert_allclose(
        train(padded, data, **plan).margin, train(alone, data, **plan).margin, rtol=1e-12
    )


@pytest.mark.parametrize("tokens", [2, 3, 5])
def test_on_parity_the_first_phase_is_the_zero_start(tokens):
    """One step from zero moves the readouts along the mean of y times the mean token, which is zero."""
    data = count_parity(tokens)
    start = first_phase(data, 4)
    assert np.abs(start.readout).max() < 1e-15 and not np.any(start.key_query)
