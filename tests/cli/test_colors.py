"""Lines on a terminal: wrapped at its width, in every command, and left alone in a pipe."""

import sys

import pytest

from manyheads.cli.colors import fitted, show, tell, wrapped
from manyheads.cli.main import main

WIDTH = 48


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr("manyheads.cli.colors.is_terminal", lambda stream: True)


def test_what_is_carried_over_stands_under_its_column():
    assert wrapped("short\n\nand short", 20) == "short\n\nand short"
    assert (
        wrapped("thm1   the loss falls below a bound", 24)
        == "thm1   the loss falls\n       below a bound"
    )
    assert wrapped("  one two three four five six", 20) == "  one two three four\n    five six"
    assert wrapped("a" * 30, 20) == "a" * 30  # a path, say, can be copied whole


@pytest.mark.parametrize("command", [["--help"], ["explain"], ["explain", "thm1"]])
def test_no_line_is_longer_than_the_terminal(terminal, capsys, command):
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (
        len(lines) > 5
        and [line for line in lines if len(line) > WIDTH and " " in line.strip()] == []
    )


def test_help_fits_too(terminal, capsys):
    with pytest.raises(SystemExit):
        main(["export", "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert (
        any("Write the results of a sweep" in line for line in lines)
        and max(map(len, lines)) <= WIDTH
    )


def test_errors_and_progress_fit_too(terminal, capsys):
    assert main(["train", "no-such-file-anywhere-at-all.npz"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("error: ") and len(said) > 2 and max(map(len, said)) <= WIDTH
    tell("word " * 40)
    assert len(capsys.readouterr().err.removeprefix("\r\x1b[K")) < WIDTH


def test_a_pipe_gets_whole_lines(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    show("word " * 40)
    assert capsys.readouterr().out == "word " * 40 + "\n"
    assert fitted("word " * 40, sys.stderr) == "word " * 40
