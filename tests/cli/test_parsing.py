import pytest

from manyheads.cli.main import VERBS, main
from manyheads.cli.parsing import one_line


@pytest.mark.parametrize("columns", ["40", "200"])
@pytest.mark.parametrize(
    "arguments,words",
    [
        (
            ["train", "--stepsize", "3"],
            ["unrecognized options: --stepsize, 3;", "perhaps you meant --step-size FLOAT"],
        ),
        (["train", "--steps", "many"], ["cannot read --steps", "'many'"]),
        (["train", "--steps"], ["missing value for argument '--steps'; write it after a space."]),
        (["run", "--workers", "x"], ["cannot read --workers: 'x' is not a whole number."]),
        (
            ["predict", "m", "d", "--examples", "1.5"],
            ["cannot read --examples: '1.5' is not a whole number."],
        ),
        (["fit", "--held-out", "abc"], ["cannot read --held-out: 'abc' is not a number."]),
        (
            ["train", "--optimizer", "sgd"],
            ["cannot read --optimizer", "'sgd' is not one of", "'polyak'"],
        ),
        (["sweep", "a", "b", "c"], ["unrecognized options: b, c."]),
        (["status"], ["missing from manyheads status", "folder of the sweep"]),
    ],
)
def test_what_cannot_be_parsed_is_one_line_with_the_remedy(
    arguments, words, columns, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", columns)
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and err.count("\n") == 1 and "│" not in err
    assert [
        word for word in [*words, f"`manyheads {arguments[0]} --help`"] if word not in err
    ] == [], err


@pytest.mark.parametrize(
    "arguments,words",
    [
        (
            ["train", "--plan", "p.json", "--heads", "8"],
            "--heads is decided by --plan; leave --heads out, or --plan.",
        ),
        (
            ["train", "--step_size=1", "--plan=p.json", "--steps", "3"],
            "--steps and --step-size are decided by --plan",
        ),
        (["certify", "run.npz", "--plan", "p.json", "--seed", "1"], "--seed is decided by --plan"),
        (
            ["certify", "run.npz", "--data", "mixture", "--heads", "2"],
            "--heads is decided by --data",
        ),
    ],
)
def test_options_that_another_one_decides_are_refused(arguments, words, capsys):
    assert main(arguments) == 2
    assert words in capsys.readouterr().err


def test_help_goes_to_stdout_and_ends_well(capsys):
    with pytest.raises(SystemExit) as end:
        main(["train", "--help"])
    out, err = capsys.readouterr()
    assert end.value.code == 0 and "--step-size" in out and err == ""


def test_a_message_without_a_box_is_kept():
    assert one_line("something else\nwent wrong\n") == "something else went wrong."


@pytest.mark.parametrize(
    "box",
    [
        "╭─ Unknown ───────────╮\n│ Unknown: --a        │\n│ ─────────────────── │\n│ Perhaps you meant:  │\n"
        "│     --b INT         │\n│         (default: 1)│\n│ ─────────────────── │\n│ For help, see x     │\n╰─────────╯\n",
        " Unknown \n ------------ \n  Unknown: --a  \n  ------------\n  Perhaps you meant:  \n      --b INT  \n"
        "          (default: 1)\n  ------------\n  For help, see x\n",
    ],
    ids=["frame", "letters"],
)
def test_a_frame_and_plain_letters_read_the_same(box):
    assert one_line(box) == "unknown: --a; perhaps you meant --b INT."


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_ends_with_the_examples_and_every_one_is_a_command(verb, capsys):
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    said = capsys.readouterr().out
    assert "{None}" not in said
    shown = [line.strip() for line in said.partition("\nexamples:\n")[2].splitlines()]
    assert len(shown) >= 2 and all(line.startswith(f"manyheads {verb}") for line in shown)
