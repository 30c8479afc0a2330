"""Label blindness: descent hardly sees the labels of a parity, and not at all before exponentially many steps.

Proof: docs/theory/needed-heads.md.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from manyheads.theory.deora2023 import formula
from manyheads.theory.finding import Effort, Finding, Tally
from manyheads.theory.manyheads2026.parity import alternating_bound, count_parity, score_bound
from manyheads.theory.statement import Statement

# the norm of a token
RADIUS, STEPS = 2.0, 60
# logarithm of a preference, so that attention is on one kind alone
SHARP = 30.0


def label_bound(readout_norm: float, num_heads: int, num_tokens: int, token_radius: float) -> float:
    r"""Theorem R: the norm of the gradient of $E[y\tilde\Phi]$ at any parameters."""
    T, R, a = num_tokens, token_radius, alternating_bound(num_tokens)
    attention = 4 * (T - 1) ** 2 * R**4 * readout_norm**2 / num_heads
    return 2.0**-T * math.sqrt(2 * T) * R * math.sqrt(a**2 + attention)


@jax.jit
def label_slope(heads, X, y):
    """The norm of the gradient of the mean of y times the score, heads written out."""

    def mean(heads):
        logits = jnp.einsum("ntd,hde,nse->nhts", X, heads["W"], X)
        scores = jnp.einsum("htd,nhts,nsd->n", heads["U"], jax.nn.softmax(logits, axis=-1), X)
        return jnp.mean(y * scores) / math.sqrt(len(heads["U"]))

    return formula.norm(jax.grad(mean)(heads))


@jax.jit
def readouts(W, X, y, eta):
    """The norm of all readouts along descent from zero readouts."""
    zero = jnp.zeros((len(W), *X.shape[1:]))

    def step(heads, _):
        slope = jax.grad(formula.train_loss)(heads, X, y)
        heads = jax.tree.map(lambda p, g: p - eta * g, heads, slope)
        return heads, jnp.linalg.norm(heads["U"])

    return jax.lax.scan(step, {"W": W, "U": zero}, length=STEPS)[1]


def sharp_heads(num_heads: int, num_tokens: int) -> np.ndarray:
    """Key-query weights at which the label term is largest: queries attend to one kind of token alone."""
    sign = -1.0 if num_tokens % 2 else 1.0
    W = SHARP / (2 * RADIUS**2) * np.array([[-1.0, 1.0], [-sign, sign]])
    return np.tile(W, (num_heads, 1, 1))


def check_blindness(effort: Effort) -> Finding:
    """Gradients of the label term at random and sharp heads, and runs from zero readouts."""
    tally, rng, best = Tally(), np.random.default_rng(effort.seed), 0.0
    for T in (2, 3, 4, 5, 6, 7, 8) if not effort.quick else (3, 4):
        data = count_parity(T, signal=RADIUS)
        X, y = np.asarray(data.tokens, float), np.asarray(data.labels, float)
        eta = 8 / (T * RADIUS**2)
        for heads in (1, 3):
            points = [(sharp_heads(heads, T), np.zeros((heads, T, 2)))]
            for _ in range(effort.count(200, 30)):
                W = 10.0 ** rng.uniform(-2, 1) * rng.standard_normal((heads, 2, 2))
                points.append((W, 10.0 ** rng.uniform(-2, 2) * rng.standard_normal((heads, T, 2))))
            for W, U in points:
                bound = label_bound(float(np.linalg.norm(U)), heads, T, RADIUS)
                with jax.enable_x64(True):
                    slope = float(label_slope({"W": W, "U": U}, X, y))
                # the sum over all sequences cancels: rounding of its terms is what remains
                tally.add(slope, bound, noise=1e-13 * (1 + float(np.abs(U).max())))
            for W, _ in points[: effort.count(20, 4)]:
                with jax.enable_x64(True):
                    norms = np.asarray(readouts(W, X, y, eta))
                per_step = eta * score_bound(0.5, T, RADIUS)
                for k, norm in enumerate(norms, start=1):
                    tally.add(float(norm), k * per_step, noise=1e-12)
                best = max(best, float(norms[-1]) / (STEPS * per_step))
    return tally.finding(f"after {STEPS} steps from zero readouts {best:.3f} of the bound on them")


BLINDNESS = Statement(
    id="parity.labels",
    place="ours, Theorem R",
    title="descent hardly sees the labels of a parity",
    ours="on all 2^T sequences L = E log 2cosh(Φ̃/2) − E[yΦ̃]/2, and ‖∇E[yΦ̃]‖ ≤ 2^{−T}√(2T) R √(a_T² + "
    "4(T−1)²R⁴‖U‖²/H) for every H, W and U; from zero readouts with η ≤ 8/(TR²), whatever W does, "
    "‖U_k‖ ≤ kη a_T 2^{−T}√(T/2) R, so a loss of log(1+e^{−μ}) takes at least 4^T μ/(η a_T² T R²) "
    "steps, and the runs "
    "for y and −y differ by at most 2‖U_k‖",
    proof="docs/theory/needed-heads.md#theorem-r",
    tightness=1.0,
    remark="of the label term's gradient is reached at zero readouts by heads that attend to one kind of token alone",
    check=check_blindness,
    aliases=("theorem-r", "label-blindness"),
)
