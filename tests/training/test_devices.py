"""Several devices give what one gives."""

import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import manyheads as mh
from manyheads.training.devices import choose_devices, default_device, make_mesh, spread

PROGRAM = Path(__file__).with_name("on_devices.py")
ROUNDING = 1e-12  # float64, some hundred sums in another order
ON = {
    2: (
        "gd",
        "polyak_of_ragged_data",
        "normalized_where_the_loss_underflows",
        "adam_with_a_pooled_readout",
        "optax_with_a_last_token_readout",
        "a_module",
        "resumed_on_one",
        "stopped",
        "the_protocol",
        "kernel",
        "left_out",
    ),
    8: ("gd", "five_sequences", "the_protocol", "kernel", "left_out"),
}


@functools.cache
def checked(devices):
    """What one process with that many devices finds in all its checks."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    done = subprocess.run(
        [sys.executable, "-W", "error", str(PROGRAM), *ON[devices]],
        env={**os.environ, "XLA_FLAGS": flags},
        capture_output=True,
        text=True,
    )
    found = {}
    for line in done.stdout.splitlines():
        found |= json.loads(line)
    return found, done.stderr


@pytest.mark.parametrize(
    ("devices", "check"), [(devices, check) for devices, checks in ON.items() for check in checks]
)
def test_several_devices_give_what_one_gives(devices, check):
    found, errors = checked(devices)
    assert check in found, errors[-2000:]
    difference, again = (
        found[check] if isinstance(found[check], list) else (found[check] or 0.0, 0.0)
    )
    assert difference <= ROUNDING
    assert again == 0  # the same devices: the same bits


def test_one_device_is_the_plain_run():
    for devices in (None, "all", 1, jax.devices(), [jax.devices()[0]]):
        assert choose_devices(devices) == [default_device()]
    assert make_mesh(choose_devices("all")) is None


@pytest.mark.parametrize("devices", [0, 2, -1, True, "many", 1.5, []])
def test_devices_that_are_not_there_are_refused(devices):
    model = mh.zero_start(1, num_tokens=2, dim=3)
    data = mh.Dataset.from_arrays(jax.numpy.ones((2, 2, 3)), [0, 1])
    for call in (
        lambda: mh.train(model, data, rule=mh.GD(1.0), num_steps=1, devices=devices),
        lambda: mh.measures.tangent_kernel(model, data, devices=devices),
        lambda: mh.measures.leave_one_out(model, data, step_size=1.0, num_steps=1, devices=devices),
    ):
        with pytest.raises(
            ValueError, match=rf"devices={re.escape(repr(devices))} .*'all'"
        ) as raised:
            call()
        assert "\n" not in str(raised.value)


def test_the_default_device_is_used():
    with jax.default_device(jax.devices()[0]):
        assert default_device() == jax.devices()[0]


def test_what_is_spread_runs_in_the_precision_of_the_caller():
    with jax.enable_x64(False):
        done = dict(
            spread(lambda task, device: jax.numpy.ones(()).dtype.name, [0, 1], jax.devices())
        )
    assert done == {0: "float32", 1: "float32"}


CORES = """
import json, warnings
import numpy as np
import manyheads as mh

made = mh.use_cores(3), mh.use_cores(3)
rng = np.random.default_rng(0)

def data(n):
    return mh.Dataset.from_arrays(rng.standard_normal((n, 16, 32)), np.arange(n) % 2)

def used(n, **options):
    model = mh.gaussian_start(2, num_tokens=16, dim=32, key=key)
    return mh.train(model, data(n), **{"rule": mh.GD(0.1), "num_steps": 2, **options})

import jax
key = jax.random.key(0)
found = {"made": made, "small": used(20).settings["devices"], "some": used(32).settings["devices"],
         "many": used(200).settings["devices"], "one": used(200, devices=1).settings["devices"],
         "observed": used(200, observe={"x": lambda p, d: d.labels.sum()}).settings["devices"]}
with jax.default_device(jax.devices()[1]):
    found["default"] = used(200).settings["devices"]
model, all_data = mh.gaussian_start(2, num_tokens=16, dim=32, key=key), data(200)
first = mh.train(model, all_data, rule=mh.GD(0.1), num_steps=2, devices=2)
with warnings.catch_warnings():
    warnings.simplefilter("error")
    resumed = mh.train(model, all_data, rule=mh.GD(0.1), num_steps=4, resume=first)
whole = mh.train(model, all_data, rule=mh.GD(0.1), num_steps=4, devices=2)
found["resumed"] = resumed.settings["devices"]
found["same bits"] = bool(all(np.array_equal(a, b) for a, b in zip(resumed.displacement, whole.displacement)))
try:
    mh.use_cores(5)
except ValueError as error:
    found["late"] = str(error)
print(json.dumps(found))
"""


def test_a_run_uses_the_cores_that_pay_off():
    env = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run([sys.executable, "-c", CORES], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found.pop("late").startswith("use_cores(5) comes too late: JAX runs already, with 3 ")
    assert found == {
        "made": [3, 3],
        "small": 1,
        "some": 2,
        "many": 3,
        "one": 1,
        "observed": 1,
        "default": 1,
        "resumed": 2,
        "same bits": True,
    }


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "all"])
def test_cores_that_cannot_be_are_refused(count):
    with pytest.raises(ValueError, match="count=.* must be a whole number >= 1"):
        mh.use_cores(count)
