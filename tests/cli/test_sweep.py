import json

import numpy as np
import pandas
import pytest
import xarray

from manyheads.cli.main import main
from manyheads.cli.sweep import EXAMPLE
from manyheads.sweeps.spec import Sweep


@pytest.fixture
def quick(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Sweep(
        name="quick", cell="sweep_cells:arithmetic", axes={"parameters.slope": [0.5, 2.0]}, seeds=3
    ).save("quick.toml")
    return tmp_path


def test_a_sweep_from_spec_to_export(quick, capsys):
    assert main(["sweep", "quick.toml", "--no-cache"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("quick: 6 of 6 cells done (6 finished, 0 diverged, 0 failed), 0 missing")
    table = out.splitlines()
    assert table[-4].split()[:3] == ["slope", "total", "count"] and table[-3].split()[:4] == [
        "0.5",
        "4.5",
        "±",
        "2",
    ]
    assert table[-1] == "means over 3 seeds, with their standard errors"
    assert "6 of 6 cells done" in err and "Traceback" not in err
    assert main(["status", "results/quick", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["finished"] == 6
    assert main(["export", "results/quick"]) == 0
    written = capsys.readouterr().out.strip()
    with xarray.open_dataset(written) as data:
        assert data.curve.shape == (2, 3, 3)
    assert main(["export", "results/quick", "--out", "q.zarr", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"written": "q.zarr"}
    assert main(["export", "results/quick", "--out", "q.csv"]) == 0
    rows = pandas.read_csv(capsys.readouterr().out.strip())
    assert len(rows) == 6 and rows.total[rows.slope == 2.0].tolist() == [6.0, 9.0, 12.0]
    assert rows.curve_2[0] == 1.0 and rows.label[1] == "seed 1" and set(rows.status) == {"finished"}
    assert main(["export", "results/quick", "--format", "csv"]) == 0
    assert capsys.readouterr().out == "results/quick/quick.csv\n"


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
        "sweep_cells.arithmetic",
        lambda cell, slope: {"thm1_verdict": "VIOLATED" if slope > 1 else "HOLDS"},
    )
    assert main(["sweep", "quick.toml", "--quiet"]) == 1
    assert "violated: thm1" in capsys.readouterr().err


def test_a_sweep_in_which_every_cell_failed_is_exit_code_one(quick, capsys):
    spec = Sweep(
        name="fails", cell="sweep_cells:arithmetic", axes={"parameters.fail": [True]}, seeds=2
    )
    spec.save("fails.toml")
    assert main(["sweep", "fails.toml", "--quiet"]) == 1
    out = capsys.readouterr().out
    assert "2 failed), 0 missing" in out and out.count("asked to fail") == 1 and "seeds" not in out


def test_a_dry_run_finds_that_a_file_is_too_short(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.savez(
        "short.npz", tokens=np.random.default_rng(0).standard_normal((30, 4, 3)), labels=[0, 1] * 15
    )
    spec = '[data]\nkind = "file"\npath = "short.npz"\nnum_examples = {}\nnum_test = 5\n[start]\nkind = "zero"\n'
    for count, code in ((25, 0), (26, 2)):
        (tmp_path / "short.toml").write_text(f'name = "short"\n{spec.format(count)}')
        assert main(["sweep", "short.toml", "--dry-run"]) == code
    assert (
        "has 30 sequences; data.num_examples = 26, data.num_test = 5 and the first phase's 0 are 31"
        in capsys.readouterr().err
    )


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
