"""Rewrites where a device takes its own block of what was gathered, transposed, scanned or summed.

Such pairs stand where an equation needed a whole value and its reader only a block of it. The block
is taken first, so that less is moved and computed:

    s = psum_invariant x {axes=(a,)}              ->    o = reduce_scatter x {axis_name=(a,)}
    o = all_slice s {axes=(a,), dimension=0}
"""
from __future__ import annotations

from typing import Any

import numpy as np

from ...ir.meshes.mesh_axes import group_size
from ...ir.op import OPS
from ...ir.ops.communication.collective import SCATTERS, all_slice_p, axis_index_p, pvary_p
from ...ir.ops.emitting import INT32
from ...ir.ops.identities import identity
from ...ir.ops.movement.shape import transpose_p
from ...ir.program import Atom, Literal
from ...ir.rewriting.rewrite import Match, Rewrite, Rewrites
from ...ir.shardings.normalized import unsharded
from ...ir.types import array_type
from ..reasons import merged_reasons


def _block(m: Match) -> Atom:
    """The operand of an all-gather whose own block is taken again; made varying if the block is
    declared to vary.
    """
    missing = m.eqn.outvars[0].aval.varying - m.x.aval.varying
    if not missing:
        return m.x
    return m.emit(pvary_p, m.x, like=m.maker(m.gathered), axes=tuple(sorted(missing)))


FOLD_GATHERS = Rewrites(Rewrite(
    "own-block-of-gathered", """
    gathered = all_gather_invariant x {axis_name=axes, all_gather_dimension=dimension, tiled=True}
    out = all_slice gathered {axes, dimension}
    """, _block, why="a device has the block that it would take of what all have gathered"))


def _block_of_transposed(m: Match) -> Atom:
    x = m.emit(all_slice_p, m.x, like=m.eqn, axes=m.axes, axis_size=m.eqn.params["axis_size"],
               dimension=m.permutation[m.dimension])
    return m.emit(transpose_p, x, permutation=m.permutation)


def _is_sum_of_one(m: Match) -> bool:
    """Does the sum go only over dimensions of size 1 that were added for it?"""
    other_dims = [d for d in range(m.wide.aval.ndim) if d not in m.summed]
    return other_dims == [*m.dims] and m.x.aval.shape == m.eqn.outvars[0].aval.shape and all(
        [m.wide.aval.shape[d] == 1 for d in m.summed])


WINDOWS = {"cumsum": "sum", "cummax": "max", "cummin": "min"}       # scans, as windows


def _windows_are_less(m: Match) -> bool:
    """Do the own rows of a scan, each a window of all rows before it, take fewer operations than
    the scan of all rows?
    """
    scan = m.maker(m.scanned)
    assert scan is not None and scan.op.cost.flops is not None
    rows = m.scanned.aval.shape[m.axis]
    return m.dimension == m.axis and m.eqn.outvars[0].aval.size * (rows - 1) < (
        scan.op.cost.flops(*scan.types, scan.params))


def _windows_of_own_rows(m: Match) -> Atom:
    """The own rows of a scan: as many windows of all rows, padded with what changes no result."""
    shape, dtype, axis = m.x.aval.shape, m.x.aval.dtype, m.axis
    rows, own = shape[axis], m.eqn.outvars[0].aval.shape[axis]
    scan = m.maker(m.scanned)
    assert scan is not None
    kind = WINDOWS[scan.op.name]

    def along(value: Any, other: Any) -> tuple[Any, ...]:
        return tuple([value if d == axis else other for d in range(len(shape))])

    def number(value: Any, dtype: Any) -> Literal:
        return Literal(np.asarray(value, dtype)[()], array_type((), np.dtype(dtype), False,
                                                                unsharded(0, m.mesh)))

    def emit(name: str, *operands: Atom, **params: Any) -> Atom:
        return m.emit(OPS[name], *operands, like=scan, **params)

    sides = (0, rows - 1, 0) if m.reverse else (rows - 1, 0, 0)
    padded = emit("pad", m.x, number(identity(kind, dtype), dtype),
                  padding_config=along(sides, (0, 0, 0)))
    device = m.emit(axis_index_p, like=scan, axis_name=m.axes, varying=True)
    first = emit("mul", device, number(own, INT32))
    read = emit("dynamic_slice", padded, *along(first, number(0, INT32)),
                slice_sizes=tuple([rows - 1 + own if d == axis else n
                                   for d, n in enumerate(shape)]))
    ones = along(1, 1)
    return emit(f"reduce_window_{kind}", read, window_dimensions=along(rows, 1),
                window_strides=ones, padding=along((0, 0), (0, 0)), base_dilation=ones,
                window_dilation=ones)


CUT_FIRST = Rewrites(
    Rewrite("own-rows-of-scan", f"""
        scanned = {"|".join(WINDOWS)} x {{axis, reverse}}
        out = all_slice scanned {{axes, dimension}}
        """, _windows_of_own_rows, where=_windows_are_less, single_use=("scanned",),
            why="few rows take less by themselves than all rows do"),
    Rewrite("sum-of-one", """
        wide = broadcast_in_dim x {broadcast_dimensions=dims}
        out = reduce_sum wide {axes=summed}
        """, lambda m: m.x, where=_is_sum_of_one, why="there is nothing to add"),
    Rewrite("own-block-of-transposed", """
        transposed = transpose x {permutation}
        out = all_slice transposed {axes, dimension}
        """, _block_of_transposed, single_use=("transposed",),
            why="a block is transposed instead of the whole"))


def _scattered(m: Match) -> Atom:
    """A reduce-scatter over the axes of the block, then the sum over the remaining axes."""
    total, x = m.maker(m.total), m.x
    assert total is not None
    missing = tuple([a for a in m.axes if a not in x.aval.varying])
    if missing:
        x = m.emit(pvary_p, x, like=total, axes=missing)
    out = m.emit(SCATTERS[total.op], x, like=total,
                 reason=merged_reasons((total.reason, m.eqn.reason)), axis_name=m.axes,
                 axis_size=group_size(m.mesh, m.axes), scatter_dimension=m.dimension, tiled=True)
    rest = tuple([a for a in m.summed if a not in m.axes])
    return m.emit(total.op, out, like=total, axes=rest) if rest else out


def _scatter_of_transposed(m: Match) -> Atom:
    out = m.emit(m.eqn.op, m.x, like=m.eqn, **{
        **m.eqn.params, "scatter_dimension": m.permutation[m.dimension]})
    return m.emit(transpose_p, out, like=m.maker(m.transposed), permutation=m.permutation)


FORM_SCATTERS = Rewrites(
    Rewrite("own-block-of-sum", f"""
        total = {"|".join([op.name for op in SCATTERS])} x {{axes=summed}}
        out = all_slice total {{axes, dimension}}
        """, _scattered, single_use=("total",), where=lambda m: {*m.axes} <= {*m.summed},
            why="a reduce-scatter moves half of what an all-reduce does"),
    Rewrite("own-sum-of-transposed", """
        transposed = transpose x {permutation}
        out = reduce_scatter transposed {scatter_dimension=dimension, tiled=True}
        """, _scatter_of_transposed, single_use=("transposed",),
            why="a block is transposed instead of the whole"))
