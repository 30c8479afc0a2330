import json
import os
import subprocess
import sys

import pytest
import xarray

from manyheads.cli.main import main
from manyheads.cli.sweep import EXAMPLE
from manyheads.sweeps.spec import Sweep


@pytest.fixture
def quick(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Sweep(name="quick", cell="sweep_cells:arithmetic", axes={"parameters.slope": [0.5, 2.0]}, seeds=3).save(
        "quick.toml"
    )
    return tmp_path


def test_a_sweep_from_spec_to_export(quick, capsys):
    assert main(["sweep", "quick.toml", "--no-cache"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("quick: 6 of 6 cells done (6 finished, 0 diverged, 0 failed), 0 missing")
    assert "6 of 6 cells done" in err and "Traceback" not in err
    assert main(["status", "results/quick", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["finished"] == 6
    assert main(["export", "results/quick"]) == 0
    written = capsys.readouterr().out.strip()
    with xarray.open_dataset(written) as data:
        assert data.curve.shape == (2, 3, 3)
    assert main(["export", "results/quick", "--out", "q.zarr", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"written": "q.zarr"}


def test_a_second_run_finds_nothing_to_do(quick, capsys):
    assert main(["sweep", "quick.toml", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["sweep", "quick.toml", "--quiet", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["finished"] == 6 and err == ""


def test_the_example_is_a_spec_that_plans(tmp_path, capsys):
    assert main(["sweep", "--example"]) == 0
    assert capsys.readouterr().out == EXAMPLE
    path = tmp_path / "heads.toml"
    path.write_text(EXAMPLE)
    assert main(["sweep", str(path), "--dry-run"]) == 0
    assert "heads: 12 cells = num_heads (4) x seed (3)" in capsys.readouterr().out


def test_a_violated_statement_is_exit_code_one(quick, capsys, monkeypatch):
    monkeypatch.setattr(
        "sweep_cells.arithmetic", lambda cell, slope: {"thm1_verdict": "VIOLATED" if slope > 1 else "HOLDS"}
    )
    assert main(["sweep", "quick.toml", "--quiet"]) == 1
    assert "violated: thm1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sweep"], "pass the TOML file of a sweep"),
        (["sweep", "none.toml"], "none.toml does not exist"),
        (["sweep", "."], "is a folder"),
        (["sweep", "quick.toml", "--workers", "2"], "pass engine 'processes'"),
        (["status", "nowhere"], "nowhere holds no sweep"),
        (["export", "nowhere"], "nowhere holds no sweep"),
        (["export", "."], "holds no sweep"),
    ],
)
def test_bad_input_is_one_line(quick, capsys, arguments, words):
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith("error: ") and words in err


def test_status_and_help_need_no_jax(quick):
    main(["sweep", "quick.toml", "--quiet"])
    code = (
        "import sys; from manyheads.cli.main import main\n"
        "main(['status', 'results/quick']); main(['export', 'results/quick'])\n"
        "try: main(['sweep', '--help'])\n"
        "except SystemExit: pass\n"
        "sys.exit('jax' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "only what is missing runs" in " ".join(done.stdout.split())
