"""Collectives by axis name, for the bodies of shard_map: `psum(x, 'x')` and its kin.

Every function first brings its operand to the state that it needs (manual_axes.py): an
invarying operand is regarded as varying, so psum of it multiplies, as in JAX. As there, results are
not weakly typed where `check_vma=False` leaves types untracked, nor those of `all_to_all`. Where a
vmapped axis is among several axes, the collective is taken apart into one for each axis
(tracer/batching/collectives.py deals with one at a time). Source: JAX's `jax.lax` collectives.
"""
from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....ir.diagnostics.diagnostic import fail
from ....ir.ops.communication import collective as ops
from ....ir.ops.derivatives import convert_like, strong
from ....ir.ops.elementwise.comparison import eq_p
from ....ir.ops.elementwise.convert import convert_element_type_p
from ....ir.ops.elementwise.select import select_n_p
from ....ir.ops.movement.shape import broadcast_in_dim_p, squeeze_p
from ....ir.settings.context import STATE
from ....ir.values.array import Array
from ....ir.values.typeof import typeof
from ... import sharding_notes
from ...trees import tree
from ..creation import full_like
from ..shape import reshape, transpose
from .manual_axes import (
    as_varying,
    axes_of,
    axis_index,
    axis_size,
    axis_size_of,
    bound_sizes,
    check_single,
    common_state,
    group_of,
    groups_of,
    other_axes,
    vmapped_axes,
)

# -- reductions ------------------------------------------------------------------------------------


def _is_constant(x: Any) -> bool:
    return not isinstance(x, Array) and not hasattr(x, "aval")


def _multiplied(leaf: Any, n: int) -> Any:
    return (int(leaf) if isinstance(leaf, bool) else leaf) * n


@sharding_notes.collective
def psum(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """The sum of `x`, a pytree of arrays, over the devices along mesh axes: an all-reduce.

    axis_name: the name of an axis, or a tuple of names. The result has the shape of `x` and no
    longer varies over the axes. Booleans are counted as int32. A Python number gives a Python
    number:
    `psum(1, 'x')` is the size of the axis. axis_index_groups: groups of devices to sum over
    apart.
    Raises NameError for an axis that is not bound.

    >>> mesh = st.make_mesh((8,), ("x",))
    >>> f = st.shard_map(lambda v: st.lax.psum(v, "x"), mesh=mesh, in_specs=P("x"), out_specs=P())
    >>> f(jnp.arange(8.0))
    Array([28.], dtype=float32)
    """
    axes = axes_of(axis_name)
    if not isinstance(x, Array) and all([_is_constant(leaf) for leaf in tree.leaves(x)]):
        n = math.prod(bound_sizes(axes, "psum", plain=True))
        if axis_index_groups is not None:
            n = len(axis_index_groups[0])
        return tree.map(lambda leaf: _multiplied(leaf, n), x)
    size, groups = axis_size_of(axes, "psum"), None
    if axis_index_groups is not None:
        groups = groups_of(axes, axis_index_groups, size, typed=False)
    vmapped, others = vmapped_axes(axes), other_axes(axes)

    def one(leaf: Any) -> Any:
        if _is_constant(leaf):
            return _multiplied(leaf, size if groups is None else len(groups[0]))
        if typeof(leaf).dtype == np.bool_:
            leaf = convert_element_type_p.bind(leaf, new_dtype=np.dtype(np.int32),
                                               weak_type=False, sharding=None)
        if vmapped:
            leaf = ops.psum_p.bind(leaf, axes=vmapped, axis_index_groups=None)
            if not others:
                return leaf
        if not STATE.check_vma:
            return ops.psum_p.bind(strong(leaf), axes=others, axis_index_groups=groups)
        state = common_state(leaf, others, "psum")
        if state == "unreduced":
            return ops.unreduced_psum_p.bind(leaf, axes=others)
        return ops.psum_invariant_p.bind(as_varying(leaf, others), axes=others)

    return tree.map(one, x)


@sharding_notes.collective
def pmean(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """The mean of `x`, a pytree of arrays, over the devices along mesh axes.

    The result has the shape of `x` and no longer varies over the axes; integers give floats.

    >>> mesh = st.make_mesh((8,), ("x",))
    >>> f = st.shard_map(lambda v: st.lax.pmean(v, "x"), mesh=mesh, in_specs=P("x"), out_specs=P())
    >>> f(jnp.arange(8.0))
    Array([3.5], dtype=float32)
    """
    total = psum(x, axis_name, axis_index_groups=axis_index_groups)
    n = psum(1, axis_name, axis_index_groups=axis_index_groups)
    return tree.map(lambda v: v / n, total)


def _extreme(op: Any, name: str, x: Any, axis_name: Any, axis_index_groups: Any) -> Any:
    """A maximum or minimum over vmapped axes, then over Manual ones, of each leaf."""
    axes = axes_of(axis_name)
    groups = groups_of(axes, axis_index_groups, axis_size_of(axes, name), typed=False)
    vmapped = vmapped_axes(axes)
    parts = [part for part in (vmapped, other_axes(axes)) if part]

    def one(leaf: Any) -> Any:
        for part in parts:
            if not STATE.check_vma and part is not vmapped:
                leaf = strong(leaf)
            leaf = op.bind(as_varying(leaf, part), axes=part, axis_index_groups=groups)
        return leaf

    return tree.map(one, x)


@sharding_notes.collective
def pmax(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """The maximum of `x`, a pytree of arrays, over the devices along mesh axes: an all-reduce.

    The result has the shape of `x` and no longer varies over the axes.

    >>> mesh = st.make_mesh((8,), ("x",))
    >>> f = st.shard_map(lambda v: st.lax.pmax(v, "x"), mesh=mesh, in_specs=P("x"), out_specs=P())
    >>> f(jnp.arange(8.0))
    Array([7.], dtype=float32)
    """
    return _extreme(ops.pmax_p, "pmax", x, axis_name, axis_index_groups)


@sharding_notes.collective
def pmin(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """The minimum of `x`, a pytree of arrays, over the devices along mesh axes: an all-reduce.

    The result has the shape of `x` and no longer varies over the axes.

    >>> mesh = st.make_mesh((8,), ("x",))
    >>> f = st.shard_map(lambda v: st.lax.pmin(v, "x"), mesh=mesh, in_specs=P("x"), out_specs=P())
    >>> f(jnp.arange(8.0))
    Array([0.], dtype=float32)
    """
    return _extreme(ops.pmin_p, "pmin", x, axis_name, axis_index_groups)


# -- exchanges -------------------------------------------------------------------------------------

def _dim(d: int, ndim: int) -> int:
    d = operator.index(d)
    if not -ndim <= d < ndim:
        raise ValueError(f"axis {d} is out of bounds for array of dimension {ndim}")
    return d % ndim


@sharding_notes.collective
def all_gather(x: Any, axis_name: Any, *, axis_index_groups: Any = None, axis: int = 0,
               tiled: bool = False, to: str = "varying") -> Any:
    """The blocks of all devices along mesh axes, together on each of them.

    tiled: False stacks them in a new dimension `axis`, of the size of the group; True concatenates
    them along the dimension `axis`. to: what the type says of the result: "varying" (the default),
    "invarying" (it is the same on all devices, as `out_specs=P()` asks), or "reduced".

    >>> mesh = st.make_mesh((8,), ("x",))
    >>> gather = lambda v: st.lax.all_gather(v, "x", tiled=True, to="invarying")
    >>> st.shard_map(gather, mesh=mesh, in_specs=P("x"), out_specs=P())(jnp.arange(8))
    Array([0, 1, 2, 3, 4, 5, 6, 7], dtype=int32)
    """
    if to not in ("varying", "invarying", "reduced"):
        fail(ValueError, "Got unexpected `to` value for `jax.lax.all_gather`. Allowed `to` values "
             "are: {'invarying', 'reduced', 'varying'}", code="cast")
    axes, _, groups, size = group_of(axis_name, axis_index_groups, "all_gather")

    def one(leaf: Any) -> Any:
        ndim = typeof(leaf).ndim
        dim = _dim(axis, ndim if tiled else ndim + 1)
        if vmapped_axes(axes) and len(axes) > 1:
            if not tiled:
                leaf = _with_unit_dim(leaf, dim)
            for a in reversed(axes):
                leaf = all_gather(leaf, a, axis=dim, tiled=True, to=to)
            return leaf
        params = {"axis_name": axes, "axis_size": size, "all_gather_dimension": dim,
                  "tiled": tiled}
        if to == "reduced" and not typeof(leaf).varying and not vmapped_axes(axes):
            raise ValueError("all_gather_reduced only accepts inputs that are varying. Got "
                             f"{typeof(leaf).str_short(True)}")
        leaf = as_varying(leaf, axes)
        if vmapped_axes(axes):
            return ops.all_gather_p.bind(leaf, axis_index_groups=None, **params)
        if to == "invarying" and STATE.check_vma:
            return ops.all_gather_invariant_p.bind(leaf, **params)
        if to == "reduced" and STATE.check_vma:
            return ops.all_gather_reduced_p.bind(leaf, **params)
        return ops.all_gather_p.bind(leaf, axis_index_groups=groups, **params)

    return tree.map(one, x)


def _with_unit_dim(x: Any, dim: int) -> Any:
    shape = typeof(x).shape
    return broadcast_in_dim_p.bind(
        x, shape=(*shape[:dim], 1, *shape[dim:]), sharding=None,
        broadcast_dimensions=tuple(d for d in range(len(shape) + 1) if d != dim))


@sharding_notes.collective
def psum_scatter(x: Any, axis_name: Any, *, scatter_dimension: int = 0,
                 axis_index_groups: Any = None, tiled: bool = False) -> Any:
    """The sum over the devices along mesh axes, of which each device keeps one block.

    It is `psum` and then one's own part of dimension `scatter_dimension`, in one reduce-scatter
    that moves half as much. tiled: False drops the dimension, whose size must be that of the
    group; True divides it. Raises ValueError where the size does not fit.

    >>> mesh = st.make_mesh((8,), ("x",))
    >>> f = lambda v: st.lax.psum_scatter(v, "x", tiled=True)
    >>> st.shard_map(f, mesh=mesh, in_specs=P(None, "x"), out_specs=P("x"))(jnp.ones((16, 8))).shape
    (16, 1)
    """
    axes, n, groups, size = group_of(axis_name, axis_index_groups, "psum_scatter")

    def one(leaf: Any) -> Any:
        t = typeof(leaf)
        dim = _dim(scatter_dimension, t.ndim)
        if vmapped_axes(axes) and len(axes) > 1:
            if not tiled and t.shape[dim] != n:
                fail(ValueError, f"reduce_scatter operand scatter dimension size {t.shape[dim]} "
                     f"must match shard count {n}", code="indivisible",
                     label=f"the operand is {t.str_short(True)}",
                     help="give `tiled` to keep the dimension and divide its size")
            for a in axes:
                leaf = psum_scatter(leaf, a, scatter_dimension=dim, tiled=True)
            return leaf if tiled else squeeze_p.bind(leaf, dimensions=(dim,))
        params = {"axis_name": axes, "axis_size": size, "scatter_dimension": dim, "tiled": tiled}
        if (STATE.check_vma and not vmapped_axes(axes)
                and common_state(leaf, axes, "psum_scatter") == "unreduced"):
            return ops.unreduced_reduce_scatter_p.bind(leaf, **params)
        return ops.reduce_scatter_p.bind(as_varying(leaf, axes), axis_index_groups=groups, **params)

    return tree.map(one, x)


@sharding_notes.collective
def all_to_all(x: Any, axis_name: Any, split_axis: int, concat_axis: int, *,
               axis_index_groups: Any = None, tiled: bool = False) -> Any:
    """Each device sends block j of dimension `split_axis` to device j, and joins what it gets.

    tiled: False drops `split_axis`, whose size must be that of the group, and adds a dimension of
    that size at `concat_axis`; True divides the one and multiplies the other.
    Raises ValueError where the sizes do not fit.

    >>> mesh = st.make_mesh((8,), ("x",))
    >>> f = lambda v: st.lax.all_to_all(v, "x", split_axis=1, concat_axis=0, tiled=True)
    >>> x = st.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P(None, "x"))(jnp.ones((8, 16)))
    >>> x.sharding.spec, x.addressable_shards[0].data.shape
    (P(None, 'x'), (8, 2))
    """
    if axis_index_groups is not None:
        check_single(axes_of(axis_name), "all_to_all")
    axes, _, groups, size = group_of(axis_name, axis_index_groups, "all_to_all")

    def one(leaf: Any) -> Any:
        t = typeof(leaf)
        split, concat = _dim(split_axis, t.ndim), _dim(concat_axis, t.ndim)
        if tiled and t.shape[split] % size:
            named = axis_name if isinstance(axis_name, str) else axes
            fail(ValueError, f"The size of all_to_all split_axis ({t.shape[split]}) has to be "
                 f"divisible by the size of the named axis {named} ({size})", code="indivisible",
                 label=f"the operand is {t}", help=f"pad the dimension to a multiple of {size}")
        if not vmapped_axes(axes):
            leaf = strong(leaf)
        elif len(axes) > 1:
            return _axis_by_axis(leaf, axes, size, split, concat, tiled)
        return ops.all_to_all_p.bind(
            as_varying(leaf, axes), axis_name=axes, axis_size=size, split_axis=split,
            concat_axis=concat, tiled=tiled, axis_index_groups=groups)

    return tree.map(one, x)


def _axis_by_axis(x: Any, axes: Sequence[str], size: int, split: int, concat: int, tiled: bool
                  ) -> Any:
    """`all_to_all` over several axes as one over each, of what a block of all axes is made of."""
    shape = [*typeof(x).shape]
    shape[split:split + 1] = [size, shape[split] // size] if tiled else [shape[split]]
    x = _moved(reshape(x, shape), split, 0)
    rest = typeof(x).shape[1:]
    x = reshape(x, (*(axis_size(a) for a in axes), *rest))
    for i, a in enumerate(axes):
        x = all_to_all(x, a, i, i)
    x = _moved(reshape(x, (size, *rest)), 0, concat)
    if tiled:
        shape = [*typeof(x).shape]
        x = reshape(x, (*shape[:concat], size * shape[concat + 1], *shape[concat + 2:]))
    return x


def _moved(x: Any, source: int, target: int) -> Any:
    """x with one dimension at another place."""
    order = [d for d in range(typeof(x).ndim) if d != source]
    order.insert(target, source)
    return transpose(x, order)


@sharding_notes.collective
def ppermute(x: Any, axis_name: Any, perm: Sequence[tuple[int, int]]) -> Any:
    """Each device's block, sent to another device along the axis.

    perm: pairs (from, to) of positions; nobody may send twice or get twice. Devices that get
    nothing have zeros.

    >>> mesh = st.make_mesh((8,), ("x",))
    >>> shift = lambda v: st.lax.ppermute(v, "x", [(i, (i + 1) % 8) for i in range(8)])
    >>> st.shard_map(shift, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(jnp.arange(8))
    Array([7, 0, 1, 2, 3, 4, 5, 6], dtype=int32)
    """
    axes = axes_of(axis_name)
    axis_size_of(axes, "ppermute")
    check_single(axes, "ppermute")
    pairs = tuple([(int(s), int(d)) for s, d in perm])
    return tree.map(lambda v: ops.ppermute_p.bind(as_varying(v, axes), axis_name=axes, perm=pairs),
                    x)


def pshuffle(x: Any, axis_name: Any, perm: Sequence[int]) -> Any:
    """Device i gets the block of device `perm[i]`; `perm` is a permutation of the axis."""
    n = axis_size(axis_name)
    if sorted(perm) != list(range(n)):
        raise ValueError(f"`perm` does not represent a permutation: {perm}")
    return ppermute(x, axis_name, list(zip(perm, range(n), strict=True)))


def pswapaxes(x: Any, axis_name: Any, axis: int, *, axis_index_groups: Any = None) -> Any:
    """`x` with the mesh axis and dimension `axis`, of one size, swapped: an all-to-all."""
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)


def pbroadcast(x: Any, axis_name: Any, source: int) -> Any:
    """The block of the device at index `source` of the axes, on all of them (`x` is a pytree)."""
    axes = axes_of(axis_name)
    axis_size_of(axes, "pbroadcast")

    def one(leaf: Any) -> Any:
        t = typeof(leaf)
        is_source = eq_p.bind(axis_index(axes), np.int32(source))
        kept = select_n_p.bind(is_source, full_like(leaf, 0), leaf)
        total = psum(kept, axes)
        total = convert_like(total, t)             # booleans are counted
        return as_varying(total, tuple(a for a in axes if a in t.varying))

    return tree.map(one, x)
