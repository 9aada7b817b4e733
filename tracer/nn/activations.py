"""Activation functions of neural networks. Sharding is kept: all are elementwise but `glu`."""
from __future__ import annotations

from typing import Any

import numpy as np

from ...ir.values.array import Array
from ...ir.values.typeof import typeof
from .. import lax, sharding_notes
from ..autodiff.custom.custom_jvp import custom_jvp
from ..jnp.elementwise.arithmetic import (
    absolute,
    exp,
    expm1,
    log,
    log1p,
    negative_function,
    sqrt,
    square,
    tanh,
)
from ..jnp.elementwise.clipping import clip
from ..jnp.elementwise.logic import greater, greater_equal, less, less_equal
from ..jnp.elementwise.powers import logaddexp_function, power
from ..jnp.elementwise.two_operands import (
    add_function,
    divide,
    maximum_function,
    minimum_function,
    multiply_function,
)
from ..jnp.indexing.searching import choose_where
from ..jnp.manipulation.joining import split
from ..operands.dtype_promotion import (
    check_arraylike,
    convert,
    dtype_name,
    promote_args_inexact,
    to_inexact,
)
from ..operands.rank_promotion import shape_of
from ..operands.shape_arguments import canonical_axis
from ..staging.constants import as_array
from ..staging.memoized import memoized


def identity(x):
    """x itself, as an array: the identity, where an activation is asked for."""
    check_arraylike("identity", x)
    return as_array(x)


@sharding_notes.elementwise
@custom_jvp
def relu(x):
    """max(x, 0), elementwise; its derivative is 0 at 0.

    >>> st.nn.relu(jnp.array([-2.0, 0.0, 3.0]))
    Array([0., 0., 3.], dtype=float32)
    """
    return maximum_function(x, 0)


@relu.defjvp
def _relu_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    (x,), (t,) = primals, tangents
    return relu(x), lax.select(greater(x, 0), t, lax.full_like(t, 0))


@sharding_notes.elementwise
@custom_jvp
def relu6(x):
    """min(max(x, 0), 6), elementwise; its derivative is 0 at 0 and at 6."""
    return minimum_function(maximum_function(x, 0), 6.0)


@relu6.defjvp
def _relu6_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    (x,), (t,) = primals, tangents
    inside = lax.bitwise_and(greater(x, 0), less(x, 6))
    return relu6(x), lax.select(inside, t, lax.full_like(t, 0))


@sharding_notes.elementwise
@memoized
def sigmoid(x):
    """1 / (1 + exp(-x)), elementwise: between 0 and 1.

    >>> st.nn.sigmoid(jnp.array([-200.0, 0.0, 100.0]))
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    check_arraylike("sigmoid", x)
    return lax.logistic(as_array(x))


@sharding_notes.elementwise
@memoized
def softplus(x):
    """log(1 + exp(x)), elementwise, without overflow: a smooth `relu`.

    >>> st.nn.softplus(jnp.array([-1.0, 0.0, 100.0])).round(3)
    Array([  0.313,   0.693, 100.   ], dtype=float32)
    """
    if isinstance(x, (np.ndarray, np.generic, Array)) and x.dtype.kind in "iu" and not (
            typeof(x).weak_type):
        x = convert(x, to_inexact(x.dtype))        # with 0.0 it would become weak
    return logaddexp_function(x, 0.0)


@sharding_notes.elementwise
def sparse_plus(x):
    """0 below -1, x above 1, and (x + 1)**2 / 4 between, elementwise: a smooth `relu`."""
    check_arraylike("sparse_plus", x)
    x = as_array(x)
    middle = divide(power(add_function(x, 1.0), 2), 4)
    inner = choose_where(greater_equal(x, 1.0), x, middle)
    return choose_where(less_equal(x, -1.0), 0.0, inner)


@sharding_notes.elementwise
def sparse_sigmoid(x):
    """The derivative of `sparse_plus`: (x + 1) / 2, kept between 0 and 1."""
    return multiply_function(0.5, clip(add_function(x, 1.0), 0.0, 2.0))


@sharding_notes.elementwise
@memoized
def soft_sign(x):
    """x / (|x| + 1), elementwise: between -1 and 1, with the sign of x."""
    check_arraylike("soft_sign", x)
    x = as_array(x)
    return divide(x, add_function(absolute(x), 1))


@sharding_notes.elementwise
@memoized
def silu(x):
    """x * sigmoid(x), elementwise; also called swish.

    >>> st.nn.silu(jnp.array([-1.0, 0.0, 2.0])).round(3)
    Array([-0.269,  0.   ,  1.762], dtype=float32)
    """
    check_arraylike("silu", x)
    return multiply_function(x, sigmoid(x))


swish = silu


@sharding_notes.elementwise
@memoized
def mish(x):
    """x * tanh(softplus(x)), elementwise: smooth, with a small dip below 0."""
    check_arraylike("mish", x)
    x = as_array(x)
    return multiply_function(x, tanh(softplus(x)))


@sharding_notes.elementwise
@memoized
def log_sigmoid(x):
    """log(sigmoid(x)), elementwise, without underflow where x is far below 0."""
    check_arraylike("log_sigmoid", x)
    x = as_array(x)
    return negative_function(softplus(negative_function(x)))


@sharding_notes.elementwise
@memoized
def elu(x, alpha=1.0):
    """x where it is positive, alpha * (exp(x) - 1) elsewhere, elementwise: smooth for alpha 1."""
    check_arraylike("elu", x)
    x = as_array(x)
    positive, safe = greater(x, 0), choose_where(greater(x, 0), 0.0, x)
    return choose_where(positive, x, multiply_function(alpha, expm1(safe)))


@sharding_notes.elementwise
@memoized
def selu(x):
    """elu scaled so that means and variances of activations keep near 0 and 1."""
    alpha = 1.6732632423543772848170429916717
    scale = 1.0507009873554804934193349852946
    return multiply_function(scale, elu(x, alpha))


@sharding_notes.elementwise
@memoized
def celu(x, alpha=1.0):
    """max(x, 0) + min(0, alpha * (exp(x / alpha) - 1)), elementwise."""
    check_arraylike("celu", x)
    x = as_array(x)
    low = expm1(divide(minimum_function(x, 0.0), alpha))
    return add_function(maximum_function(x, 0.0), multiply_function(alpha, low))


@sharding_notes.elementwise
@memoized
def gelu(x, approximate=True):
    """x times the normal distribution's cumulative function at x, elementwise.

    approximate: True takes an approximation by tanh, False the exact function.

    >>> st.nn.gelu(jnp.array([-1.0, 0.0, 1.0])).round(3)
    Array([-0.159,  0.   ,  0.841], dtype=float32)
    """
    (x,) = promote_args_inexact("gelu", x)
    if approximate:
        inner = multiply_function(0.044715, power(x, 3))
        factor = np.asarray(np.sqrt(2 / np.pi), dtype_name(x))[()]     # strong: so is the result
        inner = multiply_function(factor, add_function(x, inner))
        return multiply_function(x, multiply_function(0.5, add_function(1.0, tanh(inner))))
    scaled = multiply_function(x, np.asarray(-np.sqrt(0.5), dtype_name(x))[()])
    return multiply_function(multiply_function(0.5, x), lax.erfc(scaled))


@memoized
def glu(x, axis=-1):
    """The first half along a dimension times the sigmoid of the second half."""
    check_arraylike("glu", x)
    size = shape_of(x)[canonical_axis(axis, len(shape_of(x)))]
    if size % 2:
        raise AssertionError(f"axis size must be divisible by 2, got {size} along axis {axis}")
    first, second = split(x, 2, axis)
    return multiply_function(first, sigmoid(second))


@sharding_notes.elementwise
@memoized
def leaky_relu(x, negative_slope=0.01):
    """x where x >= 0, negative_slope * x elsewhere, elementwise.

    >>> st.nn.leaky_relu(jnp.array([-2.0, 3.0]), 0.1)
    Array([-0.2,  3. ], dtype=float32)
    """
    check_arraylike("leaky_relu", x)
    x = as_array(x)
    return choose_where(greater_equal(x, 0), x, multiply_function(negative_slope, x))


@sharding_notes.elementwise
@memoized
def hard_tanh(x):
    """x kept between -1 and 1, elementwise: a tanh made of straight lines."""
    check_arraylike("hard_tanh", x)
    x = as_array(x)
    return choose_where(greater(x, 1), 1, choose_where(less(x, -1), -1, x))


@sharding_notes.elementwise
@memoized
def hard_sigmoid(x):
    """relu6(x + 3) / 6, elementwise: a sigmoid made of straight lines."""
    return divide(relu6(add_function(x, 3.0)), 6.0)


@sharding_notes.elementwise
@memoized
def hard_silu(x):
    """x * hard_sigmoid(x), elementwise: a `silu` without exponentials; also called hard_swish."""
    check_arraylike("hard_silu", x)
    x = as_array(x)
    return multiply_function(x, hard_sigmoid(x))


hard_swish = hard_silu


@sharding_notes.elementwise
@memoized
def squareplus(x, b=4):
    """(x + sqrt(x**2 + b)) / 2, a smooth relu without exponentials."""
    check_arraylike("squareplus", x, b)
    return divide(add_function(x, sqrt(add_function(square(x), b))), 2)


@custom_jvp
def log1mexp(x):
    """log(1 - exp(-x)) for x > 0, accurate at both ends, and so is its derivative."""
    (x,) = promote_args_inexact("log1mexp", x)
    near = less(x, float(np.log(2.0)))
    small = log(negative_function(expm1(negative_function(x))))
    large = log1p(negative_function(exp(negative_function(x))))
    return choose_where(near, small, large)


@log1mexp.defjvp
def _log1mexp_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    (x,), (t,) = primals, tangents
    return log1mexp(x), divide(t, expm1(x))


