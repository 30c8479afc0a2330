"""A two-layer network on the mean of the tokens: any Equinox module that maps (tokens, mask) to a number is a model.

Its floating-point arrays are the parameters. Everything that is not a statement about attention works on it.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

import manyheads as mh


class Network(eqx.Module):
    inner: jax.Array
    outer: jax.Array

    def __call__(self, tokens, mask):
        return self.outer @ jnp.tanh(self.inner @ jnp.mean(tokens, axis=0, where=mask[:, None]))


keys = jax.random.split(jax.random.key(0), 4)
task = mh.TokenizedMixture(
    num_tokens=6, dim=8, num_patterns=3, sparsity=0.5, signal=2.0, key=keys[0]
)
data, test = task.sample(20, key=keys[1]), task.sample(200, key=keys[2])
network = Network(
    jax.random.normal(keys[3], (16, 8)) / 4, jnp.where(jnp.arange(16) % 2, 0.25, -0.25)
)

run = mh.train(network, data, rule=mh.GD(1.0), num_steps=100, dtype="float64")
print(run)
kernel = mh.measures.tangent_kernel(network, data)
print(kernel)
print(mh.measures.hard_margin(data.labels, gram=kernel.matrix, gram_accuracy=kernel.accuracy))
print(mh.measures.loss_curvature(run.final, data))
print(mh.measures.leave_one_out(network, data, step_size=1.0, num_steps=100, indices=[0, 1, 2]))
print(mh.theory.explain_run(network, data, step_size=1.0, num_steps=100)[0])
print(mh.measures.risk(run.final, data, test))
