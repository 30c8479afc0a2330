"""Classes of identical heads: exact against written-out heads, and against 40 digits at 10^12 heads."""

import jax
import mpmath
import numpy as np
import pytest

import manyheads as mh

MIX = dict(num_tokens=4, dim=6, num_patterns=2, sparsity=0.5, signal=1.0)


def test_64_heads_and_their_two_classes_make_the_same_run():
    mix = mh.TokenizedMixture(**MIX, key=jax.random.key(0))
    fresh, data = mix.sample(100, key=jax.random.key(1)), mix.sample(20, key=jax.random.key(2))
    model = mh.first_phase(fresh, 64)
    options = dict(rule=mh.GD(1.0), num_steps=400, record="all", dtype="float64")
    classes, heads = mh.train(model, data, **options), mh.train(mh.expand(model), data, **options)
    assert model.num_classes == 2 and heads.start.num_classes == 64
    assert np.abs(classes.train_loss - heads.train_loss).max() <= 1e-13
    for a, b in zip(mh.expand(classes.final).heads, heads.final.heads, strict=True):
        assert np.abs(a - b).max() <= 1e-12


def reference(model, data, eta, num_steps, digits=40):
    """Two-class descent in 40-digit arithmetic, written from Eq. (2) and Lemma 1 with loops."""
    with mpmath.workdps(digits):
        mp = mpmath.mpf
        n, T, d = data.tokens.shape
        X = [[[mp(float(v)) for v in row] for row in x] for x in data.tokens]
        y = [mp(float(v)) for v in data.labels]
        N = [mp(float(v)) for v in model.multiplicity]
        H = sum(N)
        W = [[[mp(float(v)) for v in row] for row in w] for w in model.key_query]
        U = [[[mp(float(v)) for v in row] for row in u] for u in model.readout]
        losses = []
        for step in range(num_steps + 1):
            parts, scores = [], []
            for i in range(n):
                score, row = mp(0), []
                for g in range(len(N)):
                    A, B = [], []
                    for t in range(T):
                        q = [sum(X[i][t][a] * W[g][a][b] for a in range(d)) for b in range(d)]
                        e = [mpmath.exp(sum(q[b] * X[i][s][b] for b in range(d))) for s in range(T)]
                        A.append([v / sum(e) for v in e])
                        B.append([sum(U[g][t][a] * X[i][s][a] for a in range(d)) for s in range(T)])
                    phi = [sum(a * b for a, b in zip(A[t], B[t], strict=True)) for t in range(T)]
                    score += N[g] / mpmath.sqrt(H) * sum(phi)
                    row.append((A, B, phi))
                parts.append(row)
                scores.append(score)
            losses.append(sum(mpmath.log(1 + mpmath.exp(-y[i] * scores[i])) for i in range(n)) / n)
            if step == num_steps:
                break
            for g in range(len(N)):
                dW, dU = mpmath.zeros(d, d), mpmath.zeros(T, d)
                for i in range(n):
                    slope = -y[i] / (1 + mpmath.exp(y[i] * scores[i])) / n / mpmath.sqrt(H)
                    A, B, phi = parts[i][g]
                    for t in range(T):
                        for s in range(T):
                            D = slope * A[t][s] * (B[t][s] - phi[t])
                            for b in range(d):
                                dU[t, b] += slope * A[t][s] * X[i][s][b]
                                for a in range(d):
                                    dW[a, b] += X[i][t][a] * D * X[i][s][b]
                W[g] = [[W[g][a][b] - eta * dW[a, b] for b in range(d)] for a in range(d)]
                U[g] = [[U[g][t][b] - eta * dU[t, b] for b in range(d)] for t in range(T)]
        moved = [
            [
                [
                    [float(v - mp(float(v0))) for v, v0 in zip(*rows, strict=True)]
                    for rows in zip(a, a0, strict=True)
                ]
                for a, a0 in zip(end, before, strict=True)
            ]
            for end, before in ((W, model.key_query), (U, model.readout))
        ]
        return np.array([float(v) for v in losses]), moved


@pytest.mark.parametrize("heads", [4, 1e12, 1e15])
def test_runs_are_right_to_rounding_against_40_digits(heads):
    mix = mh.TokenizedMixture(
        num_tokens=2, dim=3, num_patterns=1, sparsity=0.5, signal=1.0, key=jax.random.key(0)
    )
    model = mh.first_phase(mix.sample(9, key=jax.random.key(1)), heads)
    data = mix.sample(4, key=jax.random.key(2))
    run = mh.train(model, data, rule=mh.GD(0.5), num_steps=15, record="all", dtype="float64")
    losses, moved = reference(model, data, mpmath.mpf(0.5), 15)
    allowed = 1e-12 + np.sqrt(heads) * np.finfo(float).eps
    assert np.abs(run.train_loss - losses).max() <= allowed
    for got, want in zip(run.displacement, moved, strict=True):
        assert np.abs(got - want).max() <= allowed * np.abs(want).max()
    assert run.train_loss[-1] < 0.8 * run.train_loss[0]  # it moves, at 10^15 heads too


def test_displacements_keep_their_digits_at_many_heads():
    mix = mh.TokenizedMixture(
        num_tokens=2, dim=3, num_patterns=1, sparsity=0.5, signal=1.0, key=jax.random.key(0)
    )
    data = mix.sample(6, key=jax.random.key(2))
    runs = {
        H: mh.train(
            mh.zero_start(H, num_tokens=2, dim=3),
            data,
            rule=mh.GD(0.5),
            num_steps=20,
            dtype="float64",
        )
        for H in (1e9, 1e15)
    }
    # from zero the readout's displacement is lazy: it scales as 1/sqrt(H), to a relative 1e-8 here
    ratio = runs[1e9].displacement.readout / runs[1e15].displacement.readout
    assert np.allclose(ratio, 1e3, rtol=1e-7)
    assert np.isclose(runs[1e9].distance[-1], runs[1e15].distance[-1], rtol=1e-7)
