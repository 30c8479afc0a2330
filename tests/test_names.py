"""What the package offers, and that links, tutorials and scripts that use it go on working."""

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import manyheads as mh

ROOT = Path(__file__).parent.parent

ROOMS = [mh, *(getattr(mh, room) for room in mh.ROOMS if room != "lab")]
NAMES = [(room, name) for room in ROOMS for names in room.PUBLIC.values() for name in names]
NAMES += [(mh.lab, name) for name in mh.lab.__all__]


def test_importing_the_package_does_not_import_jax():
    code = "import sys, manyheads; dir(manyheads); sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("room, name", NAMES, ids=[name for _, name in NAMES])
def test_every_public_name_exists_and_says_what_it_is(room, name):
    thing = getattr(room, name)
    assert name in dir(room) and thing.__name__ == name
    assert inspect.getdoc(thing)


def test_no_public_name_is_hidden_by_a_module_of_the_same_name():
    for room, name in NAMES:
        try:
            importlib.import_module(f"{room.__name__}.{name}")
        except ModuleNotFoundError:
            continue
        raise AssertionError(f"{room.__name__}.{name} is a module and a public name")


def test_an_unknown_name_lists_what_there_is_and_one_of_a_room_says_which():
    with pytest.raises(AttributeError, match="no attribute 'trian'; it offers .*train"):
        mh.trian  # noqa: B018
    with pytest.raises(AttributeError, match="Risk is in the room measures: manyheads.measures.R"):
        mh.Risk  # noqa: B018


def test_the_calls_of_the_tutorials():
    key = 0
    task = mh.TokenizedMixture(
        num_tokens=8, dim=12, num_patterns=4, sparsity=0.25, signal=2.0, key=key
    )
    data = task.sample(20, key=key)
    start = mh.zero_start(8, num_tokens=8, dim=12, decoder="full")
    start = mh.first_phase(data, num_heads=8)
    model = mh.MultiHead.create(np.zeros((1, 12, 12)), np.ones((1, 8, 12)))
    frozen = mh.frozen(model, "readout")
    assert frozen.full.readout.shape == (1, 8, 12) and model.decoder == "full"
    X, y = data.tokens, data.labels
    assert len(mh.Dataset(X, y)) == len(mh.Dataset.from_arrays(X, y)) == 20

    run = mh.train(start, data, rule=mh.GD(0.1), num_steps=20, record="all", dtype="float64")
    assert run.train_loss.shape == (21,) and run.final.num_heads == 8
    promise = mh.forecast(start, data, step_size=0.1)
    assert {"speaks", "steps"} <= set(dir(promise)) and promise.nats > 0
    assert (promise.certified_loss[1:] < run.train_loss[0]).all()
    square = mh.Statement(
        "the product of two numbers is at most half the sum of their squares",
        inputs=mh.inputs(x=mh.real(), y=mh.real()),
        measured=lambda p: p.x * p.y,
        bound=lambda p: (p.x**2 + p.y**2) / 2,
        on=lambda run, data: (run.train_loss[-1], run.train_loss[0]),
    )
    assert mh.certify(run, data, [square]).verdict is mh.Verdict.HOLDS
    assert "holds" in str(mh.verify(square, quick=True)).lower()
    assert mh.Normalized(0.1).step_size == mh.GD(0.1).step_size and mh.Adam(0.02).name == "adam"


def test_what_public_functions_return_is_public():
    public = {name for _, name in NAMES} | {"Any", "None", "Figure", "Generator"}
    for room, name in NAMES:
        thing = getattr(room, name)
        if inspect.isfunction(thing):
            returned = str(inspect.signature(thing).return_annotation)
            assert set(re.findall(r"\b[A-Z]\w+", returned)) <= public, f"{name} returns {returned}"


USED = re.compile(r"\bmh\.([A-Za-z_]\w*)(?:\.([A-Za-z_]\w*))?")
TREES = ("docs", "benchmarks", "studies", "explorer")
PAGES = [p for tree in TREES for p in ROOT.glob(f"{tree}/**/*.*") if "report" not in p.parts]
PAGES = [p for p in (ROOT / "README.md", *PAGES) if p.suffix in (".md", ".py", ".js", ".ipynb")]


def test_every_name_that_documents_and_scripts_use_is_public():
    for path in PAGES:
        for name, within in USED.findall(path.read_text()):
            thing = getattr(mh, name, None)
            assert thing is not None, f"{path}: mh.{name}"
            assert name not in mh.ROOMS or not within or hasattr(thing, within), f"{path}: {within}"


def test_documents_and_studies_use_public_names_alone():
    for path in PAGES:
        if path.relative_to(ROOT).parts[0] in ("README.md", "docs", "studies"):
            inside = re.findall(r"(?:from|import) manyheads\.\w+\.\w+", path.read_text())
            assert not inside, f"{path}: {inside}"
