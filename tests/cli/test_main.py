import importlib.util
import inspect
import os
import resource
import subprocess
import sys
import types

import pytest

import manyheads
from manyheads.cli import main as cli

PYTHON = (sys.executable, "-m", "manyheads.cli.main")


@pytest.fixture
def verb(monkeypatch):
    """Install a function as the verb `demo`."""

    def install(command):
        module = types.ModuleType("manyheads.cli.demo")
        vars(module)["command"] = command
        monkeypatch.setitem(sys.modules, "manyheads.cli.demo", module)
        monkeypatch.setitem(cli.VERBS, "demo", "a verb of the tests")

    return install


def failing(error):
    def command() -> int:
        raise error

    return command


def test_the_overview_lists_every_verb_and_an_example(capsys):
    for arguments in ([], ["--help"], ["-h"]):
        assert cli.main(arguments) == 0
        shown = capsys.readouterr().out
        assert "usage: manyheads VERB" in shown and "examples:" in shown
        assert all(
            f"  {verb} " in shown and summary in shown for verb, summary in cli.VERBS.items()
        )
        assert max(map(len, shown.splitlines())) <= 100


def test_every_example_names_a_verb():
    for command, _ in cli.EXAMPLES:
        name, verb, *_ = command.split()
        assert name == "manyheads" and verb in cli.VERBS


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
    assert min(times) < 0.3  # seconds of the processor: other processes do not count


@pytest.mark.parametrize("typed", ["demoo", "dmeo", "Demo"])
def test_an_unknown_verb_suggests_the_nearest(typed, verb, capsys):
    verb(lambda: 0)
    assert cli.main([typed]) == 2
    captured = capsys.readouterr()
    assert (
        captured.out == "" and f"no verb {typed!r}: did you mean `manyheads demo`?" in captured.err
    )


def test_an_unknown_verb_like_no_other_lists_the_choices(capsys):
    assert cli.main(["zzz"]) == 2
    assert f"choose one of {', '.join(cli.VERBS)}." in capsys.readouterr().err


def test_options_reach_the_verb_and_its_code_comes_back(verb, capsys):
    def command(seed: int = 0, quiet: bool = False) -> int:
        """What the verb does."""
        print(seed, quiet)
        return 3

    verb(command)
    assert cli.main(["demo", "--seed", "7", "--quiet"]) == 3
    assert capsys.readouterr().out == "7 True\n"
    with pytest.raises(SystemExit) as stop:
        cli.main(["demo", "--help"])
    shown = capsys.readouterr().out
    assert stop.value.code == 0 and "manyheads demo" in shown and "What the verb does." in shown
    assert "--no-quiet" not in shown


def test_a_misspelt_option_exits_2_and_says_so_on_stderr(verb, capsys):
    def command(seed: int = 0) -> int:
        """What the verb does."""
        return 0

    verb(command)
    assert cli.main(["demo", "--sede", "7"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "--sede" in captured.err


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (
            ValueError("step_size=-1 must be\n  positive."),
            2,
            "error: step_size=-1 must be positive.\n",
        ),
        (
            FileNotFoundError(2, "No such file or directory", "a.npz"),
            2,
            "error: a.npz: No such file or directory\n",
        ),
        (OSError(28, "No space left on device"), 2, "error: No space left on device\n"),
        (OSError("unreadable"), 2, "error: unreadable\n"),
        (MemoryError("Unable to allocate 71.5 GiB"), 2, "error: Unable to allocate 71.5 GiB\n"),
        (KeyboardInterrupt(), 130, "error: interrupted\n"),
    ],
)
def test_a_failure_is_one_line_and_a_code(error, code, line, verb, capsys, monkeypatch):
    monkeypatch.delenv("MANYHEADS_TRACEBACK", raising=False)
    verb(failing(error))
    assert cli.main(["demo"]) == code
    assert capsys.readouterr() == ("", line)


def test_a_bug_is_called_a_bug(verb, capsys, monkeypatch):
    monkeypatch.delenv("MANYHEADS_TRACEBACK", raising=False)
    verb(failing(TypeError("unhashable")))
    assert cli.main(["demo"]) == 70
    assert capsys.readouterr().err.startswith(
        "error: a bug in manyheads: TypeError: unhashable (MANYHEADS_TRACEBACK=1"
    )


def test_a_traceback_can_be_asked_for(verb, monkeypatch):
    monkeypatch.setenv("MANYHEADS_TRACEBACK", "1")
    verb(failing(ValueError("bad")))
    with pytest.raises(ValueError, match="bad"):
        cli.main(["demo"])


def test_a_closed_pipe_is_quiet():
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*PYTHON, "--help"], stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("verb_name", cli.VERBS)
def test_every_verb_explains_itself(verb_name):
    assert importlib.util.find_spec(f"manyheads.cli.{verb_name}"), "a listed verb needs its module"
    code = f"""
import sys
from manyheads.cli.main import main
try:
    main([{verb_name!r}, "--help"])
except SystemExit as stop:
    assert stop.code == 0, stop.code
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"usage: manyheads {verb_name}" in done.stdout


SHARED_OPTIONS = {"seed": int, "json": bool, "quiet": bool}
OTHER_SPELLINGS = {
    "random_seed",
    "rng",
    "precision",
    "platform",
    "output",
    "out_dir",
    "output_dir",
    "as_json",
    "silent",
}


@pytest.mark.parametrize("verb_name", cli.VERBS)
def test_shared_options_have_one_name_and_one_type(verb_name):
    command = importlib.import_module(f"manyheads.cli.{verb_name}").command
    parameters = inspect.signature(command, eval_str=True).parameters
    assert not OTHER_SPELLINGS & set(parameters)
    for name in SHARED_OPTIONS.keys() & parameters.keys():
        annotation = parameters[name].annotation
        assert getattr(annotation, "__origin__", annotation) is SHARED_OPTIONS[name]
