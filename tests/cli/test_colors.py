"""A terminal gets color and wrapped lines, a pipe gets the lines as they are."""

import io
from types import SimpleNamespace

import pytest

from manyheads.cli import colors


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch):
    stream = Terminal()
    monkeypatch.setenv("COLUMNS", "48")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(colors, "sys", SimpleNamespace(stdout=stream, stderr=stream))
    return stream


def test_a_verdict_is_colored_on_a_terminal(terminal):
    colors.show("thm1  HOLDS, but not thm2: VIOLATED [1, 2]")
    shown = terminal.getvalue()
    assert "\x1b[32mHOLDS" in shown and "\x1b[1;31mVIOLATED" in shown
    assert "[1, 2]" in shown  # brackets are no markup


def test_long_lines_are_wrapped_on_a_terminal(terminal):
    colors.say("word " * 40)
    assert max(map(len, terminal.getvalue().splitlines())) <= 48


def test_progress_replaces_itself_and_fits(terminal):
    colors.tell("word " * 40)
    colors.hush()
    shown = terminal.getvalue()
    assert "\n" not in shown and all(len(part) < 48 for part in shown.split("\r\x1b[K"))


def test_a_pipe_gets_whole_plain_lines(capsys):
    colors.show("HOLDS " + "word " * 40)
    colors.tell("word " * 40)
    captured = capsys.readouterr()
    assert captured.out == "HOLDS " + "word " * 40 + "\n"
    assert captured.err == "word " * 40 + "\n"
