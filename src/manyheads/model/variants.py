"""Relatives of the paper's model: one of its two blocks held fixed, and value and output matrices of low rank."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from manyheads import _check
from manyheads._check import check, not_negative, one_of, positive, whole
from manyheads.data.dataset import Dataset
from manyheads.model.attention import HIGHEST, Heads, MultiHead, is_multi_head

BLOCKS = Heads._fields


@check(model=is_multi_head, block=one_of(*BLOCKS))
def frozen(model: MultiHead, block: str) -> Frozen:
    """The model with one block, "readout" or "key_query", held at its present value: only the other one trains."""
    return Frozen(model, block)


class Frozen(eqx.Module):
    """`full`, the whole model, of which `block` does not train."""

    full: MultiHead
    block: str = eqx.field(static=True)

    @property
    def parameters(self) -> Heads:
        """The heads, with None for the block that does not train."""
        return self.full.heads._replace(**{self.block: None})

    @property
    def held(self) -> Heads:
        """The block that does not train, with None for the other one."""
        return Heads(None, None)._replace(**{self.block: getattr(self.full, self.block)})

    @property
    def copies(self) -> np.ndarray:
        return self.full.multiplicity

    def displaced(self, displacement: Heads) -> Frozen:
        moved = jax.tree.map(
            lambda a, b: np.asarray(a) + np.asarray(b), self.parameters, displacement
        )
        return Frozen(self.full.replace_heads(filled(moved, self.held)), self.block)

    def objective(
        self, dataset: Dataset, dtype=np.float64, chunk=None, platform: str = "cpu"
    ) -> FrozenObjective:
        held = jax.tree.map(lambda leaf: np.asarray(leaf, dtype), self.held)
        return FrozenObjective(self.full.objective(dataset, dtype, chunk, platform), held)

    def scores(self, dataset: Dataset) -> np.ndarray:
        """The score of every sequence of a dataset, in float64."""
        return self.full.scores(dataset)

    def __str__(self) -> str:
        return f"{self.full}; {self.block} frozen"


class FrozenObjective(eqx.Module):
    """The objective of the whole model as a function of the block that trains."""

    full: Any
    held: Heads

    @property
    def labels(self) -> Any:
        return self.full.labels

    @property
    def copies(self) -> Any:
        return self.full.copies

    def scores(self, parameters: Heads) -> jax.Array:
        return self.full.scores(filled(parameters, self.held))

    def loss_and_gradient(
        self, parameters: Heads, sample_weight, **options
    ) -> tuple[jax.Array, jax.Array, Heads]:
        value, phi, gradient = self.full.loss_and_gradient(
            filled(parameters, self.held), sample_weight, **options
        )
        return value, phi, trained(gradient, parameters)

    def evaluate(self, parameters: Heads, sample_weight, due, **options):
        heads = filled(parameters, self.held)
        value, phi, gradient, records = self.full.evaluate(heads, sample_weight, due, **options)
        return value, phi, trained(gradient, parameters), records

    def measured(self, parameters: Heads) -> dict[str, jax.Array]:
        return self.full.measured(filled(parameters, self.held))

    def replaced(self, i, other: FrozenObjective) -> FrozenObjective:
        return FrozenObjective(self.full.replaced(i, other.full), self.held)

    def some(self, indices) -> FrozenObjective:
        return FrozenObjective(self.full.some(indices), self.held)


def filled(parameters: Heads, held: Heads) -> Heads:
    """Both blocks: that of the parameters, and the one held fixed."""
    return Heads(*(h if p is None else p for p, h in zip(parameters, held, strict=True)))


def trained(heads: Heads, parameters: Heads) -> Heads:
    """The blocks of `heads` that are in the tree of parameters."""
    return Heads(*(None if p is None else leaf for leaf, p in zip(heads, parameters, strict=True)))


def attention_of(model: Any) -> MultiHead | None:
    """The paper's self-attention behind a model: itself, or with a frozen block; None for any other model.

    None for learned queries too: closed forms of measures are for weights that are matrices,
    autodiff for the rest.
    """
    if isinstance(model, Frozen):
        return model.full
    return model if isinstance(model, MultiHead) and model.decoder != "query" else None


class LowRank(eqx.Module):
    r"""Multi-head attention with a bottleneck in its values, before these are absorbed into the readout.

    $$\Phi(X) = H^{-c} \sum_h \langle U, \operatorname{softmax}(X W_{Q,h} W_{K,h}^\top X^\top)\, X
    W_{V,h} W_{O,h} \rangle$$

    The paper's footnote names $d_v = d/H$ as common practice: the products $W_Q W_K^\top$ and $W_V
    W_O$ have low rank, and the readout $U$ (T, d) is one for all heads. A readout (d,) is pooled
    over real tokens. An Equinox module like any other: its derivatives are those of
    `model.autodiff`.
    """

    query: Any  # (heads, dim, rank)
    key: Any  # (heads, dim, rank)
    value: Any  # (heads, dim, value_rank)
    output: Any  # (heads, value_rank, dim)
    readout: Any  # (tokens, dim), or (dim,)
    exponent: float = eqx.field(static=True, default=0.5)

    def __check_init__(self) -> None:
        Q, K, V, out, U = (
            np.shape(leaf) for leaf in (self.query, self.key, self.value, self.output, self.readout)
        )
        factors = all(len(shape) == 3 for shape in (Q, K, V, out)) and len(U) in (1, 2)
        if not (
            factors and Q == K and V[:2] == Q[:2] and out == (V[0], V[2], V[1]) and U[-1] == Q[1]
        ):
            raise ValueError(
                f"query {Q}, key {K}, value {V}, output {out}, readout {U} do not fit; they must "
                "be (heads, dim, rank) "
                "twice, (heads, dim, value_rank), (heads, value_rank, dim), and (tokens, dim) or "
                "(dim,)."
            )

    @classmethod
    @check(
        num_heads=whole(),
        num_tokens=whole(),
        dim=whole(),
        rank=whole() | _check.none,
        value_rank=whole() | _check.none,
        scale=positive,
        exponent=not_negative,
        key=_check.key,
    )
    def random(
        cls,
        num_heads: int,
        *,
        num_tokens: int,
        dim: int,
        rank: int | None = None,
        value_rank: int | None = None,
        scale: float = 1.0,
        exponent: float = 0.5,
        key: jax.Array,
    ) -> LowRank:
        """Gaussian factors of variance scale²/d; both ranks are d/H by default, at least 1."""
        H, T, d, size = num_heads, num_tokens, dim, scale / np.sqrt(dim)
        r, v = (max(1, d // H) if given is None else given for given in (rank, value_rank))
        shapes = [(H, d, r), (H, d, r), (H, d, v), (H, v, d), (T, d)]
        with jax.enable_x64(True):
            keys = jax.random.split(key, len(shapes))
            draws = (
                np.asarray(jax.random.normal(k, shape))
                for k, shape in zip(keys, shapes, strict=True)
            )
            return cls(*(size * leaf for leaf in draws), exponent)

    def __call__(
        self, tokens: Float[Array, "tokens dim"], mask: Bool[Array, "tokens"] | None = None
    ) -> Float[Array, ""]:
        X, U = jnp.asarray(tokens), jnp.asarray(self.readout)
        real = jnp.ones(X.shape[0], bool) if mask is None else jnp.asarray(mask)
        Q, K = (jnp.einsum("td,hdr->htr", X, W, precision=HIGHEST) for W in (self.query, self.key))
        S = jnp.where(
            real[None, None, :], jnp.einsum("htr,hsr->hts", Q, K, precision=HIGHEST), -jnp.inf
        )
        A = jax.nn.softmax(S, axis=-1) * real[None, :, None]
        V = jnp.einsum("sd,hdv,hve->hse", X, self.value, self.output, precision=HIGHEST)
        rows = "td" if U.ndim == 2 else "d"
        return (
            jnp.einsum(f"{rows},hts,hsd->", U, A, V, precision=HIGHEST)
            / self.query.shape[0] ** self.exponent
        )
