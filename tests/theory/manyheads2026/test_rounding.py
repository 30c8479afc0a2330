"""The bounds of the forecast are on the safe side of their exact values, which interval arithmetic encloses."""

import numpy as np
import pytest
from mpmath import iv
from theory.manyheads2026.intervals import Ball

import manyheads as mh
from manyheads.measures import neighborhood
from manyheads.model.attention import Heads
from manyheads.theory.manyheads2026 import region


def cases(count, seed):
    """Two sequences of three tokens in a plane, two classes of heads, and a ball: flat to saturated attention."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        X = rng.standard_normal((2, 3, 2)) * 10 ** rng.uniform(-0.5, 0.4)
        W = rng.standard_normal((2, 2, 2)) * 10 ** rng.uniform(-1, 1)
        U = rng.standard_normal((2, 3, 2)) * 10 ** rng.uniform(-1, 0.5)
        v = rng.standard_normal((2, 2, 2)), rng.standard_normal((2, 3, 2))
        size = np.sqrt(sum(np.sum(leaf**2) for leaf in v))
        yield (
            X,
            W,
            U,
            rng.choice([1.0, 2.0, 100.0], 2),
            float(10.0 ** rng.uniform(-3, 0.3)),
            [a / size for a in v],
        )


def pairs(X, W, U, N, radius, v):
    """Each bound and its exact value, the one that should be larger first."""
    y = np.array([1.0, -1.0])
    center = region.Center.at(
        mh.MultiHead.create(W, U, multiplicity=N), mh.Dataset.from_arrays(X, y)
    )
    exact = Ball(X, y, W, U, N, radius, v)
    drift, along = center.ball.drift(radius), center.ball.margins(Heads(*v), radius)
    low, high = region.margin_box(center, drift, radius)
    level = float(np.mean(np.logaddexp(0.0, -center.margins)))
    found = {"ratio": (exact.ratio(level, region.RATIOS), region.ratio_bound(low, high, level))}
    found["smoothness"] = (
        region.smoothness_bound(center, drift, radius, level),
        exact.smoothness(level),
    )
    for i in range(2):
        bend, move = exact.drift(i)
        least, most = exact.box(i)
        found |= {
            f"curvature {i}": (drift.curvature[i], bend),
            f"gradient {i}": (drift.gradient[i], move),
            f"margin {i}": (exact.margin(i), along[i]),
            f"low {i}": (least, low[i]),
            f"high {i}": (high[i], most),
        }
    return {name: tuple(map(_number, pair)) for name, pair in found.items()}


def wrong(*case):
    """The names of the bounds that are not certainly on the safe side: not the whole interval is."""
    return [name for name, (larger, smaller) in pairs(*case).items() if not larger.a >= smaller.b]


def _number(value):
    return iv.mpf(float(value)) if isinstance(value, float | np.floating) else value


def test_every_bound_is_on_the_safe_side_of_its_exact_value_and_close_to_it():
    for case in cases(3, seed=0):
        for name, (larger, smaller) in pairs(*case).items():
            assert larger.a >= smaller.b, name
            size = 1 + abs(larger) if name.startswith(("margin", "low", "high")) else abs(larger)
            assert larger - smaller <= 1e-7 * size, (
                name
            )  # hundred enlargements: it is the same bound


@pytest.mark.full
def test_every_bound_is_on_the_safe_side_in_many_cases():
    for case in cases(200, seed=1):
        assert wrong(*case) == []


@pytest.mark.parametrize(
    ("enlarged", "broken"), [(1e-12, set()), (-1e-12, {"curvature", "gradient", "smoothness"})]
)
def test_a_thousandth_of_the_enlargement_would_do_and_less_than_none_would_not(
    enlarged, broken, monkeypatch
):
    for module in (neighborhood, region):
        monkeypatch.setattr(module, "ENLARGE", enlarged)
    found = {name.split()[0] for case in cases(3, seed=2) for name in wrong(*case)}
    assert found >= broken and bool(found) == bool(broken)
