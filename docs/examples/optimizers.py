"""Five ways down from the same start: plain, normalized and Polyak descent, Adam, and any optax transform.

On separable data the loss falls toward zero and its gradient with it, so plain descent slows down; normalized descent
and the Polyak step do not.
"""

import jax
import optax

import manyheads as mh

keys = jax.random.split(jax.random.key(0), 3)
task = mh.TokenizedMixture(
    num_tokens=8, dim=12, num_patterns=4, sparsity=0.25, signal=2.0, key=keys[0]
)
start = mh.first_phase(task.sample(200, key=keys[1]), num_heads=64)
data = task.sample(100, key=keys[2])

descents = {
    "gd": mh.GD(1.0),
    "normalized": mh.Normalized(0.1),
    "polyak": mh.Polyak(100.0),
    "adam": mh.Adam(0.01),
    "optax": mh.Optax(optax.sgd(1.0, momentum=0.9), coordinates="head"),
}
print(f"{'descent':<12}{'train loss':>12}{'margin':>10}{'distance':>10}")
for name, rule in descents.items():
    run = mh.train(start, data, rule=rule, num_steps=100)
    print(f"{name:<12}{run.train_loss[-1]:>12.3g}{run.margin[-1]:>10.3g}{run.distance[-1]:>10.3g}")
