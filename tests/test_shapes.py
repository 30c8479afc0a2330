import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, TypeCheckError, jaxtyped
from shapes import arrays

import manyheads as mh


def test_a_wrong_shape_is_caught_by_its_annotation():
    model = mh.MultiHead.create(np.zeros((2, 4, 4)), np.ones((2, 3, 4)))
    assert model(np.ones((3, 4))) == model(jnp.ones((3, 4)))
    with pytest.raises(TypeCheckError, match="parameter 'tokens'"):
        model(jnp.ones((3, 4, 1)))


def test_axes_of_one_name_have_one_length():
    @jaxtyped(typechecker=arrays)
    def pair(a: Float[Array, "n"], b: Float[Array, "n"] | None, word: int = 0) -> Float[Array, "n"]:
        return a

    assert pair(np.ones(2), None, word="not an array, not checked").shape == (2,)
    with pytest.raises(TypeCheckError, match="parameter 'b'"):
        pair(np.ones(2), np.ones(3))
