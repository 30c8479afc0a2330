"""Specs written for earlier versions: the same cells, hashes, batches and dimensions as they had then."""

import hashlib

import pytest

from manyheads.sweeps.plan import make_plan
from manyheads.sweeps.spec import Sweep

# name -> (TOML, first cell, digest of all cells, digest of all batches, dimensions), computed before data sources and
# starts were registered classes. A change here makes every stored sweep start from the beginning.
GOLDEN = {
    "mixture": (
        'seeds=2\nmeasures=["risk"]\n[data]\nnum_examples=60\ndim=10\nsparsity=0.25\nsignal=1.5\nnoise_mu=0.1\nnoise_nu=0.1\nnoise_norm=0.4\nnoise="vertex"\npositions="fixed"\nframe="axis"\nseed=3\ntask_seed=5\n[start]\nkind="first_phase"\nsigns="rademacher"\nnum_examples=50\n[model]\ndecoder="pooled"\nexponent=1\n[train]\nstep_size=0.2\nnum_steps=150\nloss="hyperbolic"\noptimizer="polyak"\nrecord=3',
        "00a56106a865cf1e2157",
        "bac301441397168b9d68",
        "0c033af9b1fc28fadb25",
        "seed",
    ),
    "planted": (
        '[data]\nkind="planted"\nmargin=0.1\nteacher_heads=3\nteacher_scale=2\ntoken_scale=0.5\n[start]\nkind="gaussian"\nreadout_scale=0.5\n[model]\nrank=2',
        "bcf5442be5ca12185a3f",
        "ad7019ba2e74d4c862ad",
        "3d1441f6e687b48542d9",
        "seed",
    ),
    "planted_plain": (
        '[data]\nkind="planted"\nteacher_heads=4\ndim=10',
        "add583437b6e52a50043",
        "4368f9a5948fbd609fa1",
        "47babd853460f411048a",
        "seed",
    ),
    "random": (
        '[data]\nkind="random_labels"\ntoken_norm=1.5\n[start]\nkind="zero"',
        "003953ae07d361ac3223",
        "4668c282905ab58ff3e9",
        "31d2abc84992c84b33f1",
        "seed",
    ),
    "random_plain": (
        '[data]\nkind="random_labels"\nnum_tokens=6\ndim=6\nnum_test=0',
        "c53041c78c986294abeb",
        "e520536fdca52c81aef7",
        "072cbbed0c9208b185b5",
        "seed",
    ),
    "kinds": (
        '[data]\nsparsity=0.5\nmargin=0.2\n[axes]\ndata.kind=["mixture","planted","random_labels"]\nstart.kind=["zero","gaussian","first_phase"]\nstart.readout_scale=[1.0,2.0]\ndata.dim=[8,12]',
        "ea4bb8d0091298308506",
        "c0701503f8534e66c91a",
        "1aba15e3c2d767ec9279",
        "data dim start readout_scale seed",
    ),
    "population": (
        'certificates=["thm1"]\n[start]\nkind="population"\nsigns="uniform"',
        "83d372c04feb1ba4381b",
        "56f06ff3905f6dcc3aeb",
        "e1e1806ae122296201bb",
        "seed",
    ),
    "cell": (
        'cell="sweep_cells:arithmetic"\n[parameters]\nslope=2.0\n[axes]\nparameters.size=[1,2]',
        "262d2ac1504ac6940b92",
        "f4005fb996a4c9899eae",
        "6588b49b06159b016cc9",
        "size seed",
    ),
    "tiny": (
        'seeds=5\n[data]\nnum_examples=8\nnum_tokens=4\ndim=4\nnum_patterns=2\nnum_test=0\n[axes]\nmodel.num_heads=[1,4,16]\ntrain.num_steps=[3,4]\nstart.signs=["balanced","uniform"]',
        "cd87ae5835b2dd6137c0",
        "abb12c047468d7ba1e28",
        "409827c702de69a2e3d9",
        "num_heads num_steps signs seed",
    ),
    "teachers": (
        '[data]\nkind="planted"\n[axes]\ndata.teacher_heads=[2,4]\nmodel.num_heads=[2,3]',
        "629ddc03b7e5351d1f9e",
        "5c4524ec3627a4c911e0",
        "d08158635503b2e8b0e3",
        "teacher_heads num_heads seed",
    ),
}


def digest(names):
    return hashlib.sha256(",".join(names).encode()).hexdigest()[:20]


@pytest.mark.parametrize("name", GOLDEN)
def test_cells_and_batches_are_what_they_were(name):
    text, first, cells, batches, dims = GOLDEN[name]
    plan = make_plan(Sweep.from_toml(text))
    assert plan.cells[0].hash == first
    assert digest(cell.hash for cell in plan.cells) == cells
    assert digest(batch.id for batch in plan.batches) == batches
    assert " ".join(plan.dims) == dims


# What an earlier version stored of a spec: every field of the section, whether it counts for the kind or not.
STORED = {
    "data": {
        "kind": "planted",
        "path": "",
        "num_examples": 100,
        "num_test": 200,
        "task_seed": 0,
        "num_tokens": 8,
        "dim": 12,
        "num_patterns": 4,
        "sparsity": 0.25,
        "signal": 2.0,
        "noise_mu": 0.0,
        "noise_nu": 0.0,
        "noise_norm": 0.0,
        "noise": "uniform",
        "positions": "random",
        "frame": "rotated",
        "teacher_heads": 3,
        "teacher_scale": 2.0,
        "token_scale": 0.5,
        "margin": 0.1,
        "token_norm": 2.0,
    },
    "start": {
        "kind": "gaussian",
        "signs": "balanced",
        "num_examples": 200,
        "key_query_scale": 1.0,
        "readout_scale": 0.5,
    },
    "model": {"num_heads": 8.0, "decoder": "full", "rank": 2, "exponent": 0.5},
    "train": {
        "step_size": 0.1,
        "num_steps": 100,
        "optimizer": "gd",
        "loss": "logistic",
        "dtype": "auto",
        "record": "log",
    },
}


def test_a_stored_spec_with_the_fields_of_other_kinds_is_read():
    assert Sweep.from_dict(STORED) == Sweep.from_toml(GOLDEN["planted"][0])
    wrong = {**STORED, "data": {**STORED["data"], "sparsity": 0.5}}
    with pytest.raises(ValueError, match="data.sparsity counts only for data.kind = 'mixture'"):
        Sweep.from_dict(wrong)
