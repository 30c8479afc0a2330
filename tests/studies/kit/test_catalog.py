"""A study from outside: a plug-in in this folder is listed, run, and shown in the page."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = """
from manyheads.studies.kit import figure as fig
from manyheads.studies.kit.estimate import mean
from manyheads.studies.kit.study import Finding, Numbers, Study, chosen, grids


def cell(cell, *, factor):
    return {"value": factor * (1.0 + cell.seed)}


def sweeps(scale):
    return grids("NAME", scale, values={"cell": "MODULE:cell", "parameters": {"factor": 3.0}, "seeds": 3})


def finding(results):
    numbers = Numbers()
    found = numbers.add("value", "the value", mean(results["values"]["value"]))
    return Finding(f"It is {found.value:g}", f"The value is {found}.", numbers)


def figures(results):
    axis = fig.Axis("value", "1")
    return [fig.Figure("NAME-value", "A value", "caption", [fig.Panel("", axis, axis, [fig.rule("ours", "value", 6.0)])])]


STUDY = Study("NAME", "Plugged", "Is a plug-in found?", "nothing", [chosen("factor", 3)], sweeps, finding, figures)
"""


@pytest.fixture
def plugged(tmp_path):
    """Run the command line where a module `plugged_study` is a plug-in."""

    def command(*arguments, name="plugged"):
        module = tmp_path / "plugged_study.py"
        module.write_text(PLUGIN.replace("NAME", name).replace("MODULE", module.stem))
        path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": path, "MANYHEADS_PLUGINS": module.stem}
        command = [sys.executable, "-m", "manyheads.cli.main", *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)

    return command


def test_a_plug_in_is_listed_last_and_can_be_shown(plugged):
    rows = json.loads(plugged("studies", "--json").stdout)
    last = {
        "name": "plugged",
        "question": "Is a plug-in found?",
        "part": "Further questions",
        "story": False,
    }
    assert rows[-1] == last and len(rows) > 10
    assert "factor  3  [chosen by us]" in plugged("studies", "plugged").stdout


def test_a_plug_in_is_run_by_its_name_and_shown_in_the_page(plugged, tmp_path):
    out = tmp_path / "out"
    done = plugged("run", "plugged", "--out", str(out), "--workers", "1", "--quiet")
    assert done.returncode == 0, done.stderr
    assert "It is 6" in done.stdout
    page = Path(out / "index.html").read_text()
    assert "Is a plug-in found?" in page and "It is 6" in page and "figure-plugged-value" in page
    assert json.loads((out / "run.json").read_text())["studies"] == ["plugged"]
    stored = json.loads((out / "data" / "findings.json").read_text())["findings"]["plugged"][
        "numbers"
    ]
    assert stored["value"]["caption"] == "the value" and stored["value"]["value"] == 6.0


def test_a_plug_in_cannot_take_the_name_of_another_study(plugged):
    done = plugged("studies", name="heads")
    assert (
        done.returncode == 2 and "there are two studies called 'heads'; rename one" in done.stderr
    )
