"""Tangent kernel by neural-tangents, and our explicit closed form written for its JAX; answers JSON lines on standard input.

neural-tangents needs an old JAX, so a comparison in one JAX needs our formula there: `closed_form` is the "jacobian" form
of manyheads.measures.kernel, class by class with upper-triangle blocks, without NumPy's symmetric product.
"""

import jax
import jax.numpy as jnp
import neural_tangents as nt
import numpy as np
from answering import serve, timed

# its third implementation, products with vectors, takes n times as long for one output and is left out
IMPLEMENTATIONS = {
    "jacobian contraction": nt.NtkImplementation.JACOBIAN_CONTRACTION,
    "structured derivatives": nt.NtkImplementation.STRUCTURED_DERIVATIVES,
}


def score(parameters, X):
    W, U = parameters
    A = jax.nn.softmax(jnp.einsum("ntd,hde,nse->nhts", X, W, X), axis=-1)
    return jnp.einsum("htd,nhts,nsd->n", U, A, X)[:, None] / W.shape[0] ** 0.5


def theirs(implementation):
    function = nt.empirical_ntk_fn(
        score, trace_axes=(-1,), vmap_axes=0, implementation=IMPLEMENTATIONS[implementation]
    )
    return jax.jit(lambda parameters, X: function(X, None, parameters))


@jax.jit
def closed_form(parameters, X):
    """The explicit Jacobian of each head in closed form, and its Gram in blocks of the upper triangle."""
    (W, U), n = parameters, X.shape[0]
    size = -(-n // 4)

    def add(total, head):
        w, u = head
        S = jnp.einsum("nte,nse->nts", jnp.einsum("ntd,de->nte", X, w), X)
        A = jax.nn.softmax(S, axis=-1)
        B = jnp.einsum("td,nsd->nts", u, X)
        D = A * (B - jnp.sum(A * B, axis=-1, keepdims=True))
        by_u = jnp.einsum("nts,nsd->ntd", A, X)
        by_w = jnp.einsum("ntd,nte->nde", X, jnp.einsum("nts,nse->nte", D, X))
        J = jnp.concatenate([by_u.reshape(n, -1), by_w.reshape(n, -1)], axis=1)
        blocks = [J[start : start + size] for start in range(0, n, size)]
        rows = []
        for i, left in enumerate(blocks):
            ahead = left @ jnp.concatenate(blocks[i:]).T
            rows.append(
                jnp.concatenate(
                    [jnp.zeros((len(left), n - ahead.shape[1]), J.dtype), ahead], axis=1
                )
            )
        return total + jnp.concatenate(rows), None

    upper = jax.lax.scan(add, jnp.zeros((n, n), X.dtype), (W, U))[0] / W.shape[0]
    upper = jnp.triu(upper)
    return upper + jnp.triu(upper, 1).T


STATE = {}


def answer(request):
    if request["action"] == "versions":
        return {"versions": {"neural-tangents": nt.__version__, "its jax": jax.__version__}}
    if request["action"] == "load":
        with np.load(request["file"], allow_pickle=False) as file:
            X, W, U = (file[name] for name in ("tokens", "key_query", "readout"))
        jax.config.update("jax_enable_x64", X.dtype == np.float64)
        STATE["case"] = ((jnp.asarray(W), jnp.asarray(U)), jnp.asarray(X))
        STATE["closed form"] = closed_form
        for name in IMPLEMENTATIONS:
            STATE[name] = theirs(name)
        return {}
    work = STATE[request["variant"]]
    if request["action"] == "check":
        np.savez(request["file"], kernel=np.asarray(work(*STATE["case"])))
        return {}
    return timed(lambda: jax.block_until_ready(work(*STATE["case"])), request["repeats"])


serve(answer)
