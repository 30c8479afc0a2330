import pytest

from manyheads.cli.wording import in_options


def command(
    data: str = "", *, step_size: float = 1.0, steps: int = 1, positive: str = "", out: str = ""
) -> int:
    return 0


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("step_size=-1 must be a number.", "--step-size -1 must be a number."),
        ("num_steps=0 must be 1 or more.", "--steps 0 must be 1 or more."),
        ("Choose one class with positive=.", "Choose one class with --positive."),
        ("positive='up' is not among the labels.", "--positive 'up' is not among the labels."),
        ("checkpoint=a.npz is a folder.", "--out a.npz is a folder."),
        (
            "Save it with np.savez(path, tokens=..., labels=...).",
            "Save it with np.savez(path, tokens=..., labels=...).",
        ),
        ("--out=a.npz: the folder does not exist.", "--out=a.npz: the folder does not exist."),
        ("features; sequence= and label= name others.", "features; rename yours."),
        (
            "correct it, or name the feature columns with features=.",
            "correct it, or leave the column out.",
        ),
    ],
)
def test_arguments_are_called_by_their_options(theirs, ours):
    assert in_options(theirs, command) == ours
