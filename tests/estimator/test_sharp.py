"""Sharp heads on centered tokens: how data and start are made, and when nothing is promised."""

import numpy as np
import pytest

import manyheads as mh
from manyheads.estimator.sharp import MOST, Proved, Sharp, proved
from manyheads.model.loss import get_loss

RNG = np.random.default_rng(0)
LOGISTIC = get_loss("logistic")


def asked(data):
    return proved(data, 0.1, seed=0, decoder="full", loss=LOGISTIC, tell=lambda text: None)


def test_tokens_are_centered_by_the_sample_alone_and_short():
    tokens, labels = 3 + RNG.standard_normal((12, 4, 3)), [0, 1] * 6
    mask = np.ones((12, 4), bool)
    mask[::2, 3] = False
    sample = mh.Dataset.from_arrays(tokens, labels, mask=mask)
    rest = mh.Dataset.from_arrays(tokens + 1, labels)
    made, other = Sharp(0).data(sample, rest)
    real = made.tokens[mask]
    assert np.isclose(np.mean(np.sum(real**2, axis=-1)), 0.01)
    assert np.allclose(made.tokens.sum(axis=0), 0, atol=1e-12) and not np.any(made.tokens[~mask])
    assert np.allclose(
        np.diff((other.tokens - made.tokens)[mask].reshape(-1)), 0, atol=1e-12
    )  # moved by the same


def test_the_start_knows_nothing_and_its_heads_share_alike():
    data = mh.Dataset.from_arrays(RNG.standard_normal((6, 4, 3)), [0, 1] * 3)
    start = Sharp(7).start(64.0, data, "full")
    assert start.num_heads == 64 and list(start.multiplicity) == [8.0] * 8
    assert not np.any(start.readout) and np.array_equal(
        start.key_query, Sharp(7).start(8.0, data, "full").key_query
    )


def test_too_many_sequences_are_said_to_be_too_many():
    n = MOST + 2
    assert "too many for a forecast" in asked(
        mh.Dataset.from_arrays(np.ones((n, 1, 1)), [0, 1] * (n // 2))
    )


def test_equal_sequences_with_both_labels_are_promised_nothing():
    data = mh.Dataset.from_arrays(np.repeat(RNG.standard_normal((3, 4, 3)), 2, axis=0), [0, 1] * 3)
    assert "separate the data" in asked(data)


@pytest.mark.full
def test_what_is_proved_happens():
    labels = RNG.choice([-1, 1], 20)
    data = mh.Dataset.from_arrays(
        0.5 * RNG.standard_normal((20, 4, 3)) + labels[:, None, None], labels
    )
    found = asked(data)
    assert isinstance(found, Proved) and found.loss <= 0.1
    made = found.how.data(data)[0]
    start = found.how.start(found.num_heads, made, "full")
    run = mh.train(
        start, made, rule=mh.GD(found.step_size), num_steps=found.num_steps, dtype="float64"
    )
    assert run.train_loss.min() <= found.loss
    certificate = mh.certify(run, made, "forecast", from_step=found.how.from_step)
    assert certificate.verdict is mh.Verdict.HOLDS
    with pytest.raises(ValueError, match="is beyond the last step"):
        mh.certify(run, made, "forecast", from_step=10**6)
