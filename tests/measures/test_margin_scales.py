"""The ladder of margins against the paper's formulas where they are exact, and against autodiff."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from model.cases import random_case

import manyheads as mh
from manyheads.measures.margin_scales import (
    attention_margin,
    found_margin,
    frobenius_norm,
    iterate_margin,
    linear_margin,
    margin_along,
    paper_direction,
)
from manyheads.measures.rounding import slope_error


def noiseless(T=8, d=12, M=4, zeta=0.25, S=2.0, **options):
    return mh.TokenizedMixture(
        num_tokens=T,
        dim=d,
        num_patterns=M,
        sparsity=zeta,
        signal=S,
        key=jax.random.key(0),
        **options,
    )


@pytest.mark.parametrize(
    "T,d,M,zeta,S",
    [(8, 12, 4, 0.25, 2.0), (4, 6, 2, 0.5, 1.0), (10, 16, 6, 0.2, 1.5), (6, 4, 1, 0.5, 0.7)],
)
@pytest.mark.parametrize("heads", [1, 5, 10**12])
def test_the_margin_along_the_papers_direction_is_equation_7(T, d, M, zeta, S, heads):
    mixture = noiseless(T, d, M, zeta, S)
    start = mh.training.population_first_phase(mixture, heads)
    data = mixture.sample(20, key=jax.random.key(1))
    eq7 = (
        T * zeta * (1 - zeta) * S**4 / (4 * np.sqrt(2 * (M + 1))) * zeta + S * np.sqrt(T / 2) * zeta
    )
    direction = paper_direction(start, mixture)
    norm = np.sqrt(
        sum(
            start.multiplicity @ np.sum(leaf.reshape(len(leaf), -1) ** 2, axis=1)
            for leaf in direction
        )
    )
    assert norm == pytest.approx(np.sqrt(2), rel=1e-12)
    assert margin_along(start, data, direction)[0] == pytest.approx(eq7, rel=1e-12)
    # the best direction of the same norm is no worse
    kernel = mh.measures.tangent_kernel(start, data)
    best = mh.measures.hard_margin(data.labels, gram=kernel.matrix, gram_accuracy=kernel.accuracy)
    assert best.p3_interval[1] >= eq7 * (1 - 1e-9)


def test_the_margin_along_a_direction_is_a_directional_derivative():
    model, data = random_case(3, masked=True)
    direction = jax.tree.map(
        lambda leaf: np.random.default_rng(0).standard_normal(leaf.shape), model.heads
    )
    full = mh.expand(model)
    N = model.multiplicity.astype(int)
    move = jax.tree.map(lambda leaf: jnp.asarray(np.repeat(leaf, N, axis=0)), direction)

    def slope(X, mask):
        return jax.jvp(
            lambda h: full.replace_heads(h)(X, mask),
            (jax.tree.map(jnp.asarray, full.heads),),
            (move,),
        )[1]

    slopes = jax.vmap(slope)(jnp.asarray(data.tokens), jnp.asarray(data.mask))
    assert margin_along(model, data, direction)[0] == pytest.approx(
        float(np.min(data.labels * slopes)), rel=1e-12
    )


def test_linear_and_attention_margins_of_the_noiseless_mixture():
    T, zeta, S = 4, 0.5, 1.0
    data = noiseless(T, 5, 2, zeta, S).sample(400, key=jax.random.key(1))
    linear, attention = linear_margin(data), attention_margin(data)
    # with 400 sequences of 4 tokens every arrangement is there, so the sample margin is the population's
    assert linear.lower * (1 - 1e-9) <= S * np.sqrt(T / 2) * zeta <= linear.upper * (1 + 1e-9)
    assert attention.lower * (1 - 1e-9) <= S * np.sqrt(T / 2) <= attention.upper * (1 + 1e-9)
    fixed = noiseless(T, 5, 2, zeta, S, positions="fixed").sample(400, key=jax.random.key(1))
    assert linear_margin(fixed).upper == pytest.approx(S * np.sqrt(zeta * T / 2), rel=1e-6)


def test_sequences_of_different_lengths_share_only_their_real_queries():
    # worked by hand: features (2, 0, 0, 0) and (-1, -1, -1, -1); what the padding says about relevance is ignored
    tokens = np.array([[2.0, 9, 9, 9], [-1, -1, -1, -1]])[:, :, None]
    mask = np.array([[True, False, False, False], [True] * 4])
    data = mh.Dataset(tokens, np.array([1.0, -1.0]), mask, np.ones((2, 4), bool))
    found = attention_margin(data)
    assert found.lower <= np.sqrt(3) * (1 + 1e-12) and found.upper >= np.sqrt(3) * (1 - 1e-12)
    assert found.relative_gap <= 1e-6
    # a head that attends to the relevant tokens alone, written out: no readout does better, and one does as well
    rng = np.random.default_rng(0)
    mask = np.arange(5) < rng.integers(2, 6, 12)[:, None]
    relevant = mask & ((np.arange(5) == 0) | (rng.random((12, 5)) < 0.5))
    tokens = rng.standard_normal((12, 5, 3))
    data = mh.Dataset(tokens, np.where(tokens[:, 0, 0] > 0, 1.0, -1.0), mask, relevant)
    rows = []
    for X, real, chosen in zip(tokens, mask, relevant, strict=True):
        rows.append(
            np.stack([X[chosen].mean(axis=0) if query else np.zeros(3) for query in real]).ravel()
        )
    want = mh.measures.hard_margin(data.labels, features=np.array(rows))
    assert attention_margin(data).lower == pytest.approx(want.lower, rel=1e-6)


def test_padding_counts_as_zeros():
    model, data = random_case(4, masked=True, shape=(6, 5, 4))
    zeros = mh.Dataset.from_arrays(data.tokens * data.mask[:, :, None], data.labels)
    assert linear_margin(data).lower == linear_margin(zeros).lower


def test_the_margin_of_an_iterate_is_the_score_over_the_readout_norm():
    model, data = random_case(5)
    full = mh.expand(model)
    size = np.linalg.norm(full.readout)
    assert frobenius_norm(model, 5) == pytest.approx(size, rel=1e-12)
    least = np.min(data.labels * full.scores(data))
    assert iterate_margin(model, data)[0] == pytest.approx(least / size, rel=1e-10)
    pooled, data = random_case(5, decoder="pooled")
    written = np.repeat(mh.expand(pooled).readout[:, None, :], 5, axis=1)
    assert frobenius_norm(pooled, 5) == pytest.approx(np.linalg.norm(written), rel=1e-12)


def test_cancelling_readouts_dilute_the_margin_and_the_option_undoes_it():
    mixture = noiseless(4, 5, 2, 0.5, 1.0)
    data = mixture.sample(20, key=jax.random.key(1))
    start = mh.training.population_first_phase(mixture, 1e6)
    final = mh.train(start, data, rule=mh.GD(0.5), num_steps=100, dtype="float64").final
    moved, _ = iterate_margin(final, data, start=start)
    linear = linear_margin(data)
    assert iterate_margin(final, data)[0] < 0.5 * moved
    assert (
        0.5 * linear.lower < moved <= linear.upper * 1.001
    )  # lazy: what training adds is a linear model
    assert (
        iterate_margin(start, data, start=start)[0] == 0
        or abs(iterate_margin(start, data)[0]) < 1e-6
    )


@pytest.mark.parametrize("heads", [4, 10**12])
def test_the_stated_rounding_holds_against_extended_precision(heads):
    mixture = noiseless(4, 5, 2, 0.5, 1.0)
    data = mixture.sample(20, key=jax.random.key(1))
    start = mh.first_phase(mixture.sample(50, key=jax.random.key(2)), heads)
    final = mh.train(start, data, rule=mh.GD(0.5), num_steps=100, dtype="float64").final
    X, y = data.tokens.astype(np.longdouble), data.labels
    N, H = start.multiplicity.astype(np.longdouble), np.longdouble(heads)

    def parts(model):
        W, U = (leaf.astype(np.longdouble) for leaf in model.heads)
        S = np.einsum("ntd,gde,nse->ngts", X, W, X)
        A = np.exp(S - S.max(axis=3, keepdims=True))
        return W, U, A / A.sum(axis=3, keepdims=True), np.einsum("gtd,nsd->ngts", U, X)

    _, U, A, B = parts(final)
    least = np.min(y * (np.sum(A * B, axis=(2, 3)) @ N / np.sqrt(H)))
    for origin, zero in ((None, 0), (start, start.readout.astype(np.longdouble))):
        exact = least / np.sqrt(N @ np.sum((U - zero) ** 2, axis=(1, 2)))
        found, rounding = iterate_margin(final, data, start=origin)
        assert abs(float(found - exact)) <= rounding < 1e-6
    dW, dU = paper_direction(final, mixture)
    _, _, A, B = parts(final)
    D = A * (B - np.sum(A * B, axis=3, keepdims=True))
    slopes = np.einsum("ngts,gtd,nsd->ng", A, dU, X) + np.einsum(
        "ngts,ntd,gde,nse->ng", D, X, dW, X
    )
    exact = np.min(y * (slopes @ N / np.sqrt(H)))
    stated = np.finfo(float).eps * slope_error(final, data, (dW, dU))
    found, rounding = margin_along(final, data, (dW, dU))
    assert rounding == stated and abs(float(found - exact)) <= stated < 1e-9


def test_the_search_finds_attention_that_beats_the_linear_model():
    data = noiseless(4, 5, 2, 0.25, 1.0).sample(30, key=jax.random.key(1))
    found = found_margin(data, num_starts=4, num_steps=300, key=jax.random.key(2))
    assert found.lower > 1.5 * linear_margin(data).upper
    assert found.lower > 0.9 * attention_margin(data).lower


def test_the_ladder_prints_both_scales_apart():
    mixture = noiseless(4, 5, 2, 0.5, 1.0)
    data = mixture.sample(12, key=jax.random.key(1))
    start = mh.training.population_first_phase(mixture, 4)
    run = mh.train(start, data, rule=mh.GD(0.5), num_steps=20, dtype="float64")
    ladder = mh.measures.margin_ladder(
        run.final,
        data,
        start=start,
        mixture=mixture,
        num_starts=2,
        num_steps=20,
        key=jax.random.key(0),
    )
    text = str(ladder)
    readout, tangent = text.split("margins on the tangent scale")
    assert (
        "linear model" in readout
        and "this model, ‖U−U₀‖" in readout
        and "a lower bound by search" in readout
    )
    assert (
        set(ladder.accuracy) == {"iterate", "iterate_moved", "along_star"} and text.count("±") == 3
    )
    assert "along theta_*" in tangent and "linear" not in tangent
    assert ladder.along_star == pytest.approx(
        margin_along(start, data, paper_direction(start, mixture))[0]
    )
    plain = mh.Dataset(data.tokens, data.labels)
    bare = mh.measures.margin_ladder(
        run.final, plain, num_starts=1, num_steps=0, key=jax.random.key(0)
    )
    assert bare.attention is None and bare.iterate_moved is None and bare.along_star is None
    assert set(bare.accuracy) == {"iterate"}


def test_what_is_missing_is_said():
    model, data = random_case(6, decoder="pooled")
    with pytest.raises(ValueError, match="relevant tokens are not known"):
        attention_margin(data)
    with pytest.raises(ValueError, match="for a full readout; this model has decoder='pooled'"):
        paper_direction(model, noiseless())
    factored, data = random_case(6, factored=True)
    with pytest.raises(
        ValueError, match="for full key-query weights; this model has factored ones"
    ):
        mh.measures.margin_ladder(
            factored,
            data,
            mixture=noiseless(5, 4, 1, 0.4),
            num_starts=1,
            num_steps=0,
            key=jax.random.key(0),
        )
    none = mh.Dataset(data.tokens, data.labels, None, np.zeros(data.tokens.shape[:2], bool))
    with pytest.raises(ValueError, match="sequence 0 has no relevant token"):
        attention_margin(none)
    with pytest.raises(ValueError, match="num_starts=0"):
        found_margin(data, num_starts=0, key=jax.random.key(0))
