"""Settings that the page and the library both run: the library's arrays and its records for each."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import numpy as np

from manyheads.data.dataset import Dataset
from manyheads.data.mixture import TokenizedMixture
from manyheads.data.planted import Planted, RandomLabels
from manyheads.model.attention import MultiHead
from manyheads.theory.decomposition import decompose
from manyheads.theory.deora2023.constants import Shape
from manyheads.theory.deora2023.training import case_of, training_conditions
from manyheads.theory.targets import (
    along,
    attention_target,
    measure_target,
    mixture_direction,
    readout_norm,
)
from manyheads.theory.walk import follow
from manyheads.training.descent import train
from manyheads.training.rules import GD, RULES
from manyheads.training.start import first_phase, gaussian_start, zero_start

MIXTURE = dict(num_tokens=8, dim=10, num_patterns=4, sparsity=0.25, signal=1.5)
NOISE = dict(noise_mu=0.1, noise_nu=0.1, noise_norm=0.4)
SMALL = dict(num_tokens=4, dim=6, num_patterns=2, sparsity=0.5, signal=1.0)
HARD = {**MIXTURE, "sparsity": 0.125, "noise_mu": 0.5, "noise_nu": 0.5, "noise_norm": 1.5}
RECORDS = {
    "trainLoss": "train_loss",
    "testLoss": "test_loss",
    "margin": "margin",
    "gradientNorm": "gradient_norm",
    "distance": "distance",
    "readoutNorm": "readout_norm",
    "mass": "attention_mass",
}

PARITY_START = {"start": "gaussian", "heads": 4, "scale": 1.0}

# name -> changes to: noisy mixture, first phase, 8 heads, plain descent, logistic loss, full readout, no mask.
# Few shapes of arrays, so that the library compiles few programs.
SETTINGS: dict[str, dict[str, Any]] = {
    "the default": {},
    "one head": {"heads": 1},
    "three heads": {"heads": 3},
    "64 heads": {"heads": 64},
    "1,000 heads": {"heads": 1000},
    "a million heads": {"heads": 10**6},
    "10^12 heads": {"heads": 10**12},
    "10^12 heads, small": {"heads": 10**12, "data": SMALL},
    "from zero": {"start": "zero"},
    "from zero, 10^12 heads": {"start": "zero", "heads": 10**12},
    "Gaussian, 4 heads": {"start": "gaussian", "heads": 4},
    "Gaussian, large": {"start": "gaussian", "heads": 4, "scale": 3.0, "step_size": 0.2},
    "Gaussian, pooled": {"start": "gaussian", "heads": 4, "decoder": "pooled"},
    "Gaussian, last token": {"start": "gaussian", "heads": 4, "decoder": "last"},
    "small, without noise": {"data": SMALL, "step_size": 1.0},
    "strong noise": {"data": HARD, "step_size": 0.2},
    "hyperbolic loss": {"loss": "hyperbolic", "step_size": 0.2},
    "pooled": {"decoder": "pooled"},
    "last token": {"decoder": "last", "step_size": 1.0},
    "pooled, ragged": {"decoder": "pooled", "masked": True},
    "last token, ragged": {"decoder": "last", "masked": True, "step_size": 1.0},
    "ragged": {"masked": True},
    "normalized": {"optimizer": "normalized", "step_size": 0.05},
    "normalized until the loss underflows": {
        "optimizer": "normalized",
        "step_size": 3.0,
        "heads": 2,
        "data": SMALL,
    },
    "normalized, hyperbolic, 10^6 heads": {
        "optimizer": "normalized",
        "loss": "hyperbolic",
        "heads": 10**6,
    },
    "Polyak's step": {"optimizer": "polyak", "step_size": 1.0},
    "Adam": {"optimizer": "adam", "step_size": 0.01},
    "Adam, Gaussian": {"optimizer": "adam", "step_size": 0.01, "start": "gaussian", "heads": 4},
    "random labels": {
        "data": "random_labels",
        "start": "gaussian",
        "heads": 4,
        "scale": 1.0,
        "step_size": 0.2,
    },
    "W's step times H, from zero": {"start": "zero", "heads": 10**6, "scaling": "mean_field"},
    "W's step times H, first phase": {"heads": 64, "scaling": "mean_field"},
    "parity": {"data": "parity", "optimizer": "adam", "step_size": 0.05, **PARITY_START},
    "parity with positions": {"data": "parity with positions", "step_size": 0.5, **PARITY_START},
    "a learned query": {"decoder": "query", "start": "queries", "heads": 3},
    "a learned query, ragged": {
        "decoder": "query",
        "start": "queries",
        "heads": 3,
        "masked": True,
        "optimizer": "adam",
        "step_size": 0.02,
    },
    "planted": {"data": "planted", "start": "zero", "step_size": 0.2},
}


class Rescaled(GD):
    """Plain descent whose step of the attention weights is multiplied."""

    ratio: float = 1.0

    def move(self, problem, view, memory, axis):
        W, U = view.gradient
        step = self.step_size
        return type(view.gradient)(-step * self.ratio * W, -step * U), memory


def export(name: str, num_examples: int = 24, num_steps: int = 120) -> dict:
    """One setting: arrays, plan and the library's records, as plain values."""
    wish = SETTINGS[name]
    keys = jax.random.split(jax.random.key(sorted(SETTINGS).index(name)), 6)
    task, (fresh, data, test) = _data(wish.get("data", {**MIXTURE, **NOISE}), num_examples, keys)
    if wish.get("masked"):
        data, test, fresh = (_ragged(part, i) for i, part in enumerate((data, test, fresh)))
    start = _start(wish, data, fresh, keys[5])
    plan: dict[str, Any] = {
        "step_size": wish.get("step_size", 0.5),
        "num_steps": num_steps,
        "loss": wish.get("loss", "logistic"),
    }
    optimizer = wish.get("optimizer", "gd")
    rescaled = wish.get("scaling") == "mean_field"
    rule = RULES[optimizer](plan["step_size"])
    if rescaled:
        rule = Rescaled(plan["step_size"], ratio=float(start.num_heads))
    how = {
        "rule": rule,
        "num_steps": num_steps,
        "loss": plan["loss"],
    }
    run = train(start, data, test=test, record="log", dtype="float64", **how)
    records = {
        there: getattr(run, here)
        for there, here in RECORDS.items()
        if getattr(run, here) is not None
    }
    told = {
        "name": name,
        "optimizer": optimizer,
        "scaling": wish.get("scaling", "paper"),
        "stepSize": plan["step_size"],
        "numSteps": num_steps,
        "loss": plan["loss"],
        "train": _lists(data),
        "test": _lists(test),
        "start": {
            "keyQuery": np.asarray(start.key_query).tolist(),
            "readout": np.asarray(start.readout).tolist(),
            "multiplicity": start.multiplicity.tolist(),
            "decoder": start.decoder,
            "exponent": start.exponent,
        },
        "steps": run.steps.tolist(),
        "records": {there: np.asarray(values).tolist() for there, values in records.items()},
        "attention": _attention(run.final, data).tolist(),
        "averages": _averages(run.final, data).tolist(),
    }
    if start.decoder == "full" and data.mask is None:
        told["admissible"] = 1 / Shape.of(data).b2(readout_norm(start, data) + 1, start.num_heads)
    if optimizer == "gd" and not rescaled and start.decoder != "query":
        paper = isinstance(task, TokenizedMixture) and start.decoder == "full" and data.mask is None
        told |= _targets(task if paper else None, start, data, plan)
    return told


def _attention(model, data: Dataset) -> np.ndarray:
    """Of the first sequence."""
    with jax.enable_x64(True):
        return np.asarray(
            model.attention(data.tokens[0], None if data.mask is None else data.mask[0])
        )


def _averages(model, data: Dataset, count: int = 3) -> np.ndarray:
    """What the heads saw of the first sequences: the mean over heads and queries of A X."""
    found = []
    for tokens, mask in zip(data.tokens[:count], _masks(data), strict=False):
        with jax.enable_x64(True):
            attention = np.asarray(model.attention(tokens, mask))
        seen = attention @ tokens
        queries = seen.shape[1] if mask is None or seen.shape[1] == 1 else mask.sum()
        heads = model.multiplicity / model.multiplicity.sum()
        found.append(np.einsum("g,gqd->d", heads, seen) / queries)
    return np.array(found)


def _masks(data: Dataset):
    return [None] * data.num_examples if data.mask is None else data.mask


def _parity(num_tokens: int, positions: bool) -> Dataset:
    """All sequences of two kinds of tokens, labeled by the parity of the second kind, as the page makes them."""
    kinds = np.array(list(itertools.product((0, 1), repeat=num_tokens)))
    tokens = 2 * np.eye(2)[kinds]
    if positions:
        place = np.broadcast_to(2 * np.eye(num_tokens), (len(kinds), num_tokens, num_tokens))
        tokens = np.concatenate([tokens, place], axis=2)
    return Dataset.from_arrays(tokens, (-1.0) ** kinds.sum(axis=1))


def _data(wish, num_examples: int, keys) -> tuple[Any, list[Dataset]]:
    if wish in ("parity", "parity with positions"):
        return None, [_parity(4, positions=wish != "parity")] * 3
    makers = {
        "random_labels": lambda: RandomLabels(num_tokens=8, dim=10),
        "planted": lambda: Planted(num_tokens=8, dim=10, teacher_heads=2, key=keys[0]),
    }
    task = makers[wish]() if isinstance(wish, str) else TokenizedMixture(**wish, key=keys[0])
    return task, [
        task.sample(count, key=key)
        for count, key in zip((60, num_examples, 20), keys[1:4], strict=True)
    ]


def _start(wish: dict, data: Dataset, fresh: Dataset, key):
    heads, decoder, kind = (
        wish.get("heads", 8),
        wish.get("decoder", "full"),
        wish.get("start", "first_phase"),
    )
    shape = {"num_tokens": data.num_tokens, "dim": data.dim, "decoder": decoder}
    if kind == "queries":
        W, U = 0.5 * jax.random.normal(key, (2, heads, data.dim), dtype="float32")
        return MultiHead.create(np.asarray(W, float), np.asarray(U, float), decoder=decoder)
    if kind == "zero":
        return zero_start(heads, **shape)
    if kind == "gaussian":
        scale = wish.get("scale", 1.0)
        return gaussian_start(heads, key=key, key_query_scale=scale, readout_scale=scale, **shape)
    return first_phase(fresh, heads, decoder=decoder, loss=wish.get("loss", "logistic"))


def _ragged(data: Dataset, seed: int) -> Dataset:
    lengths = np.random.default_rng(seed).integers(3, data.num_tokens + 1, data.num_examples)
    mask = np.arange(data.num_tokens) < lengths[:, None]
    assert data.relevant is not None
    return Dataset.from_arrays(data.tokens, data.labels, mask=mask, relevant=data.relevant & mask)


def _lists(data: Dataset) -> dict:
    flags = {
        name: None if (array := getattr(data, name)) is None else array.tolist()
        for name in ("mask", "relevant")
    }
    return {"tokens": data.tokens.tolist(), "labels": data.labels.tolist(), **flags}


def _targets(
    task: TokenizedMixture | None, start, data: Dataset, plan: dict, scale: float = 2.0
) -> dict:
    """The exact decomposition for every target that the page offers, and Theorem 1's conditions for the paper's."""
    targets = {
        "end": measure_target(
            "the start", start, data, jax.tree.map(np.zeros_like, start.heads), plan["loss"]
        )
    }
    told: dict[str, Any] = {}
    if task is not None:
        targets["paper"] = along(mixture_direction(start, task), scale, start, data, plan["loss"])
        targets["attention"] = attention_target(start, data, task, loss=plan["loss"])
        told["mixture"] = {
            "T": task.num_tokens,
            "M": task.num_patterns,
            "signal": task.signal,
            "sparsity": task.sparsity,
            "oracle": {"U": task.U_opt.ravel().tolist(), "W": task.W_opt.ravel().tolist()},
            "scale": scale,
        }
        if plan["loss"] == "logistic":
            case = case_of(
                start,
                data,
                targets["paper"],
                num_steps=plan["num_steps"],
                step_size=plan["step_size"],
            )
            ours = training_conditions(case)[2]
            told["theorem"] = {
                "headsNeeded": ours.heads_needed,
                "largestStep": ours.largest_step,
                "bound": ours.bound,
                "M": case.radius,
            }
    end = follow(start, data, targets=list(targets.values()), **plan).displacement
    targets["end"] = measure_target("the end of the run", start, data, end, plan["loss"])
    parts = decompose(follow(start, data, targets=list(targets.values()), **plan))
    told["identity"] = {
        name: {
            "meanLoss": part.mean_loss,
            "targetLoss": part.target.loss,
            "distanceTerm": part.distance_term,
            "returned": part.returned,
            "gap": float(np.mean(part.convexity_gap)),
            "defect": float(np.mean(part.descent_defect)),
            "residual": part.residual,
        }
        for name, part in zip(targets, parts, strict=True)
    }
    if task is not None:
        part = parts[list(targets).index("paper")]
        told["identity"]["paper"] |= {
            "convexityTerm": part.convexity_term,
            "descentTerm": part.descent_term,
        }
    return told
