import pytest

from manyheads.studies.kit.estimate import mean
from manyheads.studies.kit.study import Numbers, Scaled, Setting, conclude, grids
from manyheads.studies.kit.tasks import HARD_MIXTURE, RANDOM_LABELS, describe


def test_a_scaled_value_is_replaced_in_every_section_and_names_both_scales():
    content = {
        "train": {"num_steps": Scaled(5, 5000)},
        "seeds": Scaled(2, 3),
        "axes": {"model.num_heads": Scaled([1], [1, 2])},
    }
    quick, full = (grids("s", scale, runs=content)["runs"] for scale in ("quick", "full"))
    assert (quick.name, quick.train.num_steps, len(quick.seeds), quick.num_cells) == (
        "s-runs",
        5,
        2,
        2,
    )
    assert (full.train.num_steps, len(full.seeds), full.num_cells) == (5000, 3, 6)
    assert f"{content['train']['num_steps']} steps" == "5 (quick) or 5,000 (full) steps"


def test_a_sweep_may_exist_at_one_scale_only():
    content = Scaled(None, {"train": {"num_steps": 5}})
    assert list(grids("s", "quick", b=content)) == [] and list(grids("s", "full", b=content)) == [
        "b"
    ]


def test_numbers_have_short_names_each_once():
    numbers = Numbers()
    assert (
        numbers.add("loss_ratio.zero", "final loss, 64 heads over 1", mean([1.0, 2.0])).value == 1.5
    )
    assert numbers["loss_ratio.zero"].caption == "final loss, 64 heads over 1"
    with pytest.raises(ValueError, match="two numbers called 'loss_ratio.zero'; rename one"):
        numbers.add("loss_ratio.zero", "again", mean([]))
    with pytest.raises(ValueError, match="small letters"):
        numbers.add("final loss, 64 heads over 1", "a sentence is no name", mean([]))


def test_a_finding_ends_with_what_is_missing():
    nan = float("nan")
    assert (
        conclude("yes", ["A.", ""], Numbers(), [[1.0, nan]]).text
        == "A. 1 of 2 cells is missing and left out."
    )
    whole = conclude("yes", ["A."], Numbers(), [[1.0, 2.0]])
    assert (whole.answer, whole.text) == ("Yes", "A.")
    long = conclude("yes", ["A.", "", "B.", "C.", "D."], Numbers(), [[nan]])
    assert long.sentence == "A. B." and long.details == (
        "C.",
        "D.",
        "1 of 1 cells is missing and left out.",
    )


def test_a_setting_says_whose_it_is():
    with pytest.raises(ValueError, match="use stated"):
        Setting("step size", "0.1", "somebody")


def test_data_are_described_by_their_numbers():
    data = {**HARD_MIXTURE, "num_examples": Scaled(60, 100), "num_test": 300}
    assert describe(data) == (
        "tokenized mixture, T=8, d=10, M=4, S=1.5, ζ=1/8, Z_μ=0.5, Z_ν=0.5, Z=1.5; 60 (quick) or 100 (full) sequences, "
        "300 for testing"
    )
    assert (
        describe(RANDOM_LABELS)
        == "random labels, T=6, d=6, tokens of norm 2 in random directions; 40 sequences"
    )
