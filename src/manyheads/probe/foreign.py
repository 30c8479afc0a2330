r"""Probes that somebody else trained, from their tensors: known by the names that their authors gave.

All of them score $\sum_h \langle v_{ho}, X^\top \operatorname{softmax}(X q_h)\rangle + b_o$ of tokens with a constant
feature; they differ in how $q$ and $v$ are made of what is stored. With $W$ a projection and $h$ the rows of a head:

| probe | $q_h$ | $v_{ho}$ |
|---|---|---|
| EleutherAI's attention-probes | `q.weight[h]` | `v.weight[h, o]` |
| AttnLite | `context_query.weight` / sqrt(d) | `classifier.weight` |
| EP, efficient probing | `cls_token[h]` / sqrt(d) | `linear.weight[o, h] v.weight[h]` |
| AIM's attention pooling | `k.weight[h]^T cls_token[h]` / sqrt(d_h) | `linear.weight[o, h] v.weight[h]`, a mean over queries |
| a learned query and `nn.MultiheadAttention` | `W_k[h]^T (W_q query + b_q)[h]` / sqrt(d_h) | `linear W_out[:, h] W_v[h]` |
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from manyheads._check import array_of
from manyheads.data.files import Damaged
from manyheads.probe.fitting import Fit
from manyheads.probe.problem import Kind
from manyheads.probe.sequences import Layout

BATCH_NORM = 1e-6  # added to variances by AIM's head
Tensors = Mapping[str, np.ndarray]


class Parts(NamedTuple):
    """Queries (heads, dim), values (heads, dim, outputs), a bias (outputs,), and how tokens are standardized."""

    query: np.ndarray
    value: np.ndarray
    bias: np.ndarray
    center: np.ndarray | None = None
    spread: np.ndarray | None = None


def read(source: str | Path | Mapping[str, Any], num_heads: int | None = None) -> Fit:
    """A probe of a safetensors file or a `state_dict()`; `num_heads` where its tensors do not say it."""
    if isinstance(source, str | Path):
        if not Path(source).is_file():
            raise FileNotFoundError(f"{source} does not exist; pass a .safetensors file.")
        try:
            state: Mapping[str, Any] = load_file(str(source))
        except (SafetensorError, OSError):
            raise Damaged(
                f"{source} is not a readable safetensors file; save a module with "
                "safetensors.torch.save_file(module.state_dict(), path)."
            ) from None
    else:
        state = source
    tensors = {name: array_of(value).astype(np.float64) for name, value in state.items()}
    for names, make in SHAPES:
        if all(name in tensors for name in names):
            return _fit(make(tensors, num_heads))
    known = "; ".join(", ".join(names) for names, _ in SHAPES)
    raise ValueError(
        f"these tensors are of no probe that is known: {', '.join(sorted(tensors)[:6])}; known are "
        f"{known}."
    )


def _eleuther(tensors: Tensors, num_heads: int | None) -> Parts:
    if "o.weight" in tensors:
        raise ValueError("the probe has hidden units (o.weight): its scores are no sum over heads.")
    query = tensors["q.weight"]
    heads, dim = query.shape
    value = tensors["v.weight"].reshape(heads, -1, dim).transpose(0, 2, 1)
    bias = tensors["v.bias"].reshape(heads, -1).sum(axis=0)
    place = tensors.get("position_weight", np.zeros(heads))
    if np.any(place):  # its position is one more feature, the last one, which no value reads
        query = np.concatenate([query, place[:, None]], axis=1)
        value = np.concatenate([value, np.zeros((heads, 1, value.shape[2]))], axis=1)
    return Parts(query, value, bias)


def _attn_lite(tensors: Tensors, num_heads: int | None) -> Parts:
    query = tensors["context_query.weight"]
    value = tensors["classifier.weight"].T[None]
    return Parts(query / np.sqrt(query.shape[1]), value, _bias(tensors, "classifier.bias", value))


def _efficient(tensors: Tensors, num_heads: int | None) -> Parts:
    queries, V, head = tensors["cls_token"][0], tensors["v.weight"], tensors["linear.weight"]
    count, dim = queries.shape
    rows = V.reshape(count, -1, dim)  # of each query
    value = np.einsum("ohj,hjd->hdo", head.reshape(len(head), count, -1), rows)
    bias = _bias(tensors, "linear.bias", value) + head @ tensors.get("v.bias", np.zeros(len(V)))
    return Parts(queries / np.sqrt(dim), value, bias)


def _aim(tensors: Tensors, num_heads: int | None) -> Parts:
    queries, K, V = tensors["cls_token"][0], tensors["k.weight"], tensors["v.weight"]
    head, dim = tensors["linear.weight"], K.shape[0]
    bias = _bias(tensors, "linear.bias", head.T[None])
    bias = bias + head @ tensors.get("v.bias", np.zeros(dim))
    query, value = _projected(queries, K, V, head, num_heads)
    center = spread = None
    if "bn.running_mean" in tensors:
        center = tensors["bn.running_mean"]
        spread = np.sqrt(tensors["bn.running_var"] + BATCH_NORM)
    return Parts(query, value, bias, center, spread)


def _multihead(tensors: Tensors, num_heads: int | None) -> Parts:
    dim = tensors["query"].shape[-1]
    Q, K, V = np.split(tensors["attention.in_proj_weight"], 3)
    zero = np.zeros(3 * dim)
    of_query, _, of_value = np.split(tensors.get("attention.in_proj_bias", zero), 3)
    out, head = tensors["attention.out_proj.weight"], tensors["linear.weight"]
    behind = of_value @ out.T + tensors.get("attention.out_proj.bias", np.zeros(dim))
    bias = _bias(tensors, "linear.bias", head.T[None]) + head @ behind
    queries = tensors["query"].reshape(-1, dim) @ Q.T + of_query
    return Parts(*_projected(queries, K, V, head @ out, num_heads), bias)


def _projected(queries, K, V, head, num_heads: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Queries and values of projected keys and values; the results of several queries are averaged."""
    count, dim = queries.shape
    if num_heads is None or dim % num_heads:
        raise ValueError(
            f"num_heads={num_heads}: the tensors do not say how many heads share the dimension {dim}; "
            "pass the module's own number (--heads at the command line)."
        )
    size = dim // num_heads
    of_head = queries.reshape(count, num_heads, size)
    query = np.einsum("ihr,hrd->ihd", of_head, K.reshape(num_heads, size, -1)) / np.sqrt(size)
    read = head.reshape(len(head), num_heads, size)
    value = np.einsum("ohr,hrd->hdo", read, V.reshape(num_heads, size, -1)) / count
    value = np.broadcast_to(value, (count, *value.shape))
    return query.reshape(count * num_heads, -1), value.reshape(count * num_heads, *value.shape[2:])


SHAPES = (
    (("q.weight", "v.weight", "v.bias"), _eleuther),
    (("context_query.weight", "classifier.weight"), _attn_lite),
    (("cls_token", "k.weight", "v.weight", "linear.weight"), _aim),
    (("cls_token", "v.weight", "linear.weight"), _efficient),
    (("query", "attention.in_proj_weight", "linear.weight"), _multihead),
)


def _bias(tensors: Tensors, name: str, value: np.ndarray) -> np.ndarray:
    return tensors.get(name, np.zeros(value.shape[2]))


def _fit(parts: Parts) -> Fit:
    """The probe in our parameters: a constant feature carries the bias, and two scores become their difference."""
    query, value, bias = parts.query, parts.value, parts.bias
    heads, dim, outputs = value.shape
    if outputs == 2:
        value, bias = value[:, :, 1:] - value[:, :, :1], bias[1:] - bias[:1]
    center = np.zeros(dim) if parts.center is None else parts.center
    spread = np.ones(dim) if parts.spread is None else parts.spread
    layout = Layout(tuple(center.tolist()), tuple(spread.tolist()), 0)
    constant = np.broadcast_to(bias / heads, (heads, 1, len(bias)))
    queries = np.concatenate([query, np.zeros((heads, 1))], axis=1)
    values = np.concatenate([value, constant], axis=1)
    theta = layout.norm * np.concatenate([queries.ravel(), values.ravel()])
    return Fit(
        layout=layout,
        kind=Kind("query", heads, 0.0, False),
        penalty=0.0,
        theta=theta,
        num_classes=max(2, outputs),
        trials=(),
        loss=float("nan"),
        slope=float("nan"),
        steps=0,
        converged=True,
        length=1,
        method="foreign",
    )
