"""manyheads: the theory of training multi-head attention, made to run.

The names below load their module on first use, so `import manyheads` is quick. Everything else that is public is in
`measures`, `theory`, `data` and `lab`: `mh.measures.tangent_kernel`, say.
"""

from manyheads._names import public

__version__ = "0.1.0"

PUBLIC = {
    "data.dataset": ("Dataset",),
    "data.mixture": ("TokenizedMixture",),
    "model.attention": ("MultiHead", "Factored", "collapse", "expand"),
    "model.variants": ("frozen",),
    "model.autodiff": ("as_model",),
    "model.layers": ("from_torch", "from_safetensors", "to_torch"),
    "training.start": ("zero_start", "gaussian_start", "first_phase"),
    "training.descent": ("train",),
    "training.rules": ("GD", "Normalized", "Polyak", "Adam", "Optax"),
    "training.batches": ("MiniBatches",),
    "training.progress": ("progress",),
    "model.loss": ("Weighted",),
    "theory.manyheads2026.live": ("Certified",),
    "training.trajectory": ("Trajectory",),
    "training.devices": ("use_cores",),
    "theory.manyheads2026.forecast": ("forecast",),
    "probe.attention_probe": ("AttentionProbe",),
    "theory.certify": ("certify",),
    "theory.verify": ("verify",),
    "theory.ledger": ("ledger",),
    "theory.statement": ("Statement", "Paper"),
    "theory.kinds": ("inputs", "real"),
    "theory.verdict": ("Hypothesis", "Bound", "Certificate", "Verdict"),
}
ROOMS = ("data", "measures", "theory", "lab")

_OLD = {
    "data.planted": ("Planted", "RandomLabels"),
    "data.real": ("digits",),
    "model.variants": ("frozen", "LowRank"),
    "training.start": (*PUBLIC["training.start"], "population_first_phase"),
    "measures.margin": ("hard_margin",),
    "measures.margin_scales": ("margin_ladder",),
    "measures.kernel": ("tangent_kernel",),
    "measures.tangent_features": ("tangent_margin",),
    "measures.kernel_change": ("kernel_drift", "gaussian_limit"),
    "measures.curvature": (
        "loss_curvature",
        "score_curvature",
        "curvature_along",
        "curvature_on_segment",
    ),
    "measures.spectrum": ("loss_spectrum", "spectral_density"),
    "measures.stability": ("leave_one_out", "replace_one"),
    "measures.stability_estimate": ("estimate_leave_one_out",),
    "measures.expected_gap": ("optimism",),
    "measures.focus": ("attention_focus",),
    "measures.held_out": ("risk",),
    "theory.manyheads2026.forecast": ("forecast", "first_forecast"),
    "theory.manyheads2026.sleep": ("attention_sleep",),
    "theory.deora2023.initialization": ("good_start",),
    "theory.decomposition": ("explain_run",),
    "theory.deora2023.regime": ("smallest_heads",),
    "theory.deora2023.planner": ("plan",),
}
_HOME = {n: f"manyheads.{m}" for m, names in (PUBLIC | _OLD).items() for n in names}

__getattr__, __dir__ = public(__name__, PUBLIC | _OLD, ROOMS)
