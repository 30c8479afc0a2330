"""manyheads: the theory of training multi-head attention, made to run.

The names below load their module on first use, so `import manyheads` is quick. Everything else that is public is in
the rooms: `mh.measures.tangent_kernel`, say.
"""

from manyheads._names import public

__version__ = "0.1.0"

PUBLIC = {
    "data.dataset": ("Dataset",),
    "data.mixture": ("TokenizedMixture",),
    "model.attention": ("MultiHead", "collapse", "expand"),
    "model.variants": ("frozen",),
    "model.autodiff": ("as_model",),
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
ROOMS = ("data", "model", "training", "measures", "theory", "lab")

__getattr__, __dir__ = public(__name__, PUBLIC, ROOMS)
