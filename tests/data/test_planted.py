import jax
import numpy as np

import manyheads as mh


def test_labels_come_from_the_planted_model():
    planted = mh.data.Planted(
        num_tokens=4, dim=3, teacher_heads=2, margin=0.5, key=jax.random.key(0)
    )
    data = planted.sample(30, key=jax.random.key(1))
    teacher = mh.MultiHead.create(planted.key_query, planted.readout)
    scores = np.array([teacher(x) for x in data.tokens])
    assert np.allclose(scores, planted.scores(data.tokens), rtol=1e-12)
    assert (np.sign(scores) == data.labels).all() and (np.abs(scores) >= 0.5).all()


def test_random_labels_have_tokens_of_one_norm():
    data = mh.data.RandomLabels(num_tokens=6, dim=6, token_norm=2.0).sample(
        500, key=jax.random.key(0)
    )
    assert np.allclose(np.linalg.norm(data.tokens, axis=-1), 2)
    assert abs(data.labels.mean()) < 0.2 and np.abs(data.tokens.mean((0, 1))).max() < 0.1
