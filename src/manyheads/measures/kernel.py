r"""The empirical tangent kernel $K_{ij} = \langle \nabla\tilde\Phi(X_i), \nabla\tilde\Phi(X_j) \rangle$.

With $A$ the attention, $D$ as in `model.gradient`, $Z = D X$ and queries $x_t$, one head has $\nabla_U\Phi = AX$ and
$\nabla_W\Phi = \sum_t x_t z_t^\top$, so a class of $N$ heads adds $N H^{-2c}$ times
$$\sum_t \langle (AX)_t, (A'X')_t \rangle + \sum_{t,t'} \langle x_t, x'_{t'} \rangle \langle z_t, z'_{t'} \rangle.$$
The second sum is evaluated through the d×d gradients ("jacobian"); or, without ever building one, as the product of two
token-by-token Gram matrices, the first of which all heads share ("tokens"); or, with $C = X X'^\top$ and no z either,
as $\langle D, C_q D' C^\top \rangle$, a chain of products of T×T matrices ("maps", with $C_q$ the rows and columns of
the queries). The cheapest by counted flops is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from manyheads.data.dataset import Dataset
from manyheads.model.attention import MultiHead, full_key_query
from manyheads.model.gradient import prepare, scores_and_parts

FORMS = ("jacobian", "tokens", "maps")
MEMORY = 128e6  # bytes beside the result


@dataclass(frozen=True, eq=False)
class TangentKernel:
    """The kernel of two data sets (or of one with itself), split into its readout and key-query parts.

    `accuracy` is the rounding that an entry may have, relative to the norms of its two gradients; `form` is the closed
    form that was used.
    """

    readout: np.ndarray  # (n, m): inner products of the gradients by U
    key_query: np.ndarray  # (n, m): inner products of the gradients by W
    num_heads: float
    num_classes: int
    form: str
    accuracy: float

    @property
    def matrix(self) -> np.ndarray:
        """The kernel, the sum of its two parts."""
        return self.readout + self.key_query

    def __str__(self) -> str:
        n, m = self.readout.shape
        K, size = self.matrix, np.linalg.norm
        share = size(self.readout) ** 2 / max(size(self.readout) ** 2 + size(self.key_query) ** 2, 1e-300)
        text = (
            f"tangent kernel {n}x{m} of {self.num_heads:.15g} heads in {self.num_classes} classes: Frobenius norm "
            f"{size(K):.6g}, readout share of the square {share:.3f}, entries to {self.accuracy:.1e} of the norms"
        )
        return text + (f", trace {np.trace(K):.6g}" if n == m else "")


def tangent_kernel(
    model: MultiHead,
    dataset: Dataset,
    other: Dataset | None = None,
    *,
    form: str | None = None,
    memory: float = MEMORY,
    dtype: str = "float64",
) -> TangentKernel:
    """The tangent kernel of `model` between all sequences of `dataset`, or between those and `other`'s.

    `memory` bounds the bytes used beside the result; blocks are chosen to fit, and the result does not depend on them
    beyond rounding. `form` is "jacobian", "tokens", "maps" or None, the cheapest.
    """
    if form not in (None, *FORMS):
        raise ValueError(f"form={form!r} is not known; choose 'jacobian', 'tokens', 'maps', or None for the cheapest.")
    if form in ("tokens", "maps") and isinstance(model.key_query, tuple):
        raise ValueError(f"form={form!r} is for full key-query weights; factored ones use form='jacobian', or None.")
    if not memory >= 1e5:
        raise ValueError(f"memory={memory:g} bytes is too little to work in; pass at least 1e5, or leave the default.")
    kind = np.dtype(dtype)
    with jax.enable_x64(kind == np.float64):
        work = _Work(model, dataset, other, form, memory, kind)
        U, W = work.run()
    return TangentKernel(U, W, model.num_heads, model.num_classes, work.form, float(16 * np.finfo(kind).eps))


def count_flops(model: MultiHead, num_tokens: int, num_pairs: float, num_rows: float) -> dict[str, float]:
    """Multiplications and additions of the key-query part in each form, for that many pairs and sequences.

    Those of T×T matrices count 1 + 16/T times, which is how much slower a processor was found to do them.
    """
    T, d, g = num_tokens, model.dim, model.num_classes
    q = 1 if model.decoder == "last" else num_tokens
    if isinstance(model.key_query, tuple):
        r = model.key_query.query.shape[-1]
        return {"jacobian": num_pairs * 4 * d * r * g + num_rows * 4 * q * d * r * g}
    build = num_rows * 2 * q * d * d * g
    grams = 2 * T * T * d + (2 * d if q < T else 0)
    return {
        "jacobian": num_pairs * 2 * d * d * g + build,
        "tokens": num_pairs * (2 * q * q * d * (g + 1) + 20 * q * q),
        "maps": num_pairs * (grams + 2 * q * T * (q + T) * g * (1 + 16 / T)),
    }


class _Work:
    """One kernel: what is computed in which blocks."""

    def __init__(self, model, dataset, other, form, memory, dtype):
        n, T, d = dataset.tokens.shape
        m = n if other is None else other.num_examples
        pairs = n * (n + 1) / 2 if other is None else float(n) * m
        flops = count_flops(model, T, pairs, n + (0 if other is None else m))
        self.on_cpu = jax.default_backend() == "cpu"
        if not self.on_cpu:  # many small products one after another
            flops.pop("maps", None)
        self.form = form or min(flops, key=lambda name: flops[name])
        self.model, self.dtype, self.symmetric = model, dtype, other is None
        self.sides = [dataset] if other is None else [dataset, other]
        self.shape = (n, m)
        self.size, self.group = self._blocks(T, d, memory)

    def _blocks(self, T, d, memory) -> tuple[int, int]:
        """Rows per block and classes per group, so that the features and their intermediates fit."""
        q = 1 if self.model.decoder == "last" else T
        columns = 2 * T * q + 3 * q * d + {"tokens": q * d, "maps": 3 * q * T, "jacobian": 2 * d * d}[self.form]
        per_pair = {"tokens": 3 * q * q, "maps": T * T + q * q, "jacobian": 2}[self.form] * self.dtype.itemsize

        def per_class(size):
            blocks = 1 if self.symmetric and size >= self.shape[0] else 2
            return size * columns * blocks * self.dtype.itemsize

        size = max(self.shape)
        while size > 8 and per_class(size) + size * size * per_pair > memory:
            size = -(-size // 2)
        group = int(np.clip((memory - size * size * per_pair) / per_class(size), 1, self.model.num_classes))
        groups = -(-self.model.num_classes // group)
        return size, -(-self.model.num_classes // groups)

    def run(self) -> tuple[np.ndarray, np.ndarray]:
        U, W = np.zeros(self.shape, self.dtype), np.zeros(self.shape, self.dtype)
        batches = [prepare(side, self.model, self.dtype, min(self.size, side.num_examples)) for side in self.sides]
        lengths = [side.num_examples for side in self.sides]
        for heads, root in self._groups():
            feature = partial(_features, heads, root, form=self.form)
            for i, rows in self._ranges(batches[0], lengths[0]):
                left = feature(*_piece(batches[0], i))
                for j, columns in self._ranges(batches[-1], lengths[-1]):
                    if self.symmetric and j < i:
                        continue
                    right = left if self.symmetric and i == j else feature(*_piece(batches[-1], j))
                    u, w = self._products(left, right)
                    U[rows, columns] += u[: rows.stop - rows.start, : columns.stop - columns.start]
                    W[rows, columns] += w[: rows.stop - rows.start, : columns.stop - columns.start]
        return (_mirrored(U), _mirrored(W)) if self.symmetric else (U, W)

    def _groups(self):
        """Groups of classes, the last one filled up with heads of weight zero."""
        N, H = self.model.multiplicity, self.model.num_heads
        root = np.sqrt(N) * H**-self.model.exponent
        missing = -len(N) % self.group
        fill = lambda a: np.concatenate([np.asarray(a), np.zeros((missing, *np.shape(a)[1:]))]).astype(self.dtype)  # noqa: E731
        heads, root = jax.tree.map(fill, self.model.heads), fill(root)
        for start in range(0, len(root), self.group):
            part = slice(start, start + self.group)
            yield jax.tree.map(lambda a, part=part: a[part], heads), root[part]

    @staticmethod
    def _ranges(batch, length):
        chunks, size = batch.labels.shape
        return [(i, slice(i * size, min((i + 1) * size, length))) for i in range(chunks)]

    def _products(self, left, right):
        u = self._gram(left[0], right[0])
        if self.form == "jacobian":
            return u, self._gram(left[1], right[1])
        if self.form == "maps":
            return u, self._map_products(left[1:], right[1:])
        tokens, Z = self._gram(left[2], right[2]), self._gram(left[1], right[1])
        return u, np.asarray(_block_sums(tokens, Z, u.shape))

    def _map_products(self, left, right):
        """Row by row, so that the products of a row stay in the cache; of a symmetric block the upper half only."""
        (D, Xq, X), (E, Yq, Y) = (tuple(map(np.asarray, side)) for side in (left, right))
        (n, q, g, T), m, half = D.shape, E.shape[0], left[0] is right[0]
        C = self._gram(X, X if half else Y).reshape(n, T, m, T)
        Cq = C if q == T else self._gram(Xq, Xq if half else Yq).reshape(n, q, m, q)
        K = np.zeros((n, m), self.dtype)
        for i in range(n):
            j = i if half else 0
            CE = Cq[i, :, j:].transpose(1, 0, 2) @ E[j:].reshape(m - j, q, g * T)
            CEC = CE.reshape(m - j, q * g, T) @ C[i, :, j:].transpose(1, 2, 0)
            K[i, j:] = CEC.reshape(m - j, -1) @ D[i].reshape(-1)
        return K

    def _gram(self, F, G):
        """F G'; on a CPU by NumPy, whose product of a matrix with its own transpose costs half."""
        if not self.on_cpu:
            return np.asarray(jnp.matmul(F, G.T, precision=jax.lax.Precision.HIGHEST))
        F, G = np.asarray(F), np.asarray(G) if G is not F else None
        return F @ (F if G is None else G).T


def _piece(batch, i):
    return batch.tokens[i], None if batch.mask is None else batch.mask[i], None if batch.last is None else batch.last[i]


def _mirrored(M: np.ndarray) -> np.ndarray:
    upper = np.triu(M)
    return upper + np.triu(M, 1).T


def _block_sums(tokens, Z, shape):
    (n, m), q = shape, tokens.shape[0] // shape[0]
    return np.einsum("aibj,aibj->ab", tokens.reshape(n, q, m, q), Z.reshape(n, q, m, q))


@partial(jax.jit, static_argnames="form")
def _features(heads, root, X, mask, last, *, form):
    """Rows whose inner products are the two parts of the kernel, already weighted by $\\sqrt{N_g} H^{-c}$."""
    W, U = full_key_query(heads.key_query), jnp.asarray(heads.readout)
    (c, _, d), g = X.shape, W.shape[0]
    _, A, B, phi, Xq = scores_and_parts(W, U, root, X, mask, last, jax.lax.Precision.HIGHEST)
    q = Xq.shape[1]
    product = partial(
        jax.lax.dot_general, dimension_numbers=(((1,), (1,)), ((0,), (0,))), precision=jax.lax.Precision.HIGHEST
    )
    weight = jnp.tile(root, q)[None, None, :]
    AX = product(weight * A, X).reshape(c, q, g, d)
    AX = AX if U.ndim == 3 else AX.sum(axis=1)
    D = weight * A * (B - phi[:, None, :])
    if form == "maps":
        D = D.reshape(c, -1, q, g).transpose(0, 2, 3, 1)
        return AX.reshape(c, -1), D, Xq.reshape(c * q, d), X.reshape(-1, d)
    Z = product(D, X).reshape(c, q, g, d)
    if form == "tokens":
        return AX.reshape(c, -1), Z.reshape(c * q, g * d), Xq.reshape(c * q, d)
    if isinstance(heads.key_query, tuple):
        query, key = heads.key_query
        by_query = jnp.einsum("cqd,cqge,ger->cgdr", Xq, Z, key, precision=jax.lax.Precision.HIGHEST)
        by_key = jnp.einsum("cqge,cqd,gdr->cger", Z, Xq, query, precision=jax.lax.Precision.HIGHEST)
        J = jnp.concatenate([by_query.reshape(c, -1), by_key.reshape(c, -1)], axis=1)
    else:
        J = product(Xq, Z.reshape(c, q, g * d)).reshape(c, -1)
    return AX.reshape(c, -1), J
