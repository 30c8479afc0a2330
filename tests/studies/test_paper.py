import numpy as np
import xarray

from manyheads.studies import paper
from manyheads.studies.kit.study import REPORTED, STATED
from manyheads.sweeps.engine import run
from manyheads.sweeps.spec import Sweep

WOBBLE = np.linspace(0.98, 1.02, 5)
SETTING = " (H = 1 to 64, step size 1, 9 steps on the mixture, 9 steps on planted data)"


def made(second_start, factors, classes=2, errors=(0.0, 0.0, 0.0)):
    """Final test losses of 1, 8 and 64 heads, as factors of 0.1 for each start, and test errors."""
    dims = ("start", "num_heads", "seed")
    loss = 0.1 * np.asarray(factors, float)[:, :, None] * np.stack([WOBBLE, WOBBLE[::-1], WOBBLE])
    mass = np.full((2, 3, 5, 2, 2), 0.4)
    mass[0, ..., classes - 1 :] = np.nan
    values = {f"final_{what}": (dims, loss) for what in ("train_loss", "test_loss")}
    values["final_test_error"] = (
        dims,
        np.broadcast_to(np.asarray(errors)[:, None], loss.shape).copy(),
    )
    values["attention_mass"] = ((*dims, "record", "head_class"), mass)
    values["attention_of_heads"] = ((*dims, "record"), mass[..., 0])
    values["test_loss"] = ((*dims, "record"), np.stack([loss, loss / 2], axis=-1))
    coordinates = {
        "start": ["zero", second_start],
        "num_heads": [1.0, 8.0, 64.0],
        "step": ("record", [0, 9]),
    }
    return xarray.Dataset(values, coordinates)


UP, DOWN, FLAT, HUMP = (1.0, 2.0, 4.0), (1.0, 0.5, 0.2), (1.0, 1.0, 1.0), (1.0, 2.0, 0.3)


def answer(mixture, planted, **options):
    return paper.finding(
        {"mixture": made("first_phase", mixture), "planted": made("gaussian", planted, **options)}
    )


def test_the_answer_follows_the_losses():
    slower = answer([UP, UP], [FLAT, DOWN]).answer.removesuffix(SETTING)
    assert slower == (
        "On the mixture the test loss rises with H, the test error is 0 at every H; on planted data the test loss does "
        "not clearly depend on H from a zero start and falls with H from a Gaussian start, the test error is 0 at every H"
    )
    faster = answer([DOWN, DOWN], [UP, UP])
    assert faster.answer.startswith(
        "On the mixture the test loss falls with H"
    ) and "planted data the test loss rises" in (faster.answer)


def test_a_loss_that_changes_between_some_numbers_of_heads_only_is_said_to_do_so_there():
    some = answer([UP, UP], [(1.0, 1.0, 1.5), DOWN])
    assert (
        "the test loss rises with H from 8 to 64 from a zero start and falls with H from a Gaussian"
        in some.answer
    )
    assert "and the test error 0 throughout at H = 1, 8 and 64" in some.sentence


def test_losses_are_told_with_errors_at_every_number_of_heads():
    """The ends alone say less: 64 heads beat 1 although 8 are worse, and equal errors are no worse loss."""
    found = answer([UP, UP], [FLAT, HUMP], errors=(0.1, 0.3, 0.05))
    assert (
        "is not monotone in H (rises up to H = 8, then falls) from a Gaussian start" in found.answer
    )
    assert (
        "the test error is 0.05 to 0.3" in found.answer
        and "the test error is 0 at every H" in found.answer
    )
    assert (
        "the test loss is 0.1, 0.2 and 0.03 and the test error 0.1, 0.3 and 0.05 at H = 1, 8 and 64"
        in found.sentence
    )
    assert found.numbers["test_error.planted.gaussian.8"].estimate.value == 0.3


def test_distinct_heads_are_counted_not_assumed():
    one = answer([UP, UP], [FLAT, DOWN])
    assert "1 distinct head at every H" in one.text and "slows" not in one.text
    assert any("by construction" in note for note in one.notes)
    two = {
        "mixture": made("first_phase", [FLAT, FLAT], classes=3),
        "planted": made("gaussian", [FLAT, FLAT]),
    }
    assert "up to 2 distinct heads" in paper.finding(two).text


def test_missing_trials_are_left_out():
    made_up = {"mixture": made("first_phase", [UP, UP]), "planted": made("gaussian", [FLAT, DOWN])}
    made_up["mixture"]["final_test_loss"][0, 0, 0] = np.nan
    found = paper.finding(made_up)
    assert found.answer.startswith("On the mixture the test loss rises with H")
    assert found.text.endswith("1 of 60 cells is missing and left out.")
    for data in made_up.values():
        for name in data:
            data[name][:] = np.nan
    nothing = paper.finding(made_up)
    assert nothing.answer == "Not measured" and "distinct" not in nothing.text


def test_what_is_reported_is_run_at_every_scale_and_marked():
    for scale in ("quick", "full"):
        mixture, planted = paper.sweeps(scale).values()
        assert (mixture.data.num_examples, mixture.data.num_test, len(mixture.seeds)) == (
            100,
            300,
            5,
        )
        assert mixture.train.step_size == 1.0 and mixture.axes["start.kind"][0] == "zero"
        assert (planted.data.num_examples, planted.data.num_test, len(planted.seeds)) == (
            1000,
            3000,
            5,
        )
    sources = {s.name: s.source for s in paper.STUDY.settings}
    assert (
        sources["mixture"] == sources["planted data"] == REPORTED and STATED not in sources.values()
    )


def test_the_published_start_has_one_head_whatever_their_number(tmp_path):
    small = {"num_examples": 12, "num_test": 8, "num_tokens": 4, "dim": 6}
    sweep = Sweep(
        data=small,
        start={"kind": "zero"},
        train={"step_size": 1.0, "num_steps": 5},
        axes={"model.num_heads": [1, 64]},
        measures=["risk"],
    )
    data = run(sweep, tmp_path / "sweep", progress=False, cache=False)
    assert paper.distinct_heads(data) == 1


def test_figures_compare_the_starts():
    mixture, time, planted = paper.figures(
        {"mixture": made("first_phase", [UP, UP]), "planted": made("gaussian", [FLAT, DOWN])}
    )
    assert [mark.label for mark in time.panels[0].marks] == ["1 head", "8 heads", "64 heads"]
    assert [panel.title for panel in mixture.panels] == ["Test loss", "Test error", "Focus"]
    assert [mark.role for mark in mixture.panels[0].marks] == ["zero", "first phase"]
    assert [mark.role for mark in planted.panels[1].marks] == ["zero", "gaussian"]
