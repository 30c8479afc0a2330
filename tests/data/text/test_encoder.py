import importlib.util

import numpy as np
import pytest
from data.text import encoders
from scipy.special import erf

from manyheads.data.text import Encoder
from manyheads.data.text.packages import MODEL, are_installed

SENTENCES = ["a good film", "not very good", "the bad movies and the sad old films of the cold", ""]
TOLERANCE = 2e-5  # float32, values of order 1, two layers


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return Encoder.load(encoders.write(tmp_path_factory.mktemp("encoder")))


def direct(given, numbers, layer):
    """Hidden states (T, dim) of one sentence without padding, in NumPy and float64, one head after another."""

    def normalized(x, name):
        x = x - x.mean(axis=1, keepdims=True)
        return (
            x / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-12) * given[f"{name}.weight"]
            + given[f"{name}.bias"]
        )

    def affine(x, name):
        return x @ given[f"{name}.weight"].T + given[f"{name}.bias"]

    e = "embeddings."
    x = (
        given[f"{e}word_embeddings.weight"][numbers]
        + given[f"{e}position_embeddings.weight"][: len(numbers)]
    )
    x = normalized(x + given[f"{e}token_type_embeddings.weight"][0], f"{e}LayerNorm")
    for i in range(layer):
        at, mixed, size = f"encoder.layer.{i}.", [], encoders.DIM // encoders.HEADS
        q, k, v = (affine(x, f"{at}attention.self.{name}") for name in ("query", "key", "value"))
        for h in range(encoders.HEADS):
            own = slice(h * size, (h + 1) * size)
            looks = np.exp(q[:, own] @ k[:, own].T / np.sqrt(size))
            mixed.append(looks / looks.sum(axis=1, keepdims=True) @ v[:, own])
        x = normalized(
            x + affine(np.hstack(mixed), f"{at}attention.output.dense"),
            f"{at}attention.output.LayerNorm",
        )
        up = affine(x, f"{at}intermediate.dense")
        up = up * (1 + erf(up / np.sqrt(2))) / 2
        x = normalized(x + affine(up, f"{at}output.dense"), f"{at}output.LayerNorm")
    return x


def test_hidden_states_equal_a_direct_computation(encoder):
    given = {name: array.astype(np.float64) for name, array in encoders.arrays().items()}
    for layer in range(encoders.LAYERS + 1):
        tokens, mask = encoder.hidden_states(SENTENCES, layer=layer, num_tokens=16)
        assert tokens.shape == (4, 15, encoders.DIM) and mask.sum(axis=1).tolist() == [5, 5, 15, 2]
        for i, text in enumerate(SENTENCES):
            numbers = encoder.tokenizer.numbers(encoder.tokenizer.framed(text, 16))
            expected = direct(given, numbers, layer)
            np.testing.assert_allclose(tokens[i, : len(numbers)], expected, rtol=0, atol=TOLERANCE)
            assert not tokens[i, len(numbers) :].any()


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch")
def test_hidden_states_equal_those_of_pytorchs_own_layers(encoder):
    import torch
    from torch import nn

    given = {name: torch.tensor(array) for name, array in encoders.arrays().items()}
    words, positions = (
        nn.Embedding.from_pretrained(given[f"embeddings.{n}_embeddings.weight"])
        for n in ("word", "position")
    )
    first = nn.LayerNorm(encoders.DIM, eps=1e-12)
    first.load_state_dict(
        {part: given[f"embeddings.LayerNorm.{part}"] for part in ("weight", "bias")}
    )
    for text in SENTENCES[:3]:
        numbers = torch.tensor(encoder.tokenizer.numbers(encoder.tokenizer.framed(text, 16)))
        x = (
            words(numbers)
            + positions(torch.arange(len(numbers)))
            + given["embeddings.token_type_embeddings.weight"][:1]
        )
        expected = [first(x)[None]]
        for i in range(encoders.LAYERS):
            block = nn.TransformerEncoderLayer(
                encoders.DIM, encoders.HEADS, encoders.UP, 0.0, "gelu", 1e-12, batch_first=True
            )
            at = f"encoder.layer.{i}."
            with torch.no_grad():
                for part in ("weight", "bias"):
                    three = [
                        given[f"{at}attention.self.{name}.{part}"]
                        for name in ("query", "key", "value")
                    ]
                    block.self_attn.get_parameter(f"in_proj_{part}").copy_(torch.cat(three))
                    for ours, theirs in {
                        "self_attn.out_proj": "attention.output.dense",
                        "norm1": "attention.output.LayerNorm",
                        "linear1": "intermediate.dense",
                        "linear2": "output.dense",
                        "norm2": "output.LayerNorm",
                    }.items():
                        block.get_parameter(f"{ours}.{part}").copy_(given[f"{at}{theirs}.{part}"])
            expected.append(block.eval()(expected[-1]))
        for layer, states in enumerate(expected):
            found, _ = encoder.hidden_states([text], layer=layer, num_tokens=16)
            np.testing.assert_allclose(found[0], states[0].detach().numpy(), rtol=0, atol=TOLERANCE)


def test_neither_padding_nor_neighbors_change_a_sentence(encoder):
    together, mask = encoder.hidden_states([*SENTENCES, *["a film"] * 200], layer=2, num_tokens=16)
    alone, _ = encoder.hidden_states(SENTENCES[:1], layer=2, num_tokens=16)
    np.testing.assert_allclose(together[0][mask[0]], alone[0], rtol=0, atol=TOLERANCE)
    np.testing.assert_array_equal(together[5], together[203])


def test_sentence_embeddings_are_means_of_norm_one(encoder):
    found = encoder.sentence_embeddings(SENTENCES, num_tokens=16)
    states, mask = encoder.hidden_states(SENTENCES, layer=2, num_tokens=16)
    means = states.sum(axis=1) / mask.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(
        found * np.linalg.norm(means, axis=1, keepdims=True), means, atol=TOLERANCE
    )


def test_names_may_begin_with_bert_and_other_arrays_are_ignored(tmp_path, encoder):
    weights = encoders.arrays(prefix="bert.") | {"cls.predictions.bias": np.zeros(3, np.float32)}
    other = Encoder.load(encoders.write(tmp_path, weights))
    assert str(other) == str(encoder) == "Encoder: 2 layers of 3 heads in dimension 12, 25 pieces"
    for name, array in encoder.layers.items():
        np.testing.assert_array_equal(other.layers[name], array)


def test_what_is_not_an_encoder_is_refused_in_one_line(tmp_path, encoder):
    weights = encoders.arrays()
    weights.pop("encoder.layer.1.output.dense.bias")
    with pytest.raises(
        ValueError,
        match="has no array encoder.layer.1.output.dense.bias; pass the weights of a BERT",
    ):
        Encoder.load(encoders.write(tmp_path, weights))
    with pytest.raises(ValueError, match="hidden_act = 'relu'; only 'gelu' is supported"):
        Encoder.load(encoders.write(tmp_path, hidden_act="relu"))
    with pytest.raises(
        ValueError, match="num_heads=5 of .*: pass num_heads=, a divisor of the width 12"
    ):
        Encoder.load(encoders.write(tmp_path), num_heads=5)
    (tmp_path / "model.safetensors").write_bytes(b"no tensors here")
    with pytest.raises(ValueError, match="is not a readable safetensors file"):
        Encoder.load(tmp_path / "model.safetensors")
    with pytest.raises(FileNotFoundError, match="does not exist; pass a model.safetensors file"):
        Encoder.load(tmp_path / "nothing")
    with pytest.raises(ValueError, match="layer=3 must be 0 .embeddings. to 2"):
        encoder.hidden_states(SENTENCES, layer=3, num_tokens=16)
    with pytest.raises(ValueError, match="num_tokens=17 must be 3 to 16"):
        encoder.hidden_states(SENTENCES, layer=1, num_tokens=17)
    with pytest.raises(ValueError, match="there are no sentences"):
        encoder.hidden_states([], layer=1, num_tokens=16)


@pytest.mark.skipif(
    not are_installed(MODEL), reason="needs a package that carries all-MiniLM-L6-v2"
)
def test_minilm_puts_similar_sentences_together():
    model = Encoder.load()
    texts = [
        "A man is eating food.",
        "A man is eating a piece of bread.",
        "Two men pushed carts through the woods.",
    ]
    found = model.sentence_embeddings(texts)
    assert (
        found.shape == (3, 384)
        and str(model) == "Encoder: 6 layers of 12 heads in dimension 384, 30,522 pieces"
    )
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-6)
    near = found @ found.T
    assert near[0, 1] > 0.7 and near[0, 2] < 0.1 and near[1, 2] < 0.1
    assert model.tokenizer.pieces("Héllo, unbelievably fine films!") == [
        "hello",
        ",",
        "un",
        "##bel",
        "##ie",
        "##va",
        "##bly",
        "fine",
        "films",
        "!",
    ]
