"""Whether data are those a run began with: the fingerprint, and what earlier versions stored."""

from dataclasses import replace

import jax
import numpy as np
import pytest

import manyheads as mh
from manyheads.training.resume import fingerprint


@pytest.fixture
def data():
    flags = np.arange(24).reshape(6, 4) % 5 > 0
    data = mh.RandomLabels(num_tokens=4, dim=3).sample(6, key=jax.random.key(1))
    return data, flags


def test_a_mask_is_not_a_mark_of_relevance(data):
    plain, flags = data
    prints = {
        fingerprint(d) for d in (plain, replace(plain, mask=flags), replace(plain, relevant=flags))
    }
    assert len(prints) == 3
    assert fingerprint(plain) == fingerprint(replace(plain, tokens=plain.tokens.astype(">f8")))


def test_a_run_is_not_resumed_on_data_masked_otherwise(data):
    plain, flags = data
    start, options = mh.zero_start(2, num_tokens=4, dim=3), {"step_size": 0.1, "dtype": "float64"}
    run = mh.train(start, replace(plain, relevant=flags), num_steps=3, **options)
    with pytest.raises(ValueError, match="made with other data"):
        mh.train(start, replace(plain, mask=flags), num_steps=5, resume=run, **options)


def test_a_run_with_a_fingerprint_of_an_earlier_version_goes_on(data):
    plain, _ = data
    start, options = mh.zero_start(2, num_tokens=4, dim=3), {"step_size": 0.1, "dtype": "float64"}
    run = mh.train(start, plain, num_steps=3, **options)
    old = fingerprint(plain, like="0" * 16)
    assert "-" not in old and old != run.sources["data"]
    older = replace(run, sources={"data": old, "test": None})
    assert mh.train(start, plain, num_steps=5, resume=older, **options).last_step == 5
    with pytest.raises(ValueError, match="made with other data"):
        mh.train(
            start, replace(plain, tokens=2 * plain.tokens), num_steps=5, resume=older, **options
        )
