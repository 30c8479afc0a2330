"""A tiny BERT encoder with random weights, in a file as others write it."""

import json

import numpy as np
from safetensors.numpy import save_file

from manyheads.data.text.encoder import EMBEDDINGS, LAYER

PIECES = [
    *"[PAD] [UNK] [CLS] [SEP] a good bad film movie not very ##s the of and".split(),
    *"dull bright sad glad long short old new cold warm".split(),
]
DIM, UP, HEADS, LAYERS, POSITIONS = 12, 20, 3, 2, 16


def arrays(seed=0, prefix=""):
    """Every array of the encoder by its name in a file."""
    rng = np.random.default_rng(seed)
    shapes = {
        "words": (len(PIECES), DIM),
        "positions": (POSITIONS, DIM),
        "kinds": (2, DIM),
        "scale": (DIM,),
        "shift": (DIM,),
    }
    found = {
        f"{prefix}embeddings.{EMBEDDINGS[name]}": rng.standard_normal(shape)
        for name, shape in shapes.items()
    }
    for i in range(LAYERS):
        for name, theirs in LAYER.items():
            out = UP if name == "up" else DIM
            shape = (DIM,) if name.startswith("norm") else (out, UP if name == "down" else DIM)
            found[f"{prefix}encoder.layer.{i}.{theirs}.weight"] = rng.standard_normal(shape) / 2
            found[f"{prefix}encoder.layer.{i}.{theirs}.bias"] = rng.standard_normal(out) / 2
    return {name: array.astype(np.float32) for name, array in found.items()}


def write(folder, weights=None, **config):
    """The folder of an encoder; returns the path of its weights."""
    save_file(arrays() if weights is None else weights, folder / "model.safetensors")
    (folder / "vocab.txt").write_text("\n".join(PIECES))
    known = {
        "model_type": "bert",
        "num_attention_heads": HEADS,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
    }
    (folder / "config.json").write_text(json.dumps({**known, **config}))
    return folder / "model.safetensors"
