"""The paper's model: one layer of multi-head self-attention and a linear readout, heads kept in classes."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from manyheads._check import (
    a,
    array_of,
    check,
    checked,
    not_negative,
    one_of,
    real_array,
    shown,
    whole,
)
from manyheads._names import ALL_DECODERS
from manyheads.data.dataset import Dataset

HIGHEST = jax.lax.Precision.HIGHEST
# Dimension numbers of products of arrays (sequence, token or key, ...).
# every token times one matrix
EACH_TOKEN = (((2,), (0,)), ((), ()))
# the tokens of a sequence with one another
EACH_PAIR = (((2,), (2,)), ((0,), (0,)))
# a sum over the keys of each sequence
EACH_KEY = (((1,), (1,)), ((0,), (0,)))
EACH_QUERY = (
    ((2,), (1,)),
    ((0,), (0,)),
)  # a sum over the queries of each sequence, last on the left
# a sum over sequences and rows
EACH_ROW = (((0, 1), (0, 1)), ((), ()))
# whole numbers are exact in float64 up to here
LARGEST_COUNT = 9e15


is_decoder = one_of(*ALL_DECODERS)


class Factored(NamedTuple):
    """Key-query weights of given rank: W = query @ key^T, one pair per class of heads."""

    query: Any  # (classes, dim, rank)
    key: Any  # (classes, dim, rank)


class Heads(NamedTuple):
    """The trainable parameters of one head of every class."""

    key_query: Any  # (classes, dim, dim), or Factored; (classes, dim) for learned queries
    readout: Any  # (classes, tokens, dim), or (classes, dim) where the readout is not full


class MultiHead(eqx.Module):
    r"""Single-layer multi-head self-attention with a linear readout, Eq. (2) of the paper.

    $$\tilde\Phi(X) = H^{-c} \sum_{g} N_g\, \langle U_g, \operatorname{softmax}(X W_g X^\top)\, X
    \rangle$$

    `key_query` stacks the $W_g$, `readout` the $U_g$. Class $g$ stands for $N_g$ identical heads
    (`multiplicity`), $H$ is their sum and $c$ is `exponent`, 1/2 in the paper. The readout is one
    row per token (`decoder="full"`), one vector for all tokens (`"pooled"`, $U = 1_T u^\top$) or
    one vector for the last token `"last"`). With `"query"` each head has a learned query $q_g$,
    stored as `key_query`, in place of $x_t W_g$: it attends once, at a cost of $Td$ instead of $T^2
    d$, as attention probes and poolers do. One sequence in, one score out; batch with `jax.vmap` or
    `scores(dataset)`, compile with `equinox.filter_jit`. A readout with one more axis, (classes,
    outputs, ...), gives one score per output, for the softmax loss over that many labels
    (`model.outputs`).
    """

    key_query: Any
    readout: Any
    multiplicity: np.ndarray
    decoder: str = eqx.field(static=True, default="full")
    exponent: float = eqx.field(static=True, default=0.5)

    def __check_init__(self) -> None:
        checked("decoder", self.decoder, is_decoder)
        counts = {np.shape(leaf)[:1] for leaf in (*jax.tree.leaves(self.heads), self.multiplicity)}
        if len(counts) != 1 or not hasattr(self.multiplicity, "shape"):
            raise ValueError(
                "key_query, readout and multiplicity must be arrays with one entry per class of "
                "heads; "
                "use MultiHead.create(key_query, readout, multiplicity=...), which converts and "
                "checks."
            )

    @classmethod
    def create(
        cls, key_query, readout, *, multiplicity=None, decoder: str = "full", exponent: float = 0.5
    ) -> MultiHead:
        """A model from given parameters, with every shape checked."""
        checked("decoder", decoder, is_decoder)
        W, (classes, dim) = _checked_key_query(key_query, learned=decoder == "query")
        U = _weights(readout, "readout")
        if (
            U.ndim - (3 if decoder == "full" else 2) not in (0, 1)
            or U.shape[0] != classes
            or U.shape[-1] != dim
            or 0 in U.shape
        ):
            wanted = "(classes, tokens, dim)" if decoder == "full" else "(classes, dim)"
            wanted += ", with `outputs` as a second axis for several scores,"
            raise ValueError(
                f"readout has shape {U.shape}; decoder={decoder!r} needs {wanted} with "
                f"classes={classes}, dim={dim}, "
                "and no axis empty."
            )
        c = checked("exponent", exponent, not_negative)
        return cls(W, U, _checked_counts(multiplicity, classes), decoder, c)

    @property
    def heads(self) -> Heads:
        """The trainable parameters."""
        return Heads(self.key_query, self.readout)

    @property
    def parameters(self) -> Heads:
        """What trains, as for any model (`model.protocol`)."""
        return self.heads

    @property
    def copies(self) -> np.ndarray:
        """How many heads each class stands for, as for any model."""
        return self.multiplicity

    @property
    def num_classes(self) -> int:
        return self.multiplicity.shape[0]

    @property
    def num_heads(self) -> float:
        """H, the sum of the multiplicities (a float: it may be 10^12)."""
        return float(np.sum(self.multiplicity))

    @property
    def dim(self) -> int:
        return self.readout.shape[-1]

    @property
    def num_tokens(self) -> int | None:
        """T for a full readout; None where the readout fits any length."""
        return self.readout.shape[-2] if self.decoder == "full" else None

    @property
    def num_outputs(self) -> int | None:
        """How many scores a sequence gets, one for each label; None for the single score of two labels."""
        many = np.ndim(self.readout) > (3 if self.decoder == "full" else 2)
        return self.readout.shape[1] if many else None

    def replace_heads(self, heads: Heads) -> MultiHead:
        """The same model with other parameters."""
        return MultiHead(heads[0], heads[1], self.multiplicity, self.decoder, self.exponent)

    def displaced(self, displacement: Heads) -> MultiHead:
        """The model at these parameters plus a displacement of each head, in NumPy."""
        return self.replace_heads(
            jax.tree.map(lambda a, b: np.asarray(a) + np.asarray(b), self.heads, displacement)
        )

    def attention(
        self, tokens: Float[Array, "tokens dim"], mask: Bool[Array, "tokens"] | None = None
    ) -> Float[Array, "classes queries tokens"]:
        """Attention weights of one sequence: row t is where query t looks. Masked queries have zero rows."""
        X, W = self._one_sequence(tokens), full_key_query(self.key_query)
        queries = jnp.ones(X.shape[0], bool) if mask is None else jnp.asarray(mask)
        Xq = X
        if self.decoder == "query":
            W, Xq, queries = W[:, None, :], jnp.ones((1, 1), X.dtype), jnp.ones(1, bool)
        if self.decoder == "last":
            last = (
                X.shape[0] - 1
                if mask is None
                else jnp.max(jnp.where(queries, jnp.arange(X.shape[0]), 0))
            )
            Xq, queries = X[last][None], jnp.ones(1, bool)
        S = jnp.einsum("td,gde,se->gts", Xq, W, X, precision=HIGHEST)
        if mask is not None:
            S = jnp.where(jnp.asarray(mask)[None, None, :], S, -jnp.inf)
        return jax.nn.softmax(S, axis=-1) * queries[None, :, None]

    def __call__(
        self, tokens: Float[Array, "tokens dim"], mask: Bool[Array, "tokens"] | None = None
    ) -> Float[Array, "*outputs"]:
        X, U = self._one_sequence(tokens), jnp.asarray(self.readout)
        A = self.attention(X, mask)
        rows = "gtd" if self.decoder == "full" else "gd"
        # outputs, if any, come first
        U = jnp.moveaxis(U, 0, -len(rows))
        by_class = jnp.einsum(f"...{rows},gts,sd->...g", U, A, X, precision=HIGHEST)
        N = (
            self.multiplicity
        )  # NumPy, so that the weights are computed in float64; a tracer inside jit
        weights = jnp.asarray(N / N.sum() ** self.exponent, by_class.dtype)
        return jnp.sum(jnp.broadcast_to(weights, by_class.shape) * by_class, axis=-1)

    def _one_sequence(self, tokens) -> jax.Array:
        X = jnp.asarray(tokens)
        if X.ndim != 2 or X.shape[1] != self.dim or self.num_tokens not in (None, X.shape[0]):
            raise ValueError(
                f"tokens has shape {X.shape}; the model takes one sequence, "
                f"({self.num_tokens or 'any'}, {self.dim}). "
                "For many use scores(dataset) or jax.vmap(model)."
            )
        return X

    def objective(
        self, dataset: Dataset, dtype=np.float64, chunk: int | None = None, platform: str = "cpu"
    ):
        """The closed form of loss and gradient on a dataset."""
        from manyheads.model.gradient import attention_objective

        if self.num_outputs is not None:
            raise ValueError(
                f"the model has {self.num_outputs} scores a sequence, and losses of a margin take "
                "one; use "
                "model.outputs.loss_and_gradient, or mh.AttentionProbe, which trains such models."
            )
        return attention_objective(self, dataset, dtype, chunk, platform)

    def scores(self, dataset: Dataset) -> np.ndarray:
        """The score of every sequence of a dataset, in float64; (n, outputs) where there are several."""
        from manyheads.model.autodiff import scores
        from manyheads.model.outputs import scores as by_output

        if self.num_outputs is not None:
            return by_output(self, dataset)
        return scores(self, dataset)

    def predict(self, dataset: Dataset) -> np.ndarray:
        """The label of every sequence by its name in `dataset.label_names`; a score above zero is the second."""
        return np.array(dataset.label_names)[(self.scores(dataset) > 0).astype(int)]

    def __str__(self) -> str:
        kind = (
            f"rank-{self.key_query.query.shape[-1]} "
            if isinstance(self.key_query, Factored)
            else ""
        )
        size = f"d={self.dim}" if self.num_tokens is None else f"T={self.num_tokens}, d={self.dim}"
        heads = "head" if self.num_heads == 1 else "heads"
        classes = "class" if self.num_classes == 1 else "classes"
        return (
            f"MultiHead: {self.num_heads:.0f} {heads} in {self.num_classes} {classes}, {size}, "
            f"{kind}{'learned queries' if self.decoder == 'query' else 'key-query weights'}, "
            f"{self.decoder} readout, scaling 1/H^{self.exponent:g}"
        )


def _weights(values, name: str) -> np.ndarray:
    """Given parameters in float32 or float64."""
    array = real_array(name, values)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds NaN or infinite values; pass finite numbers.")
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


def _checked_key_query(key_query, learned: bool) -> tuple[Any, tuple[int, int]]:
    """Key-query weights, full or as a pair of factors, or learned queries; number of classes and dimension."""
    if learned:
        queries = _weights(key_query, "key_query")
        if queries.ndim != 2 or 0 in queries.shape:
            raise ValueError(
                f"key_query has shape {queries.shape}; decoder='query' needs one query per class "
                "of heads, "
                "(classes, dim), and no axis may be empty."
            )
        return queries, queries.shape
    factored = isinstance(key_query, tuple) and len(key_query) == 2
    given = [_weights(w, "key_query") for w in (key_query if factored else (key_query,))]
    shapes = [w.shape for w in given]
    if any(len(s) != 3 or 0 in s for s in shapes) or (
        not factored and shapes[0][1] != shapes[0][2]
    ):
        raise ValueError(
            f"key_query has shape {shapes}; it must be (classes, dim, dim), or Factored(query, "
            "key) with both "
            "(classes, dim, rank), and no axis may be empty."
        )
    if len(set(shapes)) > 1:
        raise ValueError(
            f"query and key have shapes {shapes[0]} and {shapes[1]}; they must be equal."
        )
    return Factored(*given) if factored else given[0], shapes[0][:2]


def _checked_counts(multiplicity, classes: int) -> np.ndarray:
    """How many heads each class stands for; one each by default."""
    N = np.ones(classes) if multiplicity is None else array_of(multiplicity)
    numbers = N.shape == (classes,) and N.dtype.kind in "fiu"
    if not (numbers and np.all(N >= 1) and np.all(N == np.floor(N)) and N.sum() <= LARGEST_COUNT):
        raise ValueError(
            f"multiplicity={shown(multiplicity)} must hold one whole number >= 1 for each of the "
            f"{classes} "
            f"classes, adding up to at most {LARGEST_COUNT:g}."
        )
    return N.astype(np.float64)


def full_key_query(key_query, precision=HIGHEST) -> jax.Array:
    """W of every class, multiplied out where it is factored."""
    if isinstance(key_query, tuple):
        query, key = key_query
        return jnp.einsum("gdr,ger->gde", jnp.asarray(query), jnp.asarray(key), precision=precision)
    return jnp.asarray(key_query)


is_multi_head = a(MultiHead, "zero_start and first_phase make one")


@check(model=is_multi_head)
def collapse(model: MultiHead) -> MultiHead:
    """The same model with heads that are equal to the last bit merged into one class, in order of first appearance."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(model.heads)]
    seen: dict[bytes, int] = {}
    first, counts = [], []
    for g in range(model.num_classes):
        fingerprint = b"".join(
            (leaf[g] + 0.0).tobytes() for leaf in leaves
        )  # + 0.0 makes -0.0 equal 0.0
        if fingerprint not in seen:
            seen[fingerprint] = len(first)
            first.append(g)
            counts.append(0.0)
        counts[seen[fingerprint]] += model.multiplicity[g]
    heads = jax.tree.map(lambda leaf: np.asarray(leaf)[first], model.heads)
    return MultiHead(heads[0], heads[1], np.array(counts), model.decoder, model.exponent)


@check(model=is_multi_head, largest=whole())
def expand(model: MultiHead, *, largest: int = 100_000) -> MultiHead:
    """The same model with every head written out."""
    if model.num_heads > largest:
        raise ValueError(
            f"the model has {model.num_heads:.0f} heads, more than largest={largest}; writing them "
            "out would need "
            "that many copies. Keep the classes, or pass a larger `largest`."
        )
    index = np.repeat(np.arange(model.num_classes), model.multiplicity.astype(int))
    heads = jax.tree.map(lambda leaf: np.asarray(leaf)[index], model.heads)
    return MultiHead(heads[0], heads[1], np.ones(len(index)), model.decoder, model.exponent)
