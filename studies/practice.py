"""Do several heads help in a transformer as people build it?

The paper's layer has no value and output matrices, no residual connection and no normalization, and its step size is
that of gradient descent. Here are a layer of the paper's kind with a pooled readout, a block as in a transformer
(queries, keys, values and outputs of dimension 16 split over the heads, a residual connection, LayerNorm before and
after, the mean over tokens, a linear score), and two such blocks. All start from the usual Gaussian draws (variance one
over the number of inputs), so all heads differ, and are trained by Adam on all sequences at once for 200 steps. In a
block one head and four have exactly as many parameters; in the paper's layer four heads have four times as many.

"digits" are 256 images of scikit-learn's digits, even or odd, as 16 patches with their row and column; "planted" are
256 Gaussian sequences of 8 tokens labeled by a random model of four heads. 1,000 further sequences test. A ladder of
step sizes; for each seed the step is the one with which the other seeds err least.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits

import manyheads as mh
from manyheads import lab

STEPS, WIDTH, SIZE = 200, 16, 256

GRID = lab.Grid(
    data=["digits", "planted"],
    model=["paper's layer", "one block", "two blocks"],
    heads=[1, 4],
    step=[0.003, 0.01, 0.03],
    seeds=6,
)
QUICK = GRID.replace(model=["paper's layer", "one block"], step=[0.01, 0.03], seeds=2)
TRY = [dict(data="planted", model="one block", heads=4, step=0.01)]


class Block(eqx.Module):
    """Self-attention with a residual connection and LayerNorm before it, as in a transformer."""

    query: jax.Array
    key: jax.Array
    value: jax.Array
    output: jax.Array

    def __init__(self, heads, key):
        shape = (heads, WIDTH, WIDTH // heads)
        draws = [jax.random.normal(k, shape) / np.sqrt(WIDTH) for k in jax.random.split(key, 4)]
        self.query, self.key, self.value, output = draws
        self.output = jnp.swapaxes(output, 1, 2)

    def __call__(self, x):
        normal = standardized(x)
        q, k, v = (jnp.einsum("td,hde->hte", normal, w) for w in (self.query, self.key, self.value))
        logits = jnp.einsum("hte,hse->hts", q, k) / np.sqrt(q.shape[-1])
        mixed = jnp.einsum("hts,hse->hte", jax.nn.softmax(logits, axis=-1), v)
        return x + jnp.einsum("hte,hed->td", mixed, self.output)


class Transformer(eqx.Module):
    """Tokens are embedded, pass the blocks, and are averaged to one score."""

    embedding: jax.Array
    blocks: list[Block]
    readout: jax.Array

    def __init__(self, dim, heads, depth, key):
        keys = jax.random.split(key, depth + 2)
        self.embedding = jax.random.normal(keys[0], (dim, WIDTH)) / np.sqrt(dim)
        self.blocks = [Block(heads, k) for k in keys[2:]]
        self.readout = jax.random.normal(keys[1], (WIDTH,)) / np.sqrt(WIDTH)

    def __call__(self, tokens, mask):
        x = tokens @ self.embedding
        for block in self.blocks:
            x = block(x)
        return standardized(x).mean(axis=0) @ self.readout


def standardized(x):
    """LayerNorm without weights."""
    centered = x - x.mean(axis=-1, keepdims=True)
    return centered / jnp.sqrt(jnp.mean(centered**2, axis=-1, keepdims=True) + 1e-5)


def sequences(data, seed):
    """Training and test sequences; half of the numbers of a digit's token say where a patch lies."""
    random, count = np.random.default_rng(seed), SIZE + 1000
    if data == "digits":
        images, digit = load_digits(return_X_y=True)
        patches = images.reshape(-1, 4, 2, 4, 2).transpose(0, 1, 3, 2, 4).reshape(-1, 16, 4)
        place = np.eye(4)[np.array(np.divmod(np.arange(16), 4)).T].reshape(16, 8)
        chosen = random.permutation(len(images))[:count]
        tokens = np.concatenate([patches[chosen] / 8 - 1, [place] * count], axis=2)
        labels = np.where(digit[chosen] % 2, 1.0, -1.0)
    else:
        tokens = random.standard_normal((count, 8, 10))
        size = {"num_tokens": 8, "dim": 10, "decoder": "pooled"}
        teacher = mh.gaussian_start(4, **size, key=jax.random.key(seed))
        labels = np.sign(teacher.scores(mh.Dataset(tokens, np.resize([1.0, -1.0], count))))
    train, test = slice(SIZE), slice(SIZE, None)
    return mh.Dataset(tokens[train], labels[train]), mh.Dataset(tokens[test], labels[test])


def cell(data, model, heads, step, seeds):
    found = {"error": [], "loss": []}
    for seed in seeds:
        train, test = sequences(data, seed)
        key = jax.random.key(seed + 10**6)
        if model == "paper's layer":
            size = {"num_tokens": train.num_tokens, "dim": train.dim, "decoder": "pooled"}
            start = mh.gaussian_start(heads, **size, key=key)
        else:
            start = Transformer(train.dim, heads, 1 + (model == "two blocks"), key)
        run = mh.train(start, train, rule=mh.Adam(step), num_steps=STEPS, record=[STEPS])
        scores = mh.as_model(run.final).scores(test)
        found["error"].append(np.mean(np.asarray(scores) * test.labels <= 0))
        found["loss"].append(run.train_loss[-1])
    return found


def gained(results, model, data):
    """The test error of four heads minus that of one, each with its own best step."""
    tuned = results.tuned("error", over="step")
    return tuned.difference("error", data=data, model=model, heads=(4, 1))


CLAIMS = [
    lab.Claim(
        "In one transformer block four heads err less on digits than one with as many parameters.",
        lambda r: gained(r, "one block", "digits"),
        below=0,
        unit="difference of test errors",
    ),
    lab.Claim(
        "And on planted labels.",
        lambda r: gained(r, "one block", "planted"),
        below=0,
        unit="difference of test errors",
    ),
    lab.Claim(
        "In the paper's layer four heads err less on digits than one.",
        lambda r: gained(r, "paper's layer", "digits"),
        below=0,
        unit="difference of test errors; four heads have four times as many parameters",
    ),
    lab.Claim(
        "And on planted labels.",
        lambda r: gained(r, "paper's layer", "planted"),
        below=0,
        unit="difference of test errors; four heads have four times as many parameters",
    ),
]
PANELS = 2


def figure(results, axes):
    tuned = results.tuned("error", over="step")
    for one, data in zip(axes, ("digits", "planted"), strict=True):
        lab.lines(one, tuned, "error", "heads", "model", data=data)
        one.set(title=data, xlabel="heads", ylabel="test error, best step")
