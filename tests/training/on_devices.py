"""A program for a process with several simulated devices: `python on_devices.py CHECK ...` prints a line of JSON each.

Every check compares one device with all of them; a number is the largest relative difference that it found.
"""

import dataclasses
import json
import sys
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import manyheads as mh
from manyheads.training.devices import choose_devices, make_mesh, sharded_objective

RECORDS = (
    "train_loss",
    "test_loss",
    "gradient_norm",
    "distance",
    "margin",
    "attention_mass",
    "readout_norm",
)
ALL = len(jax.devices())


def sample(n, seed):
    task = mh.TokenizedMixture(
        num_tokens=5, dim=6, num_patterns=4, sparsity=0.4, signal=2.0, key=jax.random.key(0)
    )
    return task.sample(n, key=jax.random.key(seed))


DATA, TEST = sample(19, 1), sample(7, 2)
LENGTHS = np.random.default_rng(0).integers(2, 6, 19)
RAGGED = dataclasses.replace(DATA, mask=np.arange(5)[None, :] < LENGTHS[:, None])
START = mh.first_phase(sample(40, 3), num_heads=10)
LEFT_OUT = np.where(np.arange(19) < 10, 0.0, 0.07)  # of two devices the first has nothing to do


def difference(a, b):
    """The largest relative difference of two arrays or trees."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return float(
        max(np.abs(x - y).max() / max(np.abs(x).max(), 1e-300) for x, y in pairs if np.size(x))
    )


def of_runs(a, b):
    for name in RECORDS:
        assert (getattr(a, name) is None) == (getattr(b, name) is None)
    known = [name for name in RECORDS if getattr(a, name) is not None]
    parts = [
        ({n: getattr(r, n) for n in known}, r.displacement, r.snapshots, r.observed) for r in (a, b)
    ]
    assert a.status == b.status and a.last_step == b.last_step and np.array_equal(a.steps, b.steps)
    return difference(*parts)


def train(model=START, data=DATA, **options):
    return mh.train(
        model, data, **{"rule": mh.GD(0.3), "num_steps": 25, "dtype": "float64", **options}
    )


def both(model=START, data=DATA, **options):
    """The difference of one device and all, and whether all give the same bits twice."""
    one, many, again = (
        train(model, data, devices=count, **options) for count in (None, "all", ALL)
    )
    assert many.settings["devices"] == ALL and one.settings["devices"] == 1
    assert many.settings["chunk"] is None or many.settings["chunk"] <= -(-len(data) // ALL)
    return [of_runs(one, many), of_runs(many, again)]


def gd():
    observe = {"tokens": lambda point, data: data.tokens.sum(axis=(1, 2)) * jnp.sum(point.readout)}
    return both(test=TEST, snapshots=[3, 9], observe=observe)


def polyak_of_ragged_data():
    return both(data=RAGGED, rule=mh.Polyak(20.0), loss=mh.Weighted(LEFT_OUT))


def normalized_where_the_loss_underflows():
    how = dict(rule=mh.Normalized(200.0), num_steps=8)
    assert train(devices="all", **how).train_loss[-1] < 1e-160
    return both(**how)


def adam_with_a_pooled_readout():
    start = mh.gaussian_start(2, num_tokens=5, dim=6, decoder="pooled", key=jax.random.key(4))
    return both(start, RAGGED, rule=mh.Adam(0.3))


def optax_with_a_last_token_readout():
    start = mh.gaussian_start(2, num_tokens=5, dim=6, decoder="last", key=jax.random.key(4))
    return both(start, RAGGED, rule=mh.Optax(optax.sgd(0.1, momentum=0.9), coordinates="class"))


class Mean(eqx.Module):
    weight: jax.Array

    def __call__(self, tokens, mask):
        return jnp.tanh(jnp.sum(jnp.where(mask[:, None], tokens, 0), axis=0)) @ self.weight


def a_module():
    return both(Mean(jnp.linspace(-1, 1, 6)), RAGGED, test=TEST)


def five_sequences():
    """Fewer than eight devices."""
    data = dataclasses.replace(DATA.subset(range(5)), labels=np.array([1.0, -1, 1, -1, 1]))
    return both(data=data)


def resumed_on_one():
    first = train(num_steps=11, devices="all")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        run = train(devices=1, resume=first)
    assert [str(w.message) for w in said][0].startswith(
        f"the run to resume was made on {ALL} devices and continues on 1"
    )
    return of_runs(train(), run)


def stopped():
    one, many = (
        train(devices=count, stop=lambda step, model: step >= 5) for count in (None, "all")
    )
    assert many.status == "stopped" and many.last_step == 5
    return of_runs(one, many)


def the_protocol():
    """Where the data are, and the scores."""
    mesh, model = make_mesh(choose_devices("all")), START
    with jax.enable_x64(True):
        many = sharded_objective(model, DATA, np.float64, None, mesh)
        one = jax.device_put(model.objective(DATA))
        tokens = many.parts.batch.tokens
        assert {shard.data.shape[0] for shard in tokens.addressable_shards} == {1}
        assert tokens.addressable_shards[0].data.nbytes * ALL == tokens.nbytes
        point = jax.tree.map(jnp.asarray, model.parameters)
        assert np.array_equal(one.labels, many.labels)
        return difference(*(np.asarray(objective.scores(point)) for objective in (one, many)))


def kernel():
    forms = [(other, form) for other in (None, TEST) for form in ("jacobian", "tokens", "maps")]
    runs = (
        [mh.measures.tangent_kernel(START, DATA, o, form=f, devices=d) for o, f in forms]
        for d in (None, "all")
    )
    assert all(
        np.isclose(a.accuracy, b.accuracy, rtol=1e-12, atol=0) for a, b in zip(*runs, strict=True)
    )  # rounding
    runs = (
        [mh.measures.tangent_kernel(START, DATA, o, form=f, devices=d) for o, f in forms]
        for d in (None, "all")
    )
    return max(difference(a.parts, b.parts) for a, b in zip(*runs, strict=True))


def left_out():
    how = dict(step_size=0.3, num_steps=12, steps=[4], indices=[0, 5, 6, 11, 18])
    one, many = (
        mh.measures.leave_one_out(START, DATA, devices=devices, **how) for devices in (None, "all")
    )
    names = [field.name for field in dataclasses.fields(one)]
    assert all(
        np.array_equal(getattr(one, n), getattr(many, n), equal_nan=n == "expansion") for n in names
    )


if __name__ == "__main__":
    for check in sys.argv[1:]:
        print(json.dumps({check: globals()[check]()}), flush=True)
