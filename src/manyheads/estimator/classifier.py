"""`MultiHeadAttentionClassifier`: the model as an estimator of scikit-learn. The only file that imports it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from manyheads.data.door import array_of
from manyheads.estimator.fitted import Fitted, fit
from manyheads.estimator.search import Wishes
from manyheads.estimator.sequences import as_sequences
from manyheads.theory.certify import Certificates, certify

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_random_state
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
        "MultiHeadAttentionClassifier needs scikit-learn: install it with `pip install manyheads[data]`."
    ) from None

if TYPE_CHECKING:
    from manyheads.theory.deora2023.planner import Plan

STATEMENTS = ("descent", "thm1", "forecast")  # what `certificate_` asks
MOST_PLANNED = 400  # sequences that `plan_` looks at


class MultiHeadAttentionClassifier(ClassifierMixin, BaseEstimator):
    r"""A single layer of multi-head self-attention with a linear readout, trained by full-batch descent.

    `X` is an array (sequences, tokens, dim), a list of arrays (tokens, dim) of any length, or a table (sequences, dim),
    which is read as sequences of one token: attention has nothing to choose there, and the model is linear.

    "auto" is decided by a short comparison. A share `validation_fraction` of each class is held out.

    - `num_heads` and `start`: three candidates are trained on the rest, 1 head from zero, 8 heads from the paper's
      first phase (which uses up a quarter of the sequences) and 4 Gaussian heads; the lowest held-out loss wins. Where
      one of the two is given, candidates differ in the other: all three starts, or heads 1, 4, 16 for a Gaussian start,
      2 and 64 for a first phase, 1 for zero.
    - `step_size`: the edge of stability, measured: the largest power of two at which the train loss falls at every one
      of the first 32 steps of descent. (For other optimizers: adam 0.02, normalized 0.1, polyak at most 10.)
    - `num_steps`: at most 1000.

    With `early_stopping` the held-out loss is asked for at steps 1, 2, 3, 5, 8, ...; a trial ends when from step 32 on
    it has not fallen three times in a row, and the step with the lowest is the number of steps. The classifier is then
    trained on all sequences with these settings. With more than two classes there is one model for each class against
    the rest.

    Args:
        num_heads: number of heads, or "auto".
        start: "zero", "first_phase", "gaussian" or "auto".
        step_size: step size, or "auto".
        num_steps: number of steps, or "auto"; with `early_stopping` the most that are made.
        optimizer: "gd", "normalized", "polyak" or "adam".
        decoder: "full" (one readout row per token position), "pooled" or "last".
        early_stopping: whether the number of steps is chosen by the held-out loss.
        validation_fraction: share of the sequences that is held out for choices.
        scale: "rms" divides all tokens by the root mean square of their norms, "standard" gives every feature mean 0
            and variance 1/dim, "none" leaves them alone.
        positions: "none", "one-hot" (T more features) or "sinusoidal" (8 more features).
        intercept: whether each token gets a constant feature.
        class_weight: None, "balanced" or a dict of weights by class.
        dtype: precision of training, "float32" or "float64".
        random_state: seed of splits and Gaussian starts.
        verbose: print what is being done.

    Attributes:
        classes_: the classes.
        num_heads_, start_, step_size_, num_steps_: what was chosen; the last two are arrays, one entry per model.
        trials_: the candidates that were compared, with their held-out losses.
        fitted_: the classifier without scikit-learn; `fitted_.save(path)` writes a safetensors file.
        certificate_: what the theory says about the run; computed when first asked for (a dict by class, if more than
            two), and not in `dir` before. Runs with weights cannot be certified.
        plan_: what the theory would ask for, planned on at most 400 of the sequences; likewise.
    """

    def __init__(
        self,
        *,
        num_heads="auto",
        start="auto",
        step_size="auto",
        num_steps="auto",
        optimizer="gd",
        decoder="full",
        early_stopping=True,
        validation_fraction=0.2,
        scale="rms",
        positions="none",
        intercept=True,
        class_weight=None,
        dtype="float32",
        random_state=None,
        verbose=False,
    ):
        self.num_heads = num_heads
        self.start = start
        self.step_size = step_size
        self.num_steps = num_steps
        self.optimizer = optimizer
        self.decoder = decoder
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.scale = scale
        self.positions = positions
        self.intercept = intercept
        self.class_weight = class_weight
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def __dir__(self) -> list[str]:
        """All names, but `certificate_` and `plan_` only once they are computed.

        scikit-learn's own asks for every value, and tab completion and the display in a notebook ask for all in `dir`.
        """
        slow = {"certificate_": "_certificate", "plan_": "_plan"}
        waiting = {name for name, kept in slow.items() if kept not in vars(self)}
        return sorted(set(object.__dir__(self)) - waiting)

    def fit(self, X, y, sample_weight=None) -> MultiHeadAttentionClassifier:
        """Train on sequences `X` with labels `y` of two classes or more."""
        tokens, mask, y = self._checked(X, y)
        check_classification_targets(y)
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(
                sample_weight,
                y,
                dtype=np.float64,
                ensure_non_negative=True,
                allow_all_zero_weights=False,
            )
        if self.class_weight is not None:
            weight = compute_sample_weight(self.class_weight, y) * (
                1.0 if weight is None else weight
            )
        if weight is not None and not (weight > 0).all():  # as if they were not there
            kept = weight > 0
            tokens, y, weight, mask = (
                tokens[kept],
                y[kept],
                weight[kept],
                None if mask is None else mask[kept],
            )
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y holds one class, {self.classes_[0]}; a classifier needs sequences of two classes."
            )
        wishes = Wishes(
            self.num_heads,
            self.start,
            self.step_size,
            self.num_steps,
            self.optimizer,
            self.decoder,
            self.early_stopping,
            self.validation_fraction,
            self.dtype,
        )
        self.fitted_: Fitted = fit(
            tokens,
            mask,
            codes,
            tuple(map(str, self.classes_)),
            wishes,
            scale=self.scale,
            positions=self.positions,
            intercept=self.intercept,
            weight=weight,
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
            tell=partial(print, flush=True) if self.verbose else None,
        )
        chosen, found = self.fitted_.choice, self.fitted_.found
        self.num_heads_, self.start_ = chosen.num_heads, chosen.start
        self.step_size_, self.num_steps_ = np.array(chosen.step_sizes), np.array(chosen.num_steps)
        self.n_iter_ = int(self.num_steps_.max())
        self.trials_ = () if found is None else found.trials
        return self

    def _checked(self, X, y: Any = None) -> tuple[Any, Any, Any]:
        """Tokens, mask and labels; a table passes through scikit-learn's own checks."""
        fitting = y is not None or not hasattr(self, "fitted_")
        array = array_of(X, "X")
        ragged = (
            array.dtype == object
            and isinstance(X, list | tuple | np.ndarray)
            and np.ndim(_first(X)) == 2
        )
        if array.ndim != 3 and not ragged:
            if not fitting:
                X = validate_data(self, X, reset=False, dtype=np.float64)
                return *as_sequences(X), None
            X, y = validate_data(self, X, y, dtype=np.float64)
            return *as_sequences(X), y
        tokens, mask = as_sequences(X)
        if fitting:
            self.n_features_in_ = tokens.shape[2]
            y = column_or_1d(y, warn=True)
            if len(y) != len(tokens):
                raise ValueError(
                    f"X has {len(tokens)} sequences and y {len(y)} labels; they must be equal in number."
                )
        return tokens, mask, y

    def decision_function(self, X) -> np.ndarray:
        """The score of each sequence: (n,), above zero for `classes_[1]`, or (n, classes) for more than two."""
        check_is_fitted(self)
        tokens, mask, _ = self._checked(X)
        return self.fitted_.scores((tokens, mask))

    def predict(self, X) -> np.ndarray:
        """The class of each sequence."""
        scores = self.decision_function(X)
        return self.classes_[
            (scores > 0).astype(int) if scores.ndim == 1 else np.argmax(scores, axis=1)
        ]

    def predict_proba(self, X) -> np.ndarray:
        """(n, classes): the logistic function of the scores, made to sum to one."""
        check_is_fitted(self)
        tokens, mask, _ = self._checked(X)
        return self.fitted_.probabilities((tokens, mask))

    def attention_maps(self, X) -> np.ndarray:
        """Where each query looks: (n, heads, queries, tokens), each class of identical heads once.

        With more than two classes (n, classes, heads, queries, tokens).
        """
        check_is_fitted(self)
        tokens, mask, _ = self._checked(X)
        maps = self.fitted_.attention((tokens, mask))
        return maps[:, 0] if len(self.classes_) == 2 else maps

    @property
    def certificate_(self) -> Certificates | dict[Any, Certificates]:
        """What the theory says about the run; computed when first asked for."""
        check_is_fitted(self)
        found = self.fitted_.found
        if found is None or found.weighted:
            raise AttributeError(
                "a run with sample or class weights cannot be certified: the theory weighs all alike."
            )
        if "_certificate" not in vars(self):
            self._certificate = self._by_class(
                [
                    certify(run, data, STATEMENTS)
                    for run, data in zip(found.runs, found.trained_on, strict=True)
                ]
            )
        return self._certificate

    @property
    def plan_(self) -> Plan | dict[Any, Plan]:
        """What the theory would ask for; computed when first asked for."""
        from manyheads.theory.deora2023.planner import plan

        check_is_fitted(self)
        if "_plan" not in vars(self):
            key, plans = jax.random.key(self.fitted_.seed % 2**32), []
            found = self.fitted_.found
            for data in () if found is None else found.trained_on:
                few = (
                    data
                    if len(data.labels) <= MOST_PLANNED
                    else data.split(MOST_PLANNED, key=key)[0]
                )
                plans.append(
                    plan(few, start=self.start_, trials=False, decoder=self.decoder, key=key)
                )
            self._plan = self._by_class(plans)
        return self._plan

    def _by_class(self, values: list) -> Any:
        return (
            values[0]
            if len(self.classes_) == 2
            else dict(zip(self.classes_.tolist(), values, strict=True))
        )


def _first(X: Any) -> Any:
    return X[0] if len(X) else None
