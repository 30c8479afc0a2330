"""Leave-one-out and replace-one runs against separate trainings by `train`, which shares no loop with them."""

from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from measures.programs import same_program

import manyheads as mh
from manyheads.measures import stability
from manyheads.model.loss import LOGISTIC

SETTINGS = Path(__file__).parent.parent / "settings"
RUN = dict(step_size=0.3, num_steps=30)
DESCENT = dict(rule=mh.GD(0.3), num_steps=30)


@pytest.fixture(scope="module")
def mixture():
    return mh.TokenizedMixture(
        num_tokens=4,
        dim=6,
        num_patterns=2,
        sparsity=0.5,
        signal=1.5,
        noise_mu=0.1,
        noise_nu=0.1,
        noise_norm=0.5,
        key=jax.random.key(0),
    )


@pytest.fixture(scope="module")
def data(mixture):
    return mixture.sample(8, key=jax.random.key(1))


@pytest.fixture(scope="module")
def start(mixture):
    return mh.first_phase(mixture.sample(30, key=jax.random.key(2)), 10)


def separate_run(start, data, **options):
    return mh.train(start, data, dtype="float64", snapshots=[0, 7, 30], **DESCENT, **options)


def distance(model, a, b):
    """Norm of the difference over all heads."""
    N = model.multiplicity
    squares = [np.sum((x - y).reshape(len(N), -1) ** 2, axis=1) for x, y in zip(a, b, strict=True)]
    return np.sqrt(N @ sum(squares))


def losses(model, data):
    return np.asarray(LOGISTIC.value(jnp.asarray(data.labels * model.scores(data))))


@pytest.fixture(scope="module")
def everything(start, data):
    return mh.measures.leave_one_out(start, data, steps=[0, 7], expansion=True, **RUN)


def test_distances_and_losses_are_those_of_separate_trainings(start, data, everything):
    reference = separate_run(start, data)
    assert everything.steps.tolist() == [0, 7, 30] and everything.indices.tolist() == list(range(8))
    for i in range(8):
        weight = np.where(np.arange(8) == i, 0.0, 1 / 8)
        twin = separate_run(start, data, loss=mh.Weighted(weight))
        for k, step in enumerate((0, 7, 30)):
            want = distance(start, twin.displacement_at(step), reference.displacement_at(step))
            assert abs(everything.distance[i, k] - want) <= 1e-12
            model = twin.model(step)
            assert abs(everything.left_out_loss[i, k] - losses(model, data)[i]) <= 1e-12
            assert abs(everything.seen_loss[i, k] - losses(reference.model(step), data)[i]) <= 1e-12
            assert (
                abs(
                    everything.readout_norm[i, k] - np.linalg.norm(model.readout, axis=(1, 2)).max()
                )
                <= 1e-12
            )
    assert np.all(everything.distance[:, 0] == 0) and np.all(everything.distance[:, 2] > 1e-3)
    assert everything.reference_loss[-1] == pytest.approx(reference.train_loss[-1], abs=1e-14)


def test_expansion_is_that_of_one_step_of_descent(start, data, everything):
    """One plain step from both points, with gradients by autodiff of the plain formula."""
    reference = separate_run(start, data)
    N = start.multiplicity
    X, y = jnp.asarray(data.tokens), jnp.asarray(data.labels)

    def step(model, weight):
        def total(heads):
            return jnp.sum(weight * LOGISTIC.value(y * jax.vmap(model.replace_heads(heads))(X)))

        heads = jax.tree.map(jnp.asarray, model.heads)
        gradient = jax.grad(total)(heads)  # of all members of a class together
        return [
            np.asarray(h - 0.3 * g / N.reshape(-1, 1, 1))
            for h, g in zip(heads, gradient, strict=True)
        ]

    assert np.isnan(everything.expansion[:, 0]).all()
    for i in (0, 3):
        weight = np.where(np.arange(8) == i, 0.0, 1 / 8)
        here, there = (
            separate_run(start, data, loss=mh.Weighted(weight)).model(7),
            reference.model(7),
        )
        ratio = distance(start, step(here, weight), step(there, weight)) / distance(
            start, here.heads, there.heads
        )
        assert everything.expansion[i, 1] == pytest.approx(ratio, rel=1e-9)


def test_replacing_is_training_on_other_data(mixture, start, data):
    other = mixture.sample(8, key=jax.random.key(5))
    found = mh.measures.replace_one(start, data, other, steps=[7], indices=[1, 6], **RUN)
    reference = separate_run(start, data)
    for row, i in enumerate((1, 6)):
        tokens, labels = data.tokens.copy(), data.labels.copy()
        tokens[i], labels[i] = other.tokens[i], other.labels[i]
        twin = separate_run(start, mh.Dataset(tokens, labels))
        for k, step in enumerate((7, 30)):
            want = distance(start, twin.displacement_at(step), reference.displacement_at(step))
            assert abs(found.distance[row, k] - want) <= 1e-12
            assert abs(found.left_out_loss[row, k] - losses(twin.model(step), data)[i]) <= 1e-12
    assert str(found).startswith("replace-one: 2 of 8 examples replaced")


@pytest.mark.parametrize("decoder", ["pooled", "last"])
def test_other_readouts_and_masks(decoder):
    rng = np.random.default_rng(0)
    mask = np.ones((6, 4), bool)
    mask[:3, 2:] = False
    data = mh.Dataset.from_arrays(rng.standard_normal((6, 4, 3)), [1, -1, 1, -1, 1, -1], mask=mask)
    start = mh.gaussian_start(2, num_tokens=4, dim=3, decoder=decoder, key=jax.random.key(0))
    found = mh.measures.leave_one_out(start, data, indices=[2], **RUN)
    weight = np.where(np.arange(6) == 2, 0.0, 1 / 6)
    runs = [
        mh.train(start, data, dtype="float64", loss=loss, **DESCENT)
        for loss in (mh.Weighted(weight), "logistic")
    ]
    assert (
        abs(found.distance[0, 0] - distance(start, runs[0].displacement, runs[1].displacement))
        <= 1e-12
    )
    assert abs(found.left_out_loss[0, 0] - losses(runs[0].final, data)[2]) <= 1e-12


def test_side_by_side_gives_the_same(start, data, everything):
    batched = mh.measures.leave_one_out(start, data, batch=3, **RUN)
    assert np.abs(batched.distance[:, 0] - everything.distance[:, 2]).max() <= 1e-12


def test_a_subset_estimates_the_average_within_its_error(start, data, everything):
    estimates = [
        mh.measures.leave_one_out(start, data, num_left_out=3, key=key, **RUN)
        for key in jax.random.split(jax.random.key(0), 25)
    ]
    means = np.array([found.average[0] for found in estimates])
    exact = everything.average[-1]
    assert everything.standard_error[-1] == 0
    true_error = everything.distance[:, -1].std(ddof=1) / np.sqrt(3) * np.sqrt(1 - 3 / 8)
    assert means.std(ddof=1) == pytest.approx(
        true_error, rel=0.45
    )  # 25 draws know a spread to about 15%
    assert abs(means.mean() - exact) <= 4 * true_error / 5
    stated = np.sqrt(np.mean([found.standard_error[0] ** 2 for found in estimates]))
    assert stated == pytest.approx(true_error, rel=0.35)
    assert "±" in str(estimates[0])


def test_an_interrupted_measure_continues_where_it_stopped(start, data, tmp_path, monkeypatch):
    calls, uninterrupted = [], mh.measures.leave_one_out(start, data, **RUN)
    original = stability.twin_runs

    def interrupted(setup, indices, **options):
        calls.append(int(indices[0]))
        if len(calls) == 4:
            raise KeyboardInterrupt
        return original(setup, indices, **options)

    monkeypatch.setattr(stability, "twin_runs", interrupted)
    part = mh.measures.leave_one_out(start, data, checkpoint=tmp_path / "part.npz", **RUN)
    assert part.status == "interrupted" and part.indices.tolist() == [0, 1, 2]
    calls[:] = [0] * 10
    whole = mh.measures.leave_one_out(start, data, checkpoint=tmp_path / "part.npz", **RUN)
    assert calls[10:] == [3, 4, 5, 6, 7]
    assert whole.status == "finished"
    assert np.array_equal(whole.distance, uninterrupted.distance)
    again = mh.measures.leave_one_out(start, data, checkpoint=tmp_path / "part.npz", **RUN)
    assert len(calls) == 15 and np.array_equal(again.distance, whole.distance)
    with pytest.raises(ValueError, match="belongs to other data, another start or other settings"):
        mh.measures.leave_one_out(
            start, data, checkpoint=tmp_path / "part.npz", step_size=0.2, num_steps=30
        )
    (tmp_path / "other.npz").write_bytes(b"no")
    with pytest.raises(ValueError, match="not a readable"):
        mh.measures.leave_one_out(start, data, checkpoint=tmp_path / "other.npz", **RUN)
    assert not list(tmp_path.glob("*.tmp"))


def extended_runs(start, data, indices):
    """Distances and left-out losses by descent in extended precision; the scores are sums of differences.

    The heads move by about 1/sqrt(H), and classes that cancel at the start do so exactly here.
    """
    X, y, n = data.tokens.astype(np.longdouble), data.labels, data.num_examples
    W0, U0 = (leaf.astype(np.longdouble) for leaf in start.heads)
    N, H = start.multiplicity.astype(np.longdouble), np.longdouble(start.num_heads)

    def parts(W, U):
        S = np.einsum("ntd,gde,nse->ngts", X, W, X)
        A = np.exp(S - S.max(axis=3, keepdims=True))
        A /= A.sum(axis=3, keepdims=True)
        return A, np.einsum("gtd,nsd->ngts", U, X)

    def run(weight):
        dW, dU = np.zeros_like(W0), np.zeros_like(U0)
        for _ in range(RUN["num_steps"]):
            A, B = parts(W0 + dW, U0 + dU)
            phi = np.sum(A * B, axis=3, keepdims=True)
            scores = phi.sum(axis=(2, 3)) @ N / np.sqrt(H)
            slope = -weight * y / (1 + np.exp(y * scores)) / np.sqrt(H)
            D = A * (B - phi)
            dU = dU - np.longdouble(0.3) * np.einsum("n,ngts,nsd->gtd", slope, A, X)
            dW = dW - np.longdouble(0.3) * np.einsum("n,ntd,ngts,nse->gde", slope, X, D, X)
        A, B = parts(W0 + dW, U0 + dU)
        return dW, dU, np.log1p(np.exp(-y * (np.sum(A * B, axis=(2, 3)) @ N / np.sqrt(H))))

    whole = run(np.full(n, np.longdouble(1) / n))
    distances, left_out = [], []
    for i in indices:
        twin = run(np.where(np.arange(n) == i, 0, np.longdouble(1) / n))
        squares = sum(
            np.sum((a - b) ** 2, axis=(1, 2)) for a, b in zip(twin[:2], whole[:2], strict=True)
        )
        distances.append(np.sqrt(N @ squares))
        left_out.append(twin[2][i])
    return np.array(distances), np.array(left_out)


def test_a_trillion_heads_run_the_same_program_to_the_stated_accuracy(mixture, data, caplog):
    first = mixture.sample(30, key=jax.random.key(2))
    for heads in (4, 10**12):
        start = mh.first_phase(first, heads)
        with same_program(caplog, heads > 4):
            found = mh.measures.leave_one_out(start, data, indices=[0, 1], **RUN)
        distances, left_out = extended_runs(start, data, [0, 1])
        error = np.abs(found.distance[:, -1] - distances).max()
        assert error <= found.accuracy < 1e-6 * distances.min()
        assert np.abs(found.left_out_loss[:, -1] - left_out).max() <= found.loss_accuracy < 1e-5
    assert error > 1e-14  # more digits are lost with many heads, and that is said


def test_a_loss_is_no_more_accurate_than_a_number(mixture, data):
    """Where scores are tiny the loss is near log 2, which is rounded itself."""
    short = replace(data, tokens=1e-4 * data.tokens)
    start = mh.first_phase(mixture.sample(30, key=jax.random.key(2)), 4)
    found = mh.measures.leave_one_out(start, short, indices=[0, 1], **RUN)
    error = np.abs(found.left_out_loss[:, -1] - extended_runs(start, short, [0, 1])[1]).max()
    assert 0 < error <= found.loss_accuracy < 1e-14


def test_stability_falls_as_one_over_n():
    """Setting B of the reference numbers, 2 heads, K = 100: n times the average stability is nearly constant."""
    with np.load(SETTINGS / "B.npz", allow_pickle=False) as file:
        start = mh.first_phase(
            mh.Dataset.from_arrays(file["first_phase_tokens"], file["first_phase_labels"]), 2
        )
        data = mh.Dataset.from_arrays(file["tokens"], file["labels"])
    scaled = []
    for n in (10, 20, 40):
        found = mh.measures.leave_one_out(
            start, data.subset(np.arange(n)), step_size=0.1, num_steps=100
        )
        scaled.append(n * found.average[-1])
    assert max(scaled) / min(scaled) < 1.35  # while n itself grows fourfold
    assert 1.5 < min(scaled) and max(scaled) < 2.6


def test_bad_input_is_answered(start, data, tmp_path):
    def refused(words, **options):
        with pytest.raises(ValueError, match=words) as error:
            mh.measures.leave_one_out(start, data, **(RUN | options))
        assert "\n" not in str(error.value)

    refused("step_size=-1", step_size=-1)
    refused("num_steps=0", num_steps=0)
    refused("steps must lie between 0 and num_steps=30", steps=[31])
    refused("num_left_out=9 must be between 1 and the 8", num_left_out=9)
    refused("drawn at random: pass key=", num_left_out=2)
    refused("batch=-1 must be a whole number >= 1", batch=-1)
    refused("indices must lie between 0 and 7", indices=[8])
    refused("the folder does not exist", checkpoint=tmp_path / "no" / "file.npz")
    with pytest.raises(ValueError, match="pass one replacement for every example"):
        mh.measures.replace_one(start, data, data.subset([0, 1]), **RUN)
    with pytest.raises(TypeError, match="stepz= is no argument of leave_one_out; it takes"):
        mh.measures.replace_one(start, data, data, stepz=3, **RUN)
