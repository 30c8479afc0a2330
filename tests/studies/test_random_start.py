import numpy as np
import pytest
import xarray
from scipy.optimize import minimize

from manyheads.studies.random_start import study as random_start
from manyheads.studies.random_start.cells import separation
from manyheads.sweeps.plan import make_plan
from manyheads.sweeps.setup import set_up
from manyheads.sweeps.spec import Sweep

WOBBLE = np.array([0.99, 1.0, 1.01, 1.0])


def sweep(axes, margins):
    """Margins per axis value (a little apart between seeds), with a first-phase margin of 1 and a zero margin of 0.9."""
    dims = (*axes, "seed")
    margin = np.asarray(margins, float)[..., None] * WOBBLE
    values = {"margin": (dims, margin), "separable": (dims, margin > 0)}
    values |= {f"{name}_margin": (dims, np.full(margin.shape, v)) for name, v in (("first_phase", 1.0), ("zero", 0.9))}
    return xarray.Dataset(values, {**axes, "seed": range(4)})


def results(heads, labels, dim=(1.0, 1.0)):
    count = {"num_heads": [1.0, 4.0, 16.0]}
    grid = {"key_query_scale": [0.1, 1.0], "readout_scale": [0.1, 1.0]}
    return {
        "heads": sweep(count, heads),
        "labels": sweep(count, labels),
        "scale": sweep(grid, np.full((2, 2), heads[-1])),
        "dim": sweep({"dim": [6, 40]}, np.asarray(dim) * heads[-1]),
    }


def test_the_answer_follows_the_margins():
    same = random_start.finding(results([1.0, 1.0, 1.0], [0.0, 0.1, 0.2]))
    assert (
        same.answer == "Yes: all 36 Gaussian starts separate the mixture, with the margin of the first phase, within 5%"
    )
    assert "separated from 4 heads on in every draw; there the margin grows" in same.text
    assert "hardly changes with H" in same.text
    none = random_start.finding(results([0.0, 0.0, 0.0], [0.0, 0.0, 0.0]))
    assert none.answer == "No: none of 36 Gaussian starts separates the mixture"
    assert "in no number of heads always" in none.text and "could not be measured" in none.text
    larger = random_start.finding(results([0.0, 1.0, 2.0], [0.4, 0.2, 0.1], dim=(1.0, 0.5)))
    assert larger.answer.startswith("Sometimes: 32 of 36") and larger.answer.endswith(
        "larger margin than the first phase"
    )
    assert "falls with the dimension" in larger.text and "there the margin falls with H" in larger.text
    smaller = random_start.finding(results([0.5, 0.5, 0.5], [0.1, 0.1, 0.1]))
    assert smaller.answer.endswith("with a smaller margin than the first phase")


def test_a_draw_that_did_not_run_is_not_called_inseparable():
    made = results([1.0, 1.0, 1.0], [0.0, 0.1, 0.2])
    for data in made.values():
        data["separable"] = data["separable"].astype(float)
    made["heads"]["separable"][0, 1] = made["heads"]["margin"][0, 1] = np.nan
    made["labels"]["separable"][1, 2] = made["labels"]["margin"][1, 2] = np.nan
    found = random_start.finding(made)
    assert found.answer.startswith("Yes: all 35 Gaussian starts") and "from 4 heads on in every draw" in found.text
    assert found.text.endswith("2 of 48 cells are missing and left out.")
    shares = random_start.figures(made)[0].panels[2].marks
    assert shares[0].y == (1.0, 1.0, 1.0) and shares[1].y == (0.0, 1.0, 1.0)
    for data in made.values():
        data["separable"][:] = data["margin"][:] = np.nan
    nothing = random_start.finding(made)
    assert nothing.answer == "Not measured" and "in no draw that was run" in nothing.text
    assert random_start.figures(made)


def test_from_a_number_of_heads_on_means_every_larger_one():
    def said(*separated):
        made = results([1.0, 1.0, 1.0], [1.0, 1.0, 1.0])
        made["labels"]["separable"][:] = np.arange(4) < np.array(separated)[:, None]
        return random_start.finding(made).text

    assert "from 16 heads on in every draw" in said(4, 3, 4)
    assert "from 1 head on in every draw" in said(4, 4, 4)
    assert "always at some numbers of heads, not at larger ones" in said(4, 4, 3)


def test_the_margin_over_the_scale_is_in_the_answer():
    made = results([1.0, 1.0, 1.0], [0.1, 0.1, 0.1])
    made["scale"]["margin"] = made["scale"]["margin"] * [[[1], [3]], [[1], [1.5]]]  # norm of W, norm of U, seed
    found = random_start.finding(made)
    assert found.numbers["scale.readout_scale"].estimate.value == pytest.approx(1.5)
    assert found.numbers["scale.key_query_scale"].estimate.value == pytest.approx(0.5)
    assert "norm of a head's U goes from 0.1 to 1 it grows 1.5" in found.text
    assert "norm of a head's W goes from 0.1 to 1 it falls to 0.5" in found.text
    same = random_start.finding(results([1.0, 1.0, 1.0], [0.1, 0.1, 0.1])).text
    assert "norm of a head's U goes from 0.1 to 1 it hardly changes" in same
    assert not any("arger readout" in note for note in found.notes)


def test_figures_show_margins_on_one_scale():
    heads, scale, dim = random_start.figures(results([1.0, 1.0, 1.0], [0.0, 0.1, 0.2]))
    assert [mark.role for mark in heads.panels[0].marks] == ["gaussian", "first phase", "zero"]
    assert {mark.scale for panel in (*heads.panels[:2], *dim.panels) for mark in panel.marks} == {"P3"}
    assert heads.panels[2].marks[1].y == (0.0, 1.0, 1.0)
    assert scale.panels[0].limits[1] >= 1.0


def test_the_margin_is_that_of_the_written_out_gradients():
    """Against autodiff features and a general-purpose solver."""
    import jax
    import jax.numpy as jnp

    data = {"num_examples": 10, "num_test": 0, "num_tokens": 4, "dim": 6, "signal": 1.0}
    (cell,) = make_plan(
        Sweep(data=data, start={"kind": "gaussian"}, model={"num_heads": 3}, cell=random_start.CELL)
    ).cells
    found = separation(cell)
    setup = set_up(cell)
    X, y = jnp.asarray(setup.dataset.tokens), setup.dataset.labels
    theta = (jnp.asarray(setup.start.key_query), jnp.asarray(setup.start.readout))

    def score(theta, x):
        A = jax.nn.softmax(jnp.einsum("td,hde,se->hts", x, theta[0], x), axis=-1)
        return jnp.einsum("hts,htd,sd->", A, theta[1], x) / jnp.sqrt(3.0)

    leaves = jax.jit(jax.vmap(jax.grad(score), in_axes=(None, 0)))(theta, X)
    features = np.concatenate([np.asarray(leaf).reshape(10, -1) for leaf in leaves], axis=1) * y[:, None]
    gram = features @ features.T
    simplex = {"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like}
    options = {"ftol": 1e-15, "maxiter": 1000}
    solved = minimize(
        lambda w: w @ gram @ w, np.full(10, 0.1), jac=lambda w: 2 * gram @ w, bounds=[(0, None)] * 10,
        constraints=simplex, method="SLSQP", options=options,
    )  # fmt: skip
    expected = np.sqrt(2 * solved.fun)
    assert found["separable"] and found["margin"] <= found["upper"]
    assert found["margin"] == pytest.approx(expected, rel=1e-3)
    assert max(found["readout_margin"], found["key_query_margin"]) <= found["margin"] * (1 + 1e-3)
    assert found["first_phase_margin"] >= found["zero_margin"] > 0  # the same readout features, and more


def test_contradicting_labels_are_not_called_separable(monkeypatch):
    from manyheads.studies.random_start import cells

    data = {"num_examples": 10, "num_test": 0, "num_tokens": 4, "dim": 6, "signal": 1.0}
    (cell,) = make_plan(
        Sweep(data=data, start={"kind": "gaussian"}, model={"num_heads": 3}, cell=random_start.CELL)
    ).cells
    setup = set_up(cell)
    twice = setup.dataset.subset([0, 1, 2, 3, 4, 0, 1, 2, 3, 4])
    twice.labels[5:] *= -1
    monkeypatch.setattr(cells, "set_up", lambda cell: type(setup)(cell, setup.task, twice, None, None, setup.start))
    found = separation(cell)
    assert not found["separable"] and found["margin"] == 0 and found["upper"] < 1e-6
