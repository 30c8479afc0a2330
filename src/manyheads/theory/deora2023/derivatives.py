"""Corollary 1: the loss and its derivatives. Proofs: docs/theory/derivatives.md."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from manyheads.data import mixture as mixtures
from manyheads.measures import curvature
from manyheads.theory import targets
from manyheads.theory.deora2023 import formula
from manyheads.theory.deora2023.constants import Shape
from manyheads.theory.deora2023.model import POINTS, SHAPES, draw
from manyheads.theory.finding import Effort, Finding, Tally
from manyheads.theory.search import Search, attack
from manyheads.theory.statement import Statement
from manyheads.theory.verdict import OURS, PRINTED, Bound, Certificate, Hypothesis

if TYPE_CHECKING:
    from jax import Array

    from manyheads.measures.curvature import Curvature
    from manyheads.theory.examination import Examination
    from manyheads.theory.search import Point


def check_bounded_data(effort: Effort) -> Finding:
    """Samples of the mixture, with its R."""
    tally = Tally()
    for i, (signal, noise) in enumerate(((0.3, "uniform"), (1.0, "vertex"), (2.5, "vertex"))):
        mixture = mixtures.TokenizedMixture(
            num_tokens=6,
            dim=9,
            num_patterns=3,
            sparsity=0.5,
            signal=signal,
            noise_mu=0.1 * signal,
            noise_nu=0.1 * signal,
            noise_norm=0.6 * signal,
            noise=noise,
            key=jax.random.key(i),
        )
        for j in range(effort.count(40, 4)):
            data = mixture.sample(50, key=jax.random.key(100 * i + j + effort.seed))
            tally.add(np.linalg.norm(data.tokens, axis=-1).max(), mixture.token_radius)
            tally.add(np.abs(np.abs(data.labels) - 1).max(), 0.0)
    return tally.finding("samples of the mixture, token norms against R")


ASSUMPTION_1 = Statement(
    id="asm1",
    place="Section 3, Assumption 1",
    title="bounded data",
    printed="y = ±1 and ‖x_t‖ ≤ R for some R ≥ 1, almost surely",
    corrected="as printed; on a sample R is the largest norm seen, and at least 1",
    proof="docs/theory/derivatives.md#assumption-1",
    remark="holds for every sample of the mixture with R = max(1, √(S² + Z² + 2Z_ν/M))",
    check=check_bounded_data,
    errata=("E22",),
    used_by=("cor1.1", "cor1.2", "cor1.3", "thm1", "thm2"),
)

# log(1 + e^-12) and its slope agree to 3e-6
SCORE = 12.0
MANY = (
    1e2,
    1e4,
    1e8,
)  # heads: the bounds are attained in the limit, where the score is large and readouts are small


def _norms(point: Point) -> tuple[Shape, Array, Array, int]:
    """The shape of a point, its largest readout norm, its largest head norm, and the number of heads."""
    X, U, W = point["X"], point["U"], point["W"]
    H, T, d = U.shape
    R = jnp.maximum(1.0, jnp.sqrt(jnp.max(jnp.sum(X**2, axis=-1))))
    readout, key_query = (jnp.sum(leaf.reshape(H, -1) ** 2, axis=1) for leaf in (U, W))
    return (
        Shape.traced(T, d, R),
        jnp.sqrt(jnp.max(readout)),
        jnp.sqrt(jnp.max(readout + key_query)),
        H,
    )


def _loss(point: Point):
    y = formula.labels(point["X"].shape[0])
    return lambda w: formula.train_loss(w, point["X"], y)


def _search(name: str, measure, bounds, *, directional: bool) -> Search:
    shapes = tuple((*shape, 4, 1) for shape in SHAPES)
    return Search(
        name,
        measure,
        bounds,
        lambda rng, shape: draw(rng, shape, directional),
        shapes,
        (4, 2, 3, 4),
        POINTS,
    )


def relative_gradient(point: Point) -> Array:
    r"""$\|\nabla\hat L\|/\hat L$."""
    value, slope = jax.value_and_grad(_loss(point))(formula.weights_of(point))
    return formula.norm(slope) / value


def gradient_bounds(point: Point) -> tuple[Array, Array]:
    shape, x, whole, _ = _norms(point)
    return shape.b1(x), shape.beta1(whole)


GRADIENT_SEARCH = _search("cor1.1", relative_gradient, gradient_bounds, directional=False)


def many_aligned_heads(heads: float, num_tokens: int = 4) -> tuple[float, float, float]:
    """‖∇L‖/L, b1 and β1 for identical unit tokens and `heads` equal heads with aligned, small readouts."""
    T, shape = num_tokens, Shape(num_tokens, 1, 1.0)
    size = SCORE / math.sqrt(heads * T)
    U, W = np.full((1, T, 1), size / math.sqrt(T)), np.zeros((1, 1, 1))
    with jax.enable_x64(True):
        value, slope = formula.class_loss(U, W, np.array([heads]), np.ones((1, T, 1)), np.ones(1))
    return float(np.linalg.norm(slope)) / float(value), shape.b1(size), shape.beta1(size)


def check_loss_gradient(effort: Effort) -> Finding:
    tally = Tally()
    attack(tally, GRADIENT_SEARCH, effort)
    for heads in MANY:
        tally.add(*many_aligned_heads(heads))
    return tally.finding(
        "approached by identical tokens and many heads with small aligned readouts"
    )


def shape_of(work: Examination) -> Shape:
    """The constants of a run: its data, its decoder and its loss."""
    return Shape.of(work.dataset, work.radius, decoder=work.run.start.decoder, loss=work.loss)


def certify_loss_gradient(work: Examination) -> list[Certificate]:
    # which uses these bounds
    from manyheads.theory.deora2023 import training

    walk, shape = work.shared(training.repetition), work.shared(shape_of)
    bound = shape.b1(walk.readout_norm) * walk.loss
    # where the loss underflows to 0
    share = np.where(walk.gradient_norm > 0, math.inf, 0.0)
    np.divide(walk.gradient_norm, bound, out=share, where=bound > 0)
    worst = int(np.argmax(share))
    claim = f"|grad L| at most b1 L at every step (worst: step {worst})"
    return [
        Certificate(
            "cor1.1", claim, float(walk.gradient_norm[worst]), (Bound(OURS, float(bound[worst])),)
        )
    ]


COROLLARY_1_GRADIENT = Statement(
    id="cor1.1",
    place="Section 3, Corollary 1 (1)",
    title="self-bounded gradient of the train loss",
    printed="‖∇L̂‖ ≤ β1 L̂, β1 = √T R (2R²‖θ‖_{2,∞} + 1)",
    corrected="as printed",
    ours="‖∇L̂‖ ≤ b1 L̂, b1 = √T R √(1 + R⁴‖U‖²_{2,∞}); per head ‖∇_{θ_h}L̂‖ ≤ H^(-1/2) b1 L̂",
    proof="docs/theory/derivatives.md#corollary-1",
    remark="approached by identical tokens and many heads with small aligned readouts: score → ∞ while R²‖U‖ → 0",
    check=check_loss_gradient,
    about=certify_loss_gradient,
    tightness=1.0,
    used_by=("thm1", "thm2", "eq20", "lemma3"),
)


def loss_curvature(point: Point) -> Array:
    r"""$v^\top\nabla^2\hat L\,v/\|v\|^2$."""
    return formula.quadratic(_loss(point), point)


def smoothness_bounds(point: Point) -> tuple[Array, Array]:
    shape, x, whole, H = _norms(point)
    return shape.b2(x, float(H)), shape.beta2(whole, float(H))


SMOOTHNESS_SEARCH = _search("cor1.2", loss_curvature, smoothness_bounds, directional=True)


def many_zero_heads(heads: float, num_tokens: int = 4) -> tuple[float, float, float]:
    """‖∇²L‖, b2 and β2 for identical unit tokens, U = 0: b1²/4 is attained, b3/√H vanishes."""
    T, shape = num_tokens, Shape(num_tokens, 1, 1.0)
    U, W = np.zeros((1, T, 1)), np.zeros((1, 1, 1))
    eigenvalues = formula.class_spectrum(U, W, np.array([heads]), np.ones((1, T, 1)), np.ones(1))
    return float(np.abs(eigenvalues).max()), shape.b2(0.0, heads), shape.beta2(0.0, heads)


def check_smoothness(effort: Effort) -> Finding:
    tally = Tally()
    attack(tally, SMOOTHNESS_SEARCH, effort)
    for heads in MANY:
        tally.add(*many_zero_heads(heads))
    return tally.finding("approached by identical tokens, U = 0 and many heads")


def last_curvature(work: Examination) -> Curvature:
    """Extreme eigenvalues of the Hessian at the end of the run."""
    # which uses these bounds
    from manyheads.theory.deora2023 import training

    work.progress("extreme eigenvalues of the Hessian at the end of the run")
    return curvature.loss_curvature(
        work.shared(training.repetition).final, work.dataset, loss=work.loss
    )


def _at_the_end(work: Examination) -> tuple[Shape, float, float, float, tuple[Hypothesis]]:
    """At the last step: shape, largest readout and head norms, heads; and whether the eigenvalues converged."""
    # which uses these bounds
    from manyheads.theory.deora2023 import training

    walk, converged = work.shared(training.repetition), work.shared(last_curvature).converged
    remedy = "use fewer heads of different kinds, or loss_curvature with more products"
    found = Hypothesis("the eigenvalue was found: the iteration converged", converged, remedy)
    whole = targets.parameter_norm(walk.final.heads)
    return (
        work.shared(shape_of),
        float(walk.readout_norm[-1]),
        whole,
        walk.start.num_heads,
        (found,),
    )


def certify_smoothness(work: Examination) -> list[Certificate]:
    (shape, x, whole, H, found), ends = _at_the_end(work), work.shared(last_curvature)
    least, most = ends.smallest, ends.largest
    printed = Bound(PRINTED, shape.beta2(whole, H), (*found, *shape.unprinted()))
    bounds = (printed, Bound(OURS, shape.b2(x, H), found))
    return [
        Certificate(
            "cor1.2",
            "norm of the Hessian at the end of the run",
            max(abs(least.value), abs(most.value)),
            bounds,
            noise=max(least.residual, most.residual),
            noise_source="residual",
        )
    ]


COROLLARY_1_SMOOTHNESS = Statement(
    id="cor1.2",
    place="Section 3, Corollary 1 (2)",
    title="smoothness of the train loss",
    printed="‖∇²L̂‖ ≤ β2 = β3/√H + β1²/4",
    corrected="as printed",
    ours="‖∇²L̂‖ ≤ b2 = b3/√H + b1²/4",
    proof="docs/theory/derivatives.md#corollary-1",
    remark="approached by U = 0, identical tokens and many heads; .91 is the best found at few heads",
    check=check_smoothness,
    about=certify_smoothness,
    tightness=1.0,
    used_by=("descent", "thm1"),
)


def relative_concavity(point: Point) -> Array:
    r"""$-v^\top\nabla^2\hat L\,v/(\|v\|^2\hat L)$."""
    return -loss_curvature(point) / _loss(point)(formula.weights_of(point))


def convexity_bounds(point: Point) -> tuple[Array, Array]:
    shape, x, whole, H = _norms(point)
    return shape.b3(x) / math.sqrt(H), shape.beta3(whole) / math.sqrt(H)


CONVEXITY_SEARCH = _search("cor1.3", relative_concavity, convexity_bounds, directional=True)


def idle_heads(heads: float, num_tokens: int = 4) -> tuple[float, float, float]:
    """−λ_min/L, b3/√H and β3/√H: two idle heads on ±1 tokens, the other heads attend sharply and make the score large.

    A sharp head attends from +1 to +1 and from −1 to −1; with readout rows along its own token it
    contributes √T times its readout norm to the score. The idle heads have U = W = 0, where the
    model's Hessian has norm √T.
    """
    T, root, shape = num_tokens, math.sqrt(heads), Shape(num_tokens, 1, 1.0)
    tokens = np.where(np.arange(T) < T // 2, 1.0, -1.0)[:, None]
    size = SCORE / math.sqrt(heads * T)
    U = np.stack([np.zeros((T, 1)), size / math.sqrt(T) * tokens])
    case = (
        U,
        np.array([0.0, 40.0]).reshape(2, 1, 1),
        np.array([2.0, heads - 2]),
        tokens[None],
        np.ones(1),
    )
    with jax.enable_x64(True):
        value, _ = formula.class_loss(*case)
    whole = max(size, math.sqrt(size**2 + 40.0**2))
    least = formula.class_spectrum(*case).min()
    return -float(least) / float(value), shape.b3(size) / root, shape.beta3(whole) / root


def check_weak_convexity(effort: Effort) -> Finding:
    tally = Tally()
    attack(tally, CONVEXITY_SEARCH, effort)
    for heads in MANY:
        tally.add(*idle_heads(heads))
    return tally.finding(
        "approached by two idle heads on ±v tokens beside many heads that make the score large"
    )


def certify_weak_convexity(work: Examination) -> list[Certificate]:
    # which uses these bounds
    from manyheads.theory.deora2023 import training

    (shape, x, whole, H, found), least = _at_the_end(work), work.shared(last_curvature).smallest
    root, loss = math.sqrt(H), float(work.shared(training.repetition).loss[-1])
    printed, ours = -shape.beta3(whole) / root * loss, -shape.b3(x) / root * loss
    bounds = (Bound(PRINTED, printed, (*found, *shape.unprinted())), Bound(OURS, ours, found))
    claim = "smallest eigenvalue of the Hessian at the end of the run"
    return [Certificate("cor1.3", claim, least.value, bounds, ">=", least.residual, "residual")]


COROLLARY_1_CONVEXITY = Statement(
    id="cor1.3",
    place="Section 3, Corollary 1 (3)",
    title="self-bounded weak convexity",
    printed="λ_min(∇²L̂) ≥ −(β3/√H) L̂, β3 = 2√T d R³ (3√d R²‖θ‖_{2,∞} + 1)",
    corrected="as printed; Proposition 1 gives the stronger β3 = 2√(Td) R³ (3√d R²‖θ‖_{2,∞} + 1)",
    ours="λ_min(∇²L̂) ≥ −(b3/√H) L̂, b3 = √T R³ (q + √(q² + 4))/2, q = R²‖U‖_{2,∞}",
    proof="docs/theory/derivatives.md#corollary-1",
    remark="approached by two idle heads on ±v tokens beside many heads that make the score large; .72 at one head",
    check=check_weak_convexity,
    about=certify_weak_convexity,
    tightness=1.0,
    errata=("E4", "E5"),
    used_by=("eq14", "eq15", "eq16", "glqc", "thm1", "thm2"),
)
