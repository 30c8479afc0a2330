"""A statement of one's own: declared in ten lines, attacked, confirmed in 60 digits, made small, stored."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import manyheads as mh
from manyheads.theory import kinds
from manyheads.theory.arithmetic import FRACTIONS, MANY_DIGITS, NotExactError, balls
from manyheads.theory.attack import QUICK, Problem
from manyheads.theory.exact import Program
from manyheads.theory.own import attack
from manyheads.theory.verdict import Verdict, ratio
from manyheads.theory.verify import verify


def lipschitz(constant):
    return mh.Statement(
        f"softmax is {constant}-Lipschitz in l2",
        inputs=mh.inputs(x=mh.real(5), y=mh.real(5)),
        measured=lambda p: jnp.linalg.norm(jax.nn.softmax(p.x) - jax.nn.softmax(p.y)),
        bound=lambda p: constant * jnp.linalg.norm(p.x - p.y),
        hypotheses={"x differs from y": lambda p: (p.x != p.y).any()},
    )


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def lemmas(name):
    path = Path(__file__).parent / "lemmas" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"lemmas_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.LEMMAS


TRUE, FALSE = lemmas("true"), lemmas("false")


def test_a_true_lemma_with_the_best_constant_holds_and_is_reached():
    found = verify(lipschitz(0.5))
    first, second, *_ = str(found).split("\n")
    assert first.startswith(
        "HOLDS  softmax is 0.5-Lipschitz in l2: 2,000 random inputs, 64 ascents of 500 steps, "
    )
    assert first.endswith(" structured inputs, none above the bound")
    assert second.strip() == (
        "reached 1.0000 of it: the constant cannot be smaller (input stored; print(result.tightest))"
    )
    assert 0.9999 < found.reached <= 1 and found.counterexample is None


def test_a_wrong_constant_is_violated_and_the_counterexample_stands_alone(capsys):
    statement = lipschitz(1 / 3)
    found = verify(statement, quick=True)
    assert found.verdict is Verdict.VIOLATED and "VIOLATED" in str(found)
    assert found.tightest.share > 1.49
    small = statement.counterexample
    assert small.nonzero <= 6 and small.share > 1.01 and small.confirmed == "60 digits"
    assert np.array_equal(np.round(small.at, 2), small.at)  # round numbers
    code = small.code()
    assert "manyheads" not in code
    exec(code, {})
    measured, bound = map(float, capsys.readouterr().out.split()[1::2])
    assert measured == pytest.approx(small.sides.measured) and measured > bound


def test_what_was_found_is_tried_first_the_next_time():
    statement = lipschitz(0.45)
    assert verify(statement, quick=True).count("stored") == 0
    weak = replace(QUICK, random=8, rounds=0, ascents=4, steps=1)
    again = attack(statement, budget=weak)
    assert again.count("stored") > 0 and again.verdict is Verdict.VIOLATED


def test_the_smallest_constant():
    free = replace(lipschitz(1.0), bound=lambda p: p.c * jnp.linalg.norm(p.x - p.y))
    found = verify(free, constant="c", quick=True)
    assert 0.499 < found.constant[1] < 0.5001 and "smallest c that survives" in str(found)


def test_without_an_input_that_meets_the_hypotheses_it_is_silent():
    never = replace(lipschitz(0.5), hypotheses={"never": lambda p: p.x[0] > jnp.inf})
    found = attack(never, budget=replace(QUICK, rounds=1, steps=5))
    assert found.verdict is Verdict.SILENT and "none of the" in str(found)


def test_an_input_pushed_back_to_a_hypothesis_reaches_its_boundary():
    statement = TRUE[7][0]
    assert "angle" in statement.title
    assert 0.99999 < verify(statement, quick=True).reached < 1 + 1e-9


@pytest.mark.parametrize("statement, witness", TRUE, ids=lambda v: getattr(v, "id", ""))
def test_the_true_lemmas_are_attained(statement, witness):
    assert 0.99 <= _share(statement, witness) <= 1 + 1e-9


@pytest.mark.parametrize("statement, witness, factor", FALSE, ids=lambda v: getattr(v, "id", ""))
def test_the_false_lemmas_fail(statement, witness, factor):
    assert _share(statement, witness) > factor * (1 - 1e-3)


def _share(statement, witness):
    with jax.enable_x64(True):
        point = kinds.Point({name: jnp.asarray(v, float) for name, v in witness.items()})
        for hypothesis in statement.hypotheses.values():
            found = hypothesis(point)
            assert found[0] >= found[1] if isinstance(found, tuple) else found
        sides = float(statement.measured(point)), float(statement.bound(point))
    return ratio(*sides, statement.sense)


@pytest.mark.parametrize(
    "place", [1, 8, 9, 17]
)  # sums, signs, whole numbers, a saddle of attention
def test_some_false_lemmas_are_found_quickly(place):
    assert verify(FALSE[place][0], quick=True).verdict is Verdict.VIOLATED


@pytest.mark.parametrize("place", [5, 13, 14])  # where nearly equal numbers are subtracted
def test_rounding_breaks_no_true_lemma(place):
    found = verify(TRUE[place][0], quick=True)
    assert found.verdict is Verdict.HOLDS and found.reached <= 1 + 1e-9


@pytest.mark.full
@pytest.mark.parametrize("seed", [0, 1])
def test_forty_lemmas_are_told_apart(seed):
    for statement, _ in TRUE:
        assert verify(statement, seed=seed).verdict is Verdict.HOLDS, statement.title
    found = [verify(statement, seed=seed).verdict for statement, *_ in FALSE]
    assert found.count(Verdict.VIOLATED) >= 18


def test_balls_prove_the_inputs_tried():
    pytest.importorskip("flint")
    found = verify(lipschitz(0.5), quick=True, rigorous=True)
    assert "proved at 50 of the 50 tightest inputs" in str(found)
    problem = Problem(lipschitz(0.4))
    row = np.array([0.01, -0.01, -30, -30, -30, -0.01, 0.01, -30, -30, -30])
    assert not problem.proved(row, 1.0, balls())


VALUES = np.array([0.3, -1.2, 0.7, 2.0, 0.01])
FUNCTIONS = {
    "softmax": lambda x: jax.nn.softmax(x),
    "logsumexp": lambda x: jax.nn.logsumexp(x[::2]),
    "softplus": lambda x: jax.nn.softplus(x),
    "determinant": lambda x: jnp.linalg.det(jnp.outer(x, x) + jnp.eye(5)),
    "inverse": lambda x: jnp.linalg.inv(jnp.outer(x, x) + jnp.eye(5)),
    "eigenvalues": lambda x: jnp.linalg.eigvalsh(jnp.outer(x, x) + jnp.eye(5)),
    "singular values": lambda x: jnp.linalg.norm(jnp.outer(x, x)[:3], 2),
    "cholesky": lambda x: jnp.linalg.cholesky(jnp.outer(x, x) + jnp.eye(5)),
    "gradient": lambda x: jax.grad(lambda z: jax.nn.logsumexp(z[1:] * z[0]))(x),
    "median": lambda x: jnp.median(x) + jnp.std(x) + x[jnp.argmax(x)],
    "sort": lambda x: jnp.sort(x)[::-1],
    "remainder": lambda x: jnp.mod(x, 0.4) + jnp.round(3 * x),
    "loop": lambda x: jax.lax.fori_loop(0, 3, lambda i, z: jnp.sin(z) * i, x),
    "scan": lambda x: jax.lax.scan(lambda c, a: (c + a, c * a), 0.0, x)[1],
    "set": lambda x: x.at[2].set(3.0),
    "sparse": kinds.real(5, nonzero=2, norm=1.0).make,
    "box": kinds.real(5, low=-0.3, high=0.4).make,
    "definite": lambda x: kinds.positive_definite(2, low=1).make(jnp.append(x, 0.5).reshape(3, 2)),
    "run": lambda x: (
        kinds.runs(kinds.datasets(2, 1, 2), num_steps=3, step_size=0.1)
        .make(jnp.append(x, 0.5).reshape(2, 3))
        .loss
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_sixty_digits_agree_with_floating_point(name):
    with jax.enable_x64(True):
        expected = np.asarray(FUNCTIONS[name](jnp.asarray(VALUES)))
    (found,) = Program(FUNCTIONS[name], 5).at(VALUES, MANY_DIGITS)
    np.testing.assert_allclose(np.asarray(found, float), expected, rtol=1e-13, atol=1e-14)


def test_sixty_digits_are_sixty_digits_and_fractions_are_exact():
    program = Program(lambda x: (1.0 + x[0]) - 1.0, 1)
    assert float(program.at(np.array([2.0**-80]))[0][()]) == 2.0**-80  # 0 in floating point
    assert program.at(np.array([2.0**-80]), FRACTIONS)[0][()] * 2**80 == 1
    with pytest.raises(NotExactError, match="the function exp"):
        Program(lambda x: jnp.exp(x), 1).at(np.ones(1), FRACTIONS)


@pytest.mark.parametrize("scale", [1e-3, 30.0])
def test_values_keep_their_constraints(scale):
    rng = np.random.default_rng(0)
    draws = kinds.inputs(
        a=kinds.real(4, low=-1, high=2),
        b=kinds.real(3, 2, row_norm=1.0),
        c=kinds.signs(3),
        d=kinds.whole(2, low=1, high=9),
        e=kinds.probabilities(2, 3),
        f=kinds.orthogonal(3),
        g=kinds.positive_definite(3, low=1, high=10),
        h=kinds.real(6, nonzero=2),
    )
    p = draws.values(scale * rng.normal(size=draws.size))
    assert p.a.min() >= -1 and p.a.max() <= 2
    assert np.linalg.norm(p.b, axis=1).max() <= 1 + 1e-12
    assert set(np.abs(p.c)) == {1.0} and set(p.d) <= set(range(1, 10))
    np.testing.assert_allclose(p.e.sum(axis=1), 1.0)
    np.testing.assert_allclose(p.f.T @ p.f, np.eye(3), atol=1e-12)
    values = np.linalg.eigvalsh(p.g)
    assert values[0] >= 1 - 1e-9 and values[-1] <= 10 + 1e-9
    assert np.count_nonzero(p.h) == 2


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: mh.inputs(x=5), r"inputs\(\) got x=5; write each as a kind"),
        (lambda: mh.real(0), "a size of 0 is not a whole number"),
        (lambda: mh.real(2, low=1, high=0), "pass low < high"),
        (
            lambda: mh.Statement("x", measured=lambda p: p.x),
            "needs all of inputs=, measured= and bound=",
        ),
        (lambda: mh.Statement("x"), "says nothing"),
        (lambda: verify(replace(lipschitz(1.0), measured=lambda p: p.x)), "return one number"),
        (lambda: verify(replace(lipschitz(1.0), bound=lambda p: p.z[0])), "there is no input 'z'"),
        (lambda: verify(mh.Statement("x", on=lambda run, data: (0, 1))), "about a run alone"),
    ],
)
def test_bad_input_is_one_line(make, words):
    with pytest.raises((ValueError, AttributeError), match=words) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def trained():
    task = mh.TokenizedMixture(num_tokens=4, dim=6, num_patterns=2, sparsity=0.5, signal=1.0, key=0)
    start = mh.zero_start(2, num_tokens=4, dim=6)

    def run(key):
        data = task.sample(6, key=key)
        settings = {"rule": mh.GD(0.1), "num_steps": 3, "dtype": "float64", "record": "all"}
        return mh.train(start, data, **settings), data

    return [run(key) for key in range(4)]


def falls(share, **more):
    return mh.Statement(
        "the loss falls",
        on=lambda run, data: (run.train_loss[-1], share * run.train_loss[0]),
        **more,
    )


def test_an_own_statement_on_a_run(trained):
    (found,) = mh.certify(*trained[0], [falls(1.0)])
    assert found.verdict is Verdict.HOLDS and found.slack > 0
    (found,) = mh.certify(*trained[0], falls(0.5))
    assert found.verdict is Verdict.VIOLATED
    large = {"a large step": lambda p: (p.run.settings["step_size"], 0.2, "take a step of .2")}
    (found,) = mh.certify(*trained[0], [falls(0.5, hypotheses=large)])
    assert found.verdict is Verdict.SILENT
    assert "off by a factor 2" in found.reason and "take a step of .2" in found.reason


def test_an_own_statement_in_expectation(trained):
    (found,) = mh.certify(*trained[0], [falls(1.0)], samples=trained[1:])
    assert found.verdict is Verdict.HOLDS and found.noise > 0 and "4 samples" in found.claim
    ends = [float(run.train_loss[-1]) for run, _ in trained]
    assert found.measured == pytest.approx(np.mean(ends))
    (found,) = mh.certify(*trained[0], [falls(1.0)], samples=trained[1:2])
    assert found.verdict is Verdict.SILENT and "several samples" in found.reason


def test_what_the_training_theorem_needs_comes_first(trained):
    found = mh.certify(*trained[0])
    assert found.needed.startswith(
        "Theorem 1′ would promise a mean train loss of 0.5 with a target"
    )
    assert "this run has 2 heads and 3 steps of 0.1" in found.needed
    assert found.brief().split("\n")[3] == found.needed


def test_several_statements_at_once():
    found = verify([lipschitz(0.4), "eq1"], quick=True)
    assert [f.verdict.name for f in found.findings] == ["VIOLATED", "HOLDS"]
    text = str(found)
    assert text.startswith("VIOLATED  softmax is 0.4-Lipschitz") and "eq1 " in text
    assert "1 of 2 statements hold as corrected" in text
