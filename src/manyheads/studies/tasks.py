"""Data that several studies share, so that their answers can be put side by side."""

from __future__ import annotations

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
HARD_MIXTURE: dict[str, Any] = {**MIXTURE, "sparsity": 0.125, "noise_mu": 0.5, "noise_nu": 0.5, "noise_norm": 1.5}
# Nothing to learn but by heart.
RANDOM_LABELS: dict[str, Any] = {
    "kind": "random_labels",
    "num_tokens": 6,
    "dim": 6,
    "token_norm": 2.0,
    "num_examples": 40,
    "num_test": 0,
}

MIXTURE_TEXT = "tokenized mixture, T=8, d=10, M=4, S=1.5, zeta=1/4, Z_mu=Z_nu=0.1, Z=0.4"
HARD_TEXT = "tokenized mixture, T=8, d=10, M=4, S=1.5, zeta=1/8, Z_mu=Z_nu=0.5, Z=1.5"
RANDOM_TEXT = "random labels: 40 sequences, T=d=6, tokens of norm 2 in random directions"
