"""`AttentionProbe`: the interface of scikit-learn."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from manyheads._check import checked, not_negative, one_of, whole
from manyheads.data.dataset import Dataset
from manyheads.model.attention import MultiHead
from manyheads.probe import file, foreign
from manyheads.probe.choice import predicted
from manyheads.probe.fitting import Fit, Settings, binary, fit
from manyheads.probe.sequences import Sequences, as_sequences, is_sequences
from manyheads.theory.manyheads2026.forecast import Forecast, forecast

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils.class_weight import compute_sample_weight
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import (
        _check_sample_weight,
        check_is_fitted,
        column_or_1d,
        validate_data,
    )
except ImportError:
    raise ImportError(
        "AttentionProbe needs scikit-learn: install it with `pip install manyheads[data]`."
    ) from None

AUTO = one_of("auto")
PARAMETERS = {
    "decoder": one_of("query", "pooled", "full", "last", "auto"),
    "num_heads": whole(1, 4096) | AUTO,
    "start_norm": not_negative | AUTO,
    "positions": one_of(True, False, "auto"),
    "penalty": not_negative | AUTO,
    "max_steps": whole(1),
}
MOST_RARE = 20  # labels; of more, half of the sequences must share theirs
BLOCK = 1024  # sequences whose scores are computed at once


class AttentionProbe(ClassifierMixin, BaseEstimator):
    r"""Heads of attention on frozen embeddings, fitted without a seed.

    Each head has a query that is learned, attends once, and adds a score for every label. `X` is an array (sequences,
    tokens, dim), a list of arrays (tokens, dim) of any length, or a table (sequences, dim) of one token each, where
    the probe is linear. A token is padding where `mask` is False or all its features are NaN.

    The same data give the same probe: heads start at tokens far from one another, folds are dealt out in the order of
    the data, and L-BFGS in float64 draws nothing. "auto" is chosen by cross-validation (5-fold below 500 sequences,
    one fifth held out from there on) among 1, 4 and 16 heads, with and without positions, and three penalties.
    `report` gives the error, with its interval, beside that of linear models and a forest.

    Args:
        decoder: "query" (a query is learned), "pooled", "full" or "last" (tokens ask), or "auto".
        num_heads: number of heads, or "auto".
        start_norm: norm of the queries at the start, or "auto". With 0 all heads begin by averaging, and are equal.
        positions: whether each place has a feature of its own, or "auto", which does without above 64 tokens.
        penalty: weight of the squared norm of the parameters, or "auto".
        max_steps: largest number of steps of L-BFGS.
        class_weight: None, "balanced" or a dict of weights by class.
        verbose: print what is being done; otherwise only what takes more than ten seconds is announced.

    Attributes:
        classes_: the classes.
        num_heads_, start_norm_, positions_, penalty_, decoder_: what was chosen.
        model_: the probe as a `MultiHead`, on tokens as `layout_` reads them.
        trials_: the candidates that were run to the end, with their held-out losses, best first.
        n_iter_, converged_, loss_: how the fit ended; the loss is in nats, without the penalty.
        certificate_: what is proved about gradient descent from here; computed when first asked for.
    """

    def __init__(
        self,
        *,
        decoder="query",
        num_heads="auto",
        start_norm="auto",
        positions="auto",
        penalty="auto",
        max_steps=500,
        class_weight=None,
        verbose=False,
    ):
        self.decoder = decoder
        self.num_heads = num_heads
        self.start_norm = start_norm
        self.positions = positions
        self.penalty = penalty
        self.max_steps = max_steps
        self.class_weight = class_weight
        self.verbose = verbose

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def __dir__(self) -> list[str]:
        """All names, but `certificate_` only once it is computed: displays ask for every value in `dir`."""
        known = set(object.__dir__(self))
        return sorted(known if "_certificate" in vars(self) else known - {"certificate_"})

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: all but the training data, which only `certificate_` needs."""
        return {name: value for name, value in super().__getstate__().items() if name != "_data"}

    def fit(self, X, y, sample_weight=None, mask=None) -> AttentionProbe:
        """Choose and fit on sequences `X` with labels `y` of two classes or more."""
        settings = self._settings()
        sequences, y = self._read(X, mask, y)
        different = len(np.unique(y))
        if different > max(MOST_RARE, len(y) // 2):
            raise ValueError(
                f"y holds {different} labels in {len(y)} sequences; they look like numbers to be "
                "predicted, a continuous target, and this is a classifier: cut them into classes."
            )
        check_classification_targets(y)
        weight = np.ones(len(y))
        if sample_weight is not None:
            weight = _check_sample_weight(
                sample_weight,
                y,
                dtype=np.float64,
                ensure_non_negative=True,
                allow_all_zero_weights=False,
            )
        if self.class_weight is not None:
            weight = weight * compute_sample_weight(self.class_weight, y)
        used = weight > 0  # the others are as if they were not there
        if not used.all():
            sequences, y, weight = sequences.take(used), y[used], weight[used]
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y holds one class, {self.classes_[0]}; a classifier needs sequences of two classes."
            )
        vars(self).pop("_certificate", None)
        found = fit(sequences, codes, weight, len(self.classes_), settings, self._tell)
        self._keep(found)
        self._data = (sequences, codes)
        return self

    def _settings(self) -> Settings:
        """The parameters, checked; "auto" becomes None."""
        values = {}
        for name, constraint in PARAMETERS.items():
            value = checked(name, getattr(self, name), constraint)
            values[name] = None if isinstance(value, str) and value == "auto" else value
        values["heads"] = values.pop("num_heads")
        return Settings(**values)

    def _keep(self, found: Fit) -> None:
        """The attributes of a fitted probe."""
        self.fit_ = found
        self.layout_, self.penalty_ = found.layout, found.penalty
        self.decoder_, self.num_heads_ = found.kind.decoder, found.kind.heads
        self.start_norm_, self.positions_ = found.kind.spread, found.kind.positions
        self.trials_ = list(found.trials)
        self.n_iter_, self.converged_, self.loss_ = found.steps, found.converged, found.loss

    def _tell(self, line: str) -> None:
        """A line of progress; one that begins with ! is said in any case."""
        if self.verbose or line[0] == "!":
            print(line.removeprefix("! "), file=sys.stderr, flush=True)

    def _read(self, X: Any, mask: Any = None, y: Any = None) -> tuple[Sequences, Any]:
        """Sequences and labels; a table passes through scikit-learn's own checks."""
        fitting = y is not None or not hasattr(self, "fit_")
        if mask is None and not is_sequences(X):
            if not fitting:
                table = validate_data(self, X, reset=False, dtype=np.float64)
                return as_sequences(table), None
            table, y = validate_data(self, X, y, dtype=np.float64)
            return as_sequences(table), y
        sequences = as_sequences(X, mask)
        count, _, dim = sequences.tokens.shape
        if fitting:
            self.n_features_in_ = dim
            y = column_or_1d(y, warn=True)
            if len(y) != count:
                raise ValueError(
                    f"X has {count} sequences and y {len(y)} labels; they must be equal in number."
                )
        elif dim != self.n_features_in_:
            raise ValueError(
                f"X has {dim} features, but AttentionProbe is expecting {self.n_features_in_} "
                "features as input"
            )
        return sequences, y

    def decision_function(self, X, mask=None) -> np.ndarray:
        """The score of each sequence: (n,), above zero for `classes_[1]`, or (n, classes) for more than two."""
        check_is_fitted(self)
        scores = self._scores(self._read(X, mask)[0])
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def _scores(self, sequences: Sequences) -> np.ndarray:
        """Scores (n, outputs), block by block."""
        parts = []
        for first in range(0, len(sequences.tokens), BLOCK):
            block = sequences.take(slice(first, first + BLOCK))
            parts.append(self.fit_.scores(block))
        return np.concatenate(parts)

    def predict(self, X, mask=None) -> np.ndarray:
        """The class of each sequence."""
        check_is_fitted(self)
        return self.classes_[predicted(self._scores(self._read(X, mask)[0]))]

    def predict_proba(self, X, mask=None) -> np.ndarray:
        """The probability of each class, (n, classes)."""
        return np.exp(self.predict_log_proba(X, mask))

    def predict_log_proba(self, X, mask=None) -> np.ndarray:
        """The logarithm of the probability of each class, (n, classes)."""
        check_is_fitted(self)
        scores = self._scores(self._read(X, mask)[0])
        if len(self.classes_) == 2:
            scores = np.concatenate([np.zeros_like(scores), scores], axis=1)
        return scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)

    def report(self, X, y, mask=None, *, curve=True):
        """The error of probes like this one on sequences that no choice saw, beside its rivals (`probe.report`)."""
        from manyheads.probe.report import report

        return report(self, X, y, mask, curve=curve, tell=self._tell)

    def attention(self, X, mask=None) -> np.ndarray:
        """Where the heads look, (n, heads, tokens); where tokens ask, the mean over those that do."""
        check_is_fitted(self)
        return self.fit_.attention(self._read(X, mask)[0])

    def parts(self, X, mask=None) -> np.ndarray:
        """The part of each head in the score of each class, (n, heads, classes)."""
        check_is_fitted(self)
        return self.fit_.parts(self._read(X, mask)[0])

    @property
    def model_(self) -> MultiHead:
        """The probe as a `MultiHead`, on tokens as `layout_` reads them."""
        check_is_fitted(self)
        return self.fit_.model()

    @property
    def certificate_(self) -> Any:
        """What is proved about plain gradient descent from here, a `Forecast`; computed when first asked for.

        With several labels it is about the two that are confused most (`fitting.binary`).
        """
        check_is_fitted(self)
        if not hasattr(self, "_data"):
            raise AttributeError(
                "a certificate needs the training data; fit the probe, or see `manyheads check`."
            )
        if "_certificate" not in vars(self):
            model, data, _ = binary(self.fit_, *self._data)
            self._certificate = certified(model, data)
        return self._certificate

    def save(self, path: str | Path, **facts: Any) -> None:
        """Write a safetensors file, sealed, whole or not at all; `facts` is what else it should say."""
        check_is_fitted(self)
        file.save(self.fit_, self.classes_, facts, path)

    @classmethod
    def load(cls, path: str | Path) -> AttentionProbe:
        """Read what `save` wrote. Nothing in such a file is executed."""
        found, classes, _ = file.load(path)
        made = cls(decoder=found.kind.decoder)
        made.classes_, made.n_features_in_ = classes, found.layout.dim
        made._keep(found)
        return made

    @classmethod
    def open(cls, source: str | Path | Mapping[str, Any], num_heads=None) -> AttentionProbe:
        """A probe of ours, or one that somebody else trained: a safetensors file or a `state_dict()`.

        Known are EleutherAI's, AttnLite's, EP's, AIM's and a learned query with `nn.MultiheadAttention`
        (`probe.foreign`). `num_heads` is needed for the last two, whose tensors do not say it.
        """
        if isinstance(source, str | Path) and file.is_ours(source):
            return cls.load(source)
        found = foreign.read(source, num_heads)
        made = cls()
        made.classes_, made.n_features_in_ = np.arange(found.num_classes), found.layout.dim
        made._keep(found)
        return made

    def to_torch(self) -> Any:
        """A module of PyTorch with the same scores, (n, outputs), of tokens and a mask."""
        check_is_fitted(self)
        return file.to_torch(self.fit_)


def certified(model: MultiHead, data: Dataset) -> Forecast:
    """What is proved about descent from a point, with a step size below the curvature there."""
    sizes = [0.1 * 4.0**-k for k in range(6)]
    found = forecast(model, data, step_size=sizes[0])
    for size in sizes[1:]:
        if found.speaks:
            break
        made = forecast(model, data, step_size=size)
        found = made if made.nats > found.nats else found
    return found
