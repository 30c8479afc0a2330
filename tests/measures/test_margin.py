"""The certified margin against scikit-learn, Lawson-Hanson least distance programming, and exact rational arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linprog, nnls
from sklearn.svm import SVC

from manyheads.measures.margin import hard_margin


def random_problem(rng):
    """Features of few or many dimensions, sometimes repeated, of very different norms, or barely separated."""
    n, p = int(rng.integers(2, 60)), int(rng.choice([2, 3, 8, 40, 120]))
    G, kind = rng.standard_normal((n, p)), int(rng.integers(5))
    y = rng.choice([-1.0, 1.0], n) if p > 2 * n and kind == 0 else np.sign(G[:, 0])
    if kind == 1:
        G, y = np.concatenate([G, G[: n // 2]]), np.concatenate([y, y[: n // 2]])
    if kind == 2:
        G = G * 10.0 ** rng.uniform(-2, 2, (n, 1))
    if kind == 3:
        G[:, 0] += 0.5 * y
    if kind == 4:
        G = G + 3 * y[:, None] * np.eye(p)[0]
    return G, y


def least_distance(G, y):
    """The margin by Lawson and Hanson's reduction to nonnegative least squares: min |x| with y_i <g_i, x> >= 1."""
    scale = np.linalg.norm(G, axis=1).min()  # near the margin, so that the residual is of order one
    A = y[:, None] * G / scale
    E, f = np.concatenate([A.T, np.ones((1, len(y)))]), np.zeros(G.shape[1] + 1)
    f[-1] = 1.0
    u, _ = nnls(E, f, maxiter=10**5)
    r = E @ u - f
    x = -r[:-1] / r[-1]
    return scale / np.linalg.norm(x)


def test_200_random_problems_contain_the_answers_of_others():
    rng = np.random.default_rng(0)
    for _ in range(200):
        G, y = random_problem(rng)
        for interval in (hard_margin(y, features=G), hard_margin(y, gram=G @ G.T)):
            assert interval.verdict == "separable"
            assert interval.relative_gap <= 1e-6
            # nonnegative least squares is good to about 1e-9 here
            assert (
                interval.lower * (1 - 1e-8) <= least_distance(G, y) <= interval.upper * (1 + 1e-8)
            )
        # scikit-learn's classifier has a bias; mirrored data make it zero. What its direction achieves is a lower bound
        mirrored = np.concatenate([G, -G]) / np.linalg.norm(G, axis=1).max()
        svm = SVC(kernel="linear", C=1e12, tol=1e-8, max_iter=10**6).fit(
            mirrored, np.concatenate([y, -y])
        )
        w = svm.coef_[0]
        achieved = np.min(y * (G @ w)) / np.linalg.norm(w)
        assert achieved <= interval.upper
        if svm.fit_status_ == 0 and achieved > 0:
            assert interval.lower >= achieved * (1 - 1e-9)


def exactly(array):
    return [[Fraction(float(v)) for v in row] for row in np.atleast_2d(array)]


def exact_upper(G, y, weights):
    """Squared length of the hull point, in rational arithmetic."""
    rows, (lam,) = exactly(G), exactly(weights)
    total = sum(lam)
    assert min(lam) >= 0 and total > 0
    point = [
        sum(w * Fraction(int(s)) * row[k] for w, s, row in zip(lam, y, rows, strict=True))
        for k in range(len(rows[0]))
    ]
    return sum(v * v for v in point) / total**2


@pytest.mark.parametrize("seed", range(6))
def test_both_ends_are_proved_in_rational_arithmetic(seed):
    rng = np.random.default_rng(seed)
    G, y = random_problem(rng)
    interval = hard_margin(y, features=G)
    assert interval.weights.sum() == pytest.approx(1, abs=1e-12)
    assert exact_upper(G, y, interval.weights) <= Fraction(interval.upper) ** 2
    (w,) = exactly(interval.direction)
    least = min(
        Fraction(int(s)) * sum(a * b for a, b in zip(row, w, strict=True))
        for s, row in zip(y, exactly(G), strict=True)
    )
    assert least > 0
    assert least**2 >= Fraction(interval.lower) ** 2 * sum(a * a for a in w)


@pytest.mark.parametrize("n,p", [(20, 2), (60, 5), (300, 40)])
def test_inseparable_data_come_with_a_proof(n, p):
    rng = np.random.default_rng(n)
    G, y = rng.standard_normal((n, p)), rng.choice([-1.0, 1.0], n)
    assert (
        linprog(np.zeros(p), -y[:, None] * G, -np.ones(n), bounds=(None, None)).status == 2
    )  # no separating direction
    interval = hard_margin(y, features=G)
    assert interval.verdict == "not separable" and interval.converged and interval.lower == 0
    assert str(interval).startswith("not separable: no margin above")
    assert interval.upper < 1e-9
    assert exact_upper(G, y, interval.weights) <= Fraction(interval.upper) ** 2
    by_gram = hard_margin(y, gram=G @ G.T)
    assert by_gram.verdict == "not separable"
    # the square root of the rounding of a Gram matrix is all it can resolve
    assert exact_upper(G, y, by_gram.weights) <= Fraction(by_gram.upper) ** 2
    assert by_gram.upper < 1e-7 * by_gram.scale


def test_a_zero_feature_and_opposite_twins_have_no_margin():
    zero = hard_margin([1, -1, 1], features=np.array([[1.0, 0], [0, 1], [0, 0]]))
    assert zero.upper == 0 and zero.verdict == "not separable" and zero.weights[2] == 1
    twins = hard_margin([1, -1], gram=np.ones((2, 2)))
    assert twins.verdict == "not separable"


def test_the_margin_of_one_point_is_its_norm():
    interval = hard_margin([-1], features=np.array([[3.0, 4.0]]))
    assert interval.lower <= 5 <= interval.upper and interval.relative_gap < 1e-12
    assert interval.p3_interval[0] == pytest.approx(5 * np.sqrt(2), rel=1e-12)


def test_a_singular_gram_matrix_of_tiny_margin_is_resolved():
    # a Gaussian kernel of large width: numerical rank far below n, margin 1e-4 of the norm
    rng = np.random.default_rng(3)
    X = rng.standard_normal((300, 2))
    squares = np.sum(X**2, axis=1)
    K = np.exp(-(squares[:, None] + squares[None, :] - 2 * X @ X.T) / 36)
    y = np.sign(np.sin(2 * X[:, 0]) + 0.3 * X[:, 1])
    interval = hard_margin(y, gram=K)
    assert interval.upper < 1e-3
    assert interval.converged and interval.relative_gap <= 1e-6


def test_what_a_gram_matrix_cannot_resolve_is_said():
    G = np.array([[1.0, 1e-9], [-1.0, 1e-9]])
    assert hard_margin([1, 1], features=G).lower == pytest.approx(1e-9, rel=1e-6)
    assert hard_margin([1, 1], gram=G @ G.T).verdict == "not separable"
    wide = hard_margin(
        [1, 1], gram=np.array([[1.0, -0.99999], [-0.99999, 1.0]]), gram_accuracy=1e-4
    )
    assert wide.verdict == "undecided" and "undecided" in str(wide)


@pytest.mark.parametrize("size", [1e200, 1e-200, 1e300])
def test_very_large_and_very_small_features_keep_their_margin(size):
    rng = np.random.default_rng(0)
    G, y = random_problem(rng)
    plain = hard_margin(y, features=G)
    scaled = hard_margin(y, features=size * G)
    assert scaled.verdict == "separable" and scaled.relative_gap <= 1e-6
    assert scaled.lower <= size * plain.upper * (
        1 + 1e-12
    ) and scaled.upper >= size * plain.lower * (1 - 1e-12)
    mixed = hard_margin(
        [1, -1], features=np.array([[size, 0.0], [0.0, 1.0]])
    )  # 1/sqrt(1 + 1/size^2), or size
    assert mixed.lower <= min(size, 1.0) * (1 + 1e-9) and mixed.upper >= min(size, 1.0) * (1 - 1e-9)
    root = np.sqrt(size)
    gram = hard_margin(y, gram=root * (G @ G.T) * root)
    assert gram.verdict == "separable" and gram.lower <= root * plain.upper * (1 + 1e-9)


def test_the_direction_of_a_gram_matrix_has_unit_length():
    rng = np.random.default_rng(1)
    G, y = random_problem(rng)
    K = 1e6 * G @ G.T
    found = hard_margin(y, gram=K)
    a = found.direction * y
    assert a @ K @ a == pytest.approx(1, rel=1e-9)
    assert np.min(y * (K @ a)) == pytest.approx(found.lower, rel=1e-6)


@pytest.mark.parametrize(
    "arguments,words",
    [
        (dict(labels=[1, 2], features=np.eye(2)), r"labels must be .* \+1 and -1"),
        (dict(labels=[1, -1]), "pass either gram=.* or features="),
        (
            dict(labels=[1, -1], features=np.eye(3)),
            r"features has shape \(3, 3\), but 2 labels need shape \(2, p\)",
        ),
        (dict(labels=[1, -1], features=np.array([[np.nan], [1.0]])), "not finite"),
        (dict(labels=[1, -1], gram=np.array([[1.0, 2], [0, 1]])), "not symmetric"),
        (dict(labels=[1, -1], gram=-np.eye(2)), "negative diagonal"),
        (dict(labels=[1, -1], gram=np.array([[1.0, -2], [-2, 1]])), "negative eigenvalue"),
        (dict(labels=[1, -1], gram=np.array([[0.0, 1], [1, 1]])), "negative eigenvalue"),
        (
            dict(labels=[1, -1, 1], gram=1.9 * np.eye(3) - 0.9),
            "negative eigenvalue",
        ),  # every pair is possible
        (dict(labels=[1, -1], gram=np.eye(2), gram_accuracy=np.nan), "gram_accuracy=nan"),
        (dict(labels=[1, -1], gram=np.eye(2), gram_accuracy=b"3"), "gram_accuracy=b'3'"),
        (
            dict(labels=[1, -1], features=np.eye(2), tolerance=2),
            "tolerance=2 must be a finite number strictly between 0 and 1",
        ),
    ],
)
def test_bad_input_is_answered_in_one_line(arguments, words):
    with pytest.raises(ValueError, match=words) as error:
        hard_margin(**arguments)
    assert "\n" not in str(error.value)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["wide", "low rank", "twice", "inseparable"])
def test_three_thousand_points_reach_the_gap(kind):
    rng, n = np.random.default_rng(0), 3000
    if kind == "wide":
        G, y = rng.standard_normal((n, 2 * n)), rng.choice([-1.0, 1.0], n)
    elif kind == "low rank":
        G = rng.standard_normal((n, 500))
        y = np.sign(G[:, 0])
        G[:, 0] += y
    elif kind == "twice":
        G, y = (
            np.tile(rng.standard_normal((n // 2, n)), (2, 1)),
            np.tile(rng.choice([-1.0, 1.0], n // 2), 2),
        )
    else:
        G, y = rng.standard_normal((n, 500)), rng.choice([-1.0, 1.0], n)
    interval = hard_margin(y, gram=G @ G.T)
    assert interval.verdict == ("not separable" if kind == "inseparable" else "separable")
    assert interval.converged


def test_features_of_very_different_norms_keep_their_margin():
    found = hard_margin([1, 1], features=[[1e200], [1e-200]])
    assert (
        found.verdict == "separable"
        and found.lower <= 1e-200 <= found.upper
        and found.relative_gap < 1e-12
    )
    found = hard_margin([1, -1], features=[[3e200, 0.0], [0.0, 4e-200]])
    assert found.lower <= 4e-200 <= found.upper and found.converged


def test_features_without_an_entry_are_refused():
    with pytest.raises(
        ValueError, match=r"features has shape \(2, 0\), but 2 labels need shape \(2, p\)"
    ):
        hard_margin([1, -1], features=np.zeros((2, 0)))


@pytest.mark.parametrize("p", [3, 40])
def test_a_margin_of_a_billionth_is_found_in_any_number_of_features(p):
    # pairs of opposite labels that differ along one direction only: half of a difference is the margin
    for seed in range(10):
        rng = np.random.default_rng(seed)
        w = rng.standard_normal(p)
        w /= np.linalg.norm(w)
        half = rng.standard_normal((5, p))
        half -= np.outer(half @ w, w)
        y = np.repeat([1.0, -1.0], 5)
        found = hard_margin(y, features=np.concatenate([half, half]) + 1e-9 * np.outer(y, w))
        assert found.verdict == "separable"
        assert found.lower <= 1.000001e-9 and found.upper >= 0.999999e-9
