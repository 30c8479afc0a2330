"""Every public function with valid arguments, tiny, and what each of these is."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import manyheads as mh
from manyheads.measures import ladder
from manyheads.sweeps import export, make_plan, status
from manyheads.theory import targets
from manyheads.theory.deora2023 import (
    corollaries,
    expressivity,
    generalization,
    initialization,
    mixture,
    regime,
)
from manyheads.theory.walk import follow


@functools.cache
def good() -> dict[str, Any]:
    """Valid things of every kind, tiny."""
    key = jax.random.key(0)
    source = mh.TokenizedMixture(
        num_tokens=2, dim=4, num_patterns=2, sparsity=0.5, key=key, frame="axis"
    )
    data = source.sample(8, key=jax.random.key(1))
    model = mh.first_phase(data, 4)
    run = mh.train(model, data, rule=mh.GD(0.1), num_steps=4, snapshots=[2], dtype="float64")
    measured = initialization.good_start(model, data)
    return {
        "key": key,
        "mixture": source,
        "data": data,
        "other": source.sample(8, key=jax.random.key(2)),
        "model": model,
        "run": run,
        "good": measured,
        "direction": measured.theta_star(),
        "many": source.sample(24, key=key),
    }


def calls() -> dict[str, tuple[Callable, dict[str, Any], dict[str, str]]]:
    """Name -> function, valid arguments, and what each of these is."""
    g = good()
    data, model, run, key = g["data"], g["model"], g["run"], g["key"]
    X, y = data.tokens, data.labels
    on = {"model": model, "dataset": data}
    kinds = {"model": "model", "dataset": "data"}
    run_on, of_run = {"trajectory": run, "dataset": data}, {"trajectory": "run", "dataset": "data"}
    descent, steps = (
        {"step_size": 0.1, "num_steps": 3},
        {"step_size": "positive", "num_steps": "count"},
    )
    W, U = np.zeros((1, 4, 4)), np.zeros((1, 2, 4))
    good_kinds = {"good": "good", "num_steps": "positive"}
    table: dict[str, tuple[Callable, dict[str, Any], dict[str, str]]] = {
        "Dataset.from_arrays": (
            mh.Dataset.from_arrays,
            {"tokens": X, "labels": y, "mask": np.ones((8, 2), bool)},
            {"tokens": "array", "labels": "array", "mask": "array"},
        ),
        "Dataset": (mh.Dataset, {"tokens": X, "labels": y}, {"tokens": "array", "labels": "array"}),
        "Dataset.subset": (data.subset, {"indices": [0, 1]}, {"indices": "array"}),
        "Dataset.without": (data.without, {"i": 1}, {"i": "index"}),
        "Dataset.split": (
            data.split,
            {"first": 3, "key": key},
            {"first": "some or share", "key": "key"},
        ),
        "TokenizedMixture": (
            functools.partial(mh.TokenizedMixture, frame="axis", dim=6),
            {"num_tokens": 4, "signal": 2.0, "sparsity": 0.5, "noise": "none"},
            {"num_tokens": "some", "signal": "positive", "sparsity": "share", "noise": "name"},
        ),
        "TokenizedMixture.sample": (
            g["mixture"].sample,
            {"num_examples": 8, "key": key},
            {"num_examples": "many", "key": "key"},
        ),
        "Planted": (
            mh.Planted,
            {"dim": 3, "margin": 0.0, "key": key},
            {"dim": "some", "margin": "zero up", "key": "key"},
        ),
        "RandomLabels": (
            mh.RandomLabels,
            {"token_norm": 1.0, "dim": 3},
            {"token_norm": "positive", "dim": "some"},
        ),
        "MultiHead.create": (
            mh.MultiHead.create,
            {"key_query": W, "readout": U, "multiplicity": [2.0], "exponent": 0.5},
            {
                "key_query": "array",
                "readout": "array",
                "multiplicity": "array",
                "exponent": "zero up",
            },
        ),
        "MultiHead.scores": (model.scores, {"dataset": data}, {"dataset": "data"}),
        "collapse": (mh.collapse, {"model": model}, {"model": "heads"}),
        "expand": (
            mh.expand,
            {"model": model, "largest": 100},
            {"model": "heads", "largest": "some"},
        ),
        "frozen": (
            mh.frozen,
            {"model": model, "block": "readout"},
            {"model": "heads", "block": "name"},
        ),
        "as_model": (mh.as_model, {"thing": model}, {"thing": "model"}),
        "zero_start": (
            mh.zero_start,
            {"num_heads": 4, "num_tokens": 2, "dim": 4, "exponent": 0.5, "decoder": "full"},
            {
                "num_heads": "heads count",
                "num_tokens": "some",
                "dim": "some",
                "exponent": "zero up",
                "decoder": "name",
            },
        ),
        "gaussian_start": (
            mh.gaussian_start,
            {"num_heads": 2, "num_tokens": 2, "dim": 4, "key": key, "key_query_scale": 1.0},
            {
                "num_heads": "heads few",
                "num_tokens": "some",
                "dim": "some",
                "key": "key",
                "key_query_scale": "zero up",
            },
        ),
        "first_phase": (
            mh.first_phase,
            {"dataset": data, "num_heads": 4, "signs": "balanced", "loss": "logistic"},
            {"dataset": "data", "num_heads": "heads count", "signs": "name", "loss": "name"},
        ),
        "population_first_phase": (
            mh.population_first_phase,
            {"mixture": g["mixture"], "num_heads": 4},
            {"mixture": "mixture", "num_heads": "heads count"},
        ),
        "train": (
            mh.train,
            {
                **on,
                "rule": mh.GD(0.1),
                "num_steps": 3,
                "tf32": False,
                "progress": False,
                "forecast": False,
                "dtype": "float64",
                "sample_weight": np.ones(8),
                "chunk": 4,
                "loss": "logistic",
                "test": g["other"],
                "record": "all",
            },
            {
                **kinds,
                "num_steps": "steps",
                "tf32": "flag",
                "progress": "flag",
                "forecast": "flag",
                "dtype": "dtype",
                "sample_weight": "array",
                "chunk": "count",
                "loss": "name",
                "test": "data or none",
                "record": "name or steps",
            },
        ),
        "Trajectory.model": (run.model, {"step": 2}, {"step": "kept step"}),
        "hard_margin": (
            mh.hard_margin,
            {"labels": y, "features": X.reshape(8, -1), "tolerance": 1e-3},
            {"labels": "array", "features": "array", "tolerance": "share"},
        ),
        "hard_margin, gram": (
            mh.hard_margin,
            {"labels": y, "gram": np.eye(8), "gram_accuracy": 1e-12},
            {"labels": "array", "gram": "array", "gram_accuracy": "zero up"},
        ),
        "margin_ladder": (
            mh.margin_ladder,
            {**on, "num_starts": 1, "num_steps": 2, "key": key},
            {**kinds, "num_starts": "some", "num_steps": "some", "key": "key"},
        ),
        "tangent_kernel": (
            mh.tangent_kernel,
            {**on, "memory": 1e7, "dtype": "float64", "form": "maps"},
            {**kinds, "memory": "bytes", "dtype": "dtype", "form": "name or none"},
        ),
        "kernel_drift": (
            mh.kernel_drift,
            {**run_on, "steps": [0, 4], "memory": 1e7},
            {**of_run, "steps": "kept steps", "memory": "bytes"},
        ),
        "gaussian_limit": (
            mh.gaussian_limit,
            {"dataset": data, "key": key, "num_draws": 4, "num_batches": 2, "readout_scale": 1.0},
            {
                "dataset": "data",
                "key": "key",
                "num_draws": "some",
                "num_batches": "some",
                "readout_scale": "zero up",
            },
        ),
        "loss_curvature": (
            mh.loss_curvature,
            {**on, "tolerance": 1e-7, "max_products": 100, "seed": 0, "loss": "logistic"},
            {
                **kinds,
                "tolerance": "share",
                "max_products": "count",
                "seed": "seed",
                "loss": "name",
            },
        ),
        "score_curvature": (
            mh.score_curvature,
            {**on, "index": 1, "method": "dense"},
            {**kinds, "index": "index", "method": "name or none"},
        ),
        "curvature_along": (
            mh.curvature_along,
            {**run_on, "steps": [0, 4], "progress": False},
            {**of_run, "steps": "kept steps", "progress": "flag"},
        ),
        "curvature_on_segment": (
            mh.curvature_on_segment,
            {"first": model, "second": run.final, "dataset": data, "num_points": 2},
            {"first": "model", "second": "model", "dataset": "data", "num_points": "some"},
        ),
        "loss_spectrum": (mh.loss_spectrum, {**on, "loss": "logistic"}, {**kinds, "loss": "name"}),
        "spectral_density": (
            mh.spectral_density,
            {**on, "num_probes": 2, "num_products": 4, "num_points": 5, "width": 0.1, "key": key},
            {
                **kinds,
                "num_probes": "some",
                "num_products": "some",
                "num_points": "some",
                "width": "positive",
                "key": "key",
            },
        ),
        "leave_one_out": (
            mh.leave_one_out,
            {
                **on,
                **descent,
                "steps": [1, 3],
                "expansion": False,
                "num_left_out": 2,
                "key": key,
                "dtype": "float64",
                "batch": 1,
            },
            {
                **kinds,
                **steps,
                "steps": "steps list",
                "expansion": "flag",
                "num_left_out": "index",
                "key": "key",
                "dtype": "dtype",
                "batch": "count",
            },
        ),
        "replace_one": (
            mh.replace_one,
            {**on, "replacements": g["other"], **descent},
            {**kinds, "replacements": "data", **steps},
        ),
        "estimate_leave_one_out": (
            mh.estimate_leave_one_out,
            {**on, **descent, "num_kernels": 2, "num_exact": 2, "key": key},
            {**kinds, **steps, "num_kernels": "some", "num_exact": "some", "key": "key"},
        ),
        "optimism": (
            mh.optimism,
            {**on, **descent, "steps": [1, 3], "num_probes": 2, "key": key, "loss": "logistic"},
            {
                **kinds,
                **steps,
                "steps": "steps list",
                "num_probes": "some",
                "key": "key",
                "loss": "name",
            },
        ),
        "attention_focus": (
            mh.attention_focus,
            {"run": run, "dataset": data, "epsilon": 0.1},
            {"run": "run or heads", "dataset": "data", "epsilon": "share"},
        ),
        "risk": (
            mh.risk,
            {"model": model, "train": data, "test": g["other"]},
            {"model": "model", "train": "data", "test": "data"},
        ),
        "certify": (
            mh.certify,
            {
                "run": run,
                "dataset": data,
                "statements": ["descent"],
                "token_radius": 9.0,
                "independent": False,
            },
            {
                "run": "run",
                "dataset": "data",
                "statements": "names",
                "token_radius": "positive",
                "independent": "flag",
            },
        ),
        "forecast": (
            mh.forecast,
            {"model": run, "dataset": data, "reduce": 2.0, "most_pieces": 3},
            {
                "model": "run or heads",
                "dataset": "data",
                "reduce": "above one",
                "most_pieces": "some",
            },
        ),
        "first_forecast": (
            mh.first_forecast,
            {"run": run, "dataset": data, "reduce": 2.0},
            {"run": "run", "dataset": "data", "reduce": "above one"},
        ),
        "good_start": (
            mh.good_start,
            {"start": model, "dataset": data, "token_radius": 9.0},
            {"start": "heads", "dataset": "data", "token_radius": "positive"},
        ),
        "explain_run": (
            mh.explain_run,
            {"start": model, "dataset": data, **descent, "longer": 2, "loss": "logistic"},
            {"start": "model", "dataset": "data", **steps, "longer": "some", "loss": "name"},
        ),
        "smallest_heads": (
            mh.smallest_heads,
            {
                "start": model,
                "dataset": data,
                "directions": [g["direction"]],
                "certified": 0.5,
                "num_steps": 100,
            },
            {
                "start": "heads",
                "dataset": "data",
                "directions": "directions",
                "certified": "positive",
                "num_steps": "count",
            },
        ),
        "plan": (
            mh.plan,
            {
                "dataset": g["many"],
                "start": "zero",
                "target_loss": 0.5,
                "key": key,
                "planning_share": 0.5,
                "trials": False,
            },
            {
                "dataset": "data",
                "start": "name",
                "target_loss": "loss level",
                "key": "key",
                "planning_share": "share",
                "trials": "flag",
            },
        ),
        "verify": (
            mh.verify,
            {"statements": ["E1"], "quick": True, "seed": 0},
            {"statements": "names", "quick": "flag", "seed": "seed"},
        ),
        "digits": (mh.digits, {"first": 3, "second": 8}, {"first": "digit", "second": "digit"}),
        "linear_margin": (
            ladder.linear_margin,
            {"dataset": data, "tolerance": 1e-3},
            {"dataset": "data", "tolerance": "share"},
        ),
        "attention_margin": (
            ladder.attention_margin,
            {"dataset": data, "tolerance": 1e-3},
            {"dataset": "data", "tolerance": "share"},
        ),
        "follow": (
            follow,
            {"start": model, "dataset": data, **descent},
            {"start": "model", "dataset": "data", **steps, "num_steps": "steps"},
        ),
        "with_heads": (
            targets.with_heads,
            {"start": model, "num_heads": 8},
            {"start": "heads", "num_heads": "positive"},
        ),
        "train_loss": (targets.train_loss, {**on, "loss": "logistic"}, {**kinds, "loss": "name"}),
        "proximal_target": (
            targets.proximal_target,
            {"start": model, "dataset": data, **descent},
            {"start": "model", "dataset": "data", "step_size": "positive", "num_steps": "positive"},
        ),
        "along": (
            targets.along,
            {"direction": g["direction"], "scale": 1.0, "start": model, "dataset": data},
            {"direction": "direction", "scale": "real", "start": "heads", "dataset": "data"},
        ),
        "realize": (
            initialization.realize,
            {"good": g["good"], "loss": 0.1, "allowance": 0.1},
            {"good": "good", "loss": "positive", "allowance": "positive"},
        ),
        "train_bound": (
            corollaries.train_bound,
            {"good": g["good"], "num_steps": 10.0, "step_size": 0.1},
            {**good_kinds, "step_size": "positive"},
        ),
        "largest_good_step": (
            corollaries.largest_good_step,
            {"good": g["good"], "num_steps": 10.0},
            good_kinds,
        ),
        "first_phase_error": (
            mixture.first_phase_error,
            {"mixture": g["mixture"], "num_examples": 10, "failure": 0.1},
            {"mixture": "mixture", "num_examples": "many", "failure": "share"},
        ),
        "sharpness": (
            expressivity.sharpness,
            {"mixture": g["mixture"], "mass": 0.1, "printed": False},
            {"mixture": "mixture", "mass": "share or zero", "printed": "flag"},
        ),
        "measure_leave_one_out": (
            generalization.measure_leave_one_out,
            {"start": model, "dataset": data, **descent, "independent": False},
            {"start": "heads", "dataset": "data", **steps, "independent": "flag"},
        ),
        "run_literally": (
            regime.run_literally,
            {"start": model, "dataset": data, "threshold": None},
            {"start": "heads", "dataset": "data", "threshold": "threshold"},
        ),
        "Sweep": (
            mh.Sweep,
            {"name": "s", "seeds": 1, "axes": {}, "cell": "a:b"},
            {"name": "text", "seeds": "few or list", "axes": "table", "cell": "name"},
        ),
        "make_plan": (make_plan, {"sweep": mh.Sweep()}, {"sweep": "sweep"}),
        "Dataset.load": (mh.Dataset.load, {"path": "no.npz"}, {"path": "path"}),
        "Trajectory.load": (mh.Trajectory.load, {"path": "no.npz"}, {"path": "path"}),
        "open_sweep": (mh.open_sweep, {"path": "no"}, {"path": "path"}),
        "status": (status, {"path": "no"}, {"path": "path"}),
        "export": (
            export,
            {"path": "no", "target": "x.nc", "overwrite": False},
            {"path": "path", "target": "path", "overwrite": "flag"},
        ),
        "run_sweep": (
            mh.run_sweep,
            {
                "sweep": "no.toml",
                "out": "x",
                "workers": 1,
                "threads": 1,
                "retry_failed": False,
                "cache": True,
            },
            {
                "sweep": "path",
                "out": "path",
                "workers": "count",
                "threads": "count",
                "retry_failed": "flag",
                "cache": "flag",
            },
        ),
    }
    return table
