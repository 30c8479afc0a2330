"""scikit-learn's own checks of an estimator, on the class itself: a table is read as sequences of one token."""

import warnings

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import manyheads as mh

# All checks apply and none is left out: tables pass them, and tests/estimator/test_classifier.py has what scikit-learn
# has no checks for, 3-D arrays and lists. (It skips its check of array API inputs, where no such library is installed.)
QUICK = dict(
    num_heads=1, start="zero", num_steps=30, early_stopping=False, dtype="float64", random_state=0
)


@pytest.mark.full
@parametrize_with_checks([mh.MultiHeadAttentionClassifier(**QUICK)])
def test_scikit_learn_accepts_the_estimator(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)
