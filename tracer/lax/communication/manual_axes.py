"""The mesh axes of a collective, and the state of its operand over each of them.

An axis name is bound where the context mesh has it as a Manual axis, or by a `vmap` with that
`axis_name`. With varying axes tracked (check_vma, the default) a value is varying, invarying,
unreduced or reduced over each; vmapped axes have no state. Source: JAX's notebook on shard_map.
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....ir.diagnostics.diagnostic import fail
from ....ir.meshes.manual_state import ManualState, set_text
from ....ir.meshes.mesh import AbstractMesh
from ....ir.ops.communication import collective as ops
from ....ir.ops.elementwise.arithmetic import add_p, mul_p
from ....ir.settings.context import STATE
from ....ir.support.caches import cached
from ....ir.values.typeof import typeof
from ... import sharding_notes
from ...trees import tree

Axes = tuple[str, ...]


# -- axes ------------------------------------------------------------------------------------------

def axes_of(name: Any) -> Axes:
    if type(name) is str:
        return (name,)
    if isinstance(name, (tuple, list)):
        return tuple(name)
    if isinstance(name, (set, frozenset)):
        raise TypeError(f"axis_name={name} must be a tuple or a str. Got {name}")
    return (name,)


def bound_sizes(axes: Axes, function: str, plain: bool = False) -> tuple[int, ...]:
    """The sizes of the axes; raises NameError for an axis that is not bound."""
    mesh, named = STATE.abstract_mesh, STATE.named_axes
    if not named:
        known = _manual_sizes(mesh, axes)
        if known is not None:
            return known
    vmapped, manual = dict(named), mesh.manual_axes
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
            fail(NameError, message, code="unbound-axis", notes=(known,), help="" if not plain else
                 f"call {function} in a function under `jax.shard_map` over a mesh with axis {a}, "
                 "or under `jax.vmap` with it as axis_name")
        sizes.append(mesh.axis_size(a))
    return tuple(sizes)


@cached(1024)
def _manual_sizes(mesh: AbstractMesh, axes: Axes) -> tuple[int, ...] | None:
    """The sizes of Manual axes of a mesh; None if one of them is none."""
    manual, sizes = mesh.manual_axes, mesh.shape
    return tuple([sizes[a] for a in axes]) if set(axes).issubset(manual) else None


def vmapped_axes(axes: Axes) -> Axes:
    """The axes among these that a vmap binds."""
    named = STATE.named_axes
    if not named:
        return ()
    names = dict(named)
    return tuple([a for a in axes if a in names])


def other_axes(axes: Axes) -> Axes:
    named = STATE.named_axes
    if not named:
        return axes
    names = dict(named)
    return tuple([a for a in axes if a not in names])


def check_single(axes: Axes, function: str) -> None:
    if len(axes) > 1 and vmapped_axes(axes):
        fail(NotImplementedError, f"{function} over several axes of which one is vmapped: {axes}",
             code="several-axes", help="map over one axis with their product for size, or call "
             f"{function} for one axis at a time")


@sharding_notes.collective
def axis_size(axis_name: Any) -> int:
    """The number of devices along an axis, or along several together, as a Python int.

    >>> mesh = st.make_mesh((8,), ("x",))
    >>> f = lambda v: v / st.lax.axis_size("x")
    >>> st.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(jnp.ones(8))[0]
    Array(0.125, dtype=float32)
    """
    return math.prod(bound_sizes(axes_of(axis_name), "axis_size", plain=True))


@sharding_notes.collective
def axis_index(axis_name: Any) -> Any:
    """The position of the device along an axis, an int32 from 0; it varies over the axis.

    Of a tuple of axes: the position in row-major order. Raises NameError for an unbound axis.

    >>> mesh = st.make_mesh((8,), ("x",))
    >>> f = lambda v: v + st.lax.axis_index("x")
    >>> st.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(jnp.zeros(8, jnp.int32))
    Array([0, 1, 2, 3, 4, 5, 6, 7], dtype=int32)
    """
    axes = axes_of(axis_name)
    sizes = bound_sizes(axes, "axis_index")
    if not vmapped_axes(axes):
        return ops.axis_index_p.bind(axis_name=axes, varying=STATE.check_vma)
    position: Any = None
    for a, n in zip(axes, sizes, strict=True):
        varying = STATE.check_vma and not vmapped_axes((a,))
        own = ops.axis_index_p.bind(axis_name=(a,), varying=varying)
        position = own if position is None else add_p.bind(mul_p.bind(position, np.int32(n)), own)
    return position


def axis_size_of(axes: Axes, function: str) -> int:
    sizes = bound_sizes(axes, function)
    return sizes[0] if len(sizes) == 1 else math.prod(sizes)


def groups_of(axes: Axes, groups: Any, size: int, typed: bool = True
            ) -> tuple[tuple[int, ...], ...] | None:
    """The parts of a group as tuples. typed: whether the types tell what such parts give."""
    if groups is None:
        return None
    if vmapped_axes(axes):
        fail(NotImplementedError, "axis_index_groups not supported in vmap collectives. Please "
             "open a feature request!", code="axis-index-groups",
             help="`reshape` the mapped dimension into groups and vmap over both")
    out = tuple(tuple(int(i) for i in g) for g in groups)
    if sorted(i for g in out for i in g) != list(range(size)):
        raise ValueError("axis_index_groups must cover all indices exactly once")
    if STATE.check_vma and not typed:
        fail(NotImplementedError, "axis_index_groups needs `shard_map(..., check_vma=False)`: "
             "what varies within a part of an axis has no type", code="axis-index-groups")
    return out


def group_of(axis_name: Any, groups: Any, function: str
             ) -> tuple[Axes, int, tuple[tuple[int, ...], ...] | None, int]:
    """(axes, their size, the parts that exchange among themselves, the size of these)."""
    axes = axes_of(axis_name)
    n = axis_size_of(axes, function)
    parts = groups_of(axes, groups, n)
    return axes, n, parts, n if parts is None else len(parts[0])


# -- states ----------------------------------------------------------------------------------------

@cached(1024, "what values vary over after a collective")
def _states(m: ManualState, axes: Axes) -> frozenset[str]:
    return frozenset(["varying" if a in m.varying else "unreduced" if a in m.unreduced
                      else "reduced" if a in m.reduced else "invarying" for a in axes])


def common_state(x: Any, axes: Axes, function: str) -> str:
    """The state of a value over all of these axes; refused if they differ in it."""
    t = typeof(x)
    if axes and t.manual.varying.issuperset(axes):
        return "varying"
    states = _states(t.manual, axes)
    if len(states) > 1:
        fail(ValueError, f"jax.lax.{function} can only accept axis_name which corresponds to one "
             "of varying, unreduced, reduced or invarying state of the input. Got input type: "
             f"{t}, axes: {axes} and input state: {set_text(states)}", code="mixed-states",
             help=f"bring all axes to one state, with `lax.pcast`, or call "
                  f"{function} once for each state")
    for state in states:
        return state
    return "invarying"


def as_varying(x: Any, axes: Axes) -> Any:
    """`x`, regarded as varying over all of `axes` (but for the vmapped ones)."""
    if not STATE.check_vma:
        return x
    have = typeof(x).manual.varying
    if have.issuperset(axes):
        return x
    missing = tuple([a for a in other_axes(axes) if a not in have])
    return ops.pvary_p.bind(x, axes=missing) if missing else x


@sharding_notes.collective
def pcast(x: Any, axis_name: Any, *, to: str) -> Any:
    """`x` with another statement about the axes in its type; no data moves.

    to: "varying" makes a value that is the same on all devices count as one that differs, as the
    carry of a loop must where its update varies; "unreduced" makes it a partial sum, "reduced"
    the counterpart whose gradient is one. Raises ValueError for a change that would need
    communication, such as from varying to not varying.

    >>> def f(v):
    ...     start = st.lax.pcast(jnp.zeros(2), "x", to="varying")
    ...     return st.lax.fori_loop(0, 3, lambda i, total: total + v, start)
    >>> mesh = st.make_mesh((4,), ("x",))
    >>> st.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(jnp.arange(8.0))
    Array([ 0.,  3.,  6.,  9., 12., 15., 18., 21.], dtype=float32)
    """
    if to not in ("varying", "unreduced", "reduced"):
        fail(ValueError, "Got unexpected `to` value. Allowed `to` values are: "
             "{'reduced', 'unreduced', 'varying'}", code="cast", help="a cast moves "
             "no data: `psum`, or `all_gather` with `to` invarying, make a value equal on all "
             "devices")
    axes = other_axes(axes_of(axis_name))
    if not axes and axis_name:
        return x
    if not STATE.check_vma:          # nothing varies in the types: only casts from there pass
        bound_sizes(axes, "pcast")
        if to == "unreduced":
            fail(ValueError, f"Unsupported pcast from=invarying, to={to!r}", code="cast",
                 help="in a `shard_map` without `check_vma` sums cannot wait: use `psum`")
        return x
    manual = set(STATE.abstract_mesh.manual_axes)
    if not manual.issuperset(axes):
        if manual:
            bound_sizes(axes, "pcast")              # raises for what no axis here is called
        fail(ValueError, "pvary should be called under jax.shard_map.", code="unbound-axis",
             help="call it in a function that `jax.shard_map` runs; elsewhere values vary over "
                  "no axis")

    def one(leaf: Any) -> Any:
        have = common_state(leaf, axes, "pcast")
        op = {("invarying", "varying"): ops.pvary_p, ("invarying", "reduced"): ops.preduced_p,
              ("varying", "unreduced"): ops.vary_unreduced_cast_p,
              ("reduced", "varying"): ops.reduced_vary_cast_p}.get((have, to))
        if op is None:
            fail(ValueError, f"Unsupported pcast from={have}, to={to!r}", code="cast",
                 label=f"the value is {typeof(leaf)}",
                 notes=("casts go from invarying to varying or reduced, from reduced to varying, "
                        "and from varying to unreduced",),
                 help="to sum over devices what is varying or unreduced, use `psum`")
        return op.bind(leaf, axes=axes)

    return tree.map(one, x)
