"""x.at[index]: reading with options, and new arrays with some elements changed.

An update is a scatter: the value is broadcast to the shape that x[index] has. With `out_sharding=`
the operation runs with all mesh axes in Auto mode and its result is resharded, so that it works for
operands of any sharding.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ....ir.api_boundary import bound_methods
from ....ir.dtypes import iinfo, issubdtype, safe_to_cast
from ....ir.inference.infer import infer
from ....ir.op import Op
from ....ir.ops.indexing.scatter import (
    scatter_add_p,
    scatter_max_p,
    scatter_min_p,
    scatter_mul_p,
    scatter_p,
    scatter_sub_p,
)
from ....ir.ops.movement.shape import rev_p
from ....ir.settings.context import STATE, config, x64_enabled
from ....ir.shardings.normalized import unsharded
from ....ir.shardings.sharding import named_sharding_abstract
from ....ir.source.wording import warn
from ....ir.spec import spec_from_entries
from ....ir.values.array import Array
from ....ir.values.typeof import typeof
from ... import lax
from ...indexing import indexing
from ...indexing.gathering import Gathering, gathering
from ...indexing.index_forms import plain_index
from ...lax.indexed import applied, check_combines
from ...operands.broadcasting import to_type
from ...operands.dtype_promotion import convert, dtype_and_weak, dtype_name, promote_dtypes
from ...operands.rank_promotion import shape_of
from ...shardings.auto_mode import in_auto_mode
from ...shardings.eager_mesh import mesh_of_operands
from ...shardings.out_sharding import canonicalize_sharding
from ...staging.constants import as_array, is_array_like
from ...staging.memoized import memoized
from ..creation.arrays import asarray
from ..elementwise.powers import power as _power
from ..elementwise.two_operands import divide as _divide


@bound_methods
class IndexUpdateHelper:
    """`x.at`: give it an index."""

    __slots__ = ("array",)

    def __init__(self, array: Array) -> None:
        self.array = array

    def __getitem__(self, index: Any) -> IndexUpdateRef:
        return IndexUpdateRef(self.array, index)

    def __repr__(self) -> str:
        return f"_IndexUpdateHelper({self.array!r})"


def _updating(name: str, op: Op, doc: str) -> Callable[..., Array]:
    """A method that combines x[index] with values by a scatter op."""
    def update(self, values, *, indices_are_sorted=False, unique_indices=False, mode=None,
               out_sharding=None, wrap_negative_indices=True):
        if values is None:
            raise ValueError("None is not a valid value for jnp.array")

        def run(x: Any, index: Any, y: Any) -> Array:
            return scatter_update(op, x, index, y, indices_are_sorted, unique_indices, mode,
                                  wrap_negative_indices)

        return _with_sharding(run, self.array, self.index, values, out_sharding)

    update.__name__, update.__qualname__, update.__doc__ = name, f"IndexUpdateRef.{name}", doc
    return update


def _by_factors(name: str, multiply: Callable[..., Array], combine: Callable[..., Array], doc: str
                ) -> Callable[..., Array]:
    """A method that combines x with ones that were multiplied by values at the index."""
    @functools.wraps(multiply)
    def update(self, values, **options):
        ones = IndexUpdateRef(lax.full_like(self.array, 1), self.index)
        return combine(self.array, multiply(ones, values, **options))

    update.__name__, update.__qualname__, update.__doc__ = name, f"IndexUpdateRef.{name}", doc
    return update


@bound_methods
class IndexUpdateRef:
    """`x.at[index]`: the elements of x that get, set, add, ... are about."""

    __slots__ = ("array", "index")

    def __init__(self, array: Array, index: Any) -> None:
        self.array = array
        self.index = index

    def __repr__(self) -> str:
        return f"_IndexUpdateRef({self.array!r}, {self.index!r})"

    def get(self, *, indices_are_sorted=False, unique_indices=False, mode=None, fill_value=None,
            out_sharding=None, wrap_negative_indices=True):
        """x[index], with what happens outside of x chosen by mode ("fill", "clip",
        "promise_in_bounds") and fill_value."""
        options = {"indices_are_sorted": indices_are_sorted, "unique_indices": unique_indices,
                   "mode": mode, "fill_value": fill_value,
                   "wrap_negative_indices": wrap_negative_indices}
        if out_sharding is not None and mode is None and fill_value is None:
            sliced = indexing.read_slice(self.array, self.index)
            if sliced is not None:
                return sliced
        return _with_sharding(lambda x, i: indexing.read(x, i, **options), self.array,
                              self.index, None, out_sharding)

    set = _updating("set", scatter_p, "x with x[index] = values.")
    add = _updating("add", scatter_add_p,
                    "x with x[index] += values; positions that occur twice are added to twice.")
    subtract = _updating("subtract", scatter_sub_p, "x with x[index] -= values.")
    multiply = mul = _updating("multiply", scatter_mul_p, "x with x[index] *= values.")
    divide = _by_factors("divide", multiply, _divide, "x with x[index] /= values.")
    power = _by_factors("power", multiply, _power, "x with x[index] **= values.")
    min = _updating("min", scatter_min_p, "x with x[index] = minimum(x[index], values).")
    max = _updating("max", scatter_max_p, "x with x[index] = maximum(x[index], values).")

    def apply(self, func, *, indices_are_sorted=False, unique_indices=False, mode=None,
              wrap_negative_indices=True):
        """x with an elementwise func applied to x[index]; twice for positions that occur twice."""
        x = as_array(self.array)
        if any(x.aval.entries):
            _check_applicable(x, self.index, wrap_negative_indices)
        index = self.index if isinstance(self.index, tuple) else (self.index,)
        single = unique_indices or all(
            i is None or i is Ellipsis or isinstance(i, (int, slice)) for i in index)
        zeros = IndexUpdateRef(lax.full_like(x, 0, dtype=np.int32), self.index)
        times = zeros.add(np.int32(1), indices_are_sorted=indices_are_sorted,
                          unique_indices=unique_indices, mode=mode,
                          wrap_negative_indices=wrap_negative_indices)
        return applied(func, x, times, single)


def _check_applicable(x: Array, index: Any, wrap: bool) -> None:
    """Raise where Explicit typing refuses to scatter whole updates to x[index]."""
    g = gathering(plain_index(index, x.aval.shape), x.aval, wrap)
    y = typeof(_fitted(convert(0, dtype_name(x)), g, x))
    updates = y.update(sharding=unsharded(y.ndim, y.mesh))
    infer(scatter_p, (x.aval, typeof(g.indices), updates),
          {"dimension_numbers": g.numbers.as_scatter(), "indices_are_sorted": g.sorted,
           "unique_indices": g.unique, "mode": lax.GatherScatterMode.FILL_OR_DROP},
          STATE.abstract_mesh)


def _with_sharding(f: Callable[..., Array], x: Array, index: Any, values: Any, out_sharding: Any
                   ) -> Array:
    """f(x, index[, values]); with out_sharding, in Auto mode and resharded."""
    more = () if values is None else (values,)
    if out_sharding is None:
        return f(x, index, *more)
    sharding = canonicalize_sharding(out_sharding, "get" if values is None else "set")
    # Arrays inside of the index are operands too; slices and ints stay as they are.
    items = index if isinstance(index, tuple) else (index,)
    arrays = [i for i in items if isinstance(i, (Array, np.ndarray)) and i.dtype != np.dtype(bool)]
    places = [k for k, i in enumerate(items) if any(i is a for a in arrays)]

    def run(x: Any, *rest: Any) -> Array:
        found = list(items)
        for k, a in zip(places, rest, strict=False):
            found[k] = a
        return f(x, tuple(found), *rest[len(places):])

    operands = [as_array(a) for a in arrays] + [
        as_array(promote_dtypes(x, v)[1] if type(v) in (bool, int, float, complex) else v)
        for v in (_as_integer(v, x) for v in more)]
    return in_auto_mode(run, sharding, x, *operands)


# -- writing ---------------------------------------------------------------------------------------

def scatter_update(op: Op, x: Any, index: Any, y: Any, indices_are_sorted: bool,
                   unique_indices: bool, mode: Any, wrap: bool) -> Array:
    """x with the elements at index combined with y by a scatter op."""
    x = as_array(x)
    if not is_array_like(y):
        y = asarray(y)
    y = _as_integer(y, x)
    _check_cast(y, dtype_name(x))
    return _scattered(op, x, index, y, indices_are_sorted, unique_indices, mode, wrap)


@memoized
def _scattered(op: Op, x: Any, index: Any, y: Any, indices_are_sorted: bool, unique_indices: bool,
               mode: Any, wrap: bool) -> Array:
    """`scatter_update` of a value that may be converted to the dtype of the array."""
    own, own_weak = dtype_and_weak(x)
    plain = plain_index(index, x.aval.shape)
    g = gathering(plain, x.aval, wrap)
    if 0 in g.slice_shape:
        return x
    x, y = promote_dtypes(x, y)
    if isinstance(x, Array) and x.aval.weak_type and not own_weak and dtype_name(x) == own:
        x = convert(x, own)
    if g.operand_new:
        x = lax.expand_dims(x, g.operand_new)
    y = _fitted(y, g, x)
    if g.reversed_dims:
        y = rev_p.bind(y, dimensions=g.reversed_dims)
    mode = lax.GatherScatterMode.FILL_OR_DROP if mode is None else lax.GatherScatterMode.from_any(
        mode)
    check_combines(op, x)
    out = op.bind(x, g.indices, y, dimension_numbers=g.numbers.as_scatter(),
                  indices_are_sorted=bool(indices_are_sorted or g.sorted),
                  unique_indices=bool(unique_indices or g.unique), mode=mode)
    if g.operand_new:
        out = lax.squeeze(out, g.operand_new)
    return convert(out, own, own_weak)


def _as_integer(y: Any, x: Any) -> Any:
    """A Python integer (or truth value) in the dtype of an array of integers, if it fits there."""
    dtype = dtype_name(x)
    if isinstance(y, int) and issubdtype(dtype, np.integer) and (
            int(iinfo(dtype).min) <= y <= int(iinfo(dtype).max)):
        return convert(int(y), dtype)
    return y


def _check_cast(y: Any, own: Any) -> None:
    """Warn where the value has to be cut down to the dtype of the array."""
    if config.jax_numpy_dtype_promotion == "strict" or not isinstance(own, np.dtype):
        return
    if type(y) in (bool, int, float, complex) and own.kind in "biufc" and (
            np.result_type(own, type(y)) == own):
        return
    dtype, weak = dtype_and_weak(y)
    if dtype == own or (weak and safe_to_cast(np.zeros((), dtype), own, x64_enabled())):
        return
    if not safe_to_cast(y, np.zeros((), own), x64_enabled()):
        warn(
            "scatter inputs have incompatible types: cannot safely cast value from dtype="
            f"{dtype} to dtype={own} with jax_numpy_dtype_promotion="
            f"{config.jax_numpy_dtype_promotion}. In future releases this will result in an "
            "error.", FutureWarning)


def _fitted(y: Any, g: Gathering, like: Array) -> Any:
    """The value broadcast to the type of x[index], without the new axes of the index."""
    shape, entries = list(g.slice_shape), list(g.slice_entries)
    for d in g.new_axes:
        shape.insert(d, 1)
        entries.insert(d, ())
    sharding = None
    if any(entries) or (isinstance(y, Array) and any(y.aval.entries)):
        mesh = g.mesh if g.mesh.axis_names else y.aval.mesh
        sharding = named_sharding_abstract(mesh, spec_from_entries(entries))
    have = shape_of(y)
    if len(have) > len(shape):
        raise ValueError("Cannot broadcast to shape with fewer dimensions: "
                         f"arr_shape={tuple(have)} shape={tuple(shape)}")
    with mesh_of_operands(like, y):
        y = to_type(y, tuple(shape), sharding)
    return lax.squeeze(y, g.new_axes) if g.new_axes else y
