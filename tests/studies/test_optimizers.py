import numpy as np
import pytest
import xarray

from manyheads.studies.optimizers import study as optimizers
from manyheads.studies.optimizers.cells import ladder
from manyheads.sweeps.plan import make_plan
from manyheads.sweeps.spec import Sweep


def results(shares):
    """Every optimizer with a final share of the attention margin per number of heads, a little apart between seeds."""
    made = {}
    for name, by_heads in shares.items():
        last = (
            np.array(by_heads)[:, None, None] * np.linspace(0.98, 1.02, 4)[None, :, None]
        )  # heads, seed, rung
        last = last * np.array([0.5, 1.0, 0.7])
        margin = np.stack([0.1 * last, 3.0 * last], axis=-1)
        dims = ("num_heads", "seed", "rung", "record")
        made[name] = xarray.Dataset(
            {
                "margin": (dims, margin),
                "focus": (dims, margin / 4),
                "train_loss": (dims, np.exp(-3 * margin)),
                "attention": (dims[:2], np.full((2, 4), 3.0)),
                "linear": (dims[:2], np.full((2, 4), 0.5)),
            },
            {
                "num_heads": [2.0, 64.0],
                "seed": range(4),
                "step": ("record", [0, 300]),
                "step_size_tried": ("rung", [1.0, 4.0, 16.0]),
            },
        )
    return made


def test_the_answer_follows_who_reaches_the_attention_margin():
    low, high = [0.5, 0.2], [0.99, 0.97]
    normalized = optimizers.finding(
        results({"gd": low, "normalized": high, "polyak": low, "adam": low})
    )
    assert normalized.answer.startswith("Yes: normalized descent reaches 90%")
    assert normalized.answer.endswith(
        "plain descent, Polyak's step and Adam do not at any H and step size tried (hard mixture, 60 sequences, "
        "first-phase start, 2 to 64 heads, 300 steps)"
    )
    plain = optimizers.finding(
        results({"gd": high, "normalized": low, "polyak": low, "adam": high})
    )
    assert plain.answer.startswith("Yes: plain descent and Adam reach 90%")
    assert "With 2 heads: plain descent 0.99, normalized descent 0.5" in plain.text
    nobody = optimizers.finding(results(dict.fromkeys(optimizers.NAMES, low)))
    assert nobody.answer.startswith("No: no optimizer reaches 90%")
    everybody = optimizers.finding(results(dict.fromkeys(optimizers.NAMES, high)))
    assert "reach 90% of the best attention margin at every H (hard mixture" in everybody.answer
    mixed = optimizers.finding(results(dict.fromkeys(optimizers.NAMES, [0.99, 0.2])))
    assert mixed.answer.startswith(
        "It depends on the number of heads whether plain descent, normalized descent, "
    )


def test_what_is_undecided_does_not_depend_on_the_heads():
    near = optimizers.finding(results(dict.fromkeys(optimizers.NAMES, [0.9, 0.9])))
    assert near.answer.startswith("Undecided at this number of seeds which reach 90%")
    above = optimizers.finding(results(dict.fromkeys(optimizers.NAMES, [0.99, 0.9])))
    assert above.answer.startswith("Undecided")


def test_a_missing_run_is_left_out_and_does_not_choose_the_step_size():
    made = results(dict.fromkeys(optimizers.NAMES, [0.5, 0.2]))
    for name in ("margin", "focus", "train_loss", "attention", "linear"):
        made["gd"][name][0, 1] = np.nan
    key = "share.gd.2"
    found = optimizers.finding(made)
    assert (
        found.numbers[key].estimate.value == pytest.approx(0.5, rel=0.02)
        and found.numbers[key].estimate.count == 3
    )
    assert found.text.endswith("1 of 32 cells is missing and left out.")
    for data in made.values():
        for name in data:
            data[name][:] = np.nan
    assert optimizers.finding(made).answer == "Not measured"


def test_a_best_step_size_at_the_end_of_the_ladder_is_none():
    """The margin still grows at the last rung: no best was found, and the share is called a lower bound."""
    made = results(dict.fromkeys(optimizers.NAMES, [0.5, 0.2]))
    assert "No best step size" not in optimizers.finding(made).text
    made["gd"]["margin"][1] = made["gd"]["margin"][1] * np.array([0.2, 0.5, 3.0])[:, None]
    said = optimizers.finding(made).text
    assert (
        "No best step size was found for plain descent with 64 heads: the best one tried is at an end"
        in said
    )


def test_one_lucky_seed_does_not_choose_its_own_step_size():
    made = results(dict.fromkeys(optimizers.NAMES, [0.5, 0.2]))
    made["gd"]["margin"][0, 3, 2, -1] = (
        30.0  # ten times the attention margin, at a step size that is worse otherwise
    )
    found = optimizers.finding(made).numbers["share.gd.2"].estimate
    assert found.value < 0.51  # the seed is judged where the other three are best


def test_the_best_step_size_is_taken_and_one_that_failed_is_not():
    made = results(dict.fromkeys(optimizers.NAMES, [0.5, 0.2]))
    key = "share.gd.2"
    assert optimizers.finding(made).numbers[key].estimate.value == pytest.approx(0.5)
    made["gd"]["margin"][0, 1, 1, -1] = np.nan  # the best step size diverged for one seed
    found = optimizers.finding(made).numbers[key].estimate
    assert found.count == 3 and found.value == pytest.approx(
        0.35, rel=0.02
    )  # the seed that failed chose it, and failed


def test_figures_are_drawn_from_the_same_numbers():
    time, step = optimizers.figures(results(dict.fromkeys(optimizers.NAMES, [0.5, 0.2])))
    assert [panel.title for panel in time.panels] == ["Loss", "Margin", "Focus"]
    assert time.panels[1].marks[0].y[-1] == pytest.approx(0.2 * 3)
    assert step.panels[0].marks[0].y == pytest.approx((0.75, 1.5, 1.05))


def test_every_kind_of_step_size_has_a_panel_of_its_own():
    _, step = optimizers.figures(results(dict.fromkeys(optimizers.NAMES, [0.5, 0.2])))
    assert [panel.title for panel in step.panels] == [
        "Plain descent",
        "Normalized descent",
        "Polyak's step",
        "Adam",
    ]
    assert len({panel.x.title for panel in step.panels}) == 4
    assert [mark.label for mark in step.panels[2].marks[:2]] == ["2 heads", "64 heads"]


def test_the_ladder_reports_what_the_model_does():
    sweep = Sweep(
        data={"num_examples": 12, "num_test": 0, "num_tokens": 4, "dim": 6, "signal": 1.0},
        train={"optimizer": "normalized", "num_steps": 6},
        model={"num_heads": 4},
        cell=optimizers.CELL,
        parameters={"step_sizes": [0.1, 0.3]},
    )
    (cell,) = make_plan(sweep).cells
    found = ladder(cell, step_sizes=[0.1, 0.3])
    assert found["margin"][1].shape == found["focus"][1].shape == (2, len(found["step"][1]))
    assert found["train_loss"][1][0, 0] == pytest.approx(
        found["train_loss"][1][1, 0]
    )  # the same start

    # the same descent written out head by head, with autodiff and no classes
    import jax
    import jax.numpy as jnp

    from manyheads.sweeps.setup import set_up

    setup = set_up(cell)
    X, y = jnp.asarray(setup.dataset.tokens), jnp.asarray(setup.dataset.labels)
    index = np.repeat([0, 1], 2)
    theta = (jnp.asarray(setup.start.key_query)[index], jnp.asarray(setup.start.readout)[index])

    def scores(theta):
        A = jax.nn.softmax(jnp.einsum("ntd,hde,nse->nhts", X, theta[0], X), axis=-1)
        return jnp.einsum("nhts,htd,nsd->n", A, theta[1], X) / 2, A

    def loss(theta):
        return jnp.mean(jnp.logaddexp(0.0, -y * scores(theta)[0]))

    slope = jax.jit(jax.grad(loss))
    for _ in range(6):
        g = slope(theta)
        length = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in g))
        theta = (theta[0] - 0.3 * g[0] / length, theta[1] - 0.3 * g[1] / length)
    margins = y * scores(theta)[0] / jnp.linalg.norm(theta[1])
    focus = jnp.mean(jnp.sum(scores(theta)[1] * setup.dataset.relevant[:, None, None, :], axis=-1))
    assert found["margin"][1][1, -1] == pytest.approx(float(margins.min()), rel=1e-10)
    assert found["focus"][1][1, -1] == pytest.approx(float(focus), rel=1e-10)
    assert found["train_loss"][1][1, -1] == pytest.approx(float(loss(theta)), rel=1e-10)
