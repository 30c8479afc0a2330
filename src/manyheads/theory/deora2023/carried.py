"""The paper's "our results also apply to": Corollary 1 and Theorem 1 for every readout and loss but its own.

Each check tries all pairs of a readout and a loss and reports the largest share of the bound that
each reaches: at random points, by ascent in a full check, and at the point that attains or
approaches the bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from manyheads._names import DECODERS
from manyheads.model.loss import HYPERBOLIC, LOGISTIC, Loss
from manyheads.theory.deora2023 import formula, initialization, regime
from manyheads.theory.deora2023.constants import Shape
from manyheads.theory.deora2023.model import POINTS, SHAPES, draw
from manyheads.theory.deora2023.problem import small_problems
from manyheads.theory.finding import Effort, Finding, Tally
from manyheads.theory.search import Search, ascend, evaluate
from manyheads.theory.statement import Statement
from manyheads.theory.verdict import Verdict
from manyheads.training import start as starts

if TYPE_CHECKING:
    from jax import Array

    from manyheads.theory.deora2023.regime import LiteralRun
    from manyheads.theory.search import Point


# heads: some bounds are attained in the limit
MANY = 1e8
# tokens of the sequence that nearly attains the Hessian of a pooled readout
LONG = 256
# where |l'|/l may be largest
SCORES = np.concatenate([[0.0], np.linspace(-15, 15, 61)])


def pairs(effort: Effort) -> list[tuple[str, Loss]]:
    """Every readout with every loss except the paper's own pair; a quick check uses two of them."""
    others = [(decoder, loss) for decoder in DECODERS for loss in (LOGISTIC, HYPERBOLIC)][1:]
    return others[2:4] if effort.quick else others


def worst_score(loss: Loss) -> float:
    r"""A margin at which $|\ell'|/\ell$ is nearly the constant of self-boundedness."""
    return float(SCORES[int(np.argmax(loss.slope_at(SCORES) / loss.at(SCORES)))])


# Random points and ascent -----------------------------------------------------------------------------------------


def _drawn(rng: np.random.Generator, shape: tuple[int, ...], decoder: str) -> dict[str, np.ndarray]:
    point = draw(rng, shape, True)
    if decoder != "full":
        point |= {name: point[name][:, 0] for name in ("U", "dU")}
    return point


def _sizes(point: Point, decoder: str, loss: Loss) -> tuple[Shape, Array, int]:
    """The shape of a point, the largest norm of a readout with all its rows, and the number of heads."""
    X, U = point["X"], point["U"]
    H, T = U.shape[0], X.shape[1]
    R = jnp.maximum(1.0, jnp.sqrt(jnp.max(jnp.sum(X**2, axis=-1))))
    shape = Shape.traced(T, X.shape[2], R, decoder, loss)
    return shape, shape.repeat * jnp.sqrt(jnp.max(jnp.sum(U.reshape(H, -1) ** 2, axis=1))), H


def _loss(point: Point, decoder: str, loss: Loss) -> Callable[[Point], Array]:
    return lambda w: formula.train_loss(
        w, point["X"], formula.labels(point["X"].shape[0]), decoder, loss
    )


def gradient_share(point: Point, decoder: str, loss: Loss) -> tuple[Array, Array]:
    r"""$\|\nabla\hat L\|/\hat L$ and $b_1$."""
    value, slope = jax.value_and_grad(_loss(point, decoder, loss))(formula.weights_of(point))
    shape, x, _ = _sizes(point, decoder, loss)
    return formula.norm(slope) / value, shape.b1(x)


def smoothness_share(point: Point, decoder: str, loss: Loss) -> tuple[Array, Array]:
    r"""$v^\top\nabla^2\hat L\,v/\|v\|^2$ and $b_2$."""
    shape, x, H = _sizes(point, decoder, loss)
    return jnp.abs(formula.quadratic(_loss(point, decoder, loss), point)), shape.b2(x, float(H))


def convexity_share(point: Point, decoder: str, loss: Loss) -> tuple[Array, Array]:
    r"""$-v^\top\nabla^2\hat L\,v/(\|v\|^2\hat L)$ and $b_3/\sqrt H$."""
    shape, x, H = _sizes(point, decoder, loss)
    value = _loss(point, decoder, loss)
    return -formula.quadratic(value, point) / value(formula.weights_of(point)), shape.b3(
        x
    ) / math.sqrt(H)


@cache
def search(share: Callable, decoder: str, loss: Loss) -> Search:
    """The attack on one inequality for one readout and loss."""

    def bounds(point):
        bound = share(point, decoder, loss)[1]
        return bound, bound

    return Search(
        f"carried, {decoder}, {loss.name}",
        lambda point: share(point, decoder, loss)[0],
        bounds,
        partial(_drawn, decoder=decoder),
        tuple((*shape, 4, 1) for shape in SHAPES),
        (4, 2, 3, 4),
        POINTS,
    )


def attacked(
    share: Callable, extremal: Callable[[str, Loss], tuple[float, float]], effort: Effort
) -> Finding:
    """One inequality for every pair."""
    tally, told = Tally(), []
    for decoder, loss in pairs(effort):
        one, rng = search(share, decoder, loss), np.random.default_rng(effort.seed)
        points = [one.draw(rng, one.shapes[0]) for _ in range(effort.count(400, 20))]
        if not effort.quick:
            points.append(ascend(one.ratio, points[:16], steps=1000)[0])
        shares = [measured / bound for measured, bound, _ in evaluate(one, points)]
        measured, bound = extremal(decoder, loss)
        for value in (*shares, measured / bound):
            tally.add(value, 1.0)
        found = f"{max(shares):.3f} and {measured / bound:.4f}"
        told.append(f"{decoder} {loss.name} {found}")
    how = "at random points" if effort.quick else "by ascent"
    return tally.finding(f"largest share {how}, and at the extremal point: {'; '.join(told)}")


# Extremal points --------------------------------------------------------------------------------------------------


def _readout(decoder: str, row: np.ndarray, num_tokens: int) -> np.ndarray:
    """The readout whose rows are all `row`, or whose one vector it is."""
    return np.repeat(row[None], num_tokens, axis=0) if decoder == "full" else row


def _norm(decoder: str, readout: np.ndarray, num_tokens: int) -> float:
    return float(np.linalg.norm(readout)) * (math.sqrt(num_tokens) if decoder == "pooled" else 1.0)


def aligned_heads(
    decoder: str, loss: Loss, heads: float = MANY, num_tokens: int = 4
) -> tuple[float, float]:
    r"""$\|\nabla\hat L\|/\hat L$ and $b_1$: identical unit tokens, equal heads that make the score the worst one."""
    T, shape = num_tokens, Shape(num_tokens, 1, 1.0, decoder, loss)
    queries = 1 if decoder == "last" else T
    U = _readout(decoder, np.full(1, worst_score(loss) / (queries * math.sqrt(heads))), T)
    given = (U[None], np.zeros((1, 1, 1)), np.array([heads]), np.ones((1, T, 1)), np.ones(1))
    with jax.enable_x64(True):
        value, slope = formula.class_loss(*given, decoder=decoder, loss=loss)
    return float(np.linalg.norm(slope)) / float(value), shape.b1(_norm(decoder, U, T))


def silent_heads(
    decoder: str, loss: Loss, heads: float = MANY, num_tokens: int = 4
) -> tuple[float, float]:
    r"""$\|\nabla^2\hat L\|$ and $b_2$: identical unit tokens and U = 0, where both losses curve most."""
    T, shape = num_tokens, Shape(num_tokens, 1, 1.0, decoder, loss)
    given = (
        _readout(decoder, np.zeros(1), T)[None],
        np.zeros((1, 1, 1)),
        [heads],
        np.ones((1, T, 1)),
        np.ones(1),
    )
    return float(
        np.abs(formula.class_spectrum(*given, decoder=decoder, loss=loss)).max()
    ), shape.b2(0.0, heads)


def idle_heads(decoder: str, loss: Loss, heads: float = MANY) -> tuple[float, float]:
    r"""$-\lambda_{\min}/\hat L$ and $b_3/\sqrt H$: two idle heads beside others that make the score the worst one.

    Attention split evenly between +1 and −1 has the largest curvature. For a full readout half of
    the tokens are −1, for the last token one of two; for a pooled one all queries but one are +1,
    and attend to the only −1 as much as to all others.
    """
    T = {"full": 4, "pooled": LONG, "last": 2}[decoder]
    minus = {"full": T // 2, "pooled": 1, "last": 1}[decoder]
    tokens, shape = (
        np.where(np.arange(T) < minus, -1.0, 1.0)[:, None],
        Shape(T, 1, 1.0, decoder, loss),
    )
    look = -0.5 * math.log((T - minus) / minus)
    # a sharp head attends from each token to tokens of its own kind
    queries = {"full": tokens, "pooled": np.full((1, 1), T - 2.0), "last": np.ones((1, 1))}[decoder]
    row = worst_score(loss) / (
        math.sqrt(heads) * float(np.sum(queries**2) if decoder == "full" else queries[0, 0])
    )
    U = row * tokens if decoder == "full" else np.full(1, row)
    given = (
        np.stack([np.zeros_like(U), U]),
        np.array([look, 40.0]).reshape(2, 1, 1),
        np.array([2.0, heads - 2]),
        tokens[None],
        np.ones(1),
    )
    with jax.enable_x64(True):
        value, _ = formula.class_loss(*given, decoder=decoder, loss=loss)
    least = formula.class_spectrum(*given, decoder=decoder, loss=loss).min()
    return -float(least) / float(value), shape.b3(_norm(decoder, U, T)) / math.sqrt(heads)


# Statements -------------------------------------------------------------------------------------------------------


PLACE = "Section 2, “our results also apply to” (readouts) and “our analysis extends to” (losses)"
PROOF = "docs/theory/derivatives.md#other-readouts-and-losses"
TERMS = (
    "s = √T, T, 1 and q = R² times the norm of U, u, u for a full, pooled, last-token readout; "
    "|ℓ'| ≤ Cℓ, |ℓ'| ≤ G and "
    "0 ≤ ℓ'' ≤ S; f = sR√(1 + q²), g = sR³(q + √(q² + 4))/2"
)


def check_gradient(effort: Effort) -> Finding:
    return attacked(gradient_share, aligned_heads, effort)


GRADIENT = Statement(
    id="cor1.1.carried",
    place=PLACE,
    title="self-bounded gradient for every readout and loss",
    ours=f"‖∇L̂‖ ≤ C f L̂ and ‖∇L̂‖ ≤ G f, where {TERMS}",
    proof=PROOF,
    remark="attained by identical tokens and heads that put the score where |ℓ'|/ℓ is largest",
    check=check_gradient,
    tightness=1.0,
    used_by=("thm1", "thm2", "lemma3"),
)


def check_smoothness(effort: Effort) -> Finding:
    return attacked(smoothness_share, silent_heads, effort)


SMOOTHNESS = Statement(
    id="cor1.2.carried",
    place=PLACE,
    title="smoothness for every readout and loss",
    ours=f"‖∇²L̂‖ ≤ G g/√H + S f², where {TERMS}",
    proof=PROOF,
    remark="approached by U = 0, identical tokens and many heads",
    check=check_smoothness,
    tightness=1.0,
    used_by=("descent", "thm1"),
)


def check_convexity(effort: Effort) -> Finding:
    return attacked(convexity_share, idle_heads, effort)


CONVEXITY = Statement(
    id="cor1.3.carried",
    place=PLACE,
    title="self-bounded weak convexity for every readout and loss",
    ours=f"λ_min(∇²L̂) ≥ −(C g/√H) L̂, where {TERMS}",
    proof=PROOF,
    remark="attained by two idle heads for a full and a last-token readout, and up to 1/T for a pooled one",
    check=check_convexity,
    tightness=1.0,
    used_by=("glqc", "thm1", "thm2"),
)


def carried_runs(effort: Effort) -> Iterator[tuple[str, Loss, LiteralRun]]:
    """For every pair a run at the smallest number of heads for which Theorem 1′ certifies a loss below that at zero."""
    for decoder, loss in pairs(effort)[: effort.count(5, 1)]:
        for mixture, data, fresh in small_problems(effort.seed, effort.count(40, 1)):
            start = starts.first_phase(fresh, 2, decoder=decoder, loss=loss)
            good = initialization.good_start(
                start, data, token_radius=mixture.token_radius, loss=loss
            )
            goal = 0.8 * float(loss.at(0.0))
            plan = {
                "certified": goal,
                "num_steps": 300,
                "token_radius": mixture.token_radius,
                "loss": loss,
            }
            found = regime.smallest_heads(start, data, [good.theta_star()], **plan)
            yield decoder, loss, regime.run_literally(start, data, found, mixture.token_radius)


def check_carried_runs(effort: Effort) -> Finding:
    """Theorem 1′ at its limit, for every readout and loss."""
    tally, told = Tally(), {}
    for decoder, loss, run in carried_runs(effort):
        tally.broken += sum(c.verdict is not Verdict.HOLDS for c in run.certificates)
        tally.add(run.walk.mean_loss, run.conditions.bound)
        told.setdefault(f"{decoder} {loss.name}", []).append(run.case.num_heads)
    asked = "; ".join(
        f"{name} {min(heads):,.0f} to {max(heads):,.0f}" for name, heads in told.items()
    )
    return tally.finding(f"all conclusions hold; heads needed: {asked}")


TRAINING = Statement(
    id="thm1.carried",
    place=PLACE,
    title="training loss for every readout and loss",
    ours="Theorem 1 and Theorem 1′ with b1 = C f, b3 = C g, b2 = G g/√H + S f² and the drift of a readout "
    f"C sR in place of √T R, where {TERMS}; in the kernel step S in place of ¼ and C η L̂(θ_0) in "
    "place of η L̂(θ_0)",
    proof="docs/theory/training.md#other-readouts-and-losses",
    remark="runs at the smallest number of heads that certifies 0.8 of the loss at score zero",
    check=check_carried_runs,
    tightness=0.65,
    used_by=("certify",),
)
