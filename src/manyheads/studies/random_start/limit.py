r"""The tangent kernel of a Gaussian start with infinitely many heads.

With $A_t$ the attention of query t, $m_t = \sum_s A_{ts} x_s$ and $C_t$ the covariance of the tokens under $A_t$, the
kernel of two sequences is, for $H \to \infty$,
$$K(X, X') = E_W \sum_t \langle m_t, m'_t\rangle
           + \frac{\sigma_U^2}{Td}\, \langle x_t, x'_t\rangle \langle C_t, C'_t\rangle_F .$$
The readout is integrated out: its entries are independent with variance $\sigma_U^2/(Td)$. What is left, the
expectation over W with entries of variance $\sigma_W^2/d^2$, is a mean over draws.
"""

from __future__ import annotations

import numpy as np

ROWS = 1600  # sequences whose attention is held at a time


def draw_key_query(draws: int, dim: int, *, scale: float, rng: np.random.Generator) -> np.ndarray:
    """Key-query weights of heads whose root mean square norm is `scale`."""
    return rng.standard_normal((draws, dim, dim)) * scale / dim


def limit_kernel(
    tokens: np.ndarray,
    key_query: np.ndarray,
    readout_scale: float = 1.0,
    *,
    other: np.ndarray | None = None,
) -> np.ndarray:
    """The kernel between all sequences, `tokens` (n, T, d), and `other` ones, as a mean over the draws of W."""
    other = tokens if other is None else other
    n, T, d = tokens.shape
    K = np.zeros((n, len(other)))
    for start in range(0, n, ROWS):
        rows = tokens[start : start + ROWS]
        inner = [rows[:, t] @ other[:, t].T for t in range(T)]
        squares = _squares(rows), _squares(other)
        for W in key_query:
            means, spread = _moments(rows, squares[0], W)
            others = _moments(other, squares[1], W)
            block = means.reshape(len(rows), -1) @ others[0].reshape(len(other), -1).T
            for t in range(T):
                block += readout_scale**2 / (T * d) * inner[t] * (spread[:, t] @ others[1][:, t].T)
            K[start : start + ROWS] += block
    return K / len(key_query)


def _squares(tokens: np.ndarray) -> np.ndarray:
    """The upper triangles of x x' for all tokens; off the diagonal an entry counts for two."""
    i, j = np.triu_indices(tokens.shape[-1])
    return tokens[..., i] * tokens[..., j] * np.where(i == j, 1.0, np.sqrt(2.0))


def _moments(
    tokens: np.ndarray, squares: np.ndarray, W: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Means and covariances of the tokens under the attention of every query; of these the upper triangles."""
    A = (tokens @ W) @ tokens.transpose(0, 2, 1)
    A = np.exp(A - A.max(axis=-1, keepdims=True))
    A /= A.sum(axis=-1, keepdims=True)
    means = A @ tokens
    return means, A @ squares - _squares(means)
