"""Data and starts shared by several studies, so that their answers can be compared, and descriptions of them."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

# The tokenized mixture with little noise: easy, and every number of the theory has a formula on it.
MIXTURE: dict[str, Any] = {
    "kind": "mixture",
    "num_tokens": 8,
    "dim": 10,
    "num_patterns": 4,
    "sparsity": 0.25,
    "signal": 1.5,
    "noise_mu": 0.1,
    "noise_nu": 0.1,
    "noise_norm": 0.4,
}
# The same with few relevant tokens and strong noise: still separable, but not in one step.
HARD_MIXTURE: dict[str, Any] = {
    **MIXTURE,
    "sparsity": 0.125,
    "noise_mu": 0.5,
    "noise_nu": 0.5,
    "noise_norm": 1.5,
}
# The labels carry no signal and can only be memorized.
RANDOM_LABELS: dict[str, Any] = {
    "kind": "random_labels",
    "num_tokens": 6,
    "dim": 6,
    "token_norm": 2.0,
    "num_examples": 40,
    "num_test": 0,
}

# Kind of start -> its role in figures, its name.
STARTS = {
    "zero": ("zero", "zero start"),
    "first_phase": ("first phase", "first-phase start"),
    "gaussian": ("gaussian", "Gaussian start"),
}
DESCENT = "full batch, constant step size, logistic loss"
FIRST_PHASE = "first phase: one step from zero on fresh data, heads with signs +1 and -1"
UNIT_GAUSSIAN = "Gaussian with independent entries; a head's W and U have root mean square norm 1"


def describe(data: Mapping[str, Any]) -> str:
    """A data section in words, with the numbers that it gives."""
    size = f"T={data['num_tokens']}, d={data['dim']}"
    if data.get("kind", "mixture") == "mixture":
        text = f"tokenized mixture, {size}, M={data['num_patterns']}, S={data['signal']:g}, "
        text += f"ζ={Fraction(data['sparsity']).limit_denominator(64)}, "
        noise = [data.get(name, 0.0) for name in ("noise_mu", "noise_nu", "noise_norm")]
        text += f"Z_μ={noise[0]:g}, Z_ν={noise[1]:g}, Z={noise[2]:g}" if any(noise) else "no noise"
    elif data["kind"] == "random_labels":
        text = f"random labels, {size}, tokens of norm {data['token_norm']:g} in random directions"
    else:
        text = f"Gaussian tokens, {size}, labels of a planted model: {data['teacher_heads']} heads, weights of scale "
        text += f"{data['teacher_scale']:g}"
    if data.get("num_examples"):
        text += f"; {data['num_examples']} sequences"
    return text + (f", {data['num_test']} for testing" if data.get("num_test") else "")
