"""The sections of a sweep: data, start, model, training. One description per field drives checks, TOML and units."""

from __future__ import annotations

from dataclasses import dataclass

from manyheads.sweeps.fields import SpecError, check_fields, setting

MIXTURE, PLANTED, RANDOM, FILE = "mixture", "planted", "random_labels", "file"
DRAWN = (MIXTURE, PLANTED, RANDOM)


class _Section:
    """What all sections share: checked when made, whoever makes them."""

    section = ""

    def __post_init__(self) -> None:
        if problems := check_fields(self, self.section):
            raise SpecError(problems)


@dataclass(frozen=True)
class DataSpec(_Section):
    """Where sequences and labels come from. `kind` chooses; fields of another kind are refused."""

    section = "data"
    kind: str = setting(MIXTURE, "which data", choices=(*DRAWN, FILE))
    path: str = setting("", "an .npz with tokens and labels", kinds=(FILE,))
    num_examples: int = setting(100, "training sequences, n", unit="sequences", low=2, high=10**7)
    num_test: int = setting(200, "fresh test sequences; 0 for none", unit="sequences", low=0, high=10**7)
    seed: int | None = setting(
        None, "fixes the sample; without it each seed of the sweep draws its own", low=0, high=2**31
    )
    task_seed: int = setting(0, "draws the patterns or the teacher", low=0, high=2**31 - 1, kinds=(MIXTURE, PLANTED))
    num_tokens: int = setting(8, "tokens per sequence, T", unit="tokens", low=1, high=10**5, kinds=DRAWN)
    dim: int = setting(12, "dimension of a token, d", low=1, high=10**5, kinds=DRAWN)
    num_patterns: int = setting(4, "irrelevant patterns, M", low=1, high=10**5, kinds=(MIXTURE,))
    sparsity: float = setting(0.25, "share of relevant tokens, zeta", unit="1", above=0, below=1, kinds=(MIXTURE,))
    signal: float = setting(2.0, "norm of a pattern, S", unit="1", above=0, kinds=(MIXTURE,))
    noise_mu: float = setting(0.0, "noise along the relevant patterns, Z_mu", unit="1", low=0, kinds=(MIXTURE,))
    noise_nu: float = setting(0.0, "noise along the irrelevant patterns, Z_nu", unit="1", low=0, kinds=(MIXTURE,))
    noise_norm: float = setting(0.0, "norm of the noise, Z", unit="1", low=0, kinds=(MIXTURE,))
    noise: str = setting("uniform", "law of the noise", choices=("uniform", "vertex", "none"), kinds=(MIXTURE,))
    positions: str = setting("random", "where relevant tokens sit", choices=("random", "fixed"), kinds=(MIXTURE,))
    frame: str = setting("rotated", "how the patterns lie", choices=("rotated", "axis"), kinds=(MIXTURE,))
    teacher_heads: int = setting(4, "heads of the planted model", unit="heads", low=1, high=10**5, kinds=(PLANTED,))
    teacher_scale: float = setting(1.0, "scale of the planted weights", unit="1", above=0, kinds=(PLANTED,))
    token_scale: float = setting(1.0, "standard deviation of a token's entries", unit="1", above=0, kinds=(PLANTED,))
    margin: float = setting(
        0.0, "sequences with a smaller planted score are dropped", unit="1", low=0, kinds=(PLANTED,)
    )
    token_norm: float = setting(2.0, "norm of every token", unit="1", above=0, kinds=(RANDOM,))


@dataclass(frozen=True)
class StartSpec(_Section):
    """Where training starts."""

    section = "start"
    kind: str = setting("first_phase", "which start", choices=("zero", "gaussian", "first_phase", "population"))
    signs: str = setting(
        "balanced",
        "signs of the heads after the first phase",
        choices=("balanced", "rademacher", "uniform"),
        kinds=("first_phase", "population"),
    )
    num_examples: int = setting(
        200,
        "sequences of the first phase, apart from the training data",
        unit="sequences",
        low=2,
        high=10**7,
        kinds=("first_phase",),
    )
    key_query_scale: float = setting(
        1.0, "root mean square of a head's norm of W", unit="1", low=0, kinds=("gaussian",)
    )
    readout_scale: float = setting(1.0, "root mean square of a head's norm of U", unit="1", low=0, kinds=("gaussian",))


@dataclass(frozen=True)
class ModelSpec(_Section):
    """The attention model."""

    section = "model"
    num_heads: float = setting(8.0, "heads, H", unit="heads", low=1, high=9e15)
    decoder: str = setting("full", "the readout", choices=("full", "pooled", "last"))
    rank: int | None = setting(None, "rank of the key-query weights; without it they are full", low=1, high=10**5)
    exponent: float = setting(0.5, "c in the scaling H^-c", unit="1", low=0, high=10)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_heads != int(self.num_heads):
            raise SpecError(
                [f"model.num_heads = {self.num_heads!r} is not whole; write a whole number such as 64 or 1e12"]
            )


@dataclass(frozen=True)
class TrainSpec(_Section):
    """Gradient descent."""

    section = "train"
    step_size: float = setting(0.1, "step size, eta", unit="1", above=0)
    num_steps: int = setting(100, "steps, K", unit="steps", low=0, high=10**9)
    optimizer: str = setting("gd", "how parameters move", choices=("gd", "normalized", "polyak", "adam"))
    loss: str = setting("logistic", "the loss", choices=("logistic", "hyperbolic"))
    dtype: str = setting(
        "auto", "precision; auto: float32, float64 from 10^6 heads on", choices=("auto", "float32", "float64")
    )
    record: str | int = setting(
        "log", "which steps are recorded: a spacing, or", low=1, high=10**9, choices=("log", "all")
    )


SECTIONS: dict[str, type] = {"data": DataSpec, "start": StartSpec, "model": ModelSpec, "train": TrainSpec}
