"""The three settings of the mixture that golden numbers refer to, as arrays."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jax
import numpy as np

from manyheads.data.dataset import Dataset
from manyheads.data.mixture import TokenizedMixture

FOLDER = Path(__file__).parent / "settings"


@dataclass(frozen=True, eq=False)
class Oracle:
    """The mixture's parameters and oracle objects, from its patterns."""

    num_tokens: int
    dim: int
    num_patterns: int
    sparsity: float
    signal: float
    noise_mu: float
    noise_nu: float
    noise_norm: float
    patterns: np.ndarray

    @property
    def u_star(self):
        return self.patterns[0] - self.patterns[1]

    @property
    def U_opt(self):
        U = np.tile(self.u_star, (self.num_tokens, 1))
        return U / np.linalg.norm(U)

    @property
    def W_opt(self):
        plus, minus, *nus = self.patterns
        W = (
            np.outer(plus, plus)
            + np.outer(minus, minus)
            + np.outer(np.sum(nus, axis=0), plus + minus)
        )
        return W / np.linalg.norm(W)

    @property
    def token_radius(self):
        return max(
            1.0,
            float(
                np.sqrt(self.signal**2 + self.noise_norm**2 + 2 * self.noise_nu / self.num_patterns)
            ),
        )


@dataclass(frozen=True, eq=False)
class Setting:
    name: str
    dataset: Dataset
    fresh: Dataset
    mixture: Oracle
    step_size: float
    num_steps: int


@cache
def setting(name: str) -> Setting:
    with np.load(FOLDER / f"{name}.npz", allow_pickle=False) as file:
        z = {key: file[key] for key in file.files}
    oracle = Oracle(
        int(z["T"]),
        int(z["d"]),
        int(z["M"]),
        float(z["zeta"]),
        float(z["S"]),
        float(z["Z_mu"]),
        float(z["Z_nu"]),
        float(z["Z"]),
        z["patterns"],
    )
    return Setting(
        name,
        Dataset.from_arrays(z["tokens"], z["labels"], relevant=z["relevant"], name=name),
        Dataset.from_arrays(z["first_phase_tokens"], z["first_phase_labels"]),
        oracle,
        float(z["step_size"]),
        int(z["num_steps"]),
    )


def redraw(name: str, seed: int) -> Setting:
    """Another draw of the same setting: other patterns, other data."""
    old = setting(name)
    o = old.mixture
    mixture = TokenizedMixture(
        num_tokens=o.num_tokens,
        dim=o.dim,
        num_patterns=o.num_patterns,
        sparsity=o.sparsity,
        signal=o.signal,
        noise_mu=o.noise_mu,
        noise_nu=o.noise_nu,
        noise_norm=o.noise_norm,
        key=jax.random.key(seed),
    )
    keys = jax.random.split(jax.random.key(seed + 1000), 2)
    data = mixture.sample(old.dataset.num_examples, key=keys[0])
    fresh = mixture.sample(old.fresh.num_examples, key=keys[1])
    return Setting(f"{name} redrawn {seed}", data, fresh, mixture, old.step_size, old.num_steps)
