"""The tangent kernel against the product of per-example Jacobians that autodiff finds for the expanded model."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from measures.programs import same_program
from model.cases import SOME_KINDS, random_case

import manyheads as mh
from manyheads.measures.kernel import FORMS, count_flops, tangent_kernel


def jacobian_products(model, data, other=None):
    """Readout part and key-query part, from autodiff of the plain formula with every head written out."""
    full = mh.expand(model)

    def score(heads, X, mask):
        return full.replace_heads(heads)(X, mask)

    def rows(dataset):
        X = jnp.asarray(dataset.tokens)
        mask = jnp.ones(X.shape[:2], bool) if dataset.mask is None else jnp.asarray(dataset.mask)
        grads = jax.jit(jax.vmap(jax.grad(score), (None, 0, 0)))(
            jax.tree.map(jnp.asarray, full.heads), X, mask
        )
        return [np.asarray(leaf).reshape(len(X), -1) for leaf in jax.tree.leaves(grads)]

    here = rows(data)
    there = here if other is None else rows(other)
    parts = [a @ b.T for a, b in zip(here, there, strict=True)]
    return parts[-1], sum(parts[:-1])


@pytest.mark.parametrize("kind", SOME_KINDS, ids=str)
def test_the_kernel_is_the_jacobian_product(kind):
    model, data = random_case(5, **kind)
    other = data.subset([4, 0, 2])
    forms = ["jacobian"] if kind["factored"] else FORMS
    for second in (None, other):
        readout, key_query = jacobian_products(model, data, second)
        scale = np.abs(readout + key_query).max()
        for form in forms:
            K = tangent_kernel(model, data, second, form=form)
            assert K.form == form
            assert np.abs(K.readout - readout).max() <= 1e-11 * scale
            assert np.abs(K.key_query - key_query).max() <= 1e-11 * scale
    K = tangent_kernel(model, data).matrix
    assert np.array_equal(K, K.T)


def test_other_exponents_scale_as_they_should():
    model, data = random_case(6, exponent=0.8)
    assert np.allclose(
        tangent_kernel(model, data).matrix, sum(jacobian_products(model, data)), rtol=1e-12
    )


@pytest.mark.parametrize("form", FORMS)
def test_blocks_do_not_change_the_result(form):
    model, data = random_case(7, shape=(150, 5, 12), counts=(2, 1, 1, 3, 5))
    whole = tangent_kernel(model, data, form=form)
    for memory in (1e5, 6e5):
        blocks = tangent_kernel(model, data, form=form, memory=memory)
        norms = np.sqrt(np.outer(whole.matrix.diagonal(), whole.matrix.diagonal()))
        assert np.max(np.abs(blocks.matrix - whole.matrix) / norms) <= whole.accuracy
    other = data.subset(np.arange(40))
    mixed = tangent_kernel(model, data, other, form=form, memory=1e5)
    assert np.max(np.abs(mixed.matrix - whole.matrix[:, :40]) / norms[:, :40]) <= whole.accuracy


@pytest.mark.parametrize("decoder", ["pooled", "last"])
def test_data_of_two_lengths_are_compared(decoder):
    model, data = random_case(11, decoder=decoder, masked=True, shape=(6, 4, 5))
    _, other = random_case(12, decoder=decoder, shape=(5, 5, 5))
    readout, key_query = jacobian_products(model, data, other)
    for form in (None, *FORMS):
        K = tangent_kernel(model, data, other, form=form)
        assert np.abs(K.readout - readout).max() <= 1e-11 * np.abs(readout).max()
        assert np.abs(K.key_query - key_query).max() <= 1e-11 * np.abs(key_query).max()


def reference_parts(model, data):
    """Both parts of the kernel of full weights and readouts, from 60 digits and the formulas as they stand."""
    number, exp = (
        np.vectorize(mpmath.mpf, otypes=[object]),
        np.vectorize(mpmath.exp, otypes=[object]),
    )
    rows = [[], []]
    with mpmath.workdps(60):
        for X in map(number, data.tokens):
            parts = [[], []]
            for W, U, N in zip(
                number(model.key_query), number(model.readout), model.multiplicity, strict=True
            ):
                S = X.dot(W).dot(X.T)
                A = exp(S - S.max(axis=1, keepdims=True))
                A = A / A.sum(axis=1, keepdims=True)
                B = U.dot(X.T)
                D = A * (B - (A * B).sum(axis=1, keepdims=True))
                for part, gradient in zip(parts, (A.dot(X), X.T.dot(D).dot(X)), strict=True):
                    part.append(
                        gradient.ravel() * mpmath.sqrt(mpmath.mpf(N) / mpmath.mpf(model.num_heads))
                    )
            for part, gradients in zip(rows, parts, strict=True):
                part.append(np.concatenate(gradients))
        return [np.array(part).dot(np.array(part).T).astype(float) for part in rows]


def error_over_norms(found, exact):
    norms = np.sqrt(np.outer(exact.diagonal(), exact.diagonal()))
    return float(np.max(np.abs(found - exact) / norms))


def wild_case(kind):
    """Models whose kernels lose digits: nearly tied logits of a million, large readouts behind sharp attention."""
    model, data = random_case(8, shape=(12, 5, 8), counts=(1, 4))
    W, U, X = model.key_query.copy(), model.readout.copy(), data.tokens.copy()
    rng = np.random.default_rng(0)
    if kind == "large logits":
        W[:] = 0
        W[:, 0, 0] = 1e6
        X[:, :, 0] = 1 + 1e-6 * X[:, :, 0]
    if kind == "large logits that cancel":
        W[:] = 1e5 * (W - W.transpose(0, 2, 1))
        X[:] = X[:, :1] + 1e-5 * rng.standard_normal(X.shape)
    if kind == "sharp attention":
        W, U = 30 * W, 1e4 * U
    if kind == "one key":  # each token sees itself: what others hold is less than a rounding of one
        W[:] = 50 * np.eye(X.shape[2])
        X[:] = np.eye(*X.shape[1:]) + 0.02 * X
    if kind == "many heads":
        return mh.MultiHead(W, U, np.array([5e11, 5e11])), data
    return mh.MultiHead(W, U, model.multiplicity), mh.Dataset(X, data.labels)


KINDS_OF_LOSS = [
    "plain",
    "large logits",
    "large logits that cancel",
    "sharp attention",
    "one key",
    "many heads",
]


@pytest.mark.parametrize("kind", KINDS_OF_LOSS)
def test_the_stated_accuracy_holds_against_sixty_digits(kind):
    model, data = wild_case(kind)
    readout, key_query = reference_parts(model, data)
    for form in FORMS:
        K = tangent_kernel(model, data, form=form)
        error = error_over_norms(K.matrix, readout + key_query)
        assert error <= K.accuracy
        assert error_over_norms(K.readout, readout) <= K.readout_accuracy
        assert error_over_norms(K.key_query, key_query) <= K.key_query_accuracy
    if kind in ("plain", "many heads"):
        assert K.accuracy < 1e-12
    if kind == "one key":
        assert readout.max() * 1e-30 > np.abs(key_query).max() > 0
        assert K.key_query_accuracy < 1e-10
    if kind == "large logits":
        assert error < 1e-13  # the keys differ in their last digits only, and these count
    if kind == "sharp attention":
        assert (
            error > 1e-14
        )  # digits are lost there, and the statement does not exaggerate without end
        assert K.accuracy < 1e4 * error
    mixed = tangent_kernel(model, data, data.subset(np.arange(12)))
    assert mixed.accuracy == pytest.approx(K.accuracy, rel=1e-6)


def offset_case(offset, mean):
    """Tokens around a common vector, or with means that small, behind attention that only these excite."""
    rng = np.random.default_rng(0)
    X, v = rng.standard_normal((4, 3, 5)), np.eye(5)[1]
    W, U = rng.standard_normal((2, 5, 5)) / offset, rng.standard_normal((2, 3, 5))
    if (
        mean is not None
    ):  # a gradient by W is that mean times one vector, summed from terms that cancel
        X, W, U = (
            X - X.mean(axis=1, keepdims=True) + mean * v,
            0 * W,
            np.repeat(U[:, :1], 3, axis=1),
        )
    U[:, :, 1] = 0
    return mh.MultiHead(W, U, np.array([1.0, 3.0])), mh.Dataset(
        X + offset * v, np.array([1.0, -1.0, 1.0, -1.0])
    )


@pytest.mark.parametrize(
    "offset,mean", [(10.0**k, None) for k in range(9)] + [(0.0, 10.0**-k) for k in range(9)]
)
def test_the_stated_accuracy_holds_at_any_offset_and_any_mean(offset, mean):
    model, data = offset_case(max(offset, 1e-300), mean)
    readout, key_query = reference_parts(model, data)
    for form in (None, *FORMS):
        K = tangent_kernel(model, data, form=form)
        for found, exact, accuracy in (
            (K.matrix, readout + key_query, K.accuracy),
            (K.readout, readout, K.readout_accuracy),
            (K.key_query, key_query, K.key_query_accuracy),
        ):
            error = error_over_norms(found, exact)
            assert error <= accuracy
            if mean is None:
                assert error < 1e-13 and accuracy < 1e-11  # an offset costs no digits
            elif form in (None, "jacobian"):
                assert accuracy < 1e-13 / mean


def test_an_offset_does_not_separate_copies_of_opposite_labels():
    # a permutation of the tokens changes no gradient where all rows of U are equal: the margin is zero
    rng = np.random.default_rng(0)
    for k in range(12):
        offset, n, T, d = 10.0 ** rng.uniform(3, 5), 12, 4, 64
        X = rng.standard_normal((n, T, d))
        X[:, :, 0] += offset
        U = np.repeat(10.0 ** rng.uniform(-1, 3) * rng.standard_normal((2, 1, d)), T, axis=1)
        U[:, :, 0] = 0
        copies = np.stack([x[rng.permutation(T)] for x in X])
        data = mh.Dataset(np.concatenate([X, copies]), np.repeat([1.0, -1.0], n))
        model = mh.MultiHead(np.zeros((2, d, d)), U, np.array([1.0, 3.0]))
        K = tangent_kernel(model, data, form="maps" if k % 2 else None)
        found = mh.measures.hard_margin(data.labels, gram=K.matrix, gram_accuracy=K.accuracy)
        assert found.verdict == "not separable"


def test_the_interval_of_offset_data_contains_the_margin():
    n, T, d = 12, 4, 16
    rng = np.random.default_rng(1)
    X, U = rng.standard_normal((n, T, d)), rng.standard_normal((2, T, d))
    U[:, :, 0] = 0
    model, labels = (
        mh.MultiHead(np.zeros((2, d, d)), 100 * U, np.array([1.0, 3.0])),
        np.where(np.arange(n) % 2, 1, -1.0),
    )
    data = mh.Dataset(X + 1e6 * np.eye(d)[0], labels)
    readout, key_query = reference_parts(model, data)
    exact = mh.measures.hard_margin(labels, gram=(readout + key_query).astype(float))
    for form in FORMS:
        K = tangent_kernel(model, data, form=form)
        found = mh.measures.hard_margin(labels, gram=K.matrix, gram_accuracy=K.accuracy)
        assert found.lower <= exact.upper and exact.lower <= found.upper


def test_the_cheapest_form_is_chosen():
    def chosen(T, d):
        model, data = random_case(0, shape=(3, T, d), counts=(1, 1))
        flops = count_flops(model, T, 6, 3)
        assert tangent_kernel(model, data).form == min(flops, key=flops.get)
        return tangent_kernel(model, data).form

    assert chosen(2, 24) == "tokens"
    assert chosen(4, 64) == "maps"
    assert chosen(8, 6) == "jacobian"


def test_single_precision_is_close_and_says_so():
    model, data = random_case(9)
    exact, rounded = tangent_kernel(model, data), tangent_kernel(model, data, dtype="float32")
    norms = np.sqrt(np.outer(exact.matrix.diagonal(), exact.matrix.diagonal()))
    assert rounded.matrix.dtype == np.float32 and rounded.accuracy > 1e6 * exact.accuracy
    assert np.max(np.abs(rounded.matrix - exact.matrix) / norms) <= rounded.accuracy


def test_a_trillion_heads_cost_as_much_as_four(caplog):
    few, data = random_case(10, shape=(120, 6, 24), counts=(2, 2))
    many = mh.MultiHead(few.key_query, few.readout, np.array([5e11, 5e11]))
    want = tangent_kernel(few, data)
    with same_program(caplog):
        found = tangent_kernel(many, data)
    # half of the heads in each class either way: the same kernel. The benchmark states the ratio of times
    assert np.allclose(found.matrix, want.matrix, rtol=1e-12)


def test_the_kernel_prints_what_it_is():
    model, data = random_case(3)
    text = str(tangent_kernel(model, data))
    assert text.startswith("tangent kernel 7x7 of 9 heads in 3 classes") and "entries to" in text


@pytest.mark.parametrize(
    "options,words",
    [
        (dict(form="fast"), "form='fast' must be 'jacobian', 'tokens' or 'maps' or None"),
        (dict(memory=10), "memory=10 must be a finite number >= 100000"),
    ],
)
def test_bad_options_are_answered(options, words):
    model, data = random_case(3)
    with pytest.raises(ValueError, match=words):
        tangent_kernel(model, data, **options)


@pytest.mark.parametrize("form", ["tokens", "maps"])
def test_factored_weights_have_no_token_form(form):
    model, data = random_case(3, factored=True)
    with pytest.raises(ValueError, match="factored ones use form='jacobian'"):
        tangent_kernel(model, data, form=form)


PEAK = """
import sys
import numpy as np, manyheads as mh
n, T, d, H, memory = map(float, sys.argv[1:])
n, T, d, H = int(n), int(T), int(d), int(H)
rng = np.random.default_rng(0)
data = mh.Dataset.from_arrays(rng.standard_normal((n, T, d)), np.where(np.arange(n) % 2, 1.0, -1.0))
model = mh.MultiHead.create(rng.standard_normal((H, d, d)) / d, rng.standard_normal((H, T, d)))
peak = lambda: int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) * 1024
for form in sys.stdin.read().split():
    mh.measures.tangent_kernel(model, data, form=form, memory=memory)  # compiles
    needed = []
    for _ in range(3):  # what else grows meanwhile, such as a thread's stack, does not grow every time
        open("/proc/self/clear_refs", "w").write("5")  # the peak starts again from here
        before = peak()
        K = mh.measures.tangent_kernel(model, data, form=form, memory=memory)
        needed.append(peak() - before - 2 * K.readout.nbytes)
        del K
    print(min(needed))
"""


def extra_bytes(forms, *arguments):
    """What a kernel takes at its peak beside the two parts of its result."""
    command = [sys.executable, "-c", PEAK, *map(str, arguments)]
    done = subprocess.run(
        command, input=" ".join(forms), capture_output=True, text=True, check=True
    )
    return [float(line) for line in done.stdout.split()]


@pytest.mark.full
def test_a_kernel_stays_within_its_memory():
    # 16 MB of result: the mirroring of its triangle, the copies of the data and all features are in the budget
    assert max(extra_bytes(["jacobian", "tokens", "maps"], 1000, 3, 16, 2, 5e6)) <= 5e6


@pytest.mark.full
def test_a_large_kernel_stays_within_its_memory():
    assert (
        max(extra_bytes(["jacobian"], 1000, 10, 50, 8, 128e6)) + 16e6 <= 200e6
    )  # the result included


def test_a_budget_too_small_for_one_sequence_is_refused():
    model, data = random_case(3, shape=(4, 6, 128), counts=(1,))
    with pytest.raises(
        ValueError,
        match=r"memory=100000 bytes is too little for one sequence at a time; pass at least",
    ):
        tangent_kernel(model, data, form="jacobian", memory=1e5)
