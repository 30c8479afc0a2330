"""The checker of `--jaxtyping-packages`: in tests, every array annotation of manyheads is checked when it is called.

Only shapes and kinds of arrays are checked, and a NumPy array will do for a JAX array. Other wrong inputs are the
business of the errors that the library itself raises at its doors, which tests provoke on purpose.
"""

import functools
import inspect
import operator
from types import UnionType
from typing import Union, get_args, get_origin

import jax
import numpy as np
from beartype import beartype
from jaxtyping import AbstractArray


def arrays(function):
    """Check the array arguments and results of a function."""
    function.__annotations__ = {
        name: _with_numpy(annotation)
        for name, annotation in function.__annotations__.items()
        if any(map(_is_array, [annotation, *get_args(annotation)]))
    }
    return beartype(function)


def _is_array(annotation) -> bool:
    return inspect.isclass(annotation) and issubclass(annotation, AbstractArray)


def _with_numpy(annotation):
    if _is_array(annotation):
        return annotation.dtype[jax.Array | np.ndarray | np.generic, annotation.dim_str]
    if get_origin(annotation) in (Union, UnionType):
        return functools.reduce(operator.or_, map(_with_numpy, get_args(annotation)))
    return annotation
