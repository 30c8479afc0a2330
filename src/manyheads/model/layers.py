r"""Attention layers that somebody already has, of PyTorch or in a safetensors file, as a `MultiHead` and back.

A layer maps tokens to vectors, ours maps them to a score: what is taken over is the layer with a
`readout`, the score $\langle R, \mathrm{Attn}(X) \rangle$. With a constant feature, $\tilde X = (X,
1)$ and $\tilde W_Q = (W_Q, b_Q)$, it has the heads

$$W_h = \tilde W_{Q,h}^\top \tilde W_{K,h} / \sqrt{d_h}, \qquad U_h = \sqrt H\, R\, W_{O,h} \tilde
W_{V,h}$$

and the bias of the output is shared by the heads. A bias of the keys adds the same to every score
of a query, which the softmax does not see; it is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open

from manyheads._check import array_of, check, flag, none, one_of, shown, text, whole
from manyheads._check import path as is_path
from manyheads.data.files import Damaged, short
from manyheads.model.attention import MultiHead, is_multi_head

# How files call the projections of queries, keys, values and the output.
NAMES = (
    (
        "attention.self.query",
        "attention.self.key",
        "attention.self.value",
        "attention.output.dense",
    ),  # BERT
    (
        "attention.attention.query",
        "attention.attention.key",
        "attention.attention.value",
        "attention.output.dense",
    ),
    # DistilBERT
    ("attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin"),
    ("q_proj", "k_proj", "v_proj", "out_proj"),
)
PACKED = (
    "in_proj_weight",
    "in_proj_bias",
    "out_proj.weight",
    "out_proj.bias",
)  # torch.nn.MultiheadAttention
COUNTS = (
    "num_attention_heads",
    "n_heads",
    "num_heads",
)  # how config.json calls the number of heads
NEGLIGIBLE = (
    # of the largest singular value: what is left of a product of low rank by rounding
    1e-9
)


class Layer(NamedTuple):
    """Projections of every head, their biases as a last column, in float64."""

    query: np.ndarray  # (heads, rank, dim + 1)
    key: np.ndarray  # (heads, rank, dim + 1); its last column is zero
    value: np.ndarray  # (heads, rank, dim + 1)
    output: np.ndarray  # (dim, heads, rank)
    output_bias: np.ndarray  # (dim,)
    has_bias: bool


@check(decoder=one_of("full", "pooled", "last") | none)
def from_torch(layer: Any, readout: Any, *, decoder: str | None = None) -> MultiHead:
    """A `torch.nn.MultiheadAttention` and a readout of its output, as a MultiHead with the same scores.

    `readout` (tokens, dim) is contracted with the layer's output: the score is the sum of their
    products. One vector (dim,) reads the sum over all tokens (`decoder="pooled"`, the default;
    divide by T for the mean), or the last token ("last"). The layer is taken as it is when it is
    evaluated, without dropout. If it has biases, the model takes tokens with a constant feature:
    `dataset.with_constant()`.
    """
    if not any(
        kind.__name__ == "MultiheadAttention" and kind.__module__.startswith("torch")
        for kind in type(layer).__mro__
    ):
        raise ValueError(
            f"layer={shown(layer)} must be a torch.nn.MultiheadAttention; weights of other modules "
            "can be saved with "
            "safetensors and read by from_safetensors."
        )
    if layer.bias_k is not None or layer.add_zero_attn:
        raise ValueError(
            "the layer adds a token of its own to the keys; make it without add_bias_kv and "
            "add_zero_attn."
        )
    weights = {name: array_of(value, name) for name, value in layer.state_dict().items()}
    if not layer._qkv_same_embed_dim:
        raise ValueError(
            f"the layer takes keys of dimension {layer.kdim} and values of {layer.vdim} beside "
            "queries of "
            f"{layer.embed_dim}; self-attention has one dimension: leave kdim and vdim out."
        )
    return _folded(_packed(weights, "", layer.num_heads), readout, decoder)


@check(
    path=is_path,
    layer=whole(0) | text | none,
    num_heads=whole() | none,
    decoder=one_of("full", "pooled", "last") | none,
)
def from_safetensors(
    path: str | Path,
    readout: Any,
    *,
    layer: int | str | None = None,
    num_heads: int | None = None,
    decoder: str | None = None,
) -> MultiHead:
    """An attention layer of a safetensors file and a readout of its output, as a MultiHead with the same scores.

    `layer` is its number, or the beginning of the names of its tensors; it may be left out where
    there is one. Known are the names of BERT and its relatives, ViT, DistilBERT, CLIP and
    `torch.nn.MultiheadAttention`. `num_heads` is read from a config.json beside the file if it is
    not given. `readout` and `decoder` are as for `from_torch`: the output is that of the output
    projection, before anything is added to it or normalized.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} does not exist or is not a file; pass a .safetensors file."
        )
    try:
        with safe_open(str(path), framework="numpy") as file:
            start, names = _chosen(list(file.keys()), layer, path)  # noqa: SIM118
            wanted = [f"{start}{name}" for name in _tensors(names)]
            present = set(file.keys())
            weights = {
                name: array_of(file.get_tensor(name), name) for name in wanted if name in present
            }
    except (SafetensorError, OSError) as error:
        raise Damaged(
            f"{path} is not a readable safetensors file ({short(error)}); use another copy."
        ) from None
    heads = _configured(path) if num_heads is None else num_heads
    made = (
        _packed(weights, start, heads)
        if names == PACKED
        else _separate(weights, start, names, heads)
    )
    return _folded(made, readout, decoder)


@check(model=is_multi_head, constant=flag)
def to_torch(model: MultiHead, *, constant: bool = False) -> tuple[Any, np.ndarray]:
    """A `torch.nn.MultiheadAttention` in float64, and the readout with which its output has the scores of the model.

    The reverse of `from_torch`. `constant` says that the last feature of the model's tokens is the
    constant one; it becomes biases. Possible where the dimension is a multiple of the number of
    classes of heads, whose key-query weights and readouts must then have at most rank dim /
    classes, PyTorch's rank of a head.
    """
    layer, readout = _unfolded(model, constant)
    try:
        torch: Any = import_module("torch")
    except ImportError:
        raise ValueError("to_torch needs PyTorch; install it with `pip install torch`.") from None
    heads, rank, wide = layer.query.shape
    made = torch.nn.MultiheadAttention(
        wide - 1, heads, bias=constant, batch_first=True, dtype=torch.float64
    )
    stacked = np.concatenate(
        [part.reshape(-1, wide) for part in (layer.query, layer.key, layer.value)]
    )
    state = {
        "in_proj_weight": stacked[:, :-1],
        "out_proj.weight": layer.output.reshape(wide - 1, heads * rank),
    }
    if constant:
        state |= {"in_proj_bias": stacked[:, -1], "out_proj.bias": layer.output_bias}
    made.load_state_dict(
        {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in state.items()}
    )
    return made.eval(), readout


def _folded(layer: Layer, readout: Any, decoder: str | None) -> MultiHead:
    """The model whose scores are those of the layer with a readout."""
    R, dim = array_of(readout, "readout"), layer.output.shape[0]
    if R.dtype.kind not in "fiu" or R.ndim not in (1, 2) or R.shape[-1] != dim or 0 in R.shape:
        raise ValueError(
            f"readout has shape {R.shape}; the layer's output needs (tokens, {dim}) or ({dim},)."
        )
    kinds = ("full",) if R.ndim == 2 else ("pooled", "last")
    kind = decoder or kinds[0]
    if kind not in kinds:
        raise ValueError(
            f"decoder={kind!r} does not fit a readout of shape {R.shape}; it takes "
            f"{' or '.join(kinds)}."
        )
    Q, K, V, out, bias, has_bias = layer
    H, rank, _ = Q.shape
    W = np.einsum("hrd,hre->hde", Q, K) / np.sqrt(rank)
    read = np.einsum("...e,ehr->h...r", R.astype(np.float64), out)
    U = np.sqrt(H) * np.einsum("h...r,hrd->h...d", read, V)
    U[..., -1] += R @ bias / np.sqrt(H)
    if not has_bias:
        W, U = W[:, :-1, :-1], U[..., :-1]
    return MultiHead.create(W, U, decoder=kind)


def _unfolded(model: MultiHead, constant: bool) -> tuple[Layer, np.ndarray]:
    """A layer and a readout of its output that have the scores of the model."""
    heads, dim = model.num_classes, model.dim - constant
    if dim < 1 or dim % heads:
        raise ValueError(
            f"tokens of dimension {dim} cannot be divided among {heads} heads, as PyTorch does; "
            "add features to the "
            "tokens, or give heads that are equal one class with collapse."
        )
    rank, wide = dim // heads, dim + 1
    W = model.key_query
    W = (
        np.einsum("gdr,ger->gde", *W, dtype=np.float64)
        if isinstance(W, tuple)
        else np.array(W, np.float64)
    )
    U = np.array(model.readout, np.float64)
    if not constant:
        W, U = np.pad(W, ((0, 0), (0, 1), (0, 1))), np.pad(U, [(0, 0)] * (U.ndim - 1) + [(0, 1)])
    # the same for every key
    W[:, :, -1] = 0.0
    share = model.multiplicity / model.num_heads**model.exponent
    U = U * share.reshape(-1, *[1] * (U.ndim - 1))
    queries, keys = _factors(W, rank, "key_query")
    rows, values = _factors(U.reshape(heads, -1, wide)[:, :, :-1], rank, "readout")
    values = np.pad(values, ((0, 0), (0, 0), (0, 1)))
    # the output projection is the identity
    readout = rows.transpose(1, 0, 2).reshape(-1, dim)
    # the constant part, one number per row
    rest = U.reshape(heads, -1, wide)[:, :, -1].sum(axis=0)
    bias = np.linalg.lstsq(readout, rest, rcond=None)[0]
    if np.abs(readout @ bias - rest).max() > NEGLIGIBLE * max(1.0, np.abs(rest).max()):
        raise ValueError(
            "the constant part of the readout is none that a bias of PyTorch's output projection "
            "gives."
        )
    output = np.eye(dim).reshape(dim, heads, rank)
    layer = Layer(
        rank**0.25 * queries.transpose(0, 2, 1), rank**0.25 * keys, values, output, bias, constant
    )
    return layer, readout if U.ndim == 3 else readout[0]


def _factors(matrices: np.ndarray, rank: int, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Left (n, a, rank) and right (n, rank, b) factors of matrices, which must have no higher rank."""
    left, sizes, right = np.linalg.svd(matrices, full_matrices=False)
    if (sizes[:, rank:] > NEGLIGIBLE * sizes[:, :1]).any():
        found = int((sizes > NEGLIGIBLE * sizes[:, :1]).sum(axis=1).max())
        raise ValueError(
            f"{name} has rank {found}, and a head of PyTorch's layer has {rank}, the dimension "
            "divided by the number "
            "of heads; use fewer heads, or weights of lower rank."
        )
    more = max(0, rank - sizes.shape[1])
    roots = np.sqrt(sizes[:, :rank])
    left, right = left[:, :, :rank] * roots[:, None, :], roots[:, :, None] * right[:, :rank]
    return np.pad(left, ((0, 0), (0, 0), (0, more))), np.pad(right, ((0, 0), (0, more), (0, 0)))


def _packed(weights: Mapping[str, np.ndarray], start: str, num_heads: int | None) -> Layer:
    """The layer of weights named as `torch.nn.MultiheadAttention` names them."""
    inside, inside_bias, outside, outside_bias = (weights.get(f"{start}{name}") for name in PACKED)
    parts = np.split(np.asarray(inside), 3)
    biases = [None] * 3 if inside_bias is None else np.split(inside_bias, 3)
    return _layer([*parts, np.asarray(outside)], [*biases, outside_bias], num_heads)


def _separate(
    weights: Mapping[str, np.ndarray], start: str, names: tuple, num_heads: int | None
) -> Layer:
    """The layer of a matrix each for queries, keys, values and the output."""
    kinds = (
        [weights.get(f"{start}{name}.{kind}") for name in names] for kind in ("weight", "bias")
    )
    return _layer(*kinds, num_heads)


def _layer(weights: list, biases: list, num_heads: int | None) -> Layer:
    """The layer of four square matrices (dim, dim) and their biases, None where there are none."""
    shapes = [np.shape(matrix) for matrix in weights]
    dim = shapes[0][-1]
    if set(shapes) != {(dim, dim)}:
        raise ValueError(
            f"the projections have shapes {shapes}; all must be (dim, dim), as many values as "
            "features."
        )
    if num_heads is None:
        raise ValueError("the file does not say how many heads the layer has; pass num_heads=.")
    if dim % num_heads:
        raise ValueError(
            f"num_heads={num_heads} does not divide the dimension {dim}; pass the layer's own "
            "number."
        )
    vectors = [np.zeros(dim) if bias is None else np.asarray(bias, np.float64) for bias in biases]
    vectors[1] = np.zeros(dim)
    wide = [
        np.concatenate([w, b[:, None]], axis=1)
        for w, b in zip(weights[:3], vectors[:3], strict=True)
    ]
    Q, K, V = (
        part.astype(np.float64).reshape(num_heads, dim // num_heads, dim + 1) for part in wide
    )
    out = np.asarray(weights[3], np.float64).reshape(dim, num_heads, dim // num_heads)
    return Layer(Q, K, V, out, vectors[3], any(bias is not None for bias in biases))


def _tensors(names: tuple[str, ...]) -> list[str]:
    """The names of the tensors of a layer."""
    return (
        list(PACKED)
        if names == PACKED
        else [f"{name}.{kind}" for name in names for kind in ("weight", "bias")]
    )


def _chosen(present: list[str], layer: int | str | None, path: Path) -> tuple[str, tuple[str, ...]]:
    """The beginning of the names of one layer's tensors, and how its projections are called."""
    found: dict[str, tuple[str, ...]] = {}
    known = set(present)
    for names in (*NAMES, PACKED):
        needed = [PACKED[0], PACKED[2]] if names == PACKED else [f"{name}.weight" for name in names]
        for name in present:
            start = name.removesuffix(needed[0])
            if (
                start != name
                and (not start or start[-1] == ".")
                and {f"{start}{n}" for n in needed} <= known
            ):
                found.setdefault(start, names)
    if not found:
        raise ValueError(
            f"{path} holds no attention layer that is known, only names such as "
            f"{', '.join(sorted(present)[:3])}; "
            "known are those of BERT, ViT, DistilBERT, CLIP and torch.nn.MultiheadAttention."
        )
    fits = [start for start in found if layer is None or _is_layer(start, layer)]
    if len(fits) != 1:
        listed = ", ".join(repr(start.rstrip(".")) for start in list(fits or found)[:4])
        many = "several layers" if fits else f"no layer {shown(layer)}"
        raise ValueError(
            f"{path} has {many} among {listed}{', ...' if len(fits or found) > 4 else ''}; pass "
            "layer=."
        )
    return fits[0], found[fits[0]]


def _is_layer(start: str, layer: int | str) -> bool:
    """Whether names that begin so are of the layer of that number or name."""
    if isinstance(layer, str):
        return start.rstrip(".") == layer.rstrip(".")
    numbers = re.findall(r"(?:^|\.)(\d+)(?=\.)", start)
    return bool(numbers) and int(numbers[-1]) == layer


def _configured(path: Path) -> int | None:
    """The number of heads that a config.json beside a file gives."""
    try:
        content = json.loads((path.parent / "config.json").read_text())
    except (OSError, ValueError):
        return None
    found = [
        content[name]
        for name in COUNTS
        if isinstance(content, dict) and isinstance(content.get(name), int)
    ]
    return found[0] if found and found[0] >= 1 else None
