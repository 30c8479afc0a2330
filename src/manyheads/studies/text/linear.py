"""Linear classifiers on one vector per sentence, to compare attention with."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize

LOSSES = (
    "logistic",
    "svm",
)  # logistic regression; a support vector machine with squared hinge loss


def fit_linear(
    features: np.ndarray, labels: np.ndarray, loss: str, penalty: float
) -> Callable[[np.ndarray], np.ndarray]:
    """The scores <w, x> + b that minimize the mean loss plus penalty |w|²/2."""
    y = labels

    def value_and_gradient(w):
        m = y * (features @ w[1:] + w[0])
        if loss == "logistic":
            values, slopes = np.logaddexp(0.0, -m), -np.exp(-np.logaddexp(0.0, m))
        else:
            values, slopes = np.maximum(0.0, 1 - m) ** 2, -2 * np.maximum(0.0, 1 - m)
        slopes = slopes * y / len(y)
        gradient = np.concatenate([[slopes.sum()], features.T @ slopes + penalty * w[1:]])
        return values.mean() + penalty * w[1:] @ w[1:] / 2, gradient

    w = minimize(value_and_gradient, np.zeros(features.shape[1] + 1), jac=True, method="L-BFGS-B").x
    return lambda new: new @ w[1:] + w[0]
