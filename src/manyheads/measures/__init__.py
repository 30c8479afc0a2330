"""Numbers measured on models and runs, with no claim attached."""

from manyheads._names import public

PUBLIC = {
    "kernel": ("tangent_kernel", "TangentKernel"),
    "margin": ("hard_margin", "MarginInterval"),
    "tangent_features": ("tangent_margin",),
    "margin_scales": (
        "margin_ladder",
        "MarginLadder",
        "linear_margin",
        "attention_margin",
        "found_margin",
    ),
    "kernel_change": ("kernel_drift", "KernelDrift", "gaussian_limit", "KernelLimit"),
    "hessian": ("HessianOperator",),
    "curvature": (
        "loss_curvature",
        "score_curvature",
        "curvature_along",
        "curvature_on_segment",
        "Curvature",
        "CurvaturePath",
        "Eigenvalue",
    ),
    "spectrum": ("loss_spectrum", "Spectrum", "spectral_density", "SpectralDensity"),
    "stability": ("leave_one_out", "replace_one", "Stability"),
    "stability_estimate": ("estimate_leave_one_out", "StabilityEstimate"),
    "expected_gap": ("optimism", "Optimism"),
    "focus": ("attention_focus", "Focus"),
    "held_out": ("risk", "Risk"),
}

__getattr__, __dir__ = public(__name__, PUBLIC)
