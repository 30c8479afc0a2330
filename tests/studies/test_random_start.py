import jax
import numpy as np
import pytest
import xarray
from scipy.optimize import minimize

from manyheads.data.dataset import Dataset
from manyheads.measures.kernel import tangent_kernel
from manyheads.studies.random_start import study as random_start
from manyheads.studies.random_start.cells import along, separation
from manyheads.studies.random_start.limit import draw_key_query, limit_kernel
from manyheads.sweeps.plan import make_plan
from manyheads.sweeps.setup import set_up
from manyheads.sweeps.spec import Sweep
from manyheads.training.start import gaussian_start

CELL = f"{random_start.CELLS}:separation"
WOBBLE = np.array([0.99, 1.0, 1.01, 1.0])


def sweep(axes, margins, zero=0.9, sizes=None, edge=None):
    """Margins per axis value, a little apart between seeds; over sizes too where these are given, with their edge."""
    dims = (*axes, "seed", *(["size"] if sizes else []))
    margin = np.asarray(margins, float)
    margin = np.moveaxis(margin[..., None] * WOBBLE, -1, len(axes))
    values = {"margin": margin, "half": 0.99 * margin, "separable": (margin > 0).astype(float)}
    values |= {"zero_margin": zero * np.ones_like(margin)}
    made = xarray.Dataset(
        {name: (dims, value) for name, value in values.items()}, {**axes, "seed": range(4)}
    )
    if sizes:
        made = made.assign_coords(sizes=("size", sizes))
        low, high = edge or (sizes[-1], np.inf)
        shape = made["margin"].isel(size=-1)
        made = made.assign(last_separable=0 * shape + low, first_inseparable=0 * shape + high)
    return made


def results(
    hard=(0.8, 0.4),
    one=(0.7, 0.1),
    zero=(0.3, 0.0),
    first=(0.5, 0.2),
    heads=(1.0, 1.0, 1.0),
    labels=(0.0, 0.1, 0.2),
):
    count = {"num_heads": [1.0, 4.0, 16.0]}
    grid = {"key_query_scale": [0.1, 1.0], "readout_scale": [0.1, 1.0]}
    sizes = [100, 400]
    return {
        "easy": sweep({}, 1.0, zero=0.98),
        "hard": sweep({"num_heads": [1.0, 16.0]}, [one, hard], sizes=sizes),
        "zero": sweep({}, zero, sizes=sizes, edge=None if zero[1] else (180, 200)),
        "first": sweep({}, first, sizes=sizes),
        "limit": sweep({}, [1.25 * hard[1]], sizes=[400]).isel(seed=slice(2)),
        "heads": sweep(count, np.asarray(heads)[:, None], sizes=[400]),
        "labels": sweep(count, labels),
        "scale": sweep(grid, np.ones((2, 2, 1)), sizes=[400]),
    }


def test_the_comparison_is_made_where_a_linear_model_fails():
    """On data that a linear model separates all margins are alike: the old answer was about those alone."""
    found = random_start.finding(results())
    assert found.answer == (
        "Yes: all 4 Gaussian starts separate the hard mixture (n = 400, 16 heads of norm 1), with 2 times the margin of "
        "the first phase; the first phase has the larger margin against 1 head from n = 160 on; a linear model separates "
        "up to n = 190"
    )
    assert "The zero start separates up to n = 190 and for " in found.text
    assert "not every draw stops separating by n = 400." in found.text
    assert "the zero start, a linear model, has 98% of the Gaussian margin" in found.text
    assert "16 heads have 0.8 times the margin of infinitely many" in found.text
    linear = random_start.finding(results(zero=(0.3, 0.2)))
    assert linear.answer.endswith("a linear model does too")


def test_the_order_turns_where_the_margins_cross():
    """In logarithms 0.7/0.5 at n = 100 and 0.1/0.2 at n = 400 meet at 0.327 of the way."""
    found = random_start.finding(results())
    share = np.log(1.4) / np.log(1.4 / 0.5)
    assert found.numbers["crossing.1"].estimate.value == pytest.approx(100 * 4**share, rel=1e-6)
    assert found.numbers["crossing.16"].estimate.count == 0
    ahead = random_start.finding(results(one=(0.7, 0.3)))
    assert (
        "has the larger margin" not in ahead.answer
        and ahead.numbers["crossing.1"].estimate.count == 0
    )
    lost = random_start.finding(results(one=(0.7, 0.0)))  # no margin at all: half way
    assert lost.numbers["crossing.1"].estimate.value == pytest.approx(200)


def test_the_answer_follows_the_margins():
    assert "with 0.5 times the margin" in random_start.finding(results(first=(0.5, 0.8))).answer
    assert "within 5%" in random_start.finding(results(first=(0.5, 0.4))).answer
    none = random_start.finding(results(hard=(0.8, 0.0), first=(0.5, 0.0)))
    assert (
        none.answer.startswith("No: none of 4 Gaussian starts")
        and "not every first phase does" in none.answer
    )
    some = results()
    some["hard"]["separable"][1, 0, -1] = 0.0
    assert random_start.finding(some).answer.startswith("Sometimes: 3 of 4")
    text = random_start.finding(results(heads=(0.5, 0.7, 1.0))).text
    assert "grows with H" in text


def test_a_draw_that_did_not_run_is_not_called_inseparable():
    made = results()
    for name in made["hard"]:
        made["hard"][name][1, 1] = np.nan
    made["labels"]["separable"][1, 2] = made["labels"]["margin"][1, 2] = np.nan
    found = random_start.finding(made)
    assert (
        found.answer.startswith("Yes: all 3 Gaussian starts")
        and "from 4 heads on in every draw" in found.text
    )
    assert found.text.endswith("2 of 62 cells are missing and left out.") and random_start.figures(
        made
    )
    for data in made.values():
        for name in data:
            data[name][:] = np.nan
    nothing = random_start.finding(made)
    assert nothing.answer == "Not measured" and "in no draw that was run" in nothing.text
    assert random_start.figures(made)


def test_from_a_number_of_heads_on_means_every_larger_one():
    def said(*separated):
        made = results(labels=[1.0, 1.0, 1.0])
        made["labels"]["separable"][:] = np.arange(4) < np.array(separated)[:, None]
        return random_start.finding(made).text

    assert "from 16 heads on in every draw" in said(4, 3, 4)
    assert "from 1 head on in every draw" in said(4, 4, 4)
    assert "in all draws at some H, not at larger ones" in said(4, 4, 3)


def test_the_margin_over_the_scale_is_in_the_answer():
    made = results()
    made["scale"]["margin"] = made["scale"]["margin"] * np.reshape(
        [1, 3, 1, 1.5], (2, 2, 1, 1)
    )  # W, U
    found = random_start.finding(made)
    assert "norm of a head's U goes from 0.1 to 1 it grows 1.5" in found.text
    assert "norm of a head's W goes from 0.1 to 1 it falls to 0.5" in found.text
    same = random_start.finding(results()).text
    assert "norm of a head's U goes from 0.1 to 1 it hardly changes" in same


def test_figures_show_margins_on_one_scale():
    margin, scale = random_start.figures(results())
    roles = [mark.role for mark in margin.panels[0].marks]
    assert roles == ["heads:1", "heads:16", "reference", "first phase", "zero"]
    assert {mark.scale for panel in margin.panels for mark in panel.marks} == {"P3"}
    assert scale.panels[0].limits[1] >= 1.0


def test_the_limit_is_what_many_heads_come_to():
    """Against the kernel of many drawn heads, and in closed form where attention is uniform."""
    tokens = np.random.default_rng(0).standard_normal((5, 4, 6))
    data = Dataset(tokens, np.array([1.0, -1.0, 1.0, -1.0, 1.0]))
    scales = {"key_query_scale": 2.0, "readout_scale": 3.0}
    start = gaussian_start(4000, num_tokens=4, dim=6, key=jax.random.key(0), **scales)
    drawn = tangent_kernel(start, data).matrix
    W = draw_key_query(4000, 6, scale=2.0, rng=np.random.default_rng(1))
    limit = limit_kernel(tokens, W, 3.0)
    assert limit_kernel(tokens, W[:9], 3.0, other=tokens[1:3]) == pytest.approx(
        limit_kernel(tokens, W[:9], 3.0)[:, 1:3]
    )
    assert limit == pytest.approx(
        drawn, rel=0.05, abs=0.05 * drawn.max()
    )  # 4,000 draws: 2% of a standard deviation
    uniform = limit_kernel(tokens, np.zeros((1, 6, 6)), 3.0)
    means = tokens.mean(axis=1)
    spread = np.einsum("nsd,nse->nde", tokens, tokens) / 4 - means[:, :, None] * means[:, None, :]
    inner = np.einsum("atd,btd->ab", tokens, tokens) * np.einsum("ade,bde->ab", spread, spread)
    assert uniform == pytest.approx(4 * means @ means.T + 9.0 / 24 * inner, rel=1e-12)


def test_the_margin_is_that_of_the_written_out_gradients():
    """Against autodiff features and a general-purpose solver."""
    import jax.numpy as jnp

    data = {"num_examples": 10, "num_test": 0, "num_tokens": 4, "dim": 6, "signal": 1.0}
    (cell,) = make_plan(
        Sweep(data=data, start={"kind": "gaussian"}, model={"num_heads": 3}, cell=CELL)
    ).cells
    found = separation(cell, compare=True)
    setup = set_up(cell)
    X, y = jnp.asarray(setup.dataset.tokens), setup.dataset.labels
    theta = (jnp.asarray(setup.start.key_query), jnp.asarray(setup.start.readout))

    def score(theta, x):
        A = jax.nn.softmax(jnp.einsum("td,hde,se->hts", x, theta[0], x), axis=-1)
        return jnp.einsum("hts,htd,sd->", A, theta[1], x) / jnp.sqrt(3.0)

    leaves = jax.jit(jax.vmap(jax.grad(score), in_axes=(None, 0)))(theta, X)
    features = (
        np.concatenate([np.asarray(leaf).reshape(10, -1) for leaf in leaves], axis=1) * y[:, None]
    )
    gram = features @ features.T
    simplex = {"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like}
    options = {"ftol": 1e-15, "maxiter": 1000}
    solved = minimize(
        lambda w: w @ gram @ w,
        np.full(10, 0.1),
        jac=lambda w: 2 * gram @ w,
        bounds=[(0, None)] * 10,
        constraints=simplex,
        method="SLSQP",
        options=options,
    )
    expected = np.sqrt(2 * solved.fun)
    assert found["separable"] and found["margin"] <= found["upper"]
    assert found["margin"] == pytest.approx(expected, rel=1e-3)
    assert found["zero_margin"] > 0
    nested = along(cell, sizes=[6, 10])  # the same from columns, to 1%
    assert (
        nested["margin"][1][-1] == pytest.approx(expected, rel=1e-2)
        and nested["margin"][1][0] > expected
    )
    assert (nested["last_separable"], nested["first_inseparable"]) == (10, np.inf)


def test_contradicting_labels_are_not_called_separable(monkeypatch):
    from manyheads.studies.random_start import cells

    data = {"num_examples": 10, "num_test": 0, "num_tokens": 4, "dim": 6, "signal": 1.0}
    (cell,) = make_plan(
        Sweep(data=data, start={"kind": "gaussian"}, model={"num_heads": 3}, cell=CELL)
    ).cells
    setup = set_up(cell)
    twice = setup.dataset.subset([0, 1, 2, 3, 4, 0, 1, 2, 3, 4])
    twice.labels[5:] *= -1
    monkeypatch.setattr(
        cells, "set_up", lambda cell: type(setup)(cell, setup.task, twice, None, None, setup.start)
    )
    found = separation(cell)
    assert not found["separable"] and found["margin"] == 0 and found["upper"] < 1e-6
    nested = along(cell, sizes=[4, 10])
    assert nested["separable"][1].tolist() == [1, 0] and nested["margin"][1][1] == 0
    assert (nested["last_separable"], nested["first_inseparable"]) == (
        5,
        6,
    )  # the sixth contradicts the first
