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


def limit_kernel(
    tokens: np.ndarray,
    *,
    key_query_scale: float = 1.0,
    readout_scale: float = 1.0,
    draws: int,
    rng: np.random.Generator,
    together: int = 16,
) -> np.ndarray:
    """The kernel between all sequences, `tokens` (n, T, d), as a mean over draws of W, some of them `together`."""
    n, T, d = tokens.shape
    upper = np.triu_indices(d)
    twice = np.where(upper[0] == upper[1], 1.0, np.sqrt(2.0))  # off the diagonal an entry counts for two
    K, done = np.zeros((n, n)), 0
    inner = [tokens[:, t] @ tokens[:, t].T for t in range(T)]
    while done < draws:
        many = min(together, draws - done)
        W = rng.standard_normal((many, d, d)) * key_query_scale / d
        A = np.einsum("nte,wef,nsf->wnts", tokens, W, tokens, optimize=True)
        A = np.exp(A - A.max(axis=-1, keepdims=True))
        A /= A.sum(axis=-1, keepdims=True)
        means = A @ tokens  # (draws, n, T, d)
        flat = means.transpose(1, 0, 2, 3).reshape(n, -1)
        K += flat @ flat.T
        products = (tokens[:, :, :, None] * tokens[:, :, None, :])[..., upper[0], upper[1]]
        spread = A @ products - means[..., upper[0]] * means[..., upper[1]]  # the covariances, upper triangles
        spread *= twice
        for t in range(T):
            rows = spread[:, :, t].transpose(1, 0, 2).reshape(n, -1)
            K += readout_scale**2 / (T * d) * inner[t] * (rows @ rows.T)
        done += many
    return K / draws
