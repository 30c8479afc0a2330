r"""The empirical tangent kernel $K_{ij} = \langle \nabla\tilde\Phi(X_i), \nabla\tilde\Phi(X_j) \rangle$.

With $A$ the attention, $D$ as in `model.gradient`, $Z = D X$ and queries $x_t$, one head has
$\nabla_U\Phi = AX$ and $\nabla_W\Phi = \sum_t x_t z_t^\top$, so a class of $N$ heads adds $N
H^{-2c}$ times $$\sum_t \langle (AX)_t, (A'X')_t \rangle + \sum_{t,t'} \langle x_t, x'_{t'} \rangle
\langle z_t, z'_{t'} \rangle.$$ The second sum is evaluated through the d×d gradients ("jacobian");
or, without ever building one, as the product of two token-by-token Gram matrices, the first of
which all heads share ("tokens"); or, with $C = X X'^\top$ and no z either, as $\langle D, C_q D'
C^\top \rangle$, a chain of products of T×T matrices ("maps", with $C_q$ that of the queries). The
cheapest by counted flops is used; but the last two round products of absolute terms, so where the
terms of a gradient cancel they lose twice the digits, and the first is used instead.

Neither the attention nor D changes when one vector is subtracted from all keys of a sequence, and
the rows of D add up to zero. So the keys are centered, and an offset that all tokens share costs no
digits there.

That is for the paper's model; the gradients of any other one come from autodiff, and the rounding
in them from a second evaluation in float32.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from manyheads import _check
from manyheads._check import check, none, one_of, real
from manyheads.data.budget import FEWER, fits_memory
from manyheads.data.dataset import Dataset, is_dataset
from manyheads.measures.kernel_blocks import Blocks
from manyheads.measures.rounding import gradient_errors
from manyheads.model.attention import EACH_KEY, HIGHEST, Heads, MultiHead, full_key_query
from manyheads.model.autodiff import is_model, score_gradients
from manyheads.model.gradient import Folded, prepare, scores_and_parts, swapped
from manyheads.model.variants import attention_of
from manyheads.training.devices import choose_devices

FORMS = ("jacobian", "tokens", "maps")
# bytes beside the result
MEMORY = 128e6


@dataclass(frozen=True, eq=False)
class TangentKernel:
    """The kernel of two data sets (or of one with itself), as the sum of its `parts`.

    The parts are "readout" and "key_query" for attention, one alone where the other block is
    frozen, and "parameters" for any other model. `accuracy` is the rounding that an entry may have,
    relative to the norms of its two gradients: it grows with the logits, and where a gradient is
    small because large terms cancel; it is infinite where nothing is left of a gradient.
    `accuracies` are those of the parts, relative to the norms of the parts. `form` is the closed
    form that was used, or "autodiff".
    """

    # (n, m): inner products of the gradients by these parameters
    parts: dict[str, np.ndarray]
    accuracies: dict[str, float]
    accuracy: float
    form: str
    model: str
    # of the gradients of each of the two data sets
    norms: tuple[np.ndarray, ...] = ()

    @cached_property
    def matrix(self) -> np.ndarray:
        """The kernel."""
        first, *others = self.parts.values()
        return first + others[0] if others else first

    readout = property(lambda self: self.parts["readout"], doc="The part of the gradients by U.")
    key_query = property(
        lambda self: self.parts["key_query"], doc="The part of the gradients by W."
    )
    readout_accuracy = property(lambda self: self.accuracies["readout"])
    key_query_accuracy = property(lambda self: self.accuracies["key_query"])

    def __str__(self) -> str:
        (n, m), K = self.matrix.shape, self.matrix
        squares = {name: np.linalg.norm(part) ** 2 for name, part in self.parts.items()}
        share = squares.get("readout", 0.0) / max(sum(squares.values()), 1e-300)
        text = f"tangent kernel {n}x{m} of {self.model}: Frobenius norm {np.linalg.norm(K):.6g}, "
        text += f"readout share of the square {share:.3f}, " if len(squares) > 1 else ""
        text += f"entries to {self.accuracy:.1e} of the norms"
        return text + (f", trace {np.trace(K):.6g}" if n == m else "")


@check(
    model=is_model,
    dataset=is_dataset,
    other=is_dataset | none,
    form=one_of(*FORMS) | none,
    memory=real(low=1e5),
    dtype=_check.dtype,
)
def tangent_kernel(
    model: Any,
    dataset: Dataset,
    other: Dataset | None = None,
    *,
    form: str | None = None,
    memory: float = MEMORY,
    dtype: str = "float64",
    devices: str | int | None = None,
) -> TangentKernel:
    """The tangent kernel of `model` between all sequences of `dataset`, or between those and `other`'s.

    `memory` bounds the bytes used beside the parts of the result; blocks are chosen to fit, and the
    result does not depend on them beyond rounding. `form` is "jacobian", "tokens", "maps" or None,
    the cheapest. A model for any number of tokens may compare data of two lengths. `devices` ("all"
    or a number) spreads blocks of rows over that many devices.
    """
    where = choose_devices(devices)
    full = attention_of(model)
    if full is None and form is not None:
        raise ValueError(
            f"form={form!r} is a closed form of MultiHead; leave form out for {model}."
        )
    if form in ("tokens", "maps") and full is not None and isinstance(full.key_query, tuple):
        raise ValueError(
            f"form={form!r} is for full key-query weights; factored ones use form='jacobian', or "
            "None."
        )
    kind, sides = np.dtype(dtype), [dataset] if other is None else [dataset, other]
    n, m = dataset.num_examples, sides[-1].num_examples
    fits_memory(f"a tangent kernel of {n:,} x {m:,} entries", 4 * kind.itemsize * n * m, FEWER)
    with jax.enable_x64(kind == np.float64):
        how = (sides, memory / len(where), kind, where)
        blocks = _Autodiff(model, *how) if full is None else _Closed(full, *how, form)
        parts, noted = blocks.run()
        if form is None and blocks.form in ("tokens", "maps") and _cancels(noted.sum(axis=1)):
            # no room for one gradient
            with contextlib.suppress(ValueError):
                blocks = _Closed(full, *how, "jacobian")
                parts, noted = blocks.run()
    if full is None:
        names, about = ("parameters",), str(model)
    else:
        trained = [name for name in Heads._fields if getattr(model.parameters, name) is not None]
        names, about = (
            tuple(reversed(trained)),
            f"{full.num_heads:.15g} heads in {full.num_classes} classes",
        )
    chosen = {name: blocks.names.index(name) for name in names}
    eps, everything = float(np.finfo(kind).eps), list(chosen.values())
    norms = np.sqrt(np.maximum(noted[0, everything].sum(axis=0), 0.0))
    return TangentKernel(
        {name: parts[k] for name, k in chosen.items()},
        {name: eps * _relative(noted[:, k]) for name, k in chosen.items()},
        eps * _relative(noted[:, everything].sum(axis=1)),
        blocks.form,
        about,
        (norms[:n], norms if other is None else norms[n:]),
    )


def _ratios(noted) -> tuple[float, float]:
    """The errors of the gradients over their norms, and those of products of terms; a gradient of zero has none."""
    squares, errors, terms = noted
    left = squares > 0
    with np.errstate(over="ignore"):
        of_gradients = np.sqrt(np.divide(errors, squares, out=np.zeros_like(errors), where=left))
        of_terms = np.divide(terms, squares, out=np.where(terms > 0, np.inf, 0.0), where=left)
    return float(of_gradients.max()), float(of_terms.max())


def _relative(noted) -> float:
    """Rounding of an inner product of two gradients over their norms, in units."""
    return max(16.0, 4 * sum(_ratios(noted)))


def _cancels(noted) -> bool:
    """Whether the terms of the gradients are so much larger than these that a sum of their products says little."""
    of_gradients, of_terms = _ratios(noted)
    return of_terms > max(1e3, of_gradients)


def count_flops(
    model: MultiHead, num_tokens: int, num_pairs: float, num_rows: float
) -> dict[str, float]:
    """Multiplications and additions of the key-query part in each form, for that many pairs and sequences.

    Those of T×T matrices count 1 + 16/T times, which is how much slower a processor was found to do
    them.
    """
    T, d, g = num_tokens, model.dim, model.num_classes
    q = 1 if model.decoder == "last" else num_tokens
    if isinstance(model.key_query, tuple):
        r = model.key_query.query.shape[-1]
        return {"jacobian": num_pairs * 4 * d * r * g + num_rows * 4 * q * d * r * g}
    build = num_rows * 2 * q * d * d * g
    grams = 2 * T * T * d + 2 * d + (4 * T * d if q == T else 0)
    return {
        "jacobian": num_pairs * 2 * d * d * g + build,
        "tokens": num_pairs * (2 * q * q * d * (g + 1) + 20 * q * q),
        "maps": num_pairs * (grams + 2 * q * T * (q + T) * g * (1 + 16 / T)),
    }


class _Autodiff(Blocks):
    """Any model: the features are the gradients, their errors what a second evaluation in float32 differs by."""

    names, form = ("parameters",), "autodiff"

    def __init__(self, model, sides, memory, dtype, devices):
        super().__init__(sides, dtype, devices)
        self.model = model
        entries = sum(np.size(leaf) for leaf in jax.tree.leaves(model.parameters))
        self.size = int(np.clip(memory / (4 * 8 * entries), 1, self.largest))

    def groups(self):
        yield None

    def features(self, group, side, chosen):
        wide, narrow = (
            self._gradients(side.subset(chosen), kind) for kind in (np.float64, np.float32)
        )
        square = np.sum(wide**2, axis=1)
        lost = np.sum((wide - narrow) ** 2, axis=1) / float(np.finfo(np.float32).eps) ** 2
        lost = np.where(
            np.isfinite(lost), lost, square / float(np.finfo(self.dtype).eps) ** 2
        )  # nothing is known
        return wide if self.dtype == np.float64 else narrow, np.stack(
            [square, lost, np.zeros_like(lost)]
        )[:, None, :]

    def _gradients(self, data: Dataset, kind) -> np.ndarray:
        with jax.enable_x64(kind == np.float64):
            parameters = jax.tree.map(lambda leaf: np.asarray(leaf, kind), self.model.parameters)
            rows = _gradients(
                self.model.objective(data, kind), parameters, np.arange(data.num_examples)
            )
            return np.asarray(rows)

    def products(self, left, right):
        yield self.gram(left, right)


_gradients = jax.jit(score_gradients)


class _Closed(Blocks):
    """Attention: one of the closed forms above."""

    names = ("readout", "key_query")

    def __init__(self, model, sides, memory, dtype, devices, form):
        super().__init__(sides, dtype, devices)
        (n, m), T, d = self.shape, max(side.num_tokens for side in sides), sides[0].dim
        pairs = n * (n + 1) / 2 if self.symmetric else float(n) * m
        flops = count_flops(model, T, pairs, n + (0 if self.symmetric else m))
        # many small products one after another
        if not self.on_cpu:
            flops.pop("maps", None)
        self.form = form or min(flops, key=lambda name: flops[name])
        self.model = model
        self.size, self.group = self._sizes(T, d, memory)

    def _sizes(self, T, d, memory) -> tuple[int, int]:
        """Rows per block and classes per group, so that data, heads, features and intermediates fit."""
        q = 1 if self.model.decoder == "last" else T
        W, item = self.model.key_query, self.dtype.itemsize
        r = 2 * W.query.shape[-1] if isinstance(W, tuple) else d
        features = {
            "tokens": 3 * q * d,
            "maps": 2 * q * d + 3 * q * T,
            "jacobian": 3 * q * d + 2 * d * r,
        }[self.form]
        # of one row and class
        columns = (2 * T * q + features) * item
        per_pair = (
            {"tokens": 3 * q * q, "maps": T * T + q * q, "jacobian": 0}[self.form] + 2
        ) * item
        head = 3 * d * (r + T) * item

        def needed(size, group):
            blocks = 1 if self.symmetric and size >= self.shape[0] else 2
            return (
                size * blocks * (group * columns + 3 * T * d * item)
                + size * size * per_pair
                + group * head
            )

        size = self.largest
        while size > 1 and needed(size, 1) > memory:
            size = -(-size // 2)
        if needed(size, 1) > memory:
            raise ValueError(
                f"memory={memory:g} bytes is too little for one sequence at a time; pass at least "
                f"{needed(1, 1):.2g}, "
                f"or another form than {self.form!r}."
            )
        one = needed(size, 2) - needed(size, 1)
        group = int(np.clip(1 + (memory - needed(size, 1)) // one, 1, self.model.num_classes))
        groups = -(-self.model.num_classes // group)
        return size, -(-self.model.num_classes // groups)

    def groups(self):
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

    def features(self, group, side, chosen):
        batch = prepare(side.subset(chosen), self.model, self.dtype, len(chosen))
        piece = (None if a is None else a[0] for a in (batch.tokens, batch.mask, batch.last))
        return _features(*group, *piece, form=self.form, squares=not self.symmetric)

    def products(self, left, right):
        u = self.gram(left[0], right[0])
        yield u
        if self.form == "jacobian":
            yield self.gram(left[1], right[1])
        elif self.form == "maps":
            yield self._map_products(left[1:], right[1:])
        else:
            tokens, Z = self.gram(left[2], right[2]), self.gram(left[1], right[1])
            yield np.asarray(_block_sums(tokens, Z, u.shape))

    def _map_products(self, left, right):
        """Row by row, so that the products of a row stay in the cache; of a symmetric block the upper half only."""
        (D, x, X), (E, y, Y) = (tuple(map(np.asarray, side)) for side in (left, right))
        (n, q, g, T), (m, p, _, S), half = D.shape, E.shape, left[0] is right[0]
        C, c = (self.gram(F, F if half else G) for F, G in ((X, Y), (x, y)))
        C, c = C.reshape(n, T, m, S), c.reshape(n, 1, m, 1)
        # one query of each sequence, x and y
        if q < T or p < S:
            queries = iter(c)
        else:  # all tokens: the keys, and x and y that were subtracted from them
            rows, columns = (
                self.gram(X, y).reshape(n, T, m, 1),
                self.gram(x, Y).reshape(n, 1, m, S) + c,
            )
            queries = (C[i] + rows[i] + columns[i] for i in range(n))
        K = np.zeros((n, m), self.dtype)
        for i, Cq in enumerate(queries):
            j = i if half else 0
            CE = Cq[:, j:].transpose(1, 0, 2) @ E[j:].reshape(m - j, p, g * S)
            CEC = CE.reshape(m - j, q * g, S) @ C[i, :, j:].transpose(1, 2, 0)
            K[i, j:] = CEC.reshape(m - j, -1) @ D[i].reshape(-1)
        return K


def _block_sums(tokens, Z, shape):
    (n, m), (rows, columns) = shape, tokens.shape
    blocks = (n, rows // n, m, columns // m)
    return np.einsum("aibj,aibj->ab", tokens.reshape(blocks), Z.reshape(blocks))


@partial(jax.jit, static_argnames=("form", "squares"))
def _features(heads, root, X, mask, last, *, form, squares):
    r"""Rows whose inner products are the two parts of the kernel, already weighted by $\sqrt{N_g} H^{-c}$.

    Then the squared norms of the two gradients of every sequence (if asked for), and the squared
    errors of rounding.
    """
    W, U = full_key_query(heads.key_query), jnp.asarray(heads.readout)
    (c, T, d), g = X.shape, W.shape[0]
    real = jnp.ones((c, T, 1), X.dtype) if mask is None else mask[:, :, None].astype(X.dtype)
    mean = jnp.sum(X * real, axis=1, keepdims=True) / jnp.sum(real, axis=1, keepdims=True)
    keys = (X - mean) * real
    _, *parts, Xq = scores_and_parts(
        Folded.of(W, U, by_query=True), root, X, mask, last, HIGHEST, keys
    )
    q = Xq.shape[1]
    # columns (query class): gradients come out query by query
    A, B, rest = (swapped(M, q) for M in parts)
    product = partial(jax.lax.dot_general, dimension_numbers=EACH_KEY, precision=HIGHEST)
    errors, terms = gradient_errors(heads, root, keys, mean, Xq, W, A, B, rest)
    weight = jnp.tile(root, q)[None, None, :]
    AX = product(weight * A, keys) + jnp.sum(weight * A, axis=1)[:, :, None] * mean
    AX = AX.reshape(c, q, g, d)
    AX = AX if U.ndim == 3 else AX.sum(axis=1)
    D = weight * A * rest
    Z = product(D, keys).reshape(c, q, g, d)
    if form == "jacobian":
        rest, terms = (_key_query_gradients(heads, Xq, Z),), jnp.zeros_like(terms)
    elif form == "tokens":
        rest = (Z.reshape(c * q, g * d), Xq.reshape(c * q, d))
    else:
        one = (mean if last is None else Xq).reshape(c, d)
        rest = (D.reshape(c, -1, q, g).transpose(0, 2, 3, 1), one, keys.reshape(-1, d))
    AX = AX.reshape(c, -1)
    norms = jnp.zeros((2, c), X.dtype)
    if squares and form == "jacobian":
        norms = jnp.stack([jnp.sum(part**2, axis=1) for part in (AX, rest[0])])
    elif squares:
        by_z, by_x = (
            jnp.einsum("cid,cjd->cij", M, M, precision=HIGHEST)
            for M in (Z.reshape(c, q, g * d), Xq)
        )
        norms = jnp.stack([jnp.sum(AX**2, axis=1), jnp.sum(by_z * by_x, axis=(1, 2))])
    return (AX, *rest), jnp.stack([norms, errors, jnp.stack([jnp.zeros_like(terms), terms])])


def _key_query_gradients(heads, Xq, Z):
    """The gradients by W, or by its factors, one row per sequence."""
    c, q, g, d = Z.shape
    if isinstance(heads.key_query, tuple):
        query, key = heads.key_query
        by_query = jnp.einsum("cqd,cqge,ger->cgdr", Xq, Z, key, precision=HIGHEST)
        by_key = jnp.einsum("cqge,cqd,gdr->cger", Z, Xq, query, precision=HIGHEST)
        return jnp.concatenate([by_query.reshape(c, -1), by_key.reshape(c, -1)], axis=1)
    by_token = jax.lax.dot_general(Xq, Z.reshape(c, q, g * d), EACH_KEY, precision=HIGHEST)
    return by_token.reshape(c, -1)
