"""How far rounding can carry a function of JAX: it is evaluated again with every operation off by a few last places.

A difference of two nearly equal numbers, anywhere inside, shows at once: what the operands are off
by is then much of what is left. Operations that are exact (moves of data, signs, maxima) are left
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

# relative, sixteen units in the last place
OFF = 2.0**-48
SUMS = {
    "dot_general",
    "reduce_sum",
    "cumsum",
    "add_any",
}  # whose operands are off, not their result
INEXACT = {
    "add", "sub", "mul", "div", "exp", "exp2", "log", "log1p", "expm1", "tanh", "logistic", "sqrt",
    "rsqrt", "cbrt", "pow", "integer_pow", "square", "sin", "cos", "tan", "sinh", "cosh", "asin",
    "acos", "atan", "erf", "erfc", "lgamma", "digamma", "cumprod", "reduce_prod", "lu", "cholesky",
    "triangular_solve", "eigh", "svd", "qr", "custom_linear_solve", "scan", "while", "cond",
}  # fmt: skip
CALLS = ("jaxpr", "call_jaxpr", "fun_jaxpr")


def shaken(function: Callable, arguments: Sequence[Any], pattern: Any) -> list[Any]:
    """The outputs of `function`, flattened, with errors whose signs and sizes follow the number `pattern`."""
    program = jax.make_jaxpr(function)(*arguments)
    return _run(program.jaxpr, program.consts, arguments, pattern, [0])


def _run(jaxpr: Any, consts: Sequence, arguments: Sequence, pattern: Any, count: list[int]) -> list:
    values: dict[Any, Any] = {}

    def read(name: Any) -> Any:
        return name.val if hasattr(name, "val") else values[name]

    values.update(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *arguments], strict=True))
    for equation in jaxpr.eqns:
        given, name = [read(v) for v in equation.invars], equation.primitive.name
        inner = next((equation.params[call] for call in CALLS if call in equation.params), None)
        if inner is not None and name not in INEXACT:
            closed = getattr(inner, "jaxpr", inner), getattr(inner, "consts", ())
            found = _run(*closed, given, pattern, count)
        else:
            if name in SUMS:
                given = [_off(x, pattern, count) for x in given]
            found = equation.primitive.bind(*given, **equation.params)
            found = list(found) if equation.primitive.multiple_results else [found]
            if name in INEXACT:
                found = [_off(x, pattern, count) for x in found]
        values.update(zip(equation.outvars, found, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _off(x: Any, pattern: Any, count: list[int]) -> Any:
    """Floats off by a share of `OFF`, each entry and each operation by another."""
    count[0] += 1
    if not jnp.issubdtype(jnp.result_type(x), jnp.floating):
        return x
    places = jnp.arange(1.0, jnp.size(x) + 1).reshape(jnp.shape(x))
    return x * (1 + OFF * jnp.cos(pattern * places + 2.4 * count[0]))
