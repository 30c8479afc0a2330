"""Twenty lemmas that are false, by a known factor and on a thin set: a search should find them.

Each has a witness, and the factor by which it breaks there (the largest, or nearly so, unless it says more). They are
mistakes that one makes: a constant too small, an inequality for two matrices used for three, a range a little too wide.
They were written before the search.
"""

import jax.numpy as jnp
import numpy as np
from jax.nn import logsumexp, relu, sigmoid, softmax

from manyheads.theory.kinds import (
    inputs,
    orthogonal,
    positive_definite,
    probabilities,
    real,
    signs,
    whole,
)
from manyheads.theory.statement import Statement

norm = jnp.linalg.norm
DIFFER = {"x differs from y": lambda p: (p.x != p.y).any()}
HADAMARD = np.array([[1.0, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]) / 2
# a 6 x 6 matrix of signs with the largest determinant, 160: two circulant blocks
BLOCK_A, BLOCK_B = np.ones((3, 3)), np.ones((3, 3)) - 2 * np.eye(3)
SIX = np.block([[BLOCK_B, BLOCK_A], [-BLOCK_A.T, BLOCK_B.T]])


def divergence(p, q):
    return jnp.sum(jnp.where(p > 0, p * jnp.log(jnp.where(p > 0, p, 1.0) / q), 0.0))


def covariance(p):
    mean = p.a @ p.X
    return jnp.einsum("t,td,te->de", p.a, p.X, p.X) - jnp.outer(mean, mean)


def attend(x):
    """The output of self-attention at the first of several scalar tokens."""
    return softmax(x[0] * x) @ x


def third(z):
    s = sigmoid(z)
    return jnp.abs(s * (1 - s) * (1 - 2 * s))


def descended(p):
    x = p.x
    for _ in range(10):
        x = x - p.A @ x
    return norm(x)


def network(p, x):
    return p.v @ relu(p.W @ x)


E1 = np.array([1.0, 0, 0])
TURN = [np.array([np.cos(2 * np.pi * k / 3), np.sin(2 * np.pi * k / 3), 0]) for k in range(3)]
TINY = 1e-9 * np.eye(3)

LEMMAS = [  # (statement, witness, factor at the witness)
    (
        Statement(
            "softmax is .49-Lipschitz in l2",
            inputs=inputs(x=real(5), y=real(5)),
            measured=lambda p: norm(softmax(p.x) - softmax(p.y)),
            bound=lambda p: 0.49 * norm(p.x - p.y),
            hypotheses=DIFFER,
        ),
        {"x": np.array([0.01, -0.01, -30, -30, -30]), "y": np.array([-0.01, 0.01, -30, -30, -30])},
        1.0204,
    ),
    (
        Statement(
            "the sum of absolute values is at most .99 sqrt(n) times the norm",
            inputs=inputs(x=real(12)),
            measured=lambda p: jnp.sum(jnp.abs(p.x)),
            bound=lambda p: 0.99 * jnp.sqrt(12.0) * norm(p.x),
        ),
        {"x": np.ones(12)},
        1.0101,
    ),
    (
        Statement(
            "Pinsker's inequality with 2.2 for 2",
            inputs=inputs(p=probabilities(4), q=probabilities(4)),
            measured=lambda p: 2.2 * (jnp.sum(jnp.abs(p.p - p.q)) / 2) ** 2,
            bound=lambda p: divergence(p.p, p.q),
            hypotheses={"q is positive": lambda p: jnp.min(p.q) > 0},
        ),
        {
            "p": np.array([0.26, 0.26, 0.24, 0.24]),
            "q": np.array([0.24, 0.24, 0.26, 0.26]),
        },
        1.099,
    ),
    (
        Statement(
            "the covariance of tokens under attention is at most .9 of the largest squared norm",
            inputs=inputs(X=real(4, 3), a=probabilities(4)),
            measured=lambda p: jnp.linalg.eigvalsh(covariance(p))[-1],
            bound=lambda p: 0.9 * jnp.max(jnp.sum(p.X**2, axis=1)),
        ),
        {"X": np.stack([E1, -E1, E1, -E1]), "a": np.full(4, 0.25)},
        1.111,
    ),
    (
        Statement(
            "exp(x) is at most 1 + x + x^2 up to 1.85",
            inputs=inputs(x=real(low=-5, high=1.85)),
            measured=lambda p: jnp.exp(p.x),
            bound=lambda p: 1 + p.x + p.x**2,
        ),
        {"x": np.array(1.85)},
        1.0138,
    ),
    (
        Statement(
            "a determinant is at most .98 of the product of the diagonal",
            inputs=inputs(A=positive_definite(4)),
            measured=lambda p: jnp.linalg.det(p.A),
            bound=lambda p: 0.98 * jnp.prod(jnp.diagonal(p.A)),
        ),
        {"A": np.eye(4)},
        1.0204,
    ),
    (
        Statement(
            "Kantorovich's inequality with 4.4 for 4",
            inputs=inputs(A=positive_definite(3, low=1, high=10), x=real(3)),
            measured=lambda p: (p.x @ p.A @ p.x) * (p.x @ jnp.linalg.solve(p.A, p.x)),
            bound=lambda p: 121 / 44 * jnp.sum(p.x**2) ** 2,
        ),
        {"A": np.diag([1.0, 10.0, 5.0]), "x": np.array([1.0, 1.0, 0.0])},
        1.1,
    ),
    (
        Statement(
            "directions differ by at most 1.9 times the distance over the sum of norms",
            inputs=inputs(x=real(4), y=real(4)),
            measured=lambda p: norm(p.x / norm(p.x) - p.y / norm(p.y)),
            bound=lambda p: 1.9 * norm(p.x - p.y) / (norm(p.x) + norm(p.y)),
            hypotheses={
                "x is not zero": lambda p: norm(p.x) > 0,
                "y is not zero": lambda p: norm(p.y) > 0,
            },
        ),
        {"x": np.array([1.0, 0, 0, 0]), "y": np.array([-1.0, 0, 0, 0])},
        1.0526,
    ),
    (
        Statement(
            "a 6 x 6 determinant of signs is at most 150",
            inputs=inputs(S=signs(6, 6)),
            measured=lambda p: jnp.abs(jnp.linalg.det(p.S)),
            bound=lambda p: 150 * jnp.ones(()),
        ),
        {"S": SIX},
        1.0666,
    ),
    (
        Statement(
            "n |sin n| is at least .05",
            inputs=inputs(n=whole(low=1, high=100_000)),
            measured=lambda p: p.n * jnp.abs(jnp.sin(p.n * 1.0)),
            bound=lambda p: 0.05 * jnp.ones(()),
            sense=">=",
        ),
        {"n": np.array(355)},
        4.67,
    ),
    (
        Statement(
            "the descent lemma of log-sum-exp with .48",
            inputs=inputs(x=real(6), y=real(6)),
            measured=lambda p: logsumexp(p.y) - logsumexp(p.x) - softmax(p.x) @ (p.y - p.x),
            bound=lambda p: 0.24 * jnp.sum((p.y - p.x) ** 2),
            hypotheses=DIFFER,
        ),
        {
            "x": np.array([0.01, -0.01, -30, -30, -30, -30]),
            "y": np.array([-0.01, 0.01, -30, -30, -30, -30]),
        },
        1.0416,
    ),
    (
        Statement(
            "the third derivative of the logistic loss is at most .095, in the mean of eight",
            inputs=inputs(z=real(8)),
            measured=lambda p: jnp.mean(third(p.z)),
            bound=lambda p: 0.095 * jnp.ones(()),
        ),
        {"z": np.full(8, np.log(2 + np.sqrt(3)))},
        1.0128,
    ),
    (
        Statement(
            "total variation is at most .97 sqrt(1 - exp(-divergence))",
            inputs=inputs(p=probabilities(3), q=probabilities(3)),
            measured=lambda p: jnp.sum(jnp.abs(p.p - p.q)) / 2,
            bound=lambda p: 0.97 * jnp.sqrt(-jnp.expm1(-divergence(p.p, p.q))),
            hypotheses={"q is positive": lambda p: jnp.min(p.q) > 0},
        ),
        {"p": np.array([1.0, 0, 0]), "q": np.array([1e-6, 0.5, 0.499999])},
        1.0309,
    ),
    (
        Statement(
            "a ReLU network changes by at most .9 of the product of norms",
            inputs=inputs(v=real(4), W=real(4, 3), x=real(3), y=real(3)),
            measured=lambda p: jnp.abs(network(p, p.x) - network(p, p.y)),
            bound=lambda p: 0.9 * norm(p.v) * norm(p.W) * norm(p.x - p.y),
        ),
        {
            "v": np.array([1.0, 0, 0, 0]),
            "W": np.outer([1.0, 0, 0, 0], E1),
            "x": E1,
            "y": np.zeros(3),
        },
        1.111,
    ),
    (
        Statement(
            "with margin 1 no mean of examples is shorter than 1.05",
            inputs=inputs(X=real(4, 3), a=probabilities(4)),
            measured=lambda p: norm(p.a @ p.X),
            bound=lambda p: 1.05 * jnp.ones(()),
            sense=">=",
            hypotheses={"margin 1": lambda p: (jnp.min(p.X[:, 0]), 1.0)},
        ),
        {"X": np.stack([E1, E1, E1, E1]), "a": np.full(4, 0.25)},
        1.05,
    ),
    (
        Statement(
            "the trace of three positive definite matrices is hardly negative",
            inputs=inputs(A=positive_definite(3), B=positive_definite(3), C=positive_definite(3)),
            measured=lambda p: -jnp.trace(p.A @ p.B @ p.C),
            bound=lambda p: 0.1 * norm(p.A) * norm(p.B) * norm(p.C),
        ),
        {name: np.outer(u, u) + TINY for name, u in zip("ABC", TURN, strict=True)},
        1.25,
    ),
    (
        Statement(
            "an entry of a normalized layer is at most .97 sqrt(n - 1)",
            inputs=inputs(x=real(10)),
            measured=lambda p: jnp.max(jnp.abs(p.x - jnp.mean(p.x))),
            bound=lambda p: 0.97 * 3 * jnp.std(p.x),
        ),
        {"x": np.eye(10)[0]},
        1.0309,
    ),
    (
        Statement(
            "self-attention on tokens within [-10, 10] is 10-Lipschitz",
            inputs=inputs(x=real(3, low=-10, high=10), y=real(3, low=-10, high=10)),
            measured=lambda p: jnp.abs(attend(p.x) - attend(p.y)),
            bound=lambda p: 10 * norm(p.x - p.y),
            hypotheses=DIFFER,
        ),
        {"x": np.array([0.001, 10, -10]), "y": np.array([-0.001, 10, -10])},
        6.6,
    ),
    (
        Statement(
            "the absolute values of an orthogonal matrix sum to at most .98 n^1.5",
            inputs=inputs(Q=orthogonal(4)),
            measured=lambda p: jnp.sum(jnp.abs(p.Q)),
            bound=lambda p: 0.98 * 8 * jnp.ones(()),
        ),
        {"Q": HADAMARD},
        1.0204,
    ),
    (
        Statement(
            "ten steps of descent leave at most .85 of the distance",
            inputs=inputs(A=positive_definite(3, low=0.01, high=1), x=real(3)),
            measured=descended,
            bound=lambda p: 0.85 * norm(p.x),
        ),
        {"A": np.diag([0.01, 1.0, 1.0]), "x": E1},
        1.0639,
    ),
]
assert len(LEMMAS) == 20
