"""Arrays filled with one value, and matrices of ones and zeros: zeros, full, zeros_like, eye, tril.

`out_sharding=` names the sharding over Explicit axes; without it a new array is whole.
"""
from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ....ir.dtypes import float0, issubdtype
from ....ir.ops.elementwise.arithmetic import add_p, sub_p
from ....ir.ops.elementwise.comparison import eq_p, ge_p
from ....ir.ops.elementwise.powers import pow_p
from ....ir.ops.elementwise.select import select_n_p
from ....ir.ops.movement.creation import iota_p
from ....ir.values.array import Array
from ... import lax, sharding_notes
from ...lax.creation import element, filled, filled_as, like
from ...operands.broadcasting import to_type
from ...operands.dtype_promotion import (
    check_arraylike,
    convert,
    dtype_name,
    literal_like,
    strong,
    user_dtype,
)
from ...operands.rank_promotion import shape_of
from ...operands.scalars import INT32, float_default
from ...operands.shape_arguments import as_sequence, integers, static_shape
from ...shardings.eager_mesh import mesh_of_operands
from ...shardings.out_sharding import placement
from ...staging.constants import as_array, placed_new, put_on_device
from ...staging.memoized import memoized
from ...staging.tracer import Tracer
from ..elementwise.powers import power

__all__ = [
    "empty", "empty_like", "eye", "full", "full_like", "identity", "ones", "ones_like", "tri",
    "tril", "triu", "vander", "zeros", "zeros_like",
]


def _shape(shape: Any) -> tuple[int, ...]:
    return static_shape(as_sequence(shape))


@sharding_notes.created
@memoized
def zeros(shape, dtype=None, *, device=None, out_sharding=None):
    """An array of zeros of this shape.

    shape: an int or a sequence of ints. dtype: float32 by default. device: a Device or a Sharding
    on which the array is made. out_sharding: a PartitionSpec over Explicit axes, or a
    NamedSharding.
    Raises TypeError for a traced shape: shapes are known while tracing.

    >>> mesh = st.make_mesh((8,), ("x",), axis_types=(st.sharding.AxisType.Explicit,))
    >>> with st.set_mesh(mesh):
    ...     st.typeof(jnp.zeros((16, 4), jnp.bfloat16, out_sharding=P("x")))
    ShapedArray(bfloat16[16@x,4])
    """
    return _constant("jnp.zeros", 0, shape, dtype, device, out_sharding)


@sharding_notes.created
@memoized
def ones(shape, dtype=None, *, device=None, out_sharding=None):
    """An array of ones of this shape; the arguments are those of `zeros`.

    >>> jnp.ones((2, 3))
    Array([[1., 1., 1.],
           [1., 1., 1.]], dtype=float32)
    """
    return _constant("jnp.ones", 1, shape, dtype, device, out_sharding)


def empty(shape, dtype=None, *, device=None, out_sharding=None):
    """An array whose values must not be relied on (here they are zeros); arguments as of `zeros`.
    """
    return _constant("jnp.empty", 0, shape, dtype, device, out_sharding)


def _constant(name: str, value: int, shape: Any, dtype: Any, device: Any, out_sharding: Any
              ) -> Array:
    """An array of one value, on a device or with a sharding."""
    if isinstance(shape, Array) and not isinstance(shape, Tracer):
        shape = np.asarray(shape).tolist()
    shape = _shape(shape)
    dtype = float_default() if dtype is None else user_dtype(dtype, name.removeprefix("jnp."))
    if dtype == float0:
        return np.zeros(shape, float0)      # type: ignore[return-value]
    device, sharding = placement(device, out_sharding, name, len(shape))
    return placed_new(filled_as(shape, element(value, dtype), sharding), device)


@sharding_notes.created
@memoized
def full(shape, fill_value, dtype=None, *, device=None, out_sharding=None):
    """An array of this shape in which every element is `fill_value`.

    fill_value: a scalar, or an array that broadcasts to the shape; its dtype is the result's unless
    `dtype` is given. device, out_sharding: as in `zeros`.

    >>> jnp.full((2, 2), 7.0, jnp.bfloat16)
    Array([[7, 7],
           [7, 7]], dtype=bfloat16)
    """
    check_arraylike("full", fill_value)
    shape = _shape(shape)
    device, sharding = placement(device, out_sharding, "jnp.full", len(shape))
    if not shape_of(fill_value):
        return placed_new(filled(shape, fill_value, _maybe(dtype, "full"), sharding), device)
    value = as_array(fill_value)
    if dtype is not None:
        value = convert(value, user_dtype(dtype, "full"))
    return put_on_device(to_type(value, shape, sharding), device)


def _maybe(dtype: Any, name: str) -> Any:
    return None if dtype is None else user_dtype(dtype, name)


def _is_like(x: Any) -> bool:
    return hasattr(x, "dtype") and hasattr(x, "shape")


def _like(name: str, a: Any, value: Any, dtype: Any, shape: Any, device: Any, out_sharding: Any
          ) -> Array:
    if not _is_like(a):
        check_arraylike(name, a)
    ndim = len(a.shape if _is_like(a) else shape_of(a)) if shape is None else len(_shape(shape))
    device, sharding = placement(device, out_sharding, f"jnp.{name}", ndim)
    result = like(a, value, _maybe(dtype, name), None if shape is None else _shape(shape),
                  sharding, device is not None)
    return put_on_device(result, device)


@sharding_notes.alike
@memoized
def zeros_like(a, dtype=None, shape=None, *, device=None, out_sharding=None):
    """Zeros of the shape and dtype of `a`, an array or anything with `.shape` and `.dtype`.

    dtype, shape: others than those of `a`. device, out_sharding: as in `zeros`.

    >>> jnp.zeros_like(jnp.array([1, 2, 3]))
    Array([0, 0, 0], dtype=int32)
    """
    return _like("zeros_like", a, 0, dtype, shape, device, out_sharding)


@sharding_notes.alike
@memoized
def ones_like(a, dtype=None, shape=None, *, device=None, out_sharding=None):
    """Ones of the shape and dtype of `a`, an array or anything with `.shape` and `.dtype`.

    dtype, shape: others than those of `a`. device, out_sharding: as in `zeros`.

    >>> jnp.ones_like(jnp.array([1, 2, 3]), dtype=jnp.float32)
    Array([1., 1., 1.], dtype=float32)
    """
    return _like("ones_like", a, 1, dtype, shape, device, out_sharding)


def empty_like(prototype, dtype=None, shape=None, *, device=None):
    """An array like `prototype`, whose values must not be relied on (here they are zeros)."""
    return _like("empty_like", prototype, 0, dtype, shape, device, None)


@sharding_notes.alike
@memoized
def full_like(a, fill_value, dtype=None, shape=None, *, device=None, out_sharding=None):
    """An array of the shape and dtype of `a` in which every element is `fill_value`.

    fill_value: a scalar, or an array that broadcasts. dtype, shape: others than those of `a`.

    >>> jnp.full_like(jnp.ones((2, 2)), 7)
    Array([[7., 7.],
           [7., 7.]], dtype=float32)
    """
    if not _is_like(a):
        check_arraylike("full_like", a, fill_value)
    if not shape_of(fill_value):
        return _like("full_like", a, fill_value, dtype, shape, device, out_sharding)
    target = _shape(a.shape if _is_like(a) else shape_of(a)) if shape is None else _shape(shape)
    dtype = dtype_name(a) if dtype is None else user_dtype(dtype, "full_like")
    device, sharding = placement(device, out_sharding, "jnp.full_like", len(target))
    return put_on_device(to_type(convert(fill_value, dtype), target, sharding), device)


# -- matrices --------------------------------------------------------------------------------------

@sharding_notes.made
@memoized
def eye(N, M=None, k=0, dtype=None, *, device=None):
    """An N by M matrix (M = N by default) with ones on its k-th diagonal, zeros elsewhere.

    k: above the main diagonal if positive, below if negative. dtype: float32 by default.

    >>> jnp.eye(2, 3, k=1)
    Array([[0., 1., 0.],
           [0., 0., 1.]], dtype=float32)
    """
    n, = integers((N,), " argument of 'N' jnp.eye().")
    m = n if M is None else integers((M,), " argument 'M' of jnp.eye().")[0]
    if n < 0 or m < 0:
        raise ValueError(f"negative dimensions are not allowed, got {n} and {M}")
    dtype = float_default() if dtype is None else user_dtype(dtype, "eye")
    return put_on_device(convert(_diagonal_mask(n, m, k), dtype), device)


def _diagonal_mask(n: int, m: int, k: Any) -> Array:
    rows = iota_p.bind(dtype=INT32, shape=(n, m), dimension=0, sharding=None)
    columns = iota_p.bind(dtype=INT32, shape=(n, m), dimension=1, sharding=None)
    return eq_p.bind(add_p.bind(rows, convert(k, INT32)), columns)


def identity(n, dtype=None):
    """The n by n identity matrix: ones on the diagonal, zeros elsewhere; float32 by default."""
    return eye(n, dtype=dtype)


@memoized
def tri(N, M=None, k=0, dtype=None):
    """An N by M matrix (M = N by default) with ones at and below its k-th diagonal, zeros above."""
    n, m = static_shape((N, N if M is None else M))
    dtype = float_default() if dtype is None else user_dtype(dtype, "tri")
    return convert(triangle_mask((n, m), k), dtype)


def triangle_mask(shape: tuple[int, int], k: Any) -> Array:
    """Whether at or below the k-th diagonal."""
    rows = iota_p.bind(dtype=INT32, shape=shape, dimension=0, sharding=None)
    rows = add_p.bind(rows, convert(k if isinstance(k, Array) else operator.index(k), INT32))
    columns = iota_p.bind(dtype=INT32, shape=shape, dimension=1, sharding=None)
    return ge_p.bind(rows, columns)


def _triangle(name: str, m: Any, k: Any, lower: bool) -> Array:
    """`tril` or `triu`: a select by a mask."""
    check_arraylike(name, m)
    m = as_array(m)
    if m.ndim < 2:
        raise ValueError(f"Argument to jax.numpy.{name} must be at least 2D")
    sharding = m.aval.sharding if any(m.aval.entries) else None
    with mesh_of_operands(m):
        mask = to_type(triangle_mask(m.shape[-2:], k if lower else k - 1), m.shape, sharding)
    zeros = lax.full_like(m, 0)
    return select_n_p.bind(mask, zeros, m) if lower else select_n_p.bind(mask, m, zeros)


@sharding_notes.rearranged
@memoized
def tril(m, k=0):
    """The lower triangles of the matrices in the last two dimensions; zeros above diagonal k.

    >>> jnp.tril(jnp.array([[1, 2], [3, 4]]))
    Array([[1, 0],
           [3, 4]], dtype=int32)
    """
    return _triangle("tril", m, k, True)


@sharding_notes.rearranged
@memoized
def triu(m, k=0):
    """The upper triangles of the matrices in the last two dimensions; zeros below diagonal k.

    >>> jnp.triu(jnp.array([[1, 2], [3, 4]]))
    Array([[1, 2],
           [0, 4]], dtype=int32)
    """
    return _triangle("triu", m, k, False)


def vander(x, N=None, increasing=False):
    """The matrix of powers of x: columns x**(N-1), ..., x, 1, or the other way round."""
    check_arraylike("vander", x)
    x = as_array(x)
    if x.ndim != 1:
        raise ValueError("x must be a one-dimensional array")
    n = x.shape[0] if N is None else operator.index(N)
    if n < 0:
        raise ValueError("N must be nonnegative")
    powers = iota_p.bind(dtype=x.dtype, shape=(n,), dimension=0, sharding=None)
    if not increasing:
        powers = sub_p.bind(literal_like(n - 1, x), powers)
    column, row = lax.expand_dims(x, (1,)), lax.expand_dims(powers, (0,))
    if issubdtype(x.dtype, np.integer):
        return power(column, row)
    return pow_p.bind(strong(column), row)
