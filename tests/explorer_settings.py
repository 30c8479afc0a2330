"""Settings that the page and the library both run: the library's arrays and its records for each."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from manyheads.data.dataset import Dataset
from manyheads.data.mixture import TokenizedMixture
from manyheads.data.planted import Planted, RandomLabels
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
from manyheads.training.rules import RULES
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
    "planted": {"data": "planted", "start": "zero", "step_size": 0.2},
}


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
    how = {
        "rule": RULES[optimizer](plan["step_size"]),
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
    }
    if start.decoder == "full" and data.mask is None:
        told["admissible"] = 1 / Shape.of(data).b2(readout_norm(start, data) + 1, start.num_heads)
    if optimizer == "gd":
        paper = isinstance(task, TokenizedMixture) and start.decoder == "full" and data.mask is None
        told |= _targets(task if paper else None, start, data, plan)
    return told


def _attention(model, data: Dataset) -> np.ndarray:
    """Of the first sequence."""
    with jax.enable_x64(True):
        return np.asarray(
            model.attention(data.tokens[0], None if data.mask is None else data.mask[0])
        )


def _data(wish, num_examples: int, keys) -> tuple[Any, list[Dataset]]:
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
