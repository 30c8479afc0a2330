"""Whether data are those a run began with: the fingerprint."""

from dataclasses import replace

import jax
import numpy as np
import pytest

import manyheads as mh
from manyheads.training.resume import fingerprint


@pytest.fixture
def data():
    flags = np.arange(24).reshape(6, 4) % 5 > 0
    data = mh.data.RandomLabels(num_tokens=4, dim=3).sample(6, key=jax.random.key(1))
    return data, flags


def test_a_mask_enters_the_fingerprint_and_a_mark_of_relevance_does_not(data):
    plain, flags = data
    assert fingerprint(plain) != fingerprint(replace(plain, mask=flags))
    assert fingerprint(plain) == fingerprint(replace(plain, relevant=flags))
    assert fingerprint(plain) == fingerprint(replace(plain, tokens=plain.tokens.astype(">f8")))


def test_a_run_is_not_resumed_on_data_masked_otherwise(data):
    plain, flags = data
    start, options = mh.zero_start(2, num_tokens=4, dim=3), {"rule": mh.GD(0.1), "dtype": "float64"}
    run = mh.train(start, replace(plain, relevant=flags), num_steps=3, **options)
    with pytest.raises(ValueError, match="made with other data"):
        mh.train(start, replace(plain, mask=flags), num_steps=5, resume=run, **options)
    with pytest.raises(ValueError, match="other relevant tokens"):
        mh.train(start, replace(plain, relevant=~flags), num_steps=5, resume=run, **options)
