"""Attention followed by a two-layer network, beside the paper's model with its readout held fixed.

The paper's statements are proved for `MultiHead`; for both models below they are silent, and the measures speak.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

import manyheads as mh


class AttentionNetwork(eqx.Module):
    key_query: jax.Array
    network: eqx.nn.MLP

    def __call__(self, tokens, mask):
        logits = jnp.where(mask[None, :], tokens @ self.key_query @ tokens.T, -jnp.inf)
        attended = jax.nn.softmax(logits, axis=-1) @ tokens
        return self.network(jnp.mean(attended, axis=0, where=mask[:, None]))


keys = jax.random.split(jax.random.key(0), 4)
task = mh.TokenizedMixture(
    num_tokens=6, dim=8, num_patterns=3, sparsity=0.5, signal=2.0, key=keys[0]
)
data = task.sample(20, key=keys[1])
models = {
    "attention and network": AttentionNetwork(
        jnp.zeros((8, 8)), eqx.nn.MLP(8, "scalar", width_size=8, depth=1, key=keys[2])
    ),
    "frozen readout": mh.frozen(
        mh.first_phase(task.sample(100, key=keys[3]), num_heads=64), "readout"
    ),
    "low rank": mh.model.LowRank.random(4, num_tokens=6, dim=8, key=keys[2]),
}

print(f"{'model':<24}{'train loss':>12}{'sharpness':>12}{'kernel moved':>14}")
for name, model in models.items():
    run = mh.train(model, data, rule=mh.GD(0.5), num_steps=100, dtype="float64")
    sharpness = mh.measures.loss_curvature(run.final, data).largest.value
    moved = mh.measures.kernel_drift(run, data, steps=[100]).relative_change[-1]
    print(f"{name:<24}{run.train_loss[-1]:>12.3g}{sharpness:>12.3g}{moved:>14.3g}")
