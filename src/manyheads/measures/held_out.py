"""Train loss, test loss, 0-1 error and their gap, with standard errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import beta

from manyheads._check import check
from manyheads.data.dataset import Dataset, is_dataset
from manyheads.data.labels import check_same_labels
from manyheads.model.autodiff import is_model, scores
from manyheads.model.loss import Loss, get_loss, is_loss


@dataclass(frozen=True, eq=False)
class Risk:
    """Loss and 0-1 error of a model on its train data and on test data.

    The train values are exact; a test value estimates the expectation over the law of the test
    data, with its standard error. `gap` is test loss minus train loss and has the standard error of
    the test loss. A score of exactly zero counts as an error. `test_error_upper` is the 95% upper
    confidence limit (Clopper-Pearson), which is not zero when no error was seen.
    """

    train_loss: float
    test_loss: float
    test_loss_error: float
    train_error: float
    test_error: float
    test_error_error: float
    test_error_upper: float
    num_train: int
    num_test: int

    @property
    def gap(self) -> float:
        return self.test_loss - self.train_loss

    def __str__(self) -> str:
        return (
            f"loss: train {self.train_loss:.6g}, test {self.test_loss:.6g} ± "
            f"{self.test_loss_error:.2g}, "
            f"gap {self.gap:.6g} ± {self.test_loss_error:.2g}\n"
            f"0-1 error: train {self.train_error:.4g} of {self.num_train}, test "
            f"{self.test_error:.4g} ± "
            f"{self.test_error_error:.2g} of {self.num_test} (at most {self.test_error_upper:.2g} "
            "with 95% confidence)"
        )


@check(model=is_model, train=is_dataset, test=is_dataset, loss=is_loss)
def risk(model: Any, train: Dataset, test: Dataset, *, loss: str | Loss = "logistic") -> Risk:
    """Loss, 0-1 error and gap of a trained model; `test` must not have been used to train or to choose anything."""
    loss = get_loss(loss)
    check_same_labels(train, test)
    here, train_wrong = _losses(model, train, loss)
    there, wrong = _losses(model, test, loss)
    m, errors = len(there), int(wrong.sum())
    spread = there.std(ddof=1) / np.sqrt(m) if m > 1 else np.nan
    p = errors / m
    upper = 1.0 if errors == m else float(beta.ppf(0.95, errors + 1, m - errors))
    return Risk(
        float(here.mean()),
        float(there.mean()),
        float(spread),
        float(train_wrong.mean()),
        p,
        float(np.sqrt(p * (1 - p) / m)),
        upper,
        len(here),
        m,
    )


def _losses(model: Any, data: Dataset, loss: Loss) -> tuple[np.ndarray, np.ndarray]:
    margins = data.labels * scores(model, data)
    with jax.enable_x64(True):
        return np.asarray(loss.value(jnp.asarray(margins))), margins <= 0
