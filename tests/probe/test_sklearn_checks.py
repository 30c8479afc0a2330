"""scikit-learn's own checks of an estimator, on the class itself: a table is read as sequences of one token."""

import warnings

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import manyheads as mh


@pytest.mark.full
@parametrize_with_checks([mh.AttentionProbe(), mh.AttentionProbe(num_heads=2, penalty=1e-3)])
def test_scikit_learn_accepts_the_estimator(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)
