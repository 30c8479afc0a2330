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

    `accuracy` is the rounding that an entry may have, relative to the norms of its two gradients: it grows with the
    logits, and where a gradient is small because large terms cancel. `readout_accuracy` and `key_query_accuracy` are
    those of the parts, relative to the norms of the parts. `form` is the closed form that was used.
    """

    readout: np.ndarray  # (n, m): inner products of the gradients by U
    key_query: np.ndarray  # (n, m): inner products of the gradients by W
    num_heads: float
    num_classes: int
    form: str
    accuracy: float
    readout_accuracy: float
    key_query_accuracy: float

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

    `memory` bounds the bytes used beside the two parts of the result; blocks are chosen to fit, and the result does not
    depend on them beyond rounding. `form` is "jacobian", "tokens", "maps" or None, the cheapest. A model for any number
    of tokens may compare data of two lengths.
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
        U, W, errors = work.run()
        if other is None:
            sides = [(np.array([U.diagonal(), W.diagonal()]), errors)]
        else:
            sides = [work.norms(side) for side in work.sides]
    eps = float(np.finfo(kind).eps)
    return TangentKernel(
        U, W, model.num_heads, model.num_classes, work.form,
        *(eps * max(_relative(pick(squares), pick(errors)) for squares, errors in sides)
          for pick in (lambda parts: parts.sum(axis=0), lambda parts: parts[0], lambda parts: parts[1])),
    )  # fmt: skip


def _relative(squares, errors) -> float:
    """Rounding of an inner product of two gradients over their norms, in units; a gradient that is zero has none."""
    ratio = np.divide(errors, squares, out=np.zeros(len(errors)), where=squares > 0)
    return max(16.0, 4 * float(np.sqrt(ratio.max())))


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
        n, d = dataset.num_examples, dataset.dim
        self.sides = [dataset] if other is None else [dataset, other]
        m, T = self.sides[-1].num_examples, max(side.num_tokens for side in self.sides)
        pairs = n * (n + 1) / 2 if other is None else float(n) * m
        flops = count_flops(model, T, pairs, n + (0 if other is None else m))
        self.on_cpu = jax.default_backend() == "cpu"
        if not self.on_cpu:  # many small products one after another
            flops.pop("maps", None)
        self.form = form or min(flops, key=lambda name: flops[name])
        self.model, self.dtype, self.symmetric = model, dtype, other is None
        self.shape = (n, m)
        self.size, self.group = self._blocks(T, d, memory)

    def _blocks(self, T, d, memory) -> tuple[int, int]:
        """Rows per block and classes per group, so that data, heads, features and intermediates fit."""
        q = 1 if self.model.decoder == "last" else T
        item, r = self.dtype.itemsize, self._rank
        features = {"tokens": 3 * q * d, "maps": 2 * q * d + 3 * q * T, "jacobian": 3 * q * d + 2 * d * r}[self.form]
        columns = (2 * T * q + features) * item  # of one row and class
        per_pair = ({"tokens": 3 * q * q, "maps": T * T + q * q, "jacobian": 0}[self.form] + 2) * item
        head = 3 * d * (r + T) * item

        def needed(size, group):
            blocks = 1 if self.symmetric and size >= self.shape[0] else 2
            return size * blocks * (group * columns + 3 * T * d * item) + size * size * per_pair + group * head

        size = max(self.shape)
        while size > 1 and needed(size, 1) > memory:
            size = -(-size // 2)
        if needed(size, 1) > memory:
            raise ValueError(
                f"memory={memory:g} bytes is too little for one sequence at a time; pass at least {needed(1, 1):.2g}, "
                f"or another form than {self.form!r}."
            )
        one = needed(size, 2) - needed(size, 1)
        group = int(np.clip(1 + (memory - needed(size, 1)) // one, 1, self.model.num_classes))
        groups = -(-self.model.num_classes // group)
        return size, -(-self.model.num_classes // groups)

    @property
    def _rank(self) -> int:
        W = self.model.key_query
        return 2 * W.query.shape[-1] if isinstance(W, tuple) else W.shape[-1]

    def run(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Both parts, and the squared errors of the gradients on the left."""
        U, W = np.zeros(self.shape, self.dtype), np.zeros(self.shape, self.dtype)
        left_side, right_side = self.sides[0], self.sides[-1]
        errors = np.zeros((2, self.shape[0]))
        for heads, root in self._groups():
            feature = partial(_features, heads, root, form=self.form)
            for rows in self._ranges(left_side):
                left, error = feature(*self._piece(left_side, rows))
                errors[:, rows] += np.asarray(error)[:, : rows.stop - rows.start]
                for columns in self._ranges(right_side):
                    if self.symmetric and columns.start < rows.start:
                        continue
                    same = self.symmetric and columns == rows
                    right = left if same else feature(*self._piece(right_side, columns))[0]
                    u, w = self._products(left, right)
                    U[rows, columns] += u[: rows.stop - rows.start, : columns.stop - columns.start]
                    W[rows, columns] += w[: rows.stop - rows.start, : columns.stop - columns.start]
        if self.symmetric:
            _mirror(U), _mirror(W)
        return U, W, errors

    def norms(self, side: Dataset) -> tuple[np.ndarray, np.ndarray]:
        """Squared norms of the two parts of the gradient of every sequence, and of their errors."""
        squares, errors = np.zeros((2, side.num_examples)), np.zeros((2, side.num_examples))
        form = "jacobian" if self.form == "jacobian" else "tokens"
        for heads, root in self._groups():
            for rows in self._ranges(side):
                features, error = _features(heads, root, *self._piece(side, rows), form=form)
                AX, *rest = map(np.asarray, features)
                c, count = len(AX), rows.stop - rows.start
                squares[0, rows] += np.einsum("cj,cj->c", AX, AX)[:count]
                if form == "tokens":
                    Z, Xq = (part.reshape(c, len(part) // c, -1) for part in rest)
                    squares[1, rows] += np.einsum("cij,cij->c", Z @ Z.mT, Xq @ Xq.mT)[:count]
                else:
                    squares[1, rows] += np.einsum("cj,cj->c", *rest, *rest)[:count]
                errors[:, rows] += np.asarray(error)[:, :count]
        return squares, errors

    def _groups(self):
        """Groups of classes, the last one filled up with heads of weight zero."""
        N, H = self.model.multiplicity, self.model.num_heads
        root = np.sqrt(N) * H**-self.model.exponent
        for start in range(0, len(root), self.group):
            part = slice(start, start + self.group)

            def picked(a, part=part):
                chosen = np.asarray(a)[part].astype(self.dtype)
                missing = self.group - len(chosen)
                return np.concatenate([chosen, np.zeros((missing, *chosen.shape[1:]), self.dtype)])

            yield jax.tree.map(picked, self.model.heads), picked(root)

    def _ranges(self, side: Dataset) -> list[slice]:
        n, size = side.num_examples, min(self.size, side.num_examples)
        return [slice(start, min(start + size, n)) for start in range(0, n, size)]

    def _piece(self, side: Dataset, rows: slice):
        """These sequences as the features take them; the last block is filled up by repeating its last one."""
        size = min(self.size, side.num_examples)
        chosen = side.subset(np.minimum(np.arange(rows.start, rows.start + size), rows.stop - 1))
        batch = prepare(chosen, self.model, self.dtype, size)
        return tuple(None if a is None else a[0] for a in (batch.tokens, batch.mask, batch.last))

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
        (n, q, g, T), (m, p, _, S), half = D.shape, E.shape, left[0] is right[0]
        C = self._gram(X, X if half else Y).reshape(n, T, m, S)
        Cq = C if q == T else self._gram(Xq, Xq if half else Yq).reshape(n, q, m, p)
        K = np.zeros((n, m), self.dtype)
        for i in range(n):
            j = i if half else 0
            CE = Cq[i, :, j:].transpose(1, 0, 2) @ E[j:].reshape(m - j, p, g * S)
            CEC = CE.reshape(m - j, q * g, S) @ C[i, :, j:].transpose(1, 2, 0)
            K[i, j:] = CEC.reshape(m - j, -1) @ D[i].reshape(-1)
        return K

    def _gram(self, F, G):
        """F G'; on a CPU by NumPy, whose product of a matrix with its own transpose costs half."""
        if not self.on_cpu:
            return np.asarray(jnp.matmul(F, G.T, precision=jax.lax.Precision.HIGHEST))
        F, G = np.asarray(F), np.asarray(G) if G is not F else None
        return F @ (F if G is None else G).T


def _mirror(M: np.ndarray, width: int = 256) -> None:
    """Copy the upper triangle of a matrix onto its lower one, in place."""
    for start in range(0, len(M), width):
        stop = min(start + width, len(M))
        M[stop:, start:stop] = M[start:stop, stop:].T
        block = np.triu(M[start:stop, start:stop])
        M[start:stop, start:stop] = block + np.triu(block, 1).T


def _block_sums(tokens, Z, shape):
    (n, m), (rows, columns) = shape, tokens.shape
    blocks = (n, rows // n, m, columns // m)
    return np.einsum("aibj,aibj->ab", tokens.reshape(blocks), Z.reshape(blocks))


@partial(jax.jit, static_argnames="form")
def _features(heads, root, X, mask, last, *, form):
    """Rows whose inner products are the two parts of the kernel, already weighted by $\\sqrt{N_g} H^{-c}$, and the
    squared errors (2, c) that rounding may leave in the two gradients, in units of one rounding.
    """
    W, U = full_key_query(heads.key_query), jnp.asarray(heads.readout)
    (c, _, d), g = X.shape, W.shape[0]
    _, A, B, phi, Xq = scores_and_parts(W, U, root, X, mask, last, jax.lax.Precision.HIGHEST)
    q = Xq.shape[1]
    product = partial(
        jax.lax.dot_general, dimension_numbers=(((1,), (1,)), ((0,), (0,))), precision=jax.lax.Precision.HIGHEST
    )
    errors = _errors(heads, root, X, Xq, W, A, B, phi)
    weight = jnp.tile(root, q)[None, None, :]
    AX = product(weight * A, X).reshape(c, q, g, d)
    AX = AX if U.ndim == 3 else AX.sum(axis=1)
    D = weight * A * (B - phi[:, None, :])
    if form == "maps":
        D = D.reshape(c, -1, q, g).transpose(0, 2, 3, 1)
        return (AX.reshape(c, -1), D, Xq.reshape(c * q, d), X.reshape(-1, d)), errors
    Z = product(D, X).reshape(c, q, g, d)
    if form == "tokens":
        return (AX.reshape(c, -1), Z.reshape(c * q, g * d), Xq.reshape(c * q, d)), errors
    if isinstance(heads.key_query, tuple):
        query, key = heads.key_query
        by_query = jnp.einsum("cqd,cqge,ger->cgdr", Xq, Z, key, precision=jax.lax.Precision.HIGHEST)
        by_key = jnp.einsum("cqge,cqd,gdr->cger", Z, Xq, query, precision=jax.lax.Precision.HIGHEST)
        J = jnp.concatenate([by_query.reshape(c, -1), by_key.reshape(c, -1)], axis=1)
    else:
        J = product(Xq, Z.reshape(c, q, g * d)).reshape(c, -1)
    return (AX.reshape(c, -1), J), errors


def _errors(heads, root, X, Xq, W, A, B, phi):
    """What rounding does to the gradients, followed through the formulas.

    A logit is known to $\\|x_t W\\| \\|x_s\\|$ roundings however small it is, an attention weight to $A(1-A)$ times
    that, and the centered readout to what B and the changes of A leave in it.
    """
    (c, _, d), q, g = X.shape, Xq.shape[1], W.shape[0]
    size = jnp.sqrt(jnp.sum(X**2, axis=2))  # c, s
    queries = jnp.sqrt(jnp.sum(Xq**2, axis=2))  # c, q
    Q = jax.lax.dot_general(
        Xq, W.transpose(1, 0, 2).reshape(d, g * d), (((2,), (0,)), ((), ())), precision=jax.lax.Precision.HIGHEST
    )  # as in the scores: the compiler does it once
    reach = jnp.sqrt(jnp.sum(Q.reshape(c, q, g, d) ** 2, axis=3))
    reach = reach + queries[:, :, None] * jnp.sqrt(jnp.sum(W**2, axis=(1, 2)) / d)[None, None, :]
    logit = (reach * jnp.max(size, axis=1)[:, None, None]).reshape(c, 1, q * g)
    by_A = A * (1 + (1 - A) * logit)
    centered = jnp.abs(B - phi[:, None, :])
    moved = by_A * centered
    by_D = moved + A * (jnp.abs(B) + jnp.sum(A * jnp.abs(B) + moved, axis=1, keepdims=True))
    of_U = jnp.sum(by_A * size[:, :, None], axis=1).reshape(c, q, g)
    of_Z = jnp.sum(by_D * size[:, :, None], axis=1).reshape(c, q, g) * queries[:, :, None]
    chain = jnp.ones(g, X.dtype)
    if isinstance(heads.key_query, tuple):
        query, key = heads.key_query
        chain = jnp.sum(query**2, axis=(1, 2)) + jnp.sum(key**2, axis=(1, 2))
    if heads.readout.ndim == 2:
        of_U = jnp.sum(of_U, axis=1, keepdims=True)
    square = (root**2)[None, None, :]
    chain = chain[None, None, :]
    return jnp.stack([jnp.sum(of_U**2 * square, axis=(1, 2)), jnp.sum(of_Z**2 * square * chain, axis=(1, 2))])
