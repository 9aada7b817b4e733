"""Products of arrays: matmul, dot, inner, outer, tensordot, kron, cross.

Each contraction is one `dot_general`; its result has the dtype that the operands promote to. Where
contracted dimensions are sharded on both sides, say with `out_sharding=` what the result shall be.
"""
from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....ir.ops.contractions.dot_general import dot_general_p
from ....ir.ops.elementwise.arithmetic import mul_p
from ....ir.shardings.sharding import NamedSharding, named_sharding_abstract
from ....ir.spec import spec_from_entries
from ....ir.values.array import Array
from ....ir.values.typeof import typeof
from ... import lax, sharding_notes
from ...lax.contraction import canonicalize_precision, element_type
from ...operands.dtype_promotion import (
    check_arraylike,
    convert,
    dtype_name,
    promote_args,
    promote_dtypes,
    result_dtype,
    strong,
)
from ...operands.rank_promotion import shape_of
from ...operands.shape_arguments import canonical_axes, canonical_axis
from ...shardings.out_sharding import output_sharding
from ...staging.constants import as_array, unwrapped
from ...staging.memoized import memoized
from ..elementwise.two_operands import multiply_function, subtract_function
from ..manipulation.shaping import moveaxis, ravel
from ..vectorize import vectorize

__all__ = [
    "cross", "dot", "inner", "kron", "matmul", "matvec", "outer", "tensordot", "vdot", "vecdot",
    "vecmat",
]


def contraction_dtype(preferred: Any, *operands: Any) -> tuple[Any, bool]:
    """The dtype of a product and whether it is weak."""
    if preferred is not None:
        return element_type(preferred), False
    return result_dtype(*operands)


def contract(a: Any, b: Any, numbers: Any, precision: Any, preferred: Any,
             sharding: NamedSharding | None = None) -> Any:
    """One dot_general of operands of any dtypes; numbers and sharding as the op takes them."""
    dtype, weak = contraction_dtype(preferred, a, b)
    out = dot_general_p.bind(a, b, dimension_numbers=numbers,
                             precision=canonicalize_precision(precision),
                             preferred_element_type=dtype, out_sharding=sharding)
    return convert(out, dtype, weak)


@sharding_notes.product
@memoized
def dot(a, b, *, precision=None, preferred_element_type=None, out_sharding=None):
    """The product over the last dimension of `a` and the last but one of `b`.

    With vectors that is the inner product, with matrices the matrix product; a scalar operand
    multiplies. [..., k] and [..., k, n] give [a's others, b's others, n]: unlike `matmul`, leading
    dimensions are not paired. precision, preferred_element_type, out_sharding: as in `matmul`.
    Raises TypeError where the contracted sizes differ.

    >>> jnp.dot(jnp.array([1, 2, 3]), jnp.array([4, 5, 6]))
    Array(32, dtype=int32)
    """
    check_arraylike("dot", a, b)
    a, b = unwrapped(a), unwrapped(b)
    m, n = len(shape_of(a)), len(shape_of(b))
    if not m or not n:
        pairs: Any = ((), ())
    else:
        pairs = ((m - 1,), (0 if n == 1 else n - 2,))
    ndim = m + n - 2 * len(pairs[0])
    return contract(a, b, (pairs, ((), ())), precision, preferred_element_type,
                    output_sharding(out_sharding, "dot_general", ndim))


@sharding_notes.product
def matmul(a, b, *, precision=None, preferred_element_type=None, out_sharding=None):
    """The matrix product; also written `a @ b`.

    [..., m, k] and [..., k, n] give [..., m, n], where leading dimensions broadcast. A vector as
    `a` is a row, as `b` a column, and its dimension is dropped from the result.
    precision: passes of a float32 product, see `lax.Precision`. preferred_element_type: the dtype
    in which to add and return. out_sharding: a PartitionSpec of the result, over Explicit axes.
    Raises TypeError where the sizes to contract differ, ValueError for scalars and for leading
    dimensions that do not broadcast.

    >>> mesh = st.make_mesh((2, 4), ("x", "y"), axis_types=(st.sharding.AxisType.Explicit,) * 2)
    >>> with st.set_mesh(mesh):
    ...     a = st.device_put(np.ones((8, 16), np.float32), P("x", "y"))
    ...     w = st.device_put(np.ones((16, 4), np.float32), P("y", None))
    ...     st.typeof(jnp.matmul(a, w, out_sharding=P("x", None)))       # an all-reduce over y
    ShapedArray(float32[8@x,4])
    """
    if (isinstance(a, Array) and isinstance(b, Array) and precision is None
            and preferred_element_type is None and out_sharding is None):
        ta, tb = a.aval, b.aval
        m, n, dtype = len(ta.shape), len(tb.shape), ta.dtype
        if 0 < m < 3 and 0 < n < 3 and dtype is tb.dtype and not ta.weak_type and not tb.weak_type:
            return dot_general_p.bind(
                a, b, dimension_numbers=(((m - 1,), (0,)), ((), ())),
                precision=canonicalize_precision(None), preferred_element_type=dtype,
                out_sharding=None)
    return _matmul(a, b, precision=precision, preferred_element_type=preferred_element_type,
                   out_sharding=out_sharding)


@memoized
def _matmul(a, b, *, precision=None, preferred_element_type=None, out_sharding=None):
    """`matmul` of any two operands."""
    check_arraylike("matmul", a, b)
    a, b = unwrapped(a), unwrapped(b)
    shapes = shape_of(a), shape_of(b)
    for i, s in enumerate(shapes):
        if not s:
            raise ValueError(f"matmul input operand {i} must have ndim at least 1, but it has "
                             "ndim 0")
    if len(shapes[0]) <= 2 and len(shapes[1]) <= 2:
        numbers = (((len(shapes[0]) - 1,), (0,)), ((), ()))
        sharding = None
        if out_sharding is not None:
            sharding = output_sharding(out_sharding, "dot_general",
                                       len(shapes[0]) + len(shapes[1]) - 2)
        return contract(a, b, numbers, precision, preferred_element_type, sharding)
    return _batched_matmul(a, b, precision, preferred_element_type, out_sharding)


def _batched_matmul(a: Any, b: Any, precision: Any, preferred: Any, out_sharding: Any) -> Any:
    """Batch dimensions are paired from the end; those of size 1 are dropped and broadcast."""
    ta, tb = typeof(a), typeof(b)
    a_matrix, b_matrix = ta.ndim > 1, tb.ndim > 1
    na, nb = max(ta.ndim - 2, 0), max(tb.ndim - 2, 0)
    n = max(na, nb)
    squeezed: tuple[list[int], list[int]] = ([], [])
    dropped: list[int] = []                     # of size 1 and whole in both
    batch: tuple[list[int], list[int]] = ([], [])
    batch_at: list[int] = []
    other_at: tuple[list[int], list[int]] = ([], [])
    for i in range(n):
        da, db = i - (n - na), i - (n - nb)
        if da < 0:
            other_at[1].append(i)
        elif db < 0:
            other_at[0].append(i)
        elif ta.shape[da] == tb.shape[db] == 1 and not ta.entries[da] and not tb.entries[db] and (
                out_sharding is None):
            dropped.append(i)
            squeezed[0].append(da)
            squeezed[1].append(db)
        elif ta.shape[da] == tb.shape[db] and ta.entries[da] == tb.entries[db]:
            batch[0].append(len(batch_at) + len(other_at[0]))
            batch[1].append(len(batch_at) + len(other_at[1]))
            batch_at.append(i)
        elif ta.shape[da] == 1 and not ta.entries[da]:
            other_at[1].append(i)
            squeezed[0].append(da)
        elif tb.shape[db] == 1 and not tb.entries[db]:
            other_at[0].append(i)
            squeezed[1].append(db)
        else:
            raise ValueError("Incompatible types for matmul arguments: "
                             f"{ta.str_short()} and {tb.str_short()}")
    if a_matrix:
        other_at[0].append(n)
    if b_matrix:
        other_at[1].append(n + a_matrix)
    a, b = (lax.squeeze(as_array(x), dims) if dims else x
            for x, dims in zip((a, b), squeezed, strict=True))
    places = [*batch_at, *other_at[0], *other_at[1]]
    sharding = output_sharding(out_sharding, "dot_general", len(places))
    if sharding is not None:
        sharding = reordered(sharding, places)
    ra, rb = len(shape_of(a)), len(shape_of(b))
    numbers = (((ra - 1,), (rb - 1 - b_matrix,)), (tuple(batch[0]), tuple(batch[1])))
    out = contract(a, b, numbers, precision, preferred, sharding)
    out = lax.transpose(out, np.argsort(places))
    return lax.expand_dims(out, dropped) if dropped else out


def reordered(sharding: NamedSharding, places: Sequence[int]) -> NamedSharding:
    """The sharding of a value whose dimension i is dimension places[i] of the result."""
    spec = sharding.spec
    entries = tuple(spec.entries[p] for p in places)
    return named_sharding_abstract(
        sharding.mesh.abstract_mesh, spec_from_entries(entries, spec.unreduced, spec.reduced))


@sharding_notes.closed_product
def vdot(a, b, *, precision=None, preferred_element_type=None):
    """The sum of the products of all elements, with `a` conjugated if complex; both are flattened.

    >>> jnp.vdot(jnp.array([[1, 2], [3, 4]]), jnp.array([[1, 1], [1, 1]]))
    Array(10, dtype=int32)
    """
    check_arraylike("vdot", a, b)
    if np.issubdtype(np.zeros(0, dtype_name(a)).dtype, np.complexfloating):
        a = lax.conj(a)
    return dot(ravel(a), ravel(b), precision=precision,
               preferred_element_type=preferred_element_type)


@sharding_notes.closed_product
@memoized
def inner(a, b, *, precision=None, preferred_element_type=None):
    """The sums of products over the last dimensions of both: [..., k] and [..., k] give [..., ...].

    >>> jnp.inner(jnp.array([[1, 2], [3, 4]]), jnp.array([1, 10]))
    Array([21, 43], dtype=int32)
    """
    check_arraylike("inner", a, b)
    m, n = len(shape_of(a)), len(shape_of(b))
    if not m or not n:
        dtype = None if preferred_element_type is None else element_type(preferred_element_type)
        out = multiply_function(a, b)
        return out if dtype is None else convert(out, dtype)
    return tensordot(a, b, ((m - 1,), (n - 1,)), precision=precision,
                     preferred_element_type=preferred_element_type)


@sharding_notes.elementwise
@memoized
def outer(a, b, out=None):
    """The products of each element of `a` with each of `b`: [m] and [n] give [m, n].

    Both are flattened first.

    One mesh axis cannot split both dimensions of the result (ShardingTypeError over Explicit axes).

    >>> jnp.outer(jnp.array([1, 2]), jnp.array([1, 10, 100]))
    Array([[  1,  10, 100],
           [  2,  20, 200]], dtype=int32)
    """
    if out is not None:
        raise NotImplementedError("The 'out' argument to jnp.outer is not supported.")
    check_arraylike("outer", a, b)
    a, b = promote_dtypes(a, b)
    return multiply_function(lax.expand_dims(ravel(a), (1,)), lax.expand_dims(ravel(b), (0,)))


@sharding_notes.product
@memoized
def tensordot(a, b, axes: Any = 2, *, precision=None, preferred_element_type=None,
              out_sharding=None):
    """The sum of products over pairs of dimensions.

    axes: a number k, for the last k dimensions of `a` with the first k of `b`; or a pair of lists,
    the dimensions of `a` and those of `b` that go with them. The result has the other dimensions of
    `a`, then those of `b`. precision, preferred_element_type, out_sharding: as in `matmul`.
    Raises TypeError where sizes or numbers of dimensions do not go together.

    >>> jnp.tensordot(jnp.ones((2, 3, 4)), jnp.ones((3, 4, 5)), axes=2).shape
    (2, 5)
    >>> jnp.tensordot(jnp.ones((2, 3)), jnp.ones((4, 3)), axes=((1,), (1,))).shape
    (2, 4)
    """
    check_arraylike("tensordot", a, b)
    m, n = len(shape_of(a)), len(shape_of(b))
    if isinstance(axes, (int, np.integer)):
        k = int(axes)
        if k > min(m, n):
            raise TypeError(f"Number of tensordot axes (axes {k}) exceeds input ranks "
                            f"({shape_of(a)} and {shape_of(b)})")
        pairs: Any = (tuple(range(m - k, m)), tuple(range(k)))
    elif isinstance(axes, (tuple, list)) and len(axes) == 2:
        first, second = axes
        if isinstance(first, (int, np.integer)) and isinstance(second, (int, np.integer)):
            pairs = ((canonical_axis(first, m),), (canonical_axis(second, n),))
        elif isinstance(first, (tuple, list)) and isinstance(second, (tuple, list)):
            if len(first) != len(second):
                raise TypeError("tensordot requires axes lists to have equal length, got "
                                f"{list(first)} and {list(second)}.")
            pairs = (canonical_axes(tuple(first), m), canonical_axes(tuple(second), n))
        else:
            raise TypeError("tensordot requires both axes lists to be either ints, tuples or "
                            f"lists, got {first} and {second}")
    else:
        raise TypeError("tensordot axes argument must be an int, a pair of ints, or a pair of "
                        f"lists/tuples of ints. Got {axes}")
    ndim = m + n - 2 * len(pairs[0])
    return contract(unwrapped(a), unwrapped(b), (pairs, ((), ())), precision,
                    preferred_element_type, output_sharding(out_sharding, "dot_general", ndim))


# -- over one dimension ----------------------------------------------------------------------------

@memoized
def vecdot(x1, x2, /, *, axis=-1, precision=None, preferred_element_type=None):
    """Sums of products along a dimension, the first operand conjugated; others broadcast."""
    check_arraylike("jnp.vecdot", x1, x2)
    x1, x2 = as_array(x1), as_array(x2)
    if not x1.ndim or not x2.ndim:
        raise ValueError("vecdot requires inputs of at least one dimension; got "
                         f"{x1.shape} and {x2.shape}")
    x1, x2 = moveaxis(x1, axis, -1), moveaxis(x2, axis, -1)
    if x1.shape[-1] != x2.shape[-1]:
        raise ValueError("vecdot requires the contracted dimensions to be equal, got "
                         f"{x1.shape[-1]} and {x2.shape[-1]}")
    if any(x1.aval.entries) or any(x2.aval.entries):     # with the typing of a mapped function
        return vectorize(functools.partial(
            vdot, precision=precision, preferred_element_type=preferred_element_type),
            signature="(n),(n)->()")(x1, x2)
    if np.issubdtype(np.zeros(0, dtype_name(x1)).dtype, np.complexfloating):
        x1 = lax.conj(x1)
    out = matmul(lax.expand_dims(x1, (x1.ndim - 1,)), lax.expand_dims(x2, (x2.ndim,)),
                 precision=precision, preferred_element_type=preferred_element_type) \
        if x1.shape[:-1] != x2.shape[:-1] else _paired_dot(
            x1, x2, precision, preferred_element_type)
    return lax.squeeze(out, (out.ndim - 2, out.ndim - 1)) if out.ndim > max(
        x1.ndim, x2.ndim) - 1 else out


def _paired_dot(a: Any, b: Any, precision: Any, preferred: Any) -> Any:
    batch = tuple(range(a.ndim - 1))
    return contract(a, b, (((a.ndim - 1,), (a.ndim - 1,)), (batch, batch)), precision, preferred)


def matvec(x1, x2, /):
    """Matrices times vectors: [..., m, k] and [..., k] give [..., m]; leading dimensions broadcast.
    """
    check_arraylike("matvec", x1, x2)
    if len(shape_of(x1)) < 2 or not shape_of(x2):
        return vectorize(matmul, signature="(n,m),(m)->(n)")(x1, x2)     # says what is missing
    if len(shape_of(x2)) == 1:
        return matmul(x1, x2)
    out = matmul(x1, lax.expand_dims(x2, (len(shape_of(x2)),)))
    return lax.squeeze(out, (out.ndim - 1,))


def vecmat(x1, x2, /):
    """Conjugated vectors times matrices; leading dimensions broadcast."""
    check_arraylike("vecmat", x1, x2)
    if not shape_of(x1) or len(shape_of(x2)) < 2:
        return vectorize(matmul, signature="(n),(n,m)->(m)")(x1, x2)     # says what is missing
    if np.issubdtype(np.zeros(0, dtype_name(x1)).dtype, np.complexfloating):
        x1 = lax.conj(x1)
    if len(shape_of(x1)) == 1:
        return matmul(x1, x2)
    out = matmul(lax.expand_dims(x1, (len(shape_of(x1)) - 1,)), x2)
    return lax.squeeze(out, (out.ndim - 2,))


def kron(a, b):
    """Kronecker product: a copy of b for each element of a, multiplied by it."""
    check_arraylike("kron", a, b)
    a, b = promote_dtypes(a, b)
    a, b = as_array(a), as_array(b)
    n = max(a.ndim, b.ndim)
    sa = (1,) * (n - a.ndim) + a.shape
    sb = (1,) * (n - b.ndim) + b.shape
    a = lax.broadcast_in_dim(a, tuple(m for s in sa for m in (s, 1)),
                             tuple(2 * d for d in range(n - a.ndim, n)))
    b = lax.broadcast_in_dim(b, tuple(m for s in sb for m in (1, s)),
                             tuple(2 * d + 1 for d in range(n - b.ndim, n)))
    out = mul_p.bind(a, b) if n else multiply_function(a, b)
    return lax.reshape(out, tuple(p * q for p, q in zip(sa, sb, strict=True)))


def cross(a, b, axisa=-1, axisb=-1, axisc=-1, axis=None):
    """Vector product of vectors of size 3 (or 2, whose third component is 0)."""
    check_arraylike("cross", a, b)
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = promote_dtypes(a, b)
    a, b = moveaxis(as_array(a), axisa, -1), moveaxis(as_array(b), axisb, -1)
    sizes = a.shape[-1], b.shape[-1]
    if sizes[0] not in (2, 3) or sizes[1] not in (2, 3):
        raise ValueError("Dimension must be either 2 or 3 for cross product")

    def parts(x: Any) -> list[Any]:
        return [lax.index_in_dim(x, i, -1, keepdims=False) for i in range(x.shape[-1])]

    u, v = parts(a), parts(b)
    third = _minus(u[0], v[1], u[1], v[0])
    if sizes == (2, 2):
        return third
    u = [*u, lax.full_like(u[0], 0)][:3]
    v = [*v, lax.full_like(v[0], 0)][:3]
    out = [_minus(u[1], v[2], u[2], v[1]), _minus(u[2], v[0], u[0], v[2]), third]
    return strong(moveaxis(lax.stack(promote_args("cross", *out), -1), -1, axisc))


def _minus(a: Any, b: Any, c: Any, d: Any) -> Any:
    """a b - c d."""
    return subtract_function(multiply_function(a, b), multiply_function(c, d))
