"""Question: how long does a certified hard margin take, to which gap, and how do general solvers compare?

Run:  python benchmarks/bench_margin.py
One JSON line per case, then a table. A case is n and the kind of data; all solvers get the Gram matrix. Ratios are the time
of the peer over ours; "gaps" holds the distance between the two bounds that each answer proves. Before anything is timed, the bounds
proved by the answer of a peer must overlap our interval. Peers: scikit-learn's SVC
(mirrored data, since it has a bias; up to n = 1000), piqp with its default accuracy on the plain dual program.
"""

import os
import sys
import warnings
from functools import partial

from harness import main, one_core, race

one_core()
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false " + os.environ.get("XLA_FLAGS", "")

import numpy as np  # noqa: E402
import piqp  # noqa: E402
from sklearn.exceptions import ConvergenceWarning  # noqa: E402
from sklearn.svm import SVC  # noqa: E402

from manyheads.measures import hard_margin  # noqa: E402

KINDS = ("wide", "low rank", "duplicates", "gaussian kernel", "inseparable")
CASES = [f"{n} {kind}" for n in (300, 1000, 3000) for kind in KINDS]


def problem(case):
    """Gram matrix and labels. Only "wide" has a Gram matrix of full rank."""
    n, kind = case.split(" ", 1)
    n, rng = int(n), np.random.default_rng(0)
    y = rng.choice([-1.0, 1.0], n)
    if kind == "wide":
        G = rng.standard_normal((n, 2 * n))
    elif kind == "low rank":
        G = rng.standard_normal((n, n // 6))
        y = np.sign(G[:, 0])
        G[:, 0] += y
    elif kind == "duplicates":
        G, y = np.tile(rng.standard_normal((n // 2, n)), (2, 1)), np.tile(y[: n // 2], 2)
    elif kind == "inseparable":
        G = rng.standard_normal((n, n // 6))
    else:
        X = rng.standard_normal((n, 5))
        squares = np.sum(X**2, axis=1)
        y = np.sign(np.sin(2 * X[:, 0]) + 0.3 * X[:, 1])
        return np.exp(-(squares[:, None] + squares[None, :] - 2 * X @ X.T) / 10), y
    G /= np.sqrt(G.shape[1])
    return G @ G.T, y


def plain_dual(K, y):
    """min of lambda' Q lambda over the simplex, by piqp with its default accuracy."""
    n, Q = len(y), K * np.outer(y, y)
    solver = piqp.DenseSolver()
    solver.settings.verbose = False
    solver.setup(
        Q,
        np.zeros(n),
        np.ones((1, n)),
        np.ones(1),
        None,
        None,
        None,
        np.zeros(n),
        np.full(n, np.inf),
    )
    solver.solve()
    return np.maximum(solver.result.x, 0)


def mirrored_svc(K, y):
    twice = np.block([[K, -K], [-K, K]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        svc = SVC(kernel="precomputed", C=1e10, tol=1e-8, cache_size=1000, max_iter=200_000).fit(
            twice, np.r_[y, -y]
        )
    a, n = np.zeros(2 * len(y)), len(y)
    a[svc.support_] = svc.dual_coef_[0]
    return np.maximum((a[:n] - a[n:]) * y, 0)


def bounds(K, y, weights):
    """The lower and upper bound that weights prove: the least correlation with the hull point, and its length."""
    Q = K * np.outer(y, y)
    lam = weights / weights.sum()
    q = Q @ lam
    upper = np.sqrt(max(lam @ q, 0.0))
    return (float(q.min() / upper) if upper > 0 else 0.0), float(upper)


def gap(lower, upper):
    return 1 - lower / upper if upper > 1e-7 else "hull point at the origin"


def measure(case, rounds):
    K, y = problem(case)
    ours = hard_margin(y, gram=K)
    large = len(y) > 1000
    variants = {
        "ours": partial(hard_margin, y, gram=K),
        "piqp, plain dual": partial(plain_dual, K, y),
    }
    if not large:
        variants["scikit-learn SVC"] = partial(mirrored_svc, K, y)
    gaps = {"ours": ours.relative_gap if ours.verdict == "separable" else str(ours)}
    proved = {name: bounds(K, y, work()) for name, work in variants.items() if name != "ours"}
    slack = 1e-7 * ours.scale  # what a Gram matrix resolves in double precision
    wrong = {
        name: pair
        for name, pair in proved.items()
        if pair[0] > ours.upper + slack or pair[1] < ours.lower - slack
    }
    if wrong:
        sys.exit(
            f"{case}: our interval is [{ours.lower}, {ours.upper}], but {wrong}; nothing was timed"
        )
    gaps |= {name: gap(*pair) for name, pair in proved.items()}
    times = race(variants, rounds=3 if large else rounds)
    seconds = {name: t["median_s"] for name, t in times.items()}
    ratios = {
        "seconds": seconds["ours"],
        "relative gap": ours.relative_gap if ours.verdict == "separable" else ours.verdict,
    }
    ratios |= {
        f"{name} / ours": seconds[name] / seconds["ours"] for name in seconds if name != "ours"
    }
    return {
        "case": case,
        "ratios": ratios,
        "interval": [ours.lower, ours.upper],
        "converged": ours.converged,
        "seconds": seconds,
        "spread_s": {name: t["spread_s"] for name, t in times.items()},
        "gaps": gaps,
    }


if __name__ == "__main__":
    sys.exit(main(__file__, __doc__.splitlines()[0], measure, CASES))
