"""The command `manyheads` as a whole: help, options, exit codes, and failures in one line."""

import resource
import subprocess
import sys

import pytest

import manyheads
from manyheads.cli import main as cli


@pytest.fixture
def verb(monkeypatch):
    """Make a function the verb `demo`."""
    return lambda command: monkeypatch.setitem(cli.VERBS, "demo", command)


def demo(seed: int = 0, quiet: bool = False) -> int:
    """What the verb does.

    Examples:
        manyheads demo --seed 7

    Args:
        seed: where draws begin.
    """
    print(seed, quiet)
    return 3


def failing(error):
    def command(step_size: float = 0.1) -> int:
        raise error

    return command


def test_the_overview_lists_every_verb_and_examples(capsys):
    for arguments in ([], ["--help"], ["-h"]):
        assert cli.main(arguments) == 0
        shown = capsys.readouterr().out
        assert "Exit codes: 0 fine" in shown and "manyheads verify --quick" in shown
        assert all(f"• {verb}" in shown for verb in cli.VERBS)


def test_the_version_is_the_package_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"manyheads {manyheads.__version__}\n"


def test_the_overview_is_quick_and_imports_no_jax():
    code = "import sys; from manyheads.cli.main import main; main(['--help']); sys.exit('jax' in sys.modules)"
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(times) < 0.6  # seconds of the processor: other processes do not count


@pytest.mark.parametrize("name", cli.VERBS)
def test_the_help_of_a_verb_teaches_with_examples(name, capsys):
    assert cli.main([name, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"usage: manyheads {name}" in shown and f"    manyheads {name} " in shown
    assert "{None}" not in shown and "--no-quiet" not in shown


def test_options_reach_the_verb_and_its_code_comes_back(verb, capsys):
    verb(demo)
    assert cli.main(["demo", "--seed", "7", "--quiet"]) == 3
    assert capsys.readouterr().out == "7 True\n"
    assert cli.main(["demo", "--help"]) == 0
    assert "    manyheads demo --seed 7" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--sede", "7"], "Unrecognized options: --sede, 7. Perhaps you meant: --seed."),
        (["--seed", "x"], "Error parsing --seed: invalid literal for int() with base 10: 'x'."),
        (["--seed"], "Missing value for argument '--seed'. Expected 1 values."),
        (["more"], "Unrecognized options: more."),
    ],
)
def test_options_that_cannot_be_read_are_one_line(words, line, verb, capsys):
    verb(demo)
    assert cli.main(["demo", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"error: {line} `manyheads demo --help` explains.\n"


def test_an_unknown_verb_is_told_the_verbs(capsys):
    assert cli.main(["zzz"]) == 2
    error = capsys.readouterr().err
    assert f"Available subcommands: {', '.join(cli.VERBS)}" in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ValueError("step_size=-1 must be\n  positive."), 2, "--step-size -1 must be positive."),
        (ValueError("dim=3 is too small\x1b[2J"), 2, "dim=3 is too small?[2J"),
        (FileNotFoundError(2, "No such file", "run.npz"), 2, "run.npz: No such file"),
        (MemoryError("too much"), 2, "too much"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_failures_are_one_line_and_a_code(error, code, line, verb, capsys):
    verb(failing(error))
    assert cli.main(["demo"]) == code
    assert capsys.readouterr().err == f"error: {line}\n"


def test_a_bug_is_called_one_and_shown_where_asked(verb, capsys, monkeypatch):
    verb(failing(RuntimeError("odd")))
    assert cli.main(["demo"]) == 70
    assert "a bug in manyheads: RuntimeError: odd" in capsys.readouterr().err
    monkeypatch.setenv("MANYHEADS_TRACEBACK", "1")
    with pytest.raises(RuntimeError, match="odd"):
        cli.main(["demo"])


def test_a_long_message_loses_its_middle(verb, capsys):
    verb(failing(ValueError("x" * 5000)))
    assert cli.main(["demo"]) == 2
    assert len(capsys.readouterr().err) < cli.LONGEST + 40


def test_warnings_are_one_line(verb, capsys):
    def command() -> int:
        import warnings

        warnings.warn("first\nsecond", stacklevel=1)
        return 0

    verb(command)
    with pytest.warns(UserWarning, match="first"):
        assert cli.main(["demo"]) == 0
    assert cli._one_warning("first\nsecond") == "warning: first second\n"


def test_a_closed_pipe_is_no_error():
    code = "import sys; from manyheads.cli.main import main; sys.exit(main(['--help']))"
    done = subprocess.run(
        f"{sys.executable} -c {code!r} | head -n 0".replace("'", '"', 0),
        shell=True,
        capture_output=True,
        text=True,
    )
    assert "Traceback" not in done.stderr
