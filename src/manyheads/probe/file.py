"""A probe as a safetensors file: sealed, format_version 1, written whole or not at all; and as a module of PyTorch."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as packed

from manyheads.data.files import Damaged, checked_path, write_whole
from manyheads.probe.fitting import Fit
from manyheads.probe.problem import Kind
from manyheads.probe.sequences import Layout

KIND = "manyheads probe"
FORMAT_VERSION = 1
FACTS = ("penalty", "loss", "slope", "steps", "converged", "length", "method")  # fields of a Fit


def save(fit: Fit, classes: np.ndarray, facts: dict[str, Any], path: str | Path) -> None:
    """Write a probe: its parameters as tensors, all else as JSON under "manyheads" in the header."""
    path = checked_path(path)
    tensors = {
        "parameters": np.ascontiguousarray(fit.theta),
        "center": np.array(fit.layout.center),
        "spread": np.array(fit.layout.spread),
    }
    header = {
        "kind": KIND,
        "format_version": FORMAT_VERSION,
        "probe": asdict(fit.kind),
        "positions": fit.layout.positions,
        "classes": classes.tolist(),
        "num_classes": fit.num_classes,
        "facts": facts,
        **{name: getattr(fit, name) for name in FACTS},
    }
    header["sha256"] = _seal(tensors, json.loads(json.dumps(header)))
    write_whole(path, packed(tensors, metadata={"manyheads": json.dumps(header)}))


def is_ours(path: str | Path) -> bool:
    """Whether this is a file that `save` wrote, as far as its header says."""
    try:
        with safe_open(str(path), framework="numpy") as file:
            return KIND in (file.metadata() or {}).get("manyheads", "")
    except (SafetensorError, OSError):
        return False


def load(path: str | Path) -> tuple[Fit, np.ndarray, dict[str, Any]]:
    """Read what `save` wrote: the fit, its classes, and the facts. Nothing in such a file is executed."""
    if not Path(path).is_file():
        raise FileNotFoundError(
            f"{path} does not exist or is not a file; pass one written by `manyheads fit`."
        )
    try:
        with safe_open(str(path), framework="numpy") as file:
            header = json.loads((file.metadata() or {}).get("manyheads", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, ValueError, OSError):
        raise Damaged(f"{path} is not a readable safetensors file; use another copy.") from None
    if not isinstance(header, dict) or header.get("kind") != KIND:
        raise ValueError(
            f"{path} holds no probe of manyheads; pass one written by `manyheads fit`, or see "
            "`manyheads check` for probes of others."
        )
    seal = header.pop("sha256", None)
    if header.get("format_version") != FORMAT_VERSION:
        raise ValueError(f"{path} was written by another version of manyheads; update manyheads.")
    if seal != _seal(tensors, header):
        raise Damaged(
            f"{path} is damaged: its content does not match its checksum; use another copy, or fit "
            "it anew."
        )
    layout = Layout(
        tuple(tensors["center"].tolist()), tuple(tensors["spread"].tolist()), header["positions"]
    )
    fit = Fit(
        layout=layout,
        kind=Kind(**header["probe"]),
        theta=tensors["parameters"],
        num_classes=header["num_classes"],
        trials=(),
        **{name: header[name] for name in FACTS},
    )
    return fit, np.array(header["classes"]), header["facts"]


def _seal(tensors: dict[str, np.ndarray], header: dict[str, Any]) -> str:
    """SHA-256 of the other entries of the header, and of the tensors with their names and types."""
    found = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        found.update(f"{name} {array.dtype.str} {array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()


def to_torch(fit: Fit) -> Any:
    """The probe as a module of PyTorch in float64: `module(tokens, mask)` gives the scores (n, outputs)."""
    try:
        import torch  # ty: ignore[import-not-found]
    except ImportError:
        raise ValueError("to_torch needs PyTorch; install it with `pip install torch`.") from None
    if fit.kind.decoder != "query":
        raise ValueError(
            f"to_torch takes decoder='query', not {fit.kind.decoder!r}; fit with that."
        )
    layout, dim = fit.layout, fit.layout.dim
    queries, values = fit.shape.split(fit.theta[None])
    values = values[0].reshape(*queries[0].shape, -1)

    module: Any = torch.nn.Module

    class Probe(module):
        """score_o(X) = sum_h <v_ho, X^T softmax(X q_h)>, with a part for features, places and the constant."""

        def __init__(self, parts: dict[str, np.ndarray]):
            super().__init__()
            for name, array in parts.items():
                value = torch.from_numpy(np.ascontiguousarray(array))
                self.register_parameter(name, torch.nn.Parameter(value))

        def forward(self, tokens: Any, mask: Any = None) -> Any:
            S = tokens @ self.query.T + self.query_bias
            seen = min(tokens.shape[1], len(self.place))
            S = S + torch.nn.functional.pad(self.place[:seen], (0, 0, 0, S.shape[1] - seen))
            if mask is not None:
                S = S.masked_fill(~mask[:, :, None], -torch.inf)
            A = torch.softmax(S, dim=1)
            at = torch.einsum("nth,tho->no", A[:, :seen], self.place_value[:seen])
            return torch.einsum("nth,ntd,hdo->no", A, tokens, self.value) + at + self.bias

    # Centers, spreads and the norm of the layout are folded into queries and values.
    inner = 1.0 / (np.array(layout.spread) * layout.norm)
    place = np.sqrt(dim) / layout.norm
    query = queries[0][:, :dim] * inner
    value = values[:, :dim] * inner[None, :, None]
    center = np.array(layout.center)
    constant = values[:, -1].sum(axis=0) / layout.norm
    parts = {
        "query": query,
        "query_bias": queries[0][:, -1] / layout.norm - query @ center,
        "place": place * queries[0][:, dim:-1].T,
        "value": value,
        "place_value": place * values[:, dim:-1].transpose(1, 0, 2),
        "bias": constant - np.einsum("hdo,d->o", value, center),
    }
    return Probe(parts)
