"""Twenty lemmas that are true and cannot be improved by 1%: a search must leave every one of them standing.

Each has a proof in one line, and a witness: an input that reaches 99% of the bound. They were written before the search.
"""

import jax.numpy as jnp
import numpy as np
from jax.nn import logsumexp, sigmoid, softmax, softplus
from jax.scipy.special import gammaln

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


def smooth(p):
    return logsumexp(p.y) - logsumexp(p.x) - softmax(p.x) @ (p.y - p.x)


def divergence(p, q):
    return jnp.sum(jnp.where(p > 0, p * jnp.log(jnp.where(p > 0, p, 1.0) / q), 0.0))


DIFFER = {"x differs from y": lambda p: (p.x != p.y).any()}
STIRLING = "n! is at most e sqrt(n) (n/e)^n"

LEMMAS = [  # (statement, witness)
    (
        Statement(  # the discriminant of |x + ty|^2 in t
            "Cauchy and Schwarz",
            inputs=inputs(x=real(6), y=real(6)),
            measured=lambda p: jnp.abs(p.x @ p.y),
            bound=lambda p: norm(p.x) * norm(p.y),
        ),
        {"x": np.ones(6), "y": np.ones(6)},
    ),
    (
        Statement(  # Cauchy and Schwarz against the signs of x
            "the sum of absolute values is at most sqrt(n) times the norm",
            inputs=inputs(x=real(8)),
            measured=lambda p: jnp.sum(jnp.abs(p.x)),
            bound=lambda p: jnp.sqrt(8.0) * norm(p.x),
        ),
        {"x": np.ones(8)},
    ),
    (
        Statement(  # the Jacobian is a covariance of unit vectors e_i: v'Jv is a variance of v_i, at most spread^2 / 4
            "softmax is 1/2-Lipschitz in l2",
            inputs=inputs(x=real(5), y=real(5)),
            measured=lambda p: norm(softmax(p.x) - softmax(p.y)),
            bound=lambda p: norm(p.x - p.y) / 2,
            hypotheses=DIFFER,
        ),
        {"x": np.array([0.01, -0.01, -30, -30, -30]), "y": np.array([-0.01, 0.01, -30, -30, -30])},
    ),
    (
        Statement(  # every term of the sum is at most exp(max)
            "log-sum-exp exceeds the maximum by at most log n",
            inputs=inputs(x=real(7)),
            measured=lambda p: logsumexp(p.x) - jnp.max(p.x),
            bound=lambda p: jnp.log(7.0),
        ),
        {"x": np.zeros(7)},
    ),
    (
        Statement(  # u / (1 + u) is at most log(1 + u), u = exp(-z)
            "the logistic slope is at most the logistic loss",
            inputs=inputs(z=real()),
            measured=lambda p: sigmoid(-p.z),
            bound=lambda p: softplus(-p.z),
        ),
        {"z": np.array(12.0)},
    ),
    (
        Statement(  # Pinsker
            "twice the squared total variation is at most the divergence",
            inputs=inputs(p=probabilities(3), q=probabilities(3)),
            measured=lambda p: jnp.sum(jnp.abs(p.p - p.q)) ** 2 / 2,
            bound=lambda p: divergence(p.p, p.q),
            hypotheses={"q is positive": lambda p: jnp.min(p.q) > 0},
        ),
        {"p": np.array([0.51, 0.49, 1e-9]), "q": np.array([0.49, 0.51, 1e-9])},
    ),
    (
        Statement(  # Hadamard: the volume of a box is at most the product of its edges
            "a determinant is at most the product of its rows' norms",
            inputs=inputs(A=real(3, 3)),
            measured=lambda p: jnp.abs(jnp.linalg.det(p.A)),
            bound=lambda p: jnp.prod(norm(p.A, axis=1)),
        ),
        {"A": np.eye(3)},
    ),
    (
        Statement(  # |x - y|^2 = |x|^2 + |y|^2 - 2<x, y>
            "vectors at an angle of at most 60 degrees",
            inputs=inputs(x=real(4), y=real(4)),
            measured=lambda p: jnp.sum((p.x - p.y) ** 2),
            bound=lambda p: jnp.sum(p.x**2) + jnp.sum(p.y**2) - norm(p.x) * norm(p.y),
            hypotheses={
                "the angle is at most 60 degrees": lambda p: (
                    p.x @ p.y,
                    norm(p.x) * norm(p.y) / 2,
                )
            },
        ),
        {"x": np.array([1.0, 0, 0, 0]), "y": np.array([0.5001, np.sqrt(0.75), 0, 0])},
    ),
    (
        Statement(  # von Neumann
            "the trace against an orthogonal matrix is at most the nuclear norm",
            inputs=inputs(A=real(3, 3), Q=orthogonal(3)),
            measured=lambda p: jnp.trace(p.Q @ p.A),
            bound=lambda p: jnp.sum(jnp.linalg.svd(p.A, compute_uv=False)),
        ),
        {"A": np.diag([3.0, 2.0, 1.0]), "Q": np.eye(3)},
    ),
    (
        Statement(  # Kantorovich
            "Kantorovich's inequality for eigenvalues in [1, 10]",
            inputs=inputs(A=positive_definite(3, low=1, high=10), x=real(3)),
            measured=lambda p: (p.x @ p.A @ p.x) * (p.x @ jnp.linalg.solve(p.A, p.x)),
            bound=lambda p: 121 / 40 * jnp.sum(p.x**2) ** 2,
        ),
        {"A": np.diag([1.0, 10.0, 5.0]), "x": np.array([1.0, 1.0, 0.0])},
    ),
    (
        Statement(  # the triangle inequality
            "a signed sum is at most the sum of absolute values",
            inputs=inputs(s=signs(6), x=real(6)),
            measured=lambda p: p.s @ p.x,
            bound=lambda p: jnp.sum(jnp.abs(p.x)),
        ),
        {"s": np.array([1.0, -1, 1, -1, 1, -1]), "x": np.array([1.0, -2, 3, -4, 5, -6])},
    ),
    (
        Statement(  # Popoviciu
            "a variable within [-1, 1] has a variance of at most 1",
            inputs=inputs(p=probabilities(5), v=real(5, low=-1, high=1)),
            measured=lambda p: p.p @ p.v**2 - (p.p @ p.v) ** 2,
            bound=lambda p: jnp.ones(()),
        ),
        {"p": np.array([0.5, 0.5, 0, 0, 0]), "v": np.array([1.0, -1, 0, 0, 0])},
    ),
    (
        Statement(  # the divergence from uniform is not negative
            "entropy is at most log n",
            inputs=inputs(p=probabilities(6)),
            measured=lambda p: (
                -jnp.sum(jnp.where(p.p > 0, p.p * jnp.log(jnp.where(p.p > 0, p.p, 1.0)), 0.0))
            ),
            bound=lambda p: jnp.log(6.0),
        ),
        {"p": np.full(6, 1 / 6)},
    ),
    (
        Statement(  # the slope of sigmoid is at most 1/4
            "sigmoid is 4-cocoercive",
            inputs=inputs(x=real(), y=real()),
            measured=lambda p: (sigmoid(p.x) - sigmoid(p.y)) ** 2,
            bound=lambda p: (p.x - p.y) * (sigmoid(p.x) - sigmoid(p.y)) / 4,
        ),
        {"x": np.array(0.01), "y": np.array(-0.01)},
    ),
    (
        Statement(  # its Hessian is softmax's Jacobian, of norm at most 1/2
            "the descent lemma of log-sum-exp with 1/2",
            inputs=inputs(x=real(4), y=real(4)),
            measured=smooth,
            bound=lambda p: jnp.sum((p.y - p.x) ** 2) / 4,
            hypotheses=DIFFER,
        ),
        {"x": np.array([0.01, -0.01, -30, -30]), "y": np.array([-0.01, 0.01, -30, -30])},
    ),
    (
        Statement(  # the quotient falls with n, and is e at n = 1
            STIRLING,
            inputs=inputs(n=whole(low=1, high=300)),
            measured=lambda p: jnp.exp(
                gammaln(p.n + 1.0) - p.n * jnp.log(p.n * 1.0) + p.n - jnp.log(p.n * 1.0) / 2
            ),
            bound=lambda p: jnp.e * jnp.ones(()),
        ),
        {"n": np.array(1)},
    ),
    (
        Statement(  # Weyl
            "the largest eigenvalue of a sum",
            inputs=inputs(A=positive_definite(3), B=positive_definite(3)),
            measured=lambda p: jnp.linalg.eigvalsh(p.A + p.B)[-1],
            bound=lambda p: jnp.linalg.eigvalsh(p.A)[-1] + jnp.linalg.eigvalsh(p.B)[-1],
        ),
        {"A": np.diag([3.0, 1, 1]), "B": np.diag([2.0, 1, 1])},
    ),
    (
        Statement(  # Dunkl and Williams, in a Euclidean space
            "directions differ by at most twice the distance over the sum of norms",
            inputs=inputs(x=real(4), y=real(4)),
            measured=lambda p: norm(p.x / norm(p.x) - p.y / norm(p.y)),
            bound=lambda p: 2 * norm(p.x - p.y) / (norm(p.x) + norm(p.y)),
            hypotheses={
                "x is not zero": lambda p: norm(p.x) > 0,
                "y is not zero": lambda p: norm(p.y) > 0,
            },
        ),
        {"x": np.array([1.0, 0, 0, 0]), "y": np.array([-1.0, 0, 0, 0])},
    ),
    (
        Statement(  # compare the power series
            "signs are sub-Gaussian",
            inputs=inputs(x=real(3)),
            measured=lambda p: jnp.sum(jnp.logaddexp(p.x, -p.x) - jnp.log(2.0)),
            bound=lambda p: jnp.sum(p.x**2) / 2,
        ),
        {"x": np.full(3, 0.01)},
    ),
    (
        Statement(  # Cauchy and Schwarz on the support
            "the sum of absolute values of a 4-sparse vector",
            inputs=inputs(x=real(20, nonzero=4)),
            measured=lambda p: jnp.sum(jnp.abs(p.x)),
            bound=lambda p: 2 * norm(p.x),
        ),
        {"x": np.repeat([1.0, 0.0], [4, 16])},
    ),
]
assert len(LEMMAS) == 20
