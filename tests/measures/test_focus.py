"""Attention by hand-made heads, by the records of training, and by float32 itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import manyheads as mh
from manyheads.measures.focus import UNDERFLOW, _statistics, sharpness_needed


@pytest.fixture(scope="module")
def mixture():
    return mh.TokenizedMixture(
        num_tokens=8, dim=6, num_patterns=3, sparsity=0.25, signal=1.5, key=jax.random.key(0)
    )


@pytest.fixture(scope="module")
def data(mixture):
    return mixture.sample(12, key=jax.random.key(1))


def heads(mixture, scales, counts=None):
    """Heads with W a multiple of W_opt and the readout U_opt."""
    W = np.asarray(scales)[:, None, None] * mixture.W_opt
    return mh.MultiHead.create(
        W, np.repeat(mixture.U_opt[None], len(scales), axis=0), multiplicity=counts
    )


def test_zero_weights_look_everywhere(mixture, data):
    focus = mh.measures.attention_focus(heads(mixture, [0.0], [5]), data, mixture=mixture)
    assert focus.relevant_mass == pytest.approx(0.25, rel=1e-12)
    most = [np.unique(np.round(X, 9), axis=0, return_counts=True)[1].max() for X in data.tokens]
    assert focus.saturation == pytest.approx(np.mean(most) / 8, rel=1e-12)
    assert focus.specialization[0] == 0 and focus.num_distinct[0] == 1 and not focus.underflows
    assert focus.effective_heads[0] == pytest.approx(5)
    assert np.isnan(focus.key_query_alignment).all()
    assert focus.readout_alignment == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("epsilon", [0.5, 0.1, 1e-3])
def test_the_sharpness_of_proposition_3_suffices(mixture, data, epsilon):
    needed = sharpness_needed(mixture, epsilon)
    focus = mh.measures.attention_focus(
        heads(mixture, [needed, 0.5 * needed]), data, mixture=mixture, epsilon=epsilon
    )
    assert focus.sharpness_needed == needed
    assert focus.key_query_norm[0] == pytest.approx([needed, 0.5 * needed], rel=1e-12)
    assert 1 - focus.relevant_mass[0, 0] <= epsilon
    assert focus.relevant_mass[0, 1] < focus.relevant_mass[0, 0]
    assert focus.key_query_alignment[0] == pytest.approx(1, rel=1e-12)


def test_no_sharpness_is_needed_where_chance_will_do():
    easy = mh.TokenizedMixture(
        num_tokens=5, dim=6, num_patterns=3, sparsity=0.8, signal=1.0, key=jax.random.key(0)
    )
    assert sharpness_needed(easy, 0.5) == 0  # the printed formula is negative here


def test_the_mass_is_the_one_that_training_records(mixture, data):
    run = mh.train(
        mh.first_phase(mixture.sample(40, key=jax.random.key(3)), 6),
        data,
        rule=mh.GD(0.5),
        num_steps=20,
        dtype="float64",
        record=[0, 10, 20],
        snapshots=[10],
    )
    focus = mh.measures.attention_focus(run, data, mixture=mixture)
    assert focus.steps.tolist() == [0, 10, 20]
    assert np.abs(focus.relevant_mass - run.attention_mass).max() <= 1e-12
    assert "on relevant tokens" in str(focus) and "step       10" in str(focus)
    W, target = run.final.key_query[0], mixture.W_star
    assert focus.key_query_alignment[2, 0] == pytest.approx(
        np.sum(W * target) / np.linalg.norm(W) / np.linalg.norm(target)
    )


def test_underflow_is_what_float32_rounds_to_zero(mixture, data):
    for scale in (20.0, 2000.0):
        model = heads(mixture, [scale])
        focus = mh.measures.attention_focus(model, data)
        X = jnp.asarray(data.tokens, jnp.float32)
        S = jnp.einsum("ntd,de,nse->nts", X, jnp.asarray(model.key_query[0], jnp.float32), X)
        zero = np.asarray(jax.nn.softmax(S, axis=-1)) == 0
        assert focus.underflow[0, 0] == pytest.approx(zero.mean(), abs=1e-12)
        assert focus.underflows == zero.any() == ("ALARM" in str(focus))
    assert np.float32(np.exp(-(UNDERFLOW + 0.01))) < np.finfo(np.float32).tiny


def test_effective_heads_and_specialization(mixture, data):
    model = heads(mixture, [0.0, 0.0, 0.0], [6, 1, 1])
    model = model.replace_heads(
        (model.key_query, model.readout * np.array([1e-9, 1.0, 1.0])[:, None, None])
    )
    focus = mh.measures.attention_focus(model, data)
    assert focus.effective_heads[0] == pytest.approx(2, rel=1e-6) and focus.num_distinct[0] == 2
    # one head looks at one kind of token only, its opposite at the others: as far apart as attention can be
    tokens = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])
    two = mh.Dataset.from_arrays(tokens, [1.0, -1.0])
    W = 1e3 * np.array([[[1.0, 0], [0, 1]], [[0.0, 1], [1, 0]]])
    apart = mh.measures.attention_focus(
        mh.MultiHead.create(W, np.ones((2, 2, 2)), multiplicity=[3, 1]), two
    )
    assert apart.specialization[0] == pytest.approx(2 * 0.75 * 0.25, rel=1e-12)
    assert apart.saturation[0] == pytest.approx(1, rel=1e-12)
    assert np.isnan(apart.relevant_mass).all()


def test_masks_and_last_token_readouts(data):
    mask = np.ones((12, 8), bool)
    mask[:6, 5:] = False
    masked = mh.Dataset(data.tokens, data.labels, mask, data.relevant & mask)
    for decoder in ("full", "last"):
        start = mh.zero_start(1, num_tokens=8, dim=6, decoder=decoder)
        focus = mh.measures.attention_focus(start, masked)
        lengths = mask.sum(axis=1)
        most = [
            np.unique(np.round(X[real], 9), axis=0, return_counts=True)[1].max()
            for X, real in zip(data.tokens, mask, strict=True)
        ]
        assert focus.saturation[0, 0] == pytest.approx(np.mean(most / lengths), rel=1e-12)
        assert focus.relevant_mass[0, 0] == pytest.approx(
            np.mean((data.relevant & mask).sum(axis=1) / lengths), rel=1e-12
        )


def test_full_focus_on_the_relevant_tokens_is_saturated(mixture, data):
    # all relevant tokens of a sequence are equal: attention to them alone is a hard-max, with a quarter of 8 tokens
    sharp = mh.measures.attention_focus(heads(mixture, [1e3, 1.0]), data)
    assert sharp.relevant_mass[0, 0] == pytest.approx(1, abs=1e-12)
    assert sharp.saturation[0, 0] == pytest.approx(1, abs=1e-12)
    assert sharp.saturation[0, 1] < 1
    rng = np.random.default_rng(0)  # tokens that are all different: the largest weight
    other = mh.Dataset.from_arrays(rng.standard_normal((5, 8, 6)), [1, -1, 1, -1, 1])
    A = np.stack([heads(mixture, [0.5]).attention(X)[0] for X in other.tokens])
    assert mh.measures.attention_focus(heads(mixture, [0.5]), other).saturation[
        0, 0
    ] == pytest.approx(A.max(axis=2).mean())


def test_specialization_is_the_mean_distance_of_two_heads_and_forms_no_pairs():
    rng = np.random.default_rng(0)
    N, data = (
        np.array([3.0, 1, 7, 2]),
        mh.Dataset.from_arrays(rng.standard_normal((5, 4, 3)), [1, -1, 1, -1, 1]),
    )
    model = mh.MultiHead(rng.standard_normal((4, 3, 3)), rng.standard_normal((4, 4, 3)), N)
    A = np.stack([np.asarray(model.attention(X)) for X in data.tokens])
    distances = np.abs(A[:, :, None] - A[:, None]).sum(axis=(3, 4)) / (2 * 4)
    want = np.einsum("g,h,ngh->", N, N, distances) / (5 * N.sum() ** 2)
    assert mh.measures.attention_focus(model, data).specialization[0] == pytest.approx(
        want, rel=1e-12
    )
    many = mh.MultiHead(*(np.zeros((512, *shape)) for shape in ((3, 3), (4, 3))), np.ones(512))
    flags = np.ones((5, 4), bool)
    memory = (
        _statistics.lower(many, np.full(512, 1 / 512), data.tokens, flags, flags)
        .compile()
        .memory_analysis()
    )
    assert (
        memory.temp_size_in_bytes + memory.output_size_in_bytes < 512 * 512 * 8
    )  # one matrix of all pairs


def test_the_stated_accuracy_of_attention_holds():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((6, 5, 4))
    X[:, :, 0] = 1 + 1e-6 * X[:, :, 0]
    W = np.zeros((2, 4, 4))
    W[:, 0, 0] = 1e6
    W[1] += rng.standard_normal((4, 4))
    relevant = rng.random((6, 5)) < 0.5
    data = mh.Dataset(X, np.array([1.0, -1, 1, -1, 1, -1]), None, relevant)
    focus = mh.measures.attention_focus(mh.MultiHead.create(W, np.ones((2, 5, 4))), data)
    S = np.einsum("ntd,gde,nse->ngts", *(a.astype(np.longdouble) for a in (X, W, X)))
    A = np.exp(S - S.max(axis=3, keepdims=True))
    A /= A.sum(axis=3, keepdims=True)
    mass = np.einsum("ngts,ns->g", A, relevant) / (6 * 5)
    error = float(np.abs(focus.relevant_mass[0] - mass).max())
    assert 1e-14 < error <= focus.accuracy < 1e-6
    assert np.abs(focus.saturation[0] - A.max(axis=3).mean(axis=(0, 2))).max() <= focus.accuracy
    apart = np.abs(A[:, 0] - A[:, 1]).sum(axis=(1, 2)).mean() / (2 * 5) / 2
    assert abs(focus.specialization[0] - apart) <= focus.accuracy


def test_steps_are_for_runs(mixture, data):
    with pytest.raises(ValueError, match="steps= is for a run; a model has none"):
        mh.measures.attention_focus(heads(mixture, [0.0]), data, steps=[3])


def test_bad_epsilon_is_answered(mixture, data):
    with pytest.raises(
        ValueError, match="epsilon=2 must be a finite number strictly between 0 and 1"
    ):
        mh.measures.attention_focus(heads(mixture, [0.0]), data, epsilon=2)
