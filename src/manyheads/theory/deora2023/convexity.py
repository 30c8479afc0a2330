"""Section 6.1 on the way to Theorem 1: weak convexity of the loss on segments, quasi-convexity, and the regret."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from manyheads.theory import search, targets
from manyheads.theory import walk as follower
from manyheads.theory.deora2023 import formula
from manyheads.theory.deora2023.constants import Shape
from manyheads.theory.deora2023.derivatives import SCORE
from manyheads.theory.deora2023.problem import small_problems
from manyheads.theory.finding import Effort, Finding, Tally
from manyheads.theory.statement import Statement
from manyheads.training import loop
from manyheads.training import start as starts

if TYPE_CHECKING:
    from jax import Array

    from manyheads.training.loop import View


# of the random segments
TOKENS, DIM, HEADS, EXAMPLES = 3, 2, 2, 4
# entries of U; those of W follow
READOUT = HEADS * TOKENS * DIM
SIZE = READOUT + HEADS * DIM * DIM
# points on a segment
GRID = 33


@dataclass(frozen=True, eq=False)
class Segments:
    """Random pairs of parameters with the loss, its slope and its curvature between them, one per trial."""

    loss: np.ndarray  # (trials, GRID)
    slope: np.ndarray  # <grad L(first), second - first>
    least: np.ndarray  # (trials, GRID): smallest eigenvalue of the Hessian
    length: np.ndarray
    kappa: np.ndarray  # (b3/sqrt H) length^2
    printed_kappa: np.ndarray
    expanded: np.ndarray  # |G(first) - G(second)| for the step size `step`
    step: np.ndarray
    smoothness: np.ndarray  # b2 at the larger end
    printed_smoothness: np.ndarray

    @property
    def top(self) -> np.ndarray:
        """Largest loss on each segment."""
        return self.loss.max(axis=1)

    @property
    def ends(self) -> np.ndarray:
        """The larger loss of the two ends."""
        return np.maximum(self.loss[:, 0], self.loss[:, -1])

    @property
    def gap(self) -> np.ndarray:
        """Convexity gap: L(first) + <grad L(first), second - first> - L(second)."""
        return self.loss[:, 0] + self.slope - self.loss[:, -1]


def flat_loss(flat, X, y):
    """Train loss of the parameters (U, W) in one vector."""
    U, W = flat[:READOUT].reshape(HEADS, TOKENS, DIM), flat[READOUT:].reshape(HEADS, DIM, DIM)
    return formula.train_loss({"U": U, "W": W}, X, y)


def _between(a, b):
    return a[None] + jnp.linspace(0.0, 1.0, GRID)[:, None] * (b - a)[None]


@jax.jit
def _look(first, second, X, y, step):
    def one(a, b, X, y, step):
        points = _between(a, b)
        loss = jax.vmap(lambda p: flat_loss(p, X, y))(points)
        slope_a, slope_b = jax.grad(flat_loss)(a, X, y), jax.grad(flat_loss)(b, X, y)
        moved = jnp.linalg.norm((a - step * slope_a) - (b - step * slope_b))
        least = jax.vmap(lambda p: jnp.linalg.eigvalsh(jax.hessian(flat_loss)(p, X, y))[0])(points)
        return loss, slope_a @ (b - a), least, moved

    return jax.vmap(one)(first, second, X, y, step)


def _head_squares(block: np.ndarray) -> np.ndarray:
    return (block.reshape(len(block), HEADS, -1) ** 2).sum(2)


def largest_readout(flat: np.ndarray) -> np.ndarray:
    """Largest readout norm of a head, for each of several parameter vectors."""
    return np.linalg.norm(flat[:, :READOUT].reshape(len(flat), HEADS, -1), axis=2).max(axis=1)


def largest_head(flat: np.ndarray) -> np.ndarray:
    """Largest norm of a head, for each of several parameter vectors."""
    return np.sqrt(_head_squares(flat[:, :READOUT]) + _head_squares(flat[:, READOUT:])).max(axis=1)


def shapes_of(X: np.ndarray) -> list[Shape]:
    """The shape of each of several samples."""
    radii = np.maximum(1.0, np.linalg.norm(X, axis=-1).max(axis=(1, 2)))
    return [Shape(TOKENS, DIM, R) for R in radii]


@cache
def segments(trials: int, seed: int) -> Segments:
    """Random segments whose κ is spread over (1e-4, π²), evenly in its logarithm."""
    rng, root = np.random.default_rng(seed), math.sqrt(HEADS)
    first = rng.standard_normal((trials, SIZE)) * 10.0 ** rng.uniform(-1.5, 0.5, (trials, 1))
    X = rng.standard_normal((trials, EXAMPLES, TOKENS, DIM)) * rng.uniform(
        0.5, 1.2, (trials, 1, 1, 1)
    )
    y = rng.choice([-1.0, 1.0], (trials, EXAMPLES))
    way = rng.standard_normal((trials, SIZE))
    way /= np.linalg.norm(way, axis=1, keepdims=True)
    goal = np.exp(rng.uniform(math.log(1e-4), math.log(0.98 * math.pi**2), trials))
    shapes = shapes_of(X)
    second = first.copy()
    # the length that makes kappa equal to its goal, by bisection
    for i in range(trials):
        low, high = 0.0, 20.0
        for _ in range(50):
            middle = (low + high) / 2
            x = largest_readout(np.stack([first[i], first[i] + middle * way[i]])).max()
            kappa = shapes[i].b3(x) / root * middle**2
            low, high = (middle, high) if kappa < goal[i] else (low, middle)
        second[i] = first[i] + low * way[i]
    x = np.maximum(largest_readout(first), largest_readout(second))
    whole = np.maximum(largest_head(first), largest_head(second))
    b2 = np.array([s.b2(v, HEADS) for s, v in zip(shapes, x, strict=True)])
    step = rng.uniform(0.2, 3.0, trials) / b2
    with jax.enable_x64(True):
        loss, slope, least, moved = map(np.asarray, _look(first, second, X, y, step))
    length = np.linalg.norm(second - first, axis=1)
    b3 = np.array([s.b3(v) for s, v in zip(shapes, x, strict=True)]) / root
    beta3 = np.array([s.beta3(v) for s, v in zip(shapes, whole, strict=True)]) / root
    beta2 = np.array([s.beta2(v, HEADS) for s, v in zip(shapes, whole, strict=True)])
    return Segments(
        loss, slope, least, length, b3 * length**2, beta3 * length**2, moved, step, b2, beta2
    )


def segments_for(effort: Effort) -> Segments:
    return segments(effort.count(600, 100), effort.seed)


@dataclass(frozen=True)
class CurvedSegment:
    """A short segment along the least convex direction: both sides of (14), (15) and (16)."""

    gap: float  # L(first) + <grad L(first), second - first> - L(second)
    least: float  # smallest eigenvalue of the Hessian at its ends and middle
    top: float  # largest loss
    length: float
    constant: float  # b3/sqrt(H) at the larger end
    printed_constant: float


def curved_segment(heads: float, num_tokens: int = 4, length: float = 0.05) -> CurvedSegment:
    """The extremal case of Corollary 1 (3), followed along its eigenvector: two idle heads move in opposite ways."""
    T, shape, root = num_tokens, Shape(num_tokens, 1, 1.0), math.sqrt(heads)
    tokens = np.where(np.arange(T) < T // 2, 1.0, -1.0)[:, None]
    U = np.stack([np.zeros((T, 1)), np.zeros((T, 1)), SCORE / T / root * tokens])
    W = np.array([0.0, 0.0, 40.0]).reshape(3, 1, 1)
    counts, X, y = np.array([1.0, 1.0, heads - 2]), tokens[None], np.ones(1)
    roots = np.sqrt(counts)[:, None, None]
    with jax.enable_x64(True):
        vector = np.linalg.eigh(np.asarray(formula.class_hessians(U, W, counts, X, y)[0]))[1][:, 0]
        way = (vector[: U.size].reshape(U.shape) / roots, vector[U.size :].reshape(W.shape) / roots)
        points = [(U + s * length * way[0], W + s * length * way[1]) for s in (0.0, 0.5, 1.0)]
        losses, slopes = zip(
            *(formula.class_loss(*point, counts, X, y) for point in points), strict=True
        )
        hessians = [np.asarray(formula.class_hessians(*point, counts, X, y)[0]) for point in points]
    losses = [float(value) for value in losses]
    gap = losses[0] + length * float(np.asarray(slopes[0]) @ vector) - losses[2]
    x = max(np.linalg.norm(u.reshape(3, -1), axis=1).max() for u, _ in points)
    whole = math.hypot(x, max(np.abs(w).max() for _, w in points))
    least = min(float(np.linalg.eigvalsh(hessian)[0]) for hessian in hessians)
    return CurvedSegment(
        gap, least, max(losses), length, shape.b3(x) / root, shape.beta3(whole) / root
    )


def _added(
    tally: Tally,
    measured: np.ndarray,
    bound: np.ndarray,
    printed: Sequence | None = None,
    noise=0.0,
) -> Tally:
    """One trial per segment."""
    printed = [None] * len(measured) if printed is None else printed
    noise = np.broadcast_to(noise, measured.shape)
    for row in zip(measured, bound, printed, noise, strict=True):
        tally.add(*row[:3], noise=row[3])
    return tally


def check_taylor(effort: Effort) -> Finding:
    """(14) as corrected: L(θ) ≥ L_k + ⟨∇L_k, θ−θ_k⟩ + ½ min λ_min ‖θ−θ_k‖²."""
    s, e = segments_for(effort), curved_segment(1e4)
    coarse, fine, square = s.least[:, ::2].min(axis=1), s.least.min(axis=1), s.length**2
    tally = _added(
        Tally(), s.gap, -0.5 * fine * square, noise=0.5 * (coarse - fine) * square + 1e-14
    )
    tally.add(e.gap, -0.5 * e.least * e.length**2)
    return tally.finding(
        "convexity gap against −½ λ_min D²; a short segment along the least convex direction "
        "attains it"
    )


TAYLOR = Statement(
    id="eq14",
    place="Section 6.1, Eq. (14)",
    title="Taylor's theorem between an iterate and the target",
    printed="L̂(θ) ≤ L̂(θ_k) + ⟨∇L̂(θ_k), θ−θ_k⟩ + ½ min λ_min ‖θ−θ_k‖²",
    corrected="L̂(θ) ≥ L̂(θ_k) + ⟨∇L̂(θ_k), θ−θ_k⟩ + ½ min λ_min ‖θ−θ_k‖² (the sign is reversed in print)",
    proof="docs/theory/training.md#taylor",
    remark="attained by a short segment along the least convex direction",
    check=check_taylor,
    tightness=0.999,
    errata=("E8",),
    used_by=("eq16",),
)


def check_segment_convexity(effort: Effort) -> Finding:
    """(15)."""
    s, e = segments_for(effort), curved_segment(1e4)
    square = s.length**2
    tally = _added(
        Tally(),
        -s.least.min(axis=1),
        s.kappa / square * s.top,
        list(s.printed_kappa / square * s.top),
    )
    tally.add(-e.least, e.constant * e.top, e.printed_constant * e.top)
    return tally.finding(
        "smallest eigenvalue on a segment against b3 and the largest loss; extremal heads approach "
        "it"
    )


SEGMENT_CONVEXITY = Statement(
    id="eq15",
    place="Section 6.1, Eq. (15)",
    title="local self-bounded weak convexity on a segment",
    printed="min_{[θ1,θ2]} λ_min(∇²L̂) ≥ −((β3(θ1) ∨ β3(θ2))/√H) max_{[θ1,θ2]} L̂",
    corrected="as printed",
    ours="with b3(max of the endpoint ‖U‖_{2,∞}) in place of β3",
    proof="docs/theory/training.md#taylor",
    remark="two idle heads moving against each other among many, as in Corollary 1 (3)",
    check=check_segment_convexity,
    tightness=0.97,
    used_by=("eq16", "glqc"),
)


def check_weak_convexity(effort: Effort) -> Finding:
    """(16) as corrected."""
    s, e = segments_for(effort), curved_segment(1e4)
    tally = _added(
        Tally(), s.gap, 0.5 * s.kappa * s.top, list(0.5 * s.printed_kappa * s.top), noise=1e-14
    )
    square = e.length**2 * e.top / 2
    tally.add(e.gap, e.constant * square, e.printed_constant * square)
    return tally.finding("share of the allowed convexity gap; extremal heads approach it")


WEAK_CONVEXITY = Statement(
    id="eq16",
    place="Section 6.1, Eq. (16)",
    title="weak convexity inequality",
    printed="L̂(θ) ≥ L̂(θ_k) + ⟨∇L̂(θ_k), θ−θ_k⟩ − ½ ((β3(θ1) ∨ β3(θ2))/√H) max_α L̂(θ_{kα}) ‖θ−θ_k‖²",
    corrected="with β3(θ) ∨ β3(θ_k): θ1, θ2 are not defined there",
    ours="with b3(M) in place of β3",
    proof="docs/theory/training.md#taylor",
    remark="two idle heads moving against each other among many, as in Corollary 1 (3)",
    check=check_weak_convexity,
    tightness=0.97,
    errata=("E9",),
    used_by=("eq17",),
)


def check_regret(effort: Effort) -> Finding:
    """(17) on runs that descend, with the largest loss on each segment [θ_k, θ] taken on a grid."""
    tally = Tally()
    K = 40
    problems = small_problems(effort.seed, effort.count(67, 1))
    for (mixture, data, fresh), heads in product(problems, (2, 16, 1024)):
        shape, eta = Shape(4, 6, mixture.token_radius), 0.5 / mixture.signal**2
        start = starts.first_phase(fresh, heads)
        target = targets.proximal_target(start, data, step_size=eta, num_steps=K)
        between = loop.Observer(_toward, None, (target.displacement,))
        walk = follower.follow(
            start, data, step_size=eta, num_steps=K, targets=[target], observe={"between": between}
        )
        if not np.all(np.diff(walk.loss) + eta / 2 * walk.gradient_norm[:-1] ** 2 <= 1e-15):
            raise AssertionError("a run set up to descend did not descend")
        losses, whole = (kept[:K] for kept in walk.observed["between"])
        top, square, root = losses.max(axis=1), walk.target_distance[0, :K] ** 2, math.sqrt(heads)
        ours = (
            shape.b3(np.maximum(walk.readout_norm[:K], target.readout_norm)) / root * top * square
        )
        printed = shape.beta3(np.maximum(whole, target.parameter_norm)) / root * top * square
        base = target.loss + target.distance**2 / (2 * eta * K)
        tally.add(walk.mean_loss, base + ours.sum() / (2 * K), base + printed.sum() / (2 * K))
    return tally.finding("mean loss over the right-hand side, proximal target")


def _toward(view: View, target) -> tuple:
    """The loss at nine points between an iterate and the target, and the largest norm of a head."""
    problem = view.problem

    def loss(share):
        place = jax.tree.map(
            lambda o, a, b: o + (a + share * (b - a)), problem.start, view.displacement, target
        )
        return problem.objective.loss_and_gradient(
            place, problem.sample_weight, loss=problem.method.loss
        )[0]

    heads = sum(
        jnp.sum(leaf.reshape(len(leaf), -1) ** 2, axis=1) for leaf in jax.tree.leaves(view.point)
    )
    return jax.lax.map(loss, jnp.linspace(0.0, 1.0, 9)), jnp.sqrt(jnp.max(heads))


REGRET = Statement(
    id="eq17",
    place="Section 6.1, Eq. (17)",
    title="regret before GLQC",
    printed="(1/K)ΣL̂_k ≤ L̂(θ) + D²/(2ηK) + (1/2K) Σ_{k<K} ((β3(θ) ∨ β3(θ_k))/√H) max_α L̂(θ_{kα}) ‖θ−θ_k‖², "
    "when every step descends",
    corrected="as printed",
    ours="with b3 in place of β3; and as an exact identity, see `identity`",
    proof="docs/theory/training.md#regret",
    remark="on runs of the mixture",
    check=check_regret,
    tightness=0.45,
    used_by=("thm1",),
)


def glqc_factor(kappa: float) -> float:
    r"""Sharp Proposition 4: the largest loss on a segment over that of its ends, $1/\cos(\sqrt\kappa/2)$.

    Infinite from $\kappa=\pi^2$ on.
    """
    if not 0 <= kappa < math.pi**2:
        return math.inf
    return 1 / math.cos(math.sqrt(kappa) / 2)


def check_quasi_convexity(effort: Effort) -> Finding:
    """Proposition 4, sharp form, with κ up to π², and the printed form where (18) holds."""
    s = segments_for(effort)
    bound = s.ends * np.array([glqc_factor(kappa) for kappa in s.kappa])
    printed = [
        4 / 3 * end if kappa <= 0.5 else None
        for end, kappa in zip(s.ends, s.printed_kappa, strict=True)
    ]
    tally = _added(Tally(), s.top, bound, printed)
    if not effort.quick:
        tally.add(search.ascend(_glqc_ratio, _segment_points(effort.seed, 12), steps=800)[1], 1.0)
    far = _large_kappa(s, s.top / bound)
    return tally.finding(
        f"largest loss on the segment over the larger end divided by cos(√κ/2); {far}"
    )


def _large_kappa(s: Segments, shares: np.ndarray) -> str:
    """The largest share at κ ≥ 1: for small κ it is near 1 however loose the inequality is."""
    return f"{shares[s.kappa >= 1].max():.3f} where κ ≥ 1"


def _segment_points(seed: int, count: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    shapes = {"first": SIZE, "second": SIZE, "X": (EXAMPLES, TOKENS, DIM)}
    return [
        {name: rng.standard_normal(shape) for name, shape in shapes.items()} for _ in range(count)
    ]


def _glqc_ratio(point) -> Array:
    """max L on the segment · cos(√κ/2) / max of the ends; minus infinity where κ is not below π²."""
    a, b, X = point["first"], point["second"], point["X"]
    R = jnp.maximum(1.0, jnp.sqrt(jnp.max(jnp.sum(X**2, axis=-1))))
    x = jnp.sqrt(
        jnp.max(jnp.stack([jnp.sum(p[:READOUT].reshape(HEADS, -1) ** 2, axis=1) for p in (a, b)]))
    )
    kappa = Shape.traced(TOKENS, DIM, R).b3(x) / math.sqrt(HEADS) * jnp.sum((a - b) ** 2)
    loss = jax.vmap(lambda p: flat_loss(p, X, formula.labels(EXAMPLES)))(_between(a, b))
    inside = jnp.max(loss) / jnp.maximum(loss[0], loss[-1])
    factor = jnp.cos(jnp.sqrt(jnp.minimum(kappa, math.pi**2)) / 2)
    return jnp.where(kappa < math.pi**2, inside * factor, -kappa)


QUASI_CONVEXITY = Statement(
    id="glqc",
    place="Section 6.1, Proposition 4 with (18)",
    title="generalized local quasi-convexity",
    printed="2(β3(θ1) ∨ β3(θ2))‖θ1−θ2‖² ≤ √H implies max_{[θ1,θ2]} L̂ ≤ (4/3)(L̂(θ1) ∨ L̂(θ2))",
    corrected="as printed",
    ours="κ = (b3(M)/√H)‖θ1−θ2‖² < π² implies max_{[θ1,θ2]} L̂ ≤ (L̂(θ1) ∨ L̂(θ2))/cos(√κ/2): "
    "the printed hypothesis gives 1.066 and 4/3 holds up to κ = 2.088",
    proof="docs/theory/training.md#glqc",
    remark="random and adversarial segments with κ up to π²; trivially near 1 for small κ, where the factor tends "
    "to 1; random segments with κ ≥ 1 reach 0.87",
    check=check_quasi_convexity,
    tightness=0.999,
    aliases=("prop4", "eq18"),
    used_by=("thm1", "eq22", "thm2"),
)


def step_coefficients(kappa: float) -> tuple[float, float]:
    r"""$(A,B)=(\sqrt\kappa/\sin\sqrt\kappa,\ \sqrt\kappa\cot\sqrt\kappa)$ of the one-step inequality, 1 at $\kappa=0$.

    $\langle\nabla\hat L_k,\theta-\theta_k\rangle\le A\hat L(\theta)-B\hat L_k$ for $\kappa<\pi^2$;
    $(\infty,-\infty)$ beyond.
    """
    if not 0 <= kappa < math.pi**2:
        return math.inf, -math.inf
    root = math.sqrt(kappa)
    # the next terms are of size kappa^2, below rounding
    if root < 1e-4:
        return 1 + kappa / 6, 1 - kappa / 3
    return root / math.sin(root), root / math.tan(root)


def check_one_step(effort: Effort) -> Finding:
    """⟨∇L_k, θ−θ_k⟩ + B·L_k ≤ A·L(θ)."""
    s = segments_for(effort)
    A, B = np.array([step_coefficients(kappa) for kappa in s.kappa]).T
    left, right = s.slope + B * s.loss[:, 0], A * s.loss[:, -1]
    tally = _added(Tally(), left, right, noise=1e-13 * np.abs(B) * s.loss[:, 0])
    return tally.finding(f"⟨∇L_k, θ−θ_k⟩ + B L_k over A L(θ); {_large_kappa(s, left / right)}")


ONE_STEP = Statement(
    id="onestep",
    place="ours",
    title="one-step inequality",
    ours="⟨∇L̂_k, θ−θ_k⟩ ≤ A L̂(θ) − B L̂_k, A = √κ/sin√κ, B = √κ cot√κ, for κ < π²",
    proof="docs/theory/training.md#one-step",
    remark="random segments; trivially near 1 for small κ, in whose limit it is exact; with κ ≥ 1 they reach 0.51",
    check=check_one_step,
    tightness=0.999,
    used_by=("thm1", "thm2"),
)
