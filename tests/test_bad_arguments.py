"""Every checked argument of every public function, and every verb, is given what it refuses: one line each."""

import inspect

import numpy as np
import pytest

import manyheads as mh
from manyheads._check import REFUSED
from manyheads.cli.main import main

X, Y = np.random.default_rng(0).standard_normal((6, 4, 3)), np.array([0, 1, 0, 1, 0, 1])
DATA = mh.Dataset.from_arrays(X, Y)
MODEL = mh.gaussian_start(2, num_tokens=4, dim=3, key=0)

# Values that stand for what people pass by mistake; each argument is given two of those that it refuses.
WRONG = (None, -1, 2.5, "nonsense", np.nan, [], True, 10**400, {"a": 1}, np.zeros((2, 2)), b"3")
VALID = {
    "dataset": DATA,
    "train": DATA,
    "test": DATA,
    "replacements": DATA,
    "model": MODEL,
    "first": MODEL,
    "second": MODEL,
    "start": MODEL,
    "mixture": mh.TokenizedMixture(frame="axis"),
    "path": "none.npz",
    "layer": 0,
    "readout": np.ones(3),
    "block": "readout",
    "labels": [1, -1],
    "name": "target",
    "weights": np.ones(6),
    "directions": [],
    "index": 0,
    "key": 0,
    "step_size": 0.1,
    "num_steps": 3,
    "num_heads": 2,
    "num_tokens": 4,
    "dim": 3,
    "num_examples": 6,
    "size": 3,
    "data": DATA,
    "rule": mh.GD(0.1),
}
# They take nothing, or check in the body what is tried above or in tests/theory.
FREE = {"ledger", "as_model", "progress", "inputs", "signs", "probabilities"}


def public_functions():
    rooms = [mh, *(getattr(mh, room) for room in mh.ROOMS if room != "lab")]
    for room in rooms:
        for name in (name for names in room.PUBLIC.values() for name in names):
            if inspect.isfunction(getattr(room, name)) and name not in FREE:
                yield name, getattr(room, name)


def refused(constraint, value):
    try:
        return constraint.accept(value) is REFUSED
    except ValueError:
        return True


def wrong_arguments():
    for name, function in dict(public_functions()).items():
        for place, (argument, constraint) in enumerate(function.constraints.items()):
            values = [value for value in WRONG if refused(constraint, value)]
            for value in (values[place % len(values)], values[(place + 3) % len(values)]):
                yield pytest.param(function, argument, value, id=f"{name}-{argument}-{value!r:.12}")


@pytest.fixture(scope="module")
def run():
    return mh.train(MODEL, DATA, rule=mh.GD(0.1), num_steps=2)


@pytest.mark.parametrize("function, argument, value", list(wrong_arguments()))
def test_every_argument_of_a_public_function_is_checked(function, argument, value, run):
    valid = VALID | {"run": run, "trajectory": run}
    needed = [
        item.name
        for item in inspect.signature(function).parameters.values()
        if item.default is item.empty and item.kind not in (item.VAR_KEYWORD, item.VAR_POSITIONAL)
    ]
    with pytest.raises(ValueError) as caught:
        function(**{name: valid[name] for name in needed} | {argument: value})
    line = str(caught.value)
    assert line.startswith(f"{argument}=") and " must be " in line and line.endswith(".")
    assert "\n" not in line and len(line) < 350


@pytest.mark.parametrize("name, function", list(public_functions()))
def test_what_is_not_checked_by_a_constraint_is_known(name, function):
    """These are checked in the body, where more has to be said than one constraint can."""
    in_the_body = {"statements", "options", "devices", "labels", "gram", "features", "interval"}
    in_the_body |= {"layer", "readout", "weights", "record", "snapshots", "observe"}
    in_the_body |= {"sizes", "nonzero", "high", "data", "columns", "loss", "rule", "samples"}
    assert set(inspect.signature(function).parameters) - set(function.constraints) <= in_the_body


VERBS = {
    "": "Available subcommands",
    "trian": "Unrecognized options: trian. Available subcommands",
    "train nowhere.npz": "'nowhere.npz' is neither a file nor a data source",
    "train --heads 0": "heads",
    "train --heads many": "heads",
    "train --heads 1.5": "heads",
    "train --steps -1": "--steps -1 must be a whole number",
    "train --steps 1.5": "--steps",
    "train --step-size 0": "--step-size 0.0 must be a finite number > 0",
    "train --step-size nan": "--step-size nan must be a finite number > 0",
    "train --step-size fast": "--step-size",
    "train --optimizer sgd": "--optimizer",
    "train --decoder first": "--decoder",
    "train --loss hinge": "--loss",
    "train --start warm": "--start",
    "train --examples 1": "--examples 1 must be a whole number >= 2",
    "train --test-examples -3": "--test-examples -3 must be 0 or more",
    "train --first-phase-examples 0": "--first-phase-examples 0 must be 2 or more",
    "train --seed -1": "seed",
    "train --seed many": "seed",
    "train --dtype float16": "--dtype",
    "train --scale 2": "--start gaussian",
    "train mixture --positive cat": "--positive cat is for data of your own",
    "train --out run.txt --steps 1": "must end in .npz",
    "train --resume nowhere.npz --steps 1": "nowhere.npz does not exist",
    "train --nonsense 3": "--nonsense",
    "train one two": "two",
    "certify": "RUN",
    "certify nowhere.npz": "'nowhere.npz' is not a file",
    "certify nowhere.npz --nonsense": "--nonsense",
    "forecast": "RUN",
    "forecast nowhere.npz": "nowhere.npz",
    "plan nowhere.npz": "nowhere.npz",
    "plan --target-loss 0": "--target-loss 0.0 must be a finite number > 0",
    "plan --target-loss 3": "--target-loss 3.0 must be from 1e-100 to log 2",
    "plan --decoder first": "--decoder",
    "verify nonsense": "nonsense",
    "verify --seed -1": "seed",
    "verify --nonsense": "--nonsense",
    "explain thm99": "thm99",
}


@pytest.mark.parametrize("line", VERBS)
def test_a_verb_answers_bad_input_with_one_line(line, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main([word for word in line.split() if word] or [""]) == 2
    out, err = capsys.readouterr()
    *told, last = err.splitlines()  # which data are used may be told before
    assert out == "" and last.startswith("error: ") and "error" not in "".join(told)
    assert VERBS[line] in last and "Traceback" not in err
    assert not list(tmp_path.iterdir())
