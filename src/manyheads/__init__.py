"""manyheads: the theory of training multi-head attention, made to run.

The names below load their module on first use, so `import manyheads` is quick and reading stored results needs no JAX.
"""

from manyheads._lazy import front_door

__version__ = "0.1.0"

# Public name -> the module that holds it. To add a name, add a line.
_HOME = {
    "Dataset": "manyheads.data.dataset",
    "TokenizedMixture": "manyheads.data.mixture",
    "Planted": "manyheads.data.planted",
    "RandomLabels": "manyheads.data.planted",
    "MultiHead": "manyheads.model.attention",
    "Factored": "manyheads.model.attention",
    "LowRank": "manyheads.model.variants",
    "frozen": "manyheads.model.variants",
    "from_torch": "manyheads.model.layers",
    "from_safetensors": "manyheads.model.layers",
    "to_torch": "manyheads.model.layers",
    "as_model": "manyheads.model.autodiff",
    "collapse": "manyheads.model.attention",
    "expand": "manyheads.model.attention",
    "zero_start": "manyheads.training.start",
    "gaussian_start": "manyheads.training.start",
    "first_phase": "manyheads.training.start",
    "population_first_phase": "manyheads.training.start",
    "train": "manyheads.training.descent",
    "GD": "manyheads.training.rules",
    "Normalized": "manyheads.training.rules",
    "Polyak": "manyheads.training.rules",
    "Adam": "manyheads.training.rules",
    "Optax": "manyheads.training.rules",
    "use_cores": "manyheads.training.devices",
    "Trajectory": "manyheads.training.trajectory",
    "hard_margin": "manyheads.measures.margin",
    "margin_ladder": "manyheads.measures.ladder",
    "tangent_kernel": "manyheads.measures.kernel",
    "tangent_margin": "manyheads.measures.tangent",
    "kernel_drift": "manyheads.measures.drift",
    "gaussian_limit": "manyheads.measures.drift",
    "loss_curvature": "manyheads.measures.curvature",
    "score_curvature": "manyheads.measures.curvature",
    "curvature_along": "manyheads.measures.curvature",
    "curvature_on_segment": "manyheads.measures.curvature",
    "loss_spectrum": "manyheads.measures.spectrum",
    "spectral_density": "manyheads.measures.spectrum",
    "leave_one_out": "manyheads.measures.stability",
    "replace_one": "manyheads.measures.stability",
    "estimate_leave_one_out": "manyheads.measures.screening",
    "optimism": "manyheads.measures.optimism",
    "attention_focus": "manyheads.measures.focus",
    "risk": "manyheads.measures.risk",
    "Certificate": "manyheads.theory.verdict",
    "Verdict": "manyheads.theory.verdict",
    "certify": "manyheads.theory.certify",
    "forecast": "manyheads.theory.manyheads2026.forecast",
    "first_forecast": "manyheads.theory.manyheads2026.forecast",
    "attention_sleep": "manyheads.theory.manyheads2026.sleep",
    "good_start": "manyheads.theory.deora2023.initialization",
    "explain_run": "manyheads.theory.decomposition",
    "smallest_heads": "manyheads.theory.deora2023.regime",
    "plan": "manyheads.theory.deora2023.planner",
    "verify": "manyheads.theory.verify",
    "ledger": "manyheads.theory.ledger",
    "digits": "manyheads.data.real",
    "MultiHeadAttentionClassifier": "manyheads.estimator.classifier",
    "Sweep": "manyheads.sweeps.spec",
    "run_sweep": "manyheads.sweeps.engine",
    "open_sweep": "manyheads.sweeps.assembly",
}


__getattr__, __dir__ = front_door(__name__, _HOME, rooms=("lab",))
