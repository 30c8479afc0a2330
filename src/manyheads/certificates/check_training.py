"""Checks of Sections 4.1 and 6.1: segments of the loss, the descent lemma, Theorem 1, the identity along a run."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np

from manyheads.certificates.bounds import Shape, glqc_factor, step_coefficients
from manyheads.certificates.decomposition import decompose
from manyheads.certificates.extremal import curved_segment
from manyheads.certificates.finding import Effort, Finding, Tally
from manyheads.certificates.regime import Ray, conclusions, heads_to_realize, run_literally, smallest_heads
from manyheads.certificates.search import ascend, train_loss
from manyheads.certificates.targets import along, mixture_direction, parameter_norm, proximal_target, with_heads
from manyheads.certificates.training import case_of, heads_needed, largest_step, training_conditions
from manyheads.certificates.verdict import EXPLICIT, Verdict
from manyheads.certificates.walk import follow
from manyheads.data.dataset import Dataset
from manyheads.data.mixture import TokenizedMixture
from manyheads.model.gradient import head_weights, loss_and_gradient, prepare
from manyheads.training.start import first_phase, zero_start

TOKENS, DIM, HEADS, EXAMPLES = 3, 2, 2, 4  # of the random segments
GRID = 33  # points on a segment


@dataclass(frozen=True, eq=False)
class Segments:
    """Random pairs of parameters with the loss, its slope and its curvature between them."""

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


def _flat_loss(flat, X, y):
    U = flat[: HEADS * TOKENS * DIM].reshape(HEADS, TOKENS, DIM)
    return train_loss({"U": U, "W": flat[HEADS * TOKENS * DIM :].reshape(HEADS, DIM, DIM)}, X, y)


@jax.jit
def _look(first, second, X, y, step):
    def one(a, b, X, y, step):
        points = a[None] + jnp.linspace(0.0, 1.0, GRID)[:, None] * (b - a)[None]
        loss = jax.vmap(lambda p: _flat_loss(p, X, y))(points)
        slope_a, slope_b = jax.grad(_flat_loss)(a, X, y), jax.grad(_flat_loss)(b, X, y)
        moved = jnp.linalg.norm((a - step * slope_a) - (b - step * slope_b))
        least = jax.vmap(lambda p: jnp.linalg.eigvalsh(jax.hessian(_flat_loss)(p, X, y))[0])(points)
        return loss, slope_a @ (b - a), least, moved

    return jax.vmap(one)(first, second, X, y, step)


def _largest_readout(flat: np.ndarray) -> np.ndarray:
    U = flat[:, : HEADS * TOKENS * DIM].reshape(len(flat), HEADS, -1)
    return np.linalg.norm(U, axis=2).max(axis=1)


def _largest_head(flat: np.ndarray) -> np.ndarray:
    cut = HEADS * TOKENS * DIM
    U, W = flat[:, :cut].reshape(len(flat), HEADS, -1), flat[:, cut:].reshape(len(flat), HEADS, -1)
    return np.sqrt((U**2).sum(2) + (W**2).sum(2)).max(axis=1)


@cache
def segments(trials: int, seed: int) -> Segments:
    """Random segments whose κ is spread over (1e-4, π²), evenly in its logarithm."""
    rng = np.random.default_rng(seed)
    size = HEADS * (TOKENS * DIM + DIM * DIM)
    first = rng.standard_normal((trials, size)) * 10.0 ** rng.uniform(-1.5, 0.5, (trials, 1))
    X = rng.standard_normal((trials, EXAMPLES, TOKENS, DIM)) * rng.uniform(0.5, 1.2, (trials, 1, 1, 1))
    y = rng.choice([-1.0, 1.0], (trials, EXAMPLES))
    R = np.maximum(1.0, np.linalg.norm(X, axis=-1).max(axis=(1, 2)))
    way = rng.standard_normal((trials, size))
    way /= np.linalg.norm(way, axis=1, keepdims=True)
    goal = np.exp(rng.uniform(math.log(1e-4), math.log(0.98 * math.pi**2), trials))
    second = first.copy()
    for i in range(trials):  # the length that makes kappa equal to its goal, by bisection
        low, high = 0.0, 20.0
        for _ in range(50):
            middle = (low + high) / 2
            second[i] = first[i] + middle * way[i]
            x = max(_largest_readout(first[i : i + 1])[0], _largest_readout(second[i : i + 1])[0])
            kappa = Shape(TOKENS, DIM, R[i]).b3(x) / math.sqrt(HEADS) * middle**2
            low, high = (middle, high) if kappa < goal[i] else (low, middle)
        second[i] = first[i] + low * way[i]
    x = np.maximum(_largest_readout(first), _largest_readout(second))
    whole = np.maximum(_largest_head(first), _largest_head(second))
    shapes = [Shape(TOKENS, DIM, r) for r in R]
    b2 = np.array([s.b2(v, HEADS) for s, v in zip(shapes, x, strict=True)])
    step = rng.uniform(0.2, 3.0, trials) / b2
    with jax.enable_x64(True):
        loss, slope, least, moved = map(np.asarray, _look(first, second, X, y, step))
    length = np.linalg.norm(second - first, axis=1)
    b3 = np.array([s.b3(v) for s, v in zip(shapes, x, strict=True)]) / math.sqrt(HEADS)
    beta3 = np.array([s.beta3(v) for s, v in zip(shapes, whole, strict=True)]) / math.sqrt(HEADS)
    beta2 = np.array([s.beta2(v, HEADS) for s, v in zip(shapes, whole, strict=True)])
    return Segments(loss, slope, least, length, b3 * length**2, beta3 * length**2, moved, step, b2, beta2)


def _segments(effort: Effort) -> Segments:
    return segments(effort.count(600, 100), effort.seed)


def taylor(effort: Effort) -> Finding:
    """(14) as corrected: L(θ) ≥ L_k + ⟨∇L_k, θ−θ_k⟩ + ½ min λ_min ‖θ−θ_k‖²."""
    tally, s = Tally("eq14"), _segments(effort)
    for i in range(len(s.length)):
        coarse, fine = s.least[i, ::2].min(), s.least[i].min()
        gap = s.loss[i, 0] + s.slope[i] - s.loss[i, -1]
        tally.add(gap, -0.5 * fine * s.length[i] ** 2, noise=0.5 * (coarse - fine) * s.length[i] ** 2 + 1e-14)
    e = curved_segment(1e4)
    tally.add(e.gap, -0.5 * e.least * e.length**2)
    return tally.finding(
        "convexity gap against −½ λ_min D²; a short segment along the least convex direction uses it up"
    )


def segment_convexity(effort: Effort) -> Finding:
    """(15)."""
    tally, s = Tally("eq15"), _segments(effort)
    for i in range(len(s.length)):
        top, square = s.loss[i].max(), s.length[i] ** 2
        tally.add(-s.least[i].min(), s.kappa[i] / square * top, s.printed_kappa[i] / square * top)
    e = curved_segment(1e4)
    tally.add(-e.least, e.constant * e.top, e.printed_constant * e.top)
    return tally.finding("smallest eigenvalue on a segment against b3 and the largest loss; extremal heads approach it")


def weak_convexity(effort: Effort) -> Finding:
    """(16) as corrected."""
    tally, s = Tally("eq16"), _segments(effort)
    for i in range(len(s.length)):
        gap = s.loss[i, 0] + s.slope[i] - s.loss[i, -1]
        top = s.loss[i].max()
        tally.add(gap, 0.5 * s.kappa[i] * top, 0.5 * s.printed_kappa[i] * top, noise=1e-14)
    e = curved_segment(1e4)
    square = e.length**2 * e.top / 2
    tally.add(e.gap, e.constant * square, e.printed_constant * square)
    return tally.finding("share of the allowed convexity gap; extremal heads approach it")


def quasi_convexity(effort: Effort) -> Finding:
    """Proposition 4, sharp form, with κ up to π², and the printed form where (18) holds."""
    tally, s, shares = Tally("glqc"), _segments(effort), []
    for i in range(len(s.length)):
        ends = max(s.loss[i, 0], s.loss[i, -1])
        printed = 4 / 3 * ends if s.printed_kappa[i] <= 0.5 else None
        tally.add(s.loss[i].max(), ends * glqc_factor(s.kappa[i]), printed)
        shares.append(s.loss[i].max() / (ends * glqc_factor(s.kappa[i])))
    if not effort.quick:
        _, top = ascend(_glqc_ratio, _segment_points(effort.seed, 12), steps=800)
        tally.add(top, 1.0)
    far = _large_kappa(s, shares)
    return tally.finding(f"largest loss on the segment over the larger end divided by cos(√κ/2); {far}")


def _large_kappa(s: Segments, shares: list[float]) -> str:
    """The largest share at κ ≥ 1: for small κ it is near 1 whatever the inequality is worth."""
    return f"{np.asarray(shares)[s.kappa >= 1].max():.3f} where κ ≥ 1"


def _segment_points(seed: int, count: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    size = HEADS * (TOKENS * DIM + DIM * DIM)
    return [
        {
            "first": rng.standard_normal(size),
            "second": rng.standard_normal(size),
            "X": rng.standard_normal((EXAMPLES, TOKENS, DIM)),
        }
        for _ in range(count)
    ]


def _glqc_ratio(point) -> jax.Array:
    """max L on the segment · cos(√κ/2) / max of the ends; minus infinity where κ is not below π²."""
    a, b, X = point["first"], point["second"], point["X"]
    y = jnp.where(jnp.arange(EXAMPLES) % 2 == 0, 1.0, -1.0)
    R = jnp.maximum(1.0, jnp.sqrt(jnp.max(jnp.sum(X**2, axis=-1))))
    cut = HEADS * TOKENS * DIM
    x = jnp.sqrt(jnp.max(jnp.stack([jnp.sum(p[:cut].reshape(HEADS, -1) ** 2, axis=1) for p in (a, b)])))
    q = R**2 * x
    b3 = math.sqrt(TOKENS) * R**3 * (q + jnp.sqrt(q * q + 4)) / 2
    kappa = b3 / math.sqrt(HEADS) * jnp.sum((a - b) ** 2)
    points = a[None] + jnp.linspace(0.0, 1.0, GRID)[:, None] * (b - a)[None]
    loss = jax.vmap(lambda p: _flat_loss(p, X, y))(points)
    inside = jnp.max(loss) / jnp.maximum(loss[0], loss[-1])
    factor = jnp.cos(jnp.sqrt(jnp.minimum(kappa, math.pi**2)) / 2)
    return jnp.where(kappa < math.pi**2, inside * factor, -kappa)


def one_step(effort: Effort) -> Finding:
    """⟨∇L_k, θ−θ_k⟩ + B·L_k ≤ A·L(θ)."""
    tally, s, shares = Tally("onestep"), _segments(effort), []
    for i in range(len(s.length)):
        A, B = step_coefficients(s.kappa[i])
        left, right = s.slope[i] + B * s.loss[i, 0], A * s.loss[i, -1]
        tally.add(left, right, noise=1e-13 * abs(B) * s.loss[i, 0])
        shares.append(left / right)
    return tally.finding(f"⟨∇L_k, θ−θ_k⟩ + B L_k over A L(θ); {_large_kappa(s, shares)}")


def descent_lemma(effort: Effort) -> Finding:
    """(13) from random points, with the largest step size allowed by ours and by the printed constant."""
    rng = np.random.default_rng(effort.seed)
    trials = effort.count(600, 100)
    tally = Tally("descent")
    size = HEADS * (TOKENS * DIM + DIM * DIM)
    first = rng.standard_normal((trials, size)) * 10.0 ** rng.uniform(-2, 0.5, (trials, 1))
    X = rng.standard_normal((trials, EXAMPLES, TOKENS, DIM))
    y = rng.choice([-1.0, 1.0], (trials, EXAMPLES))
    with jax.enable_x64(True):
        slope = np.asarray(jax.jit(jax.vmap(jax.grad(_flat_loss)))(first, X, y))
        value = jax.jit(jax.vmap(_flat_loss))
        loss = np.asarray(value(first, X, y))
        eta, printed_eta = np.zeros(trials), np.zeros(trials)
        for i in range(trials):
            shape = Shape(TOKENS, DIM, max(1.0, np.linalg.norm(X[i], axis=-1).max()))
            eta[i] = _largest_descent_step(first[i], slope[i], lambda x, s=shape: s.b2(x, HEADS), _largest_readout)
            printed_eta[i] = _largest_descent_step(
                first[i], slope[i], lambda x, s=shape: s.beta2(x, HEADS), _largest_head
            )
        square = np.sum(slope**2, axis=1)
        after = np.asarray(value(first - eta[:, None] * slope, X, y))
        printed_after = np.asarray(value(first - printed_eta[:, None] * slope, X, y))
    for i in range(trials):
        tally.add(after[i], loss[i] - eta[i] / 2 * square[i], noise=4e-16 * (1 + loss[i]))
        tally.printed = max(tally.printed or 0.0, printed_after[i] / (loss[i] - printed_eta[i] / 2 * square[i]))
    promised = float(np.max(eta / 2 * square / (loss - after), where=square > 1e-6, initial=0.0))
    return tally.finding(f"loss after the step over L_k − (η/2)‖∇L_k‖²; promised over actual decrease {promised:.3f}")


def _largest_descent_step(first, slope, smoothness, norm) -> float:
    """The largest η ≤ 1/β2 at both ends of the step, by iteration from the start's own smoothness."""
    eta = 1 / smoothness(norm(first[None])[0])
    for _ in range(100):
        x = max(norm(first[None])[0], norm((first - eta * slope)[None])[0])
        if eta <= 1 / smoothness(x):
            return eta
        eta = 0.99 / smoothness(x)
    return eta * 0.5


@cache
def small_problem(seed: int) -> tuple[TokenizedMixture, Dataset, Dataset]:
    """A small mixture with a training sample and disjoint first-phase data; one shape for all checks."""
    mixture = TokenizedMixture(
        num_tokens=4, dim=6, num_patterns=2, sparsity=0.5, signal=1.0, noise_mu=0.05, noise_nu=0.05, noise_norm=0.3,
        key=jax.random.key(seed),
    )  # fmt: skip
    return (
        mixture,
        mixture.sample(24, key=jax.random.key(1000 + seed)),
        mixture.sample(200, key=jax.random.key(2000 + seed)),
    )


@cache
def literal_runs(effort: Effort):
    """Runs where the hypotheses of our Theorem 1 are literally true and its bound is not vacuous."""
    runs = []
    for k in range(effort.count(4, 1)):
        mixture, data, fresh = small_problem(effort.seed + k)
        start = first_phase(fresh, 2)
        direction = mixture_direction(start, mixture)
        found = smallest_heads(start, data, [direction], num_steps=300, token_radius=mixture.token_radius)
        runs.append(run_literally(start, data, found, mixture.token_radius))
    return runs


@cache
def explicit_runs(effort: Effort):
    """Runs at the head count and step size of Section 6.1's route."""
    runs = []
    for k in range(effort.count(3, 1)):
        mixture, data, fresh = small_problem(effort.seed + k)
        start = first_phase(fresh, 2)
        ray = Ray(start, data, mixture_direction(start, mixture), mixture.token_radius)
        found = heads_to_realize(ray, num_steps=300, need=lambda case: heads_needed(case, EXPLICIT))
        model = with_heads(start, 2 * math.ceil(found.num_heads / 2))
        target = along(ray.direction, found.scale, model, data)
        case = case_of(model, data, target, num_steps=300, token_radius=mixture.token_radius)
        case = replace(case, step_size=largest_step(case, EXPLICIT))
        walk = follow(model, data, step_size=case.step_size, num_steps=300, targets=[target])
        versions = training_conditions(case)
        if not versions[1].holds:
            raise AssertionError(f"the explicit hypotheses fail where they were arranged: {versions[1].missing}")
        runs.append((case, walk, conclusions(case, walk, versions)))
    return runs


def training_theorem(effort: Effort) -> Finding:
    """Theorem 1: (4) on literal runs, ours and the explicit route."""
    tally = Tally("thm1")
    for run in literal_runs(effort):
        for certificate in run.certificates:
            if certificate.verdict is not Verdict.HOLDS:
                tally.broken += 1
        tally.add(run.walk.mean_loss, run.case.train_bound())
    for case, walk, certificates in explicit_runs(effort):
        tally.broken += sum(c.verdict_of(EXPLICIT) is not Verdict.HOLDS for c in certificates if len(c.bounds) > 1)
        tally.add(walk.mean_loss, case.train_bound(), case.train_bound())
        tally.printed = max(tally.printed or 0.0, walk.mean_loss / case.train_bound())
    heads = ", ".join(f"{run.case.num_heads:,.0f}" for run in literal_runs(effort))
    explicit = explicit_runs(effort)[0][0].num_heads
    return tally.finding(
        f"run at {heads} heads (ours, certified below .5) and at {explicit:.2g} (Section 6.1), all conclusions hold"
    )


def iterate_bounds(effort: Effort) -> Finding:
    """‖θ_k−θ‖ ≤ 2D and ‖θ_k−θ_0‖ ≤ 3D (ours); 3D and 4D (printed)."""
    tally = Tally("iterates")
    runs = [(run.case, run.walk) for run in literal_runs(effort)] + [run[:2] for run in explicit_runs(effort)]
    for case, walk in runs:
        D = case.distance
        tally.add(walk.target_distance[0].max(), 2 * D, 3 * D)
        tally.add(walk.distance.max(), 3 * D, 4 * D)
    return tally.finding("largest distance along literal runs over 2D (target) and 3D (start)")


def regret(effort: Effort) -> Finding:
    """(17) on runs that descend, with the largest loss on each segment [θ_k, θ] taken on a grid."""
    tally = Tally("eq17")
    mixture, data, fresh = small_problem(effort.seed)
    K, eta = 40, 0.5
    shape = Shape(4, 6, mixture.token_radius)
    for heads in (2, 16, 1024):
        start = first_phase(fresh, heads)
        target = proximal_target(start, data, step_size=eta, num_steps=K)
        walk = follow(start, data, step_size=eta, num_steps=K, targets=[target])
        if not np.all(np.diff(walk.loss) + eta / 2 * walk.gradient_norm[:-1] ** 2 <= 1e-15):
            raise AssertionError("a run arranged to descend did not")
        with jax.enable_x64(True):
            where = jax.tree.map(jnp.asarray, (start.heads, target.displacement))
            sample = np.full(data.num_examples, 1 / data.num_examples)
            path, between = _path(*where, head_weights(start), prepare(data, start), sample, eta, length=K)
        top = np.asarray(between).max(axis=1)
        whole = np.array(
            [parameter_norm(start.displaced(jax.tree.map(lambda a, k=k: a[k], path)).heads) for k in range(K)]
        )
        square = walk.target_distance[0, :K] ** 2
        ours = shape.b3(np.maximum(walk.readout_norm[:K], target.readout_norm)) / math.sqrt(heads) * top * square
        printed = shape.beta3(np.maximum(whole, target.parameter_norm)) / math.sqrt(heads) * top * square
        base = target.loss + target.distance**2 / (2 * eta * K)
        tally.add(walk.mean_loss, base + ours.sum() / (2 * K), base + printed.sum() / (2 * K))
    return tally.finding("mean loss over the right-hand side, proximal target")


@partial(jax.jit, static_argnames="length")
def _path(start, target, weights, batch, sample, eta, *, length):
    """Displacements of a run, and the loss at nine points between each of them and the target."""

    def loss(displacement):
        return loss_and_gradient(jax.tree.map(jnp.add, start, displacement), weights, batch, sample)

    def step(at, _):
        between = jax.lax.map(
            lambda s: loss(jax.tree.map(lambda a, b: a + s * (b - a), at, target))[0], jnp.linspace(0.0, 1.0, 9)
        )
        return jax.tree.map(lambda a, g: a - eta * g, at, loss(at)[2]), (at, between)

    return jax.lax.scan(step, jax.tree.map(jnp.zeros_like, start), None, length=length)[1]


def run_identity(effort: Effort) -> Finding:
    """The identity on runs with few and with very many heads, for the proximal target and for an arbitrary point."""
    tally = Tally("identity")
    mixture, data, fresh = small_problem(effort.seed)
    K, eta = 60, 0.8
    worst = 0.0
    for heads in (1, 2, 64, 1e6, 1e10):
        start = first_phase(fresh, heads)
        near = proximal_target(start, data, step_size=eta, num_steps=K)
        far = along(mixture_direction(start, mixture), 5.0, start, data)
        for part in decompose(follow(start, data, step_size=eta, num_steps=K, targets=[near, far])):
            tally.add(abs(part.residual), 1e-12 * max(1.0, part.bound))
            tally.add(part.mean_loss, part.bound, noise=abs(part.residual))
            worst = max(worst, abs(part.residual))
    zero = zero_start(7, num_tokens=4, dim=6)
    target = proximal_target(zero, data, step_size=eta, num_steps=K)
    (part,) = decompose(follow(zero, data, step_size=eta, num_steps=K, targets=[target]))
    tally.add(abs(part.residual), 1e-12)
    return tally.finding(
        f"largest residual {max(worst, abs(part.residual)):.1e}; share is measured mean loss over the certificate"
    )
