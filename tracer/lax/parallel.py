"""Collectives by axis name, for the bodies of shard_map: `psum(x, 'x')` and its kin.

An axis name is bound where the context mesh has it as a Manual axis, or by a `vmap` with that
`axis_name`. With varying axes tracked (check_vma, the default) every function first brings its
operand to the state that it needs: an invarying operand is regarded as varying, so psum of it
multiplies, as in JAX. Vmapped axes have no state. Where one is among several axes, the collective
is taken apart into one for each axis (tracer/batching_collectives.py deals with one at a time).
Source: JAX's `jax.lax` collectives and its notebook on shard_map.
"""
from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.array import Array
from ...ir.context import STATE
from ...ir.diagnostic import fail
from ...ir.ops import collective as ops
from ...ir.ops.arithmetic import add_p, mul_p
from ...ir.ops.comparison import eq_p
from ...ir.ops.convert import convert_element_type_p
from ...ir.ops.select import select_n_p
from ...ir.ops.shape import broadcast_in_dim_p, squeeze_p
from ...ir.types import ArrayType
from .. import tree
from ..tracer import typeof
from .creation import broadcasted_iota, full_like
from .elementwise import bitwise_and, div, ge, lt, sub
from .indexed import index_take
from .reduction import reduce_max, reduce_or
from .shape import reshape

Axes = tuple[str, ...]


# -- axes ------------------------------------------------------------------------------------------

def _axes(name: Any) -> Axes:
    if isinstance(name, (tuple, list)):
        return tuple(name)
    if isinstance(name, (set, frozenset)):
        raise TypeError(f"axis_name={name} must be a tuple or a str. Got {name}")
    return (name,)


def _bound(axes: Axes, function: str, plain: bool = False) -> tuple[int, ...]:
    """The sizes of the axes; raises NameError for an axis that is not bound."""
    mesh, vmapped = STATE.abstract_mesh, dict(STATE.named_axes)
    manual = mesh.manual_axes
    sizes = []
    for a in axes:
        if a in vmapped:
            sizes.append(vmapped[a])
            continue
        if a not in manual:
            message = (f"unbound axis name: {a}" if plain else
                       f"Found an unbound axis name: {a}. To fix this, please call {function} "
                       "under `jax.shard_map`.")
            known = f"the Manual axes here are {tuple(manual)}" if manual else \
                "no axis is Manual here: this is not inside a shard_map"
            if vmapped:
                known += f"; the vmapped axes are {tuple(vmapped)}"
            fail(NameError, message, code="unbound-axis", notes=(known,))
        sizes.append(mesh.axis_size(a))
    return tuple(sizes)


def _vmapped(axes: Axes) -> Axes:
    """Those of the axes that a vmap binds."""
    names = dict(STATE.named_axes)
    return tuple(a for a in axes if a in names) if names else ()


def _others(axes: Axes) -> Axes:
    names = dict(STATE.named_axes)
    return tuple(a for a in axes if a not in names) if names else axes


def _check_single(axes: Axes, function: str) -> None:
    if len(axes) > 1 and _vmapped(axes):
        fail(NotImplementedError, f"{function} over several axes of which one is vmapped: {axes}",
             code="several-axes", help="map over one axis with their product for size, or call "
             f"{function} for one axis at a time")


def axis_size(axis_name: Any) -> int:
    """The number of devices along an axis, or along several, as a Python int."""
    return math.prod(_bound(_axes(axis_name), "axis_size", plain=True))


def axis_index(axis_name: Any) -> Any:
    """The device's position along an axis (int32); of several, row-major in the order given."""
    axes = _axes(axis_name)
    sizes = _bound(axes, "axis_index")
    if not _vmapped(axes):
        return ops.axis_index_p.bind(axis_name=axes, varying=STATE.check_vma)
    position: Any = None
    for a, n in zip(axes, sizes, strict=True):
        varying = STATE.check_vma and not _vmapped((a,))
        own = ops.axis_index_p.bind(axis_name=(a,), varying=varying)
        position = own if position is None else add_p.bind(mul_p.bind(position, np.int32(n)), own)
    return position


# -- states ----------------------------------------------------------------------------------------

def _states(t: ArrayType, axes: Axes) -> set[str]:
    def one(a: str) -> str:
        m = t.manual
        return ("varying" if a in m.varying else "unreduced" if a in m.unreduced
                else "reduced" if a in m.reduced else "invarying")
    return {one(a) for a in axes}


def _common_state(x: Any, axes: Axes, function: str) -> str:
    t = typeof(x)
    states = _states(t, axes)
    if len(states) > 1:
        fail(ValueError, f"jax.lax.{function} can only accept axis_name which corresponds to one "
             "of varying, unreduced, reduced or invarying state of the input. Got input type: "
             f"{t}, axes: {axes} and input state: {_set_text(states)}", code="mixed-states",
             help=f"bring all axes to one state: `lax.pcast(x, axes, to='varying')`, or call "
                  f"{function} once for each state")
    return next(iter(states)) if states else "invarying"


def _set_text(names: set[str]) -> str:
    return "{" + ", ".join(repr(n) for n in sorted(names)) + "}"


def _varying(x: Any, axes: Axes) -> Any:
    """`x`, regarded as varying over all of `axes` (but for the vmapped ones)."""
    if not STATE.check_vma:
        return x
    have = typeof(x).varying
    missing = tuple(a for a in _others(axes) if a not in have)
    return ops.pvary_p.bind(x, axes=missing) if missing else x


def pcast(x: Any, axis_name: Any, *, to: str) -> Any:
    """`x` in another state over the axes: 'varying', 'unreduced' or 'reduced'. No data moves.

    Raises ValueError for a cast that would need communication.
    """
    if to not in ("varying", "unreduced", "reduced"):
        fail(ValueError, "Got unexpected `to` value. Allowed `to` values are: "
             "{'reduced', 'unreduced', 'varying'}", code="cast")
    axes = _others(_axes(axis_name))
    if not axes and axis_name:
        return x
    if not STATE.check_vma:          # nothing varies in the types: only casts from there pass
        _bound(axes, "pcast")
        if to == "unreduced":
            fail(ValueError, f"Unsupported pcast from=invarying, to={to!r}", code="cast",
                 help="inside of shard_map(..., check_vma=False) sums cannot wait: use psum")
        return x
    if not set(axes) <= set(STATE.abstract_mesh.manual_axes):
        fail(ValueError, "pvary should be called under jax.shard_map.", code="unbound-axis")

    def one(leaf: Any) -> Any:
        have = _common_state(leaf, axes, "pcast")
        op = {("invarying", "varying"): ops.pvary_p, ("invarying", "reduced"): ops.preduced_p,
              ("varying", "unreduced"): ops.vary_unreduced_cast_p,
              ("reduced", "varying"): ops.reduced_vary_cast_p}.get((have, to))
        if op is None:
            fail(ValueError, f"Unsupported pcast from={have}, to={to!r}", code="cast",
                 label=f"the value is {typeof(leaf)}")
        return op.bind(leaf, axes=axes)

    return tree.map(one, x)


# -- reductions ------------------------------------------------------------------------------------

def _groups(axes: Axes, groups: Any, size: int, typed: bool = True
            ) -> tuple[tuple[int, ...], ...] | None:
    """The parts of a group as tuples. typed: whether the types tell what such parts give."""
    if groups is None:
        return None
    if _vmapped(axes):
        fail(NotImplementedError, "axis_index_groups not supported in vmap collectives. Please "
             "open a feature request!", code="axis-index-groups")
    out = tuple(tuple(int(i) for i in g) for g in groups)
    if sorted(i for g in out for i in g) != list(range(size)):
        raise ValueError("axis_index_groups must cover all indices exactly once")
    if STATE.check_vma and not typed:
        fail(NotImplementedError, "axis_index_groups needs `shard_map(..., check_vma=False)`: "
             "what varies within a part of an axis has no type", code="axis-index-groups")
    return out


def _is_constant(x: Any) -> bool:
    return not isinstance(x, Array) and not hasattr(x, "aval")


def psum(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """The sum of `x` (a pytree) over the devices along the axes.

    Booleans are counted as int32. A Python number gives a Python number: `psum(1, 'x')` is the
    axis size.
    """
    axes = _axes(axis_name)
    if all(_is_constant(leaf) for leaf in tree.leaves(x)):
        n = math.prod(_bound(axes, "psum", plain=True))
        if axis_index_groups is not None:
            n = len(axis_index_groups[0])
        return tree.map(lambda leaf: leaf * n if not isinstance(leaf, bool) else int(leaf) * n, x)
    groups = _groups(axes, axis_index_groups, axis_size_of(axes, "psum"), typed=False)
    vmapped, others = _vmapped(axes), _others(axes)

    def one(leaf: Any) -> Any:
        if typeof(leaf).dtype == np.bool_:
            leaf = convert_element_type_p.bind(leaf, new_dtype=np.dtype(np.int32),
                                               weak_type=False, sharding=None)
        if vmapped:
            leaf = ops.psum_p.bind(leaf, axes=vmapped, axis_index_groups=None)
            if not others:
                return leaf
        if not STATE.check_vma:
            return ops.psum_p.bind(leaf, axes=others, axis_index_groups=groups)
        state = _common_state(leaf, others, "psum")
        if state == "unreduced":
            return ops.unreduced_psum_p.bind(leaf, axes=others)
        return ops.psum_invariant_p.bind(_varying(leaf, others), axes=others)

    return tree.map(one, x)


def pmean(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """The mean of `x` over the devices along the axes."""
    total = psum(x, axis_name, axis_index_groups=axis_index_groups)
    n = psum(1, axis_name, axis_index_groups=axis_index_groups)
    return tree.map(lambda v: v / n, total)


def _extreme(op: Any, name: str, x: Any, axis_name: Any, axis_index_groups: Any) -> Any:
    axes = _axes(axis_name)
    groups = _groups(axes, axis_index_groups, axis_size_of(axes, name), typed=False)
    parts = [part for part in (_vmapped(axes), _others(axes)) if part]

    def one(leaf: Any) -> Any:
        for part in parts:
            leaf = op.bind(_varying(leaf, part), axes=part, axis_index_groups=groups)
        return leaf

    return tree.map(one, x)


def pmax(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """The maximum of `x` over the devices along the axes."""
    return _extreme(ops.pmax_p, "pmax", x, axis_name, axis_index_groups)


def pmin(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """The minimum of `x` over the devices along the axes."""
    return _extreme(ops.pmin_p, "pmin", x, axis_name, axis_index_groups)


# -- exchanges -------------------------------------------------------------------------------------

def _dim(d: int, ndim: int) -> int:
    d = operator.index(d)
    if not -ndim <= d < ndim:
        raise ValueError(f"axis {d} is out of bounds for array of dimension {ndim}")
    return d % ndim


def all_gather(x: Any, axis_name: Any, *, axis_index_groups: Any = None, axis: int = 0,
               tiled: bool = False, to: str = "varying") -> Any:
    """The blocks of all devices along the axes, on each of them.

    tiled=False: stacked in a new dimension `axis`; tiled=True: concatenated along it.
    to: the state of the result: 'varying', 'invarying' (it is the same on all), or 'reduced'.
    """
    if to not in ("varying", "invarying", "reduced"):
        fail(ValueError, "Got unexpected `to` value for `jax.lax.all_gather`. Allowed `to` values "
             "are: {'invarying', 'reduced', 'varying'}", code="cast")
    axes = _axes(axis_name)
    n = axis_size_of(axes, "all_gather")
    groups = _groups(axes, axis_index_groups, n)
    size = n if groups is None else len(groups[0])

    def one(leaf: Any) -> Any:
        ndim = typeof(leaf).ndim
        dim = _dim(axis, ndim if tiled else ndim + 1)
        if _vmapped(axes) and len(axes) > 1:
            if not tiled:
                leaf = _with_unit_dim(leaf, dim)
            for a in reversed(axes):
                leaf = all_gather(leaf, a, axis=dim, tiled=True, to=to)
            return leaf
        params = {"axis_name": axes, "axis_size": size, "all_gather_dimension": dim,
                  "tiled": tiled}
        if to == "reduced" and not typeof(leaf).varying and not _vmapped(axes):
            raise ValueError("all_gather_reduced only accepts inputs that are varying. Got "
                             f"{typeof(leaf).str_short(True)}")
        leaf = _varying(leaf, axes)
        if _vmapped(axes):
            return ops.all_gather_p.bind(leaf, axis_index_groups=None, **params)
        if to == "invarying" and STATE.check_vma:
            return ops.all_gather_invariant_p.bind(leaf, **params)
        if to == "reduced" and STATE.check_vma:
            return ops.all_gather_reduced_p.bind(leaf, **params)
        return ops.all_gather_p.bind(leaf, axis_index_groups=groups, **params)

    return tree.map(one, x)


def axis_size_of(axes: Axes, function: str) -> int:
    return math.prod(_bound(axes, function))


def _with_unit_dim(x: Any, dim: int) -> Any:
    shape = typeof(x).shape
    return broadcast_in_dim_p.bind(
        x, shape=(*shape[:dim], 1, *shape[dim:]), sharding=None,
        broadcast_dimensions=tuple(d for d in range(len(shape) + 1) if d != dim))


def psum_scatter(x: Any, axis_name: Any, *, scatter_dimension: int = 0,
                 axis_index_groups: Any = None, tiled: bool = False) -> Any:
    """The sum over the devices along the axes, each keeping one block of `scatter_dimension`.

    tiled=False: the dimension has the size of the group and disappears; tiled=True: it is divided.
    """
    axes = _axes(axis_name)
    n = axis_size_of(axes, "psum_scatter")
    groups = _groups(axes, axis_index_groups, n)
    size = n if groups is None else len(groups[0])

    def one(leaf: Any) -> Any:
        t = typeof(leaf)
        dim = _dim(scatter_dimension, t.ndim)
        if _vmapped(axes) and len(axes) > 1:
            if not tiled and t.shape[dim] != n:
                fail(ValueError, f"reduce_scatter operand scatter dimension size {t.shape[dim]} "
                     f"must match shard count {n}", code="indivisible",
                     label=f"the operand is {t.str_short(True)}")
            for a in axes:
                leaf = psum_scatter(leaf, a, scatter_dimension=dim, tiled=True)
            return leaf if tiled else squeeze_p.bind(leaf, dimensions=(dim,))
        params = {"axis_name": axes, "axis_size": size, "scatter_dimension": dim, "tiled": tiled}
        if (STATE.check_vma and not _vmapped(axes)
                and _common_state(leaf, axes, "psum_scatter") == "unreduced"):
            return ops.unreduced_reduce_scatter_p.bind(leaf, **params)
        return ops.reduce_scatter_p.bind(_varying(leaf, axes), axis_index_groups=groups, **params)

    return tree.map(one, x)


def all_to_all(x: Any, axis_name: Any, split_axis: int, concat_axis: int, *,
               axis_index_groups: Any = None, tiled: bool = False) -> Any:
    """Device j gets block j of `split_axis` from every device, put together along `concat_axis`.

    tiled=False: `split_axis` has the size of the group and disappears, a new dimension of that size
    appears at `concat_axis`; tiled=True: the one is divided, the other multiplied.
    """
    axes = _axes(axis_name)
    n = axis_size_of(axes, "all_to_all")
    _check_single(axes, "all_to_all")
    groups = _groups(axes, axis_index_groups, n)
    size = n if groups is None else len(groups[0])

    def one(leaf: Any) -> Any:
        t = typeof(leaf)
        split, concat = _dim(split_axis, t.ndim), _dim(concat_axis, t.ndim)
        if tiled and t.shape[split] % size:
            named = axis_name if isinstance(axis_name, str) else axes
            fail(ValueError, f"The size of all_to_all split_axis ({t.shape[split]}) has to be "
                 f"divisible by the size of the named axis {named} ({size})", code="indivisible",
                 label=f"the operand is {t}")
        return ops.all_to_all_p.bind(
            _varying(leaf, axes), axis_name=axes, axis_size=size, split_axis=split,
            concat_axis=concat, tiled=tiled, axis_index_groups=groups)

    return tree.map(one, x)


def ppermute(x: Any, axis_name: Any, perm: Sequence[tuple[int, int]]) -> Any:
    """Device d gets the block of device s for every (s, d) in `perm`; the others get zeros."""
    axes = _axes(axis_name)
    axis_size_of(axes, "ppermute")
    _check_single(axes, "ppermute")
    pairs = tuple((int(s), int(d)) for s, d in perm)
    return tree.map(lambda v: ops.ppermute_p.bind(_varying(v, axes), axis_name=axes, perm=pairs),
                    x)


def pshuffle(x: Any, axis_name: Any, perm: Sequence[int]) -> Any:
    """Device i gets the block of device `perm[i]`; `perm` is a permutation of the axis."""
    n = axis_size(axis_name)
    if sorted(perm) != list(range(n)):
        raise ValueError(f"`perm` does not represent a permutation: {perm}")
    return ppermute(x, axis_name, list(zip(perm, range(n), strict=True)))


def pswapaxes(x: Any, axis_name: Any, axis: int, *, axis_index_groups: Any = None) -> Any:
    """Swap the mesh axis with dimension `axis`, which has its size."""
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)


def pbroadcast(x: Any, axis_name: Any, source: int) -> Any:
    """The block of the device at index `source` of the axes, on all of them (`x` is a pytree)."""
    axes = _axes(axis_name)
    axis_size_of(axes, "pbroadcast")

    def one(leaf: Any) -> Any:
        t = typeof(leaf)
        mine = eq_p.bind(axis_index(axes), np.int32(source))
        kept = select_n_p.bind(mine, full_like(leaf, 0), leaf)
        total = psum(kept, axes)
        if total.aval.dtype != t.dtype:            # booleans are counted
            total = convert_element_type_p.bind(total, new_dtype=t.dtype, weak_type=t.weak_type,
                                                sharding=None)
        return _varying(total, tuple(a for a in axes if a in t.varying))

    return tree.map(one, x)


def ragged_all_to_all(operand: Any, output: Any, input_offsets: Any, send_sizes: Any,
                      output_offsets: Any, recv_sizes: Any, *, axis_name: Any,
                      axis_index_groups: Any = None) -> Any:
    """`output`, with slices of the devices' operands written into it.

    Slice i (of K, each device being sent K / n) of a device begins at row `input_offsets[i]` of its
    operand, has `send_sizes[i]` rows, and is written at row `output_offsets[i]` of its receiver,
    device i // (K / n). recv_sizes: the sizes of the slices that this device gets; they follow from
    the others. Raises ValueError where K is not divisible by the number of devices.
    """
    axes = _axes(axis_name)
    n = axis_size_of(axes, "ragged_all_to_all")
    groups = _groups(axes, axis_index_groups, n)
    size = n if groups is None else len(groups[0])
    count, rows = typeof(input_offsets).shape[0], typeof(operand).shape[0]
    for name, x in (("input_offsets", input_offsets), ("send_sizes", send_sizes),
                    ("output_offsets", output_offsets), ("recv_sizes", recv_sizes)):
        t = typeof(x)
        if t.ndim != 1 or t.dtype.kind not in "iu" or t.shape[0] != count:
            raise ValueError("ragged_all_to_all offsets and sizes must be integers of one shape "
                             f"(K,), but {name} is {t.str_short()}")
    if not count or count % size:
        raise ValueError(f"ragged_all_to_all input_offsets size {count} must be divisible by the "
                         f"size of the axis {size}")

    def gathered(x: Any) -> Any:
        return all_gather(x, axes, axis_index_groups=axis_index_groups)

    def told(x: Any) -> Any:
        """What each device tells this one about the slices that it sends: [n * K / n]."""
        x = convert_element_type_p.bind(x, new_dtype=np.dtype(np.int32), weak_type=False,
                                        sharding=None)
        return all_to_all(x, axes, 0, 0, tiled=True, axis_index_groups=axis_index_groups)

    starts, lengths, targets = map(told, (input_offsets, send_sizes, output_offsets))
    shape = typeof(output).shape
    row = broadcasted_iota(np.int32, (shape[0], count), 0)
    source = broadcasted_iota(np.int32, (shape[0], count), 1)
    source = div(source, full_like(source, count // size))
    starts, lengths, targets = (broadcast_in_dim_p.bind(
        x, shape=(shape[0], count), broadcast_dimensions=(1,), sharding=None)
        for x in (starts, lengths, targets))
    within = sub(row, targets)
    hit = bitwise_and(ge(within, full_like(within, 0)), lt(within, lengths))
    place = add_p.bind(mul_p.bind(source, full_like(source, rows)), add_p.bind(starts, within))
    place = reduce_max(select_n_p.bind(hit, full_like(place, 0), place), (1,))
    written = reduce_or(hit, (1,))
    everything = gathered(operand)
    everything = reshape(everything, (size * rows, *typeof(operand).shape[1:]))
    found = index_take(everything, (place,), (0,))
    found = reshape(found, shape)
    written = broadcast_in_dim_p.bind(written, shape=shape, broadcast_dimensions=(0,),
                                      sharding=None)
    return select_n_p.bind(written, _varying(output, axes), found)
