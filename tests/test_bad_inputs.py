"""Bad inputs that need words of their own: each gets one line that names the value, what is allowed and what to do."""

import jax
import numpy as np
import optax
import pandas as pd
import pytest

import manyheads as mh

KEY = jax.random.key(0)
X, Y = np.random.default_rng(0).standard_normal((6, 4, 3)), np.array([0, 1, 0, 1, 0, 1])
MASK = np.ones((6, 4), bool)
DATA = mh.Dataset.from_arrays(X, Y)
MODEL = mh.gaussian_start(2, num_tokens=4, dim=3, key=KEY)
CLASSES = mh.zero_start(4, num_tokens=4, dim=3)


def data(tokens=X, labels=Y, **more):
    return lambda: mh.Dataset.from_arrays(tokens, labels, **more)


def mixture(**more):
    return lambda: mh.TokenizedMixture(**{"frame": "axis", **more})


def train(model=MODEL, dataset=DATA, **more):
    return lambda: mh.train(model, dataset, **{"rule": mh.GD(0.1), "num_steps": 3, **more})


def leave_one_out(**more):
    return lambda: mh.measures.leave_one_out(
        MODEL, DATA, **{"step_size": 0.1, "num_steps": 3, **more}
    )


def model(W=(2, 3, 3), U=(2, 4, 3), **more):
    return lambda: mh.MultiHead.create(np.zeros(W), np.zeros(U), **more)


def changed(array, index, value):
    array = array.astype(object if isinstance(value, str) else float)
    array[index] = value
    return array


CASES = {
    "tokens of two axes": (
        data(X[0]),
        r"tokens has shape \(4, 3\); it must be \(sequences, tokens, dim\)",
    ),
    "no sequences": (data(X[:0], Y[:0]), "every axis must have at least one entry"),
    "ragged tokens": (
        data([[[1.0]], [[1.0], [2.0]]], [0, 1]),
        "Pad sequences of different length and pass mask=",
    ),
    "text for tokens": (data(X.astype(str)), "tokens must be real numbers"),
    "complex tokens": (data(X + 1j), "tokens must be real numbers"),
    "a NaN token": (
        data(changed(X, (2, 1, 0), np.nan)),
        r"tokens\[2, 1\] holds NaN or an infinite value",
    ),
    "an infinite token": (
        data(changed(X, (0, 3, 2), -np.inf)),
        r"tokens\[0, 3\] holds NaN or an infinite value",
    ),
    "too few labels": (data(X, Y[:5]), r"labels has shape \(5,\); it must be \(6,\)"),
    "three classes": (
        data(X, [0, 1, 2, 0, 1, 2]),
        r"labels have 3 values \(0, 1, 2\); two are allowed",
    ),
    "one class": (
        data(X, np.ones(6)),
        "all 6 labels are 1.0; a classifier needs sequences of both classes",
    ),
    "a NaN label": (data(X, changed(Y, 4, np.nan)), r"labels\[4\] is NaN or infinite"),
    "objects for labels": (
        data(X, np.array([None, 1] * 3, dtype=object)),
        "labels must be numbers or strings",
    ),
    "ragged labels": (data(X, [[0], [1, 1], 0, 1, 0, 1]), r"labels has shape .* it must be \(6,\)"),
    "complex labels": (data(X, Y + 1j), "labels must be numbers or strings; got dtype complex128"),
    "a masked array": (
        data(np.ma.masked_greater(X, 1)),
        "tokens is a masked array; pass tokens.data, and one flag per token",
    ),
    "tokens too large to square": (data(1e200 * X), r"tokens\[0, 0\] holds .* one beyond 1e\+40"),
    "labels of one class": (lambda: mh.Dataset(X, 0 * Y), "all 6 labels are 0"),
    "a mask of another shape": (
        data(mask=MASK[:, :2]),
        r"mask has shape \(6, 2\); it must be \(6, 4\)",
    ),
    "a mask of fractions": (data(mask=0.5 * MASK), "mask must hold True/False"),
    "an empty sequence": (
        data(mask=changed(MASK, 3, 0)),
        r"mask\[3\] is all False: sequence 3 has no real token",
    ),
    "leaving out what is not there": (lambda: DATA.without(6), r"i=6 is outside 0..5"),
    "leaving out half": (lambda: DATA.without(1.5), "i=1.5 must be a whole number >= 0"),
    "a subset of fractions": (
        lambda: DATA.subset([0.5]),
        r"indices=\[0.5\] must be whole numbers from 0 to 5",
    ),
    "a subset of a table": (lambda: DATA.subset([[0, 1]]), "must be whole numbers from 0 to 5"),
    "a subset by too few flags": (lambda: DATA.subset([True]), "at least one, or 6 flags"),
    "a split by a share above one": (
        lambda: DATA.split(1.5, key=KEY),
        "first=1.5 must be between 1 and 5, .* or a share between 0 and 1",
    ),
    "a fraction for a key": (
        lambda: DATA.split(2, key=0.5),
        r"key=0.5 must be a JAX random key or a seed",
    ),
    "a negative seed for a key": (
        lambda: DATA.split(2, key=-1),
        "key=-1 must be a JAX random key or a seed",
    ),
    "a positive label that is not there": (
        data(positive="dog"),
        "positive='dog' is not among the labels, 0, 1",
    ),
    "labels of other data": (
        data(X, Y + 3, like=DATA),
        "label '3' is none of data's, which are '0' and '1'; give both data the same",
    ),
    "test data with other labels": (
        train(test=mh.Dataset.from_arrays(X, Y + 3)),
        "label '3' is none of data's, which are '0' and '1'",
    ),
    "test data the other way round": (
        train(test=mh.Dataset.from_arrays(X, Y, positive=0)),
        "data has '0' as [+]1 and data has '1'; pass like=",
    ),
    "an index beyond the data": (lambda: DATA[6], "index 6 is outside the 6 sequences"),
    "a table without labels": (
        lambda: mh.Dataset.from_pandas(pd.DataFrame({"sequence": [0]})),
        "the table has no column 'label', only sequence; a table has one row per token",
    ),
    "something that is no table": (
        lambda: mh.Dataset.from_pandas([1]),
        r"table=\[1\] must be a pandas DataFrame",
    ),
    "sequences of different dimension": (
        lambda: mh.Dataset.from_lists([X[0], X[1][:, :2]], [0, 1]),
        r"sequences\[1\] has tokens of dimension 2, sequences\[0\] of 3",
    ),
    "no key for a start": (
        lambda: mh.gaussian_start(2, num_tokens=2, dim=2, key=None),
        "key=None must be a JAX random key or a seed",
    ),
    "a split with nothing left": (
        lambda: DATA.split(6, key=KEY),
        "first=6 must be between 1 and 5",
    ),
    "dim below the patterns": (
        mixture(dim=5),
        r"dim >= num_patterns \+ 2 = 6. Pass dim=6 or num_patterns=3",
    ),
    "a broken number of relevant tokens": (
        mixture(sparsity=0.3),
        r"sparsity \* num_tokens = 2.4 .* Pass sparsity=0.25",
    ),
    "all tokens relevant": (
        mixture(sparsity=1.0),
        "sparsity . num_tokens = 8 must be a whole number between 1 and 7",
    ),
    "no signal": (mixture(signal=0.0), "signal=0.0 must be a finite number > 0"),
    "noise that does not fit its norm": (
        mixture(noise_mu=1.0, noise_norm=0.5),
        r"Z\^2 >= 2 Z_mu\^2/S\^2 .* Pass noise_norm=0.70710\d+ or more",
    ),
    "signal in words": (mixture(signal="2"), "signal='2' must be a finite number > 0"),
    "negative noise": (mixture(noise_nu=-0.1), "noise_nu=-0.1 must be a finite number >= 0"),
    "an unknown noise": (
        mixture(noise="gaussian"),
        "noise='gaussian' must be 'uniform', 'vertex' or 'none'",
    ),
    "noise that is none": (
        mixture(noise="none", noise_norm=0.1),
        "noise='none' needs noise_mu = noise_nu = noise_norm = 0",
    ),
    "a rotation without a key": (
        mixture(frame="rotated"),
        r"pass key=jax.random.key\(0\), or frame='axis'",
    ),
    "an unknown place": (
        mixture(positions="last"),
        "positions='last' must be 'random' or 'fixed'",
    ),
    "half a token": (mixture(num_tokens=2.5), "num_tokens=2.5 must be a whole number >= 1"),
    "one example": (
        lambda: mixture()().sample(1, key=KEY),
        "num_examples=1 must be a whole number >= 2",
    ),
    "a margin nobody has": (
        lambda: mh.data.Planted(num_tokens=2, dim=2, teacher_heads=1, margin=1e3, key=KEY).sample(
            3, key=KEY
        ),
        "rejects nearly everything: 0 of .* the largest score seen is",
    ),
    "a mask of records": (
        lambda: mh.Dataset.from_arrays(X, Y, mask=np.zeros(X.shape[:2], [("a", float)])),
        "mask must hold True/False",
    ),
    "sequences beyond counting": (
        lambda: mixture()().sample(10**400, key=KEY),
        "must be a whole number >= 2 and <= 2147483646",
    ),
    "tokens that underflow": (
        lambda: mh.Dataset.from_arrays(X * 1e-310, Y),
        "products of entries below 1e-40 may underflow: rescale",
    ),
    "teachers beyond numbers": (
        lambda: mh.data.Planted(token_scale=1e200, key=KEY).sample(3, key=KEY),
        "make scores that are not finite",
    ),
    "one class drawn": (
        lambda: mixture()().sample(2, key=jax.random.key(1)),
        "Draw more sequences, or pass another key",
    ),
    "a planted model without a key": (lambda: mh.data.Planted(), r"pass key=jax.random.key\(0\)"),
    "random labels without length": (
        lambda: mh.data.RandomLabels(token_norm=-1),
        "token_norm=-1 must be a finite number > 0",
    ),
    "key-query weights that are not square": (
        model(W=(2, 3, 4)),
        r"it must be \(classes, dim, dim\)",
    ),
    "complex weights": (
        lambda: mh.MultiHead.create(np.zeros((1, 2, 2)) + 1j, np.zeros((1, 2, 2))),
        "key_query must be real numbers",
    ),
    "no classes of heads": (model(W=(0, 3, 3), U=(0, 4, 3)), "no axis may be empty"),
    "one factor": (
        lambda: mh.MultiHead.create((np.zeros((1, 2, 2)),), np.zeros((1, 2, 2))),
        r"or Factored\(query, key\)",
    ),
    "an infinite exponent": (
        model(exponent=np.inf),
        "exponent=inf must be a finite number >= 0",
    ),
    "counts for other classes": (
        lambda: mh.MultiHead(np.zeros((1, 3, 3)), np.zeros((1, 4, 3)), np.ones(3)),
        r"use MultiHead.create",
    ),
    "a sequence of another length": (
        lambda: MODEL(X[0, :3]),
        r"tokens has shape \(3, 3\); the model takes one sequence, \(4, 3\)",
    ),
    "a readout of another dim": (
        model(U=(2, 4, 5)),
        r"readout has shape \(2, 4, 5\); decoder='full' needs \(classes, tokens, dim\)",
    ),
    "an unknown decoder": (
        model(decoder="first"),
        "decoder='first' must be 'full', 'pooled', 'last' or 'query'",
    ),
    "half a head": (
        model(multiplicity=[1.5, 1]),
        "must hold one whole number >= 1 for each of the 2 classes",
    ),
    "parameters that are NaN": (
        lambda: mh.MultiHead.create(np.full((1, 2, 2), np.nan), np.zeros((1, 2, 2))),
        "key_query holds NaN",
    ),
    "no heads": (
        lambda: mh.zero_start(0, num_tokens=2, dim=2),
        r"num_heads=0 must be a whole number from 1 to 9e\+15",
    ),
    "heads beyond counting": (
        lambda: mh.zero_start(1e16, num_tokens=2, dim=2),
        r"num_heads=1e\+16 must be a whole number",
    ),
    "heads in words": (
        lambda: mh.zero_start("many", num_tokens=2, dim=2),
        "num_heads='many' must be a whole number",
    ),
    "a dim in words": (
        lambda: mh.zero_start(1, num_tokens=2, dim="2"),
        "dim='2' must be a whole number >= 1",
    ),
    "arguments the wrong way round": (
        lambda: mh.first_phase(3, DATA),
        "dataset=3 must be a Dataset; make one with",
    ),
    "a trillion Gaussian heads": (
        lambda: mh.gaussian_start(1e12, num_tokens=2, dim=2, key=KEY),
        "too many for a Gaussian start, which draws every head",
    ),
    "a start beyond the memory": (
        lambda: mh.gaussian_start(1e6, num_tokens=512, dim=64, key=KEY),
        "needs about 275 GiB, and .* GiB are free; draw fewer heads",
    ),
    "writing out a trillion heads": (
        lambda: mh.expand(mh.zero_start(1e12, num_tokens=2, dim=2)),
        "more than largest=100000",
    ),
    "a factored zero start": (
        lambda: mh.zero_start(2, num_tokens=2, dim=2, rank=1),
        "training cannot begin",
    ),
    "a rank above dim": (
        lambda: mh.gaussian_start(2, num_tokens=2, dim=2, rank=3, key=KEY),
        "rank=3 must be between 1 and dim=2",
    ),
    "unknown signs": (
        lambda: mh.first_phase(DATA, 2, signs="plus"),
        "signs='plus' must be 'balanced'",
    ),
    "random signs without a key": (
        lambda: mh.first_phase(DATA, 2, signs="rademacher"),
        r"pass key=jax.random.key\(0\)",
    ),
    "an empty interval": (
        lambda: mh.first_phase(DATA, 2, signs="uniform", interval=(1, 1), key=KEY),
        r"interval=\(1, 1\) must be \(low, high\)",
    ),
    "half an interval": (
        lambda: mh.first_phase(DATA, 2, signs="uniform", interval=1, key=KEY),
        r"interval=1 must be \(low, high\)",
    ),
    "data for a mixture": (
        lambda: mh.training.population_first_phase(DATA, 2),
        "mixture=data: 6 sequences .* must be a TokenizedMixture",
    ),
    "arrays for data": (
        train(dataset=(X, Y)),
        r"data=.* must be a Dataset; make one with Dataset.from_arrays\(tokens, labels\)",
    ),
    "arrays for test data": (train(test=X), "test=.* must be a Dataset"),
    "no model": (train(model=None), "start=None must be a MultiHead"),
    "a step size in words": (
        lambda: mh.GD("0.1"),
        "step_size='0.1' must be a finite number > 0",
    ),
    "no step size": (train(rule=0.1), "rule=0.1 is not a rule of descent; pass mh.GD"),
    "a negative step size": (lambda: mh.Adam(-0.1), "step_size=-0.1 must be a finite number > 0"),
    "a step size float32 cannot hold": (
        train(rule=mh.GD(1e39)),
        r"step_size=1e\+39 does not fit float32; pass dtype='float64'",
    ),
    "half a step": (train(num_steps=2.5), "num_steps=2.5 must be a whole number"),
    "an unknown optimizer": (
        train(rule="sgd"),
        r"rule='sgd' is not a rule of descent; pass mh.GD\(0.1\)",
    ),
    "something that is no optimizer": (train(rule=3), "rule=3 is not a rule of descent"),
    "a transform nothing is known about": (
        train(CLASSES, rule=optax.sgd(0.1)),
        "coordinates='head'. if it acts entry by entry",
    ),
    "a transform that wants to search": (
        train(rule=optax.lbfgs()),
        r"cannot be used by train \(TypeError: .*value_fn",
    ),
    "a list of losses": (
        train(loss=["logistic"]),
        r"loss=\['logistic'\] must be 'logistic', 'hyperbolic' or a Loss",
    ),
    "an unknown loss": (
        train(loss="hinge"),
        "loss='hinge' must be 'logistic', 'hyperbolic' or a Loss",
    ),
    "half precision": (
        train(dtype="float16"),
        "dtype='float16' must be 'float32' or 'float64'",
    ),
    "a model for other data": (
        train(mh.zero_start(1, num_tokens=5, dim=3)),
        "make the model with num_tokens=4, dim=3",
    ),
    "tokens too large for float32": (
        train(dataset=mh.Dataset.from_arrays(1e39 * X, Y)),
        "tokens hold values too large for float32; pass dtype='float64'",
    ),
    "parameters too large for float32": (
        train(mh.MultiHead.create(np.zeros((1, 3, 3)), np.full((1, 4, 3), 1e50))),
        "the parameters hold values too large",
    ),
    "heads that cannot move": (
        train(mh.zero_start(1e12, num_tokens=4, dim=3, exponent=4), dtype="float32"),
        "H\\^-4 is zero in float32; no head would move",
    ),
    "an unknown record": (
        train(record="often"),
        "record='often' must be 'log', 'all', every m-th step or a list of whole steps",
    ),
    "a snapshot after the end": (
        train(snapshots=[9]),
        r"snapshots=\[9\] must be 'records' or a list of whole steps from 0 to num_steps=3",
    ),
    "a billion records": (
        train(num_steps=10**9, record="all"),
        "record=all keeps 1,000,000,000 records, more than 10,000,000; pass 'log' or record=100",
    ),
    "a flag for a record": (train(record=True), "record=True must be .* or a list of whole steps"),
    "weights in words": (
        train(loss=mh.Weighted("all")),
        r"Weighted\(...\) must hold 6 finite numbers >= 0",
    ),
    "negative weights": (
        train(loss=mh.Weighted(-np.ones(6))),
        r"Weighted\(...\) must hold 6 finite numbers >= 0",
    ),
    "a device that is not here": (
        train(devices="tpu"),
        "devices='tpu' must be 'all', a number from 1 to 1",
    ),
    "a folder for a checkpoint": (
        train(checkpoint="/"),
        "checkpoint=/ is a folder; pass a file in it",
    ),
    "a number for a checkpoint": (train(checkpoint=3), "checkpoint=3 must be a path"),
    "a number to resume": (
        train(resume=3),
        "resume=3 must be a Trajectory; train makes one, and Trajectory.load reads one or a path",
    ),
    "data saved nowhere": (
        lambda: DATA.save("/no/such/folder/x.npz"),
        "the folder does not exist; make it first",
    ),
    "a checkpoint nowhere": (
        train(checkpoint="/no/such/folder/run.npz"),
        "the folder does not exist; make it first",
    ),
    "a file that is not there": (
        lambda: mh.Dataset.load("no-such-file.npz"),
        "no-such-file.npz does not exist",
    ),
    "a folder for a file": (lambda: mh.Trajectory.load("."), "is a folder; pass an .npz file"),
    "masked labels": (data(X, np.ma.masked_array(Y, Y == 1)), "labels is a masked array"),
    "an empty axis without from_arrays": (
        lambda: mh.Dataset(X[:, :0], 2.0 * Y - 1),
        "every axis must have at least one entry",
    ),
    "NaN without from_arrays": (
        lambda: mh.Dataset(changed(X, 0, np.nan), 2.0 * Y - 1),
        "holds NaN or an infinite value",
    ),
    "steps beyond counting": (
        leave_one_out(num_steps=2**32 + 3),
        "num_steps=4294967299 must be a whole number >= 1 and <= 2147483646",
    ),
    "3.7 steps": (leave_one_out(num_steps=3.7), "num_steps=3.7 must be a whole number"),
    "steps of a list that are not whole": (
        leave_one_out(steps=[3.7]),
        r"steps=\[3.7\] must be a list, each entry a whole number >= 0",
    ),
    "a word for a seed": (
        lambda: mh.measures.loss_curvature(MODEL, DATA, seed="abc"),
        "seed='abc' must be a whole number >= 0",
    ),
    "a seed beyond 64 bits": (
        lambda: mh.measures.loss_curvature(MODEL, DATA, seed=2**64),
        "seed=18446744073709551616 must be a whole number",
    ),
    "a width that is no number": (
        lambda: mh.measures.spectral_density(MODEL, DATA, width=np.nan, key=KEY),
        "width=nan must be a finite number > 0 or None",
    ),
    "many keys for one": (
        lambda: mh.measures.spectral_density(MODEL, DATA, key=jax.random.split(KEY)),
        "must be a JAX random key or a seed",
    ),
    "data for a run": (
        lambda: mh.certify(DATA, DATA),
        "run=data: 6 sequences .* must be a Trajectory; train makes one",
    ),
    "a name for names": (lambda: mh.certify(None, DATA, "thm1"), "run=None must be a Trajectory"),
    "complex features": (
        lambda: mh.measures.hard_margin([1, -1], features=[[1j], [1.0]]),
        "features must be real numbers",
    ),
    "bytes for heads": (
        lambda: mh.zero_start(b"3", num_tokens=2, dim=2),
        "num_heads=b'3' must be a whole number",
    ),
    "an argument too many": (
        lambda: mh.measures.risk(MODEL, DATA, DATA, nonsense=3),
        "risk: got an unexpected keyword argument 'nonsense'; it takes model, train, test, loss",
    ),
    "a loss below every number": (
        lambda: mh.theory.plan(DATA, target_loss=1e-320, key=KEY),
        "target_loss=1e-320 must be from 1e-100 to log 2",
    ),
    "a name beyond the system": (
        lambda: mh.Dataset.load("a" * 300),
        "must be a path, of names of at most 255 characters",
    ),
    "a pipe for a checkpoint": (
        train(checkpoint="/dev/null"),
        "checkpoint=/dev/null is a device or a pipe, which is never replaced",
    ),
    "a device to read": (
        lambda: mh.Dataset.load("/dev/zero"),
        "/dev/zero is a device or a pipe; pass an .npz file",
    ),
    "two billion steps": (
        train(num_steps=2 * 10**9),
        "2,000,000,000 steps takes at least .* h; pass fewer steps .MANYHEADS_HOURS=N allows N hours",
    ),
    "a dimension beyond the memory": (
        lambda: mh.zero_start(1, num_tokens=2, dim=10**7),
        "needs about 7.45e.05 GiB, and .* are free; pass a smaller dim",
    ),
    "test data of another shape": (
        train(test=mh.Dataset.from_arrays(X[:, :2], Y)),
        "the data have 2 tokens in dimension 3",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_bad_input_gets_one_line_that_helps(case):
    call, words = CASES[case]
    with pytest.raises(
        (ValueError, TypeError, FileNotFoundError, IndexError), match=words
    ) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message and len(message) < 350 and "pickle" not in message


def test_files_that_are_something_else_are_refused(tmp_path):
    np.savez(tmp_path / "other.npz", x=np.zeros(2))
    with pytest.raises(ValueError, match="has no array tokens; it holds x"):
        mh.Dataset.load(tmp_path / "other.npz")
    with pytest.raises(ValueError, match="does not hold a trajectory"):
        mh.Trajectory.load(tmp_path / "other.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(ValueError, match="is not a readable .npz file"):
        mh.Dataset.load(tmp_path / "text.npz")
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    (tmp_path / "objects.npy").rename(tmp_path / "objects.npz")
    with pytest.raises(ValueError, match="is not a readable .npz file"):
        mh.Dataset.load(tmp_path / "objects.npz")


def test_resuming_another_run_is_refused(tmp_path):
    run = mh.train(MODEL, DATA, rule=mh.GD(0.1), num_steps=3)
    for more, words in (
        ({"rule": mh.GD(0.2)}, "has step_size=0.1, this call 0.2"),
        ({"dtype": "float64"}, "has dtype='float32', this call 'float64'"),
        ({"num_steps": 2}, "num_steps=2 is less than the 3 steps already done"),
        (
            {"model": mh.gaussian_start(2, num_tokens=4, dim=3, key=jax.random.key(9))},
            "began from another model",
        ),
    ):
        with pytest.raises(ValueError, match=words):
            train(**{"resume": run, **more})()
