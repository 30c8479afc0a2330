"""How many of twenty false lemmas, and of twenty true ones, does an attack break?

Against random search with the same number of evaluations, from the attack's own draws and from
normal coordinates, and against Hypothesis's `target()`.

Run: python benchmarks/attack_lemmas.py [--seeds 3]. One JSON line a method and seed.
"""

import argparse
import importlib.util
import json
import sys
import tempfile
import time
from pathlib import Path

import hypothesis
import numpy as np
from hypothesis import strategies as st

from manyheads.theory import draws
from manyheads.theory.attack import Problem
from manyheads.theory.verdict import Verdict
from manyheads.theory.verify import verify

FOLDER = Path(__file__).parents[1] / "tests" / "theory" / "lemmas"
EXAMPLES = 2000  # of Hypothesis: it evaluates one input after another


def lemmas(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [entry[0] for entry in module.LEMMAS]


def attacked(statement, seed):
    with tempfile.TemporaryDirectory() as store:
        found = verify(statement, seed=seed, store=store)
    return found.verdict is Verdict.VIOLATED, len(found.tried) + 64 * 500


def drawn(statement, seed, count=40_000):
    """The same distribution of random inputs, without any search; as many as an attack evaluates."""
    problem, rng = Problem(statement), np.random.default_rng(seed)
    tried = problem.tried(draws.drawn(problem.inputs, rng, count), "random")
    return any(problem.exact(row).broken for row in tried.best(4).at), count


def targeted(statement, seed):
    """Hypothesis draws the coordinates and climbs the gap with `target`."""
    problem, count = Problem(statement), 0
    numbers = st.floats(-1e3, 1e3, allow_nan=False, width=64)

    @hypothesis.settings(
        max_examples=EXAMPLES, deadline=None, database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    @hypothesis.seed(seed)
    @hypothesis.given(st.lists(numbers, min_size=problem.inputs.size, max_size=problem.inputs.size))
    def run(values):
        nonlocal count
        count += 1
        score = float(problem.tried(np.array([values]), "hypothesis").score[0])
        if np.isfinite(score):
            hypothesis.target(score)
            broken = score > 1e-9 and problem.exact(np.array(values)).broken
            assert not broken

    try:
        run()
    except AssertionError:
        return True, count
    return False, count


def normal(statement, seed, count=40_000):
    """Normal coordinates of scale 1, as one writes it first."""
    problem, rng = Problem(statement), np.random.default_rng(seed)
    tried = problem.tried(rng.standard_normal((count, problem.inputs.size)), "random")
    return any(problem.exact(row).broken for row in tried.best(4).at), count


METHODS = {"attack": attacked, "draws": drawn, "normal": normal, "hypothesis": targeted}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    options = parser.parse_args()
    for seed in range(options.seeds):
        for name in options.methods:
            began, missed, wrong = time.process_time(), [], []
            for statement in lemmas("false"):
                print(name, statement.title, file=sys.stderr)
                if not METHODS[name](statement, seed)[0]:
                    missed.append(statement.title)
            for statement in lemmas("true") if name == "attack" else []:
                print(name, statement.title, file=sys.stderr)
                if METHODS[name](statement, seed)[0]:
                    wrong.append(statement.title)
            line = {"method": name, "seed": seed, "found": 20 - len(missed), "missed": missed}
            line |= {"true_ones_broken": wrong, "cpu_s": round(time.process_time() - began)}
            print(json.dumps(line), flush=True)
