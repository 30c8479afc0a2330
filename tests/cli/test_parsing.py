import pytest

from manyheads.cli.main import main


@pytest.mark.parametrize("columns", ["40", "200"])
@pytest.mark.parametrize(
    "arguments,words",
    [
        (
            ["train", "--stepsize", "3"],
            ["unrecognized options: --stepsize, 3", "perhaps you meant --step-size"],
        ),
        (["train", "--steps", "many"], ["cannot read --steps", "'many'"]),
        (["train", "--steps"], ["missing value for argument '--steps'"]),
        (["train", "--heads", "1.5"], ["cannot read --heads: '1.5'", "such as 64, 1e12 or 10^12"]),
        (["train", "--dtype", "half"], ["invalid choice 'half'", "float64"]),
        (["predict"], ["missing from manyheads predict"]),
        (["verify", "--seed", "-1"], ["cannot read --seed", "from 0 to"]),
    ],
)
def test_a_mistake_is_one_line_with_the_remedy(arguments, words, columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and err.count("\n") == 1 and "│" not in err
    wanted = [*words, f"`manyheads {arguments[0]} --help`"]
    assert [word for word in wanted if word not in err] == [], err


def test_the_help_ends_with_the_examples(capsys):
    with pytest.raises(SystemExit) as end:
        main(["explain", "--help"])
    shown = capsys.readouterr().out
    assert end.value.code == 0 and shown.rstrip().endswith("manyheads explain E12")
