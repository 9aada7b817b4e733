"""From a plan to equations: the collectives that do a change of layout, on blocks.

Each move of a plan (redistribute.py) is one op of ir/ops/communication/collective.py; turning a
whole value into a partial sum takes a few equations. All of them keep the location and the reason
of the reshard they implement.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ...ir.meshes.mesh import AbstractMesh
from ...ir.meshes.mesh_axes import group_size
from ...ir.op import Op
from ...ir.ops.communication.collective import (
    all_gather_invariant_p,
    all_slice_p,
    all_to_all_p,
    psum_invariant_p,
    pvary_p,
    reduce_scatter_p,
)
from ...ir.ops.communication.retile import retile_p
from ...ir.ops.elementwise.comparison import eq_p
from ...ir.ops.elementwise.convert import convert_element_type_p
from ...ir.ops.elementwise.select import select_n_p
from ...ir.ops.movement.dynamic_update_slicing import dynamic_update_slice_p
from ...ir.ops.movement.reshape import reshape_p
from ...ir.ops.movement.shape import broadcast_in_dim_p
from ...ir.program import Atom, Literal
from ...ir.types import array_type
from .effects import Move


class Emitter(Protocol):
    """Appends equations to the per-device program."""
    mesh: AbstractMesh

    def emit(self, op: Op, operands: Sequence[Atom], params: dict[str, Any]) -> list[Atom]: ...

    def block_offset(self, axes: tuple[str, ...], block_size: int) -> Atom: ...


def emit_moves(out: Emitter, x: Atom, moves: Sequence[Move]) -> Atom:
    """The block of a value after these moves."""
    for move in moves:
        x = _MOVES[move.kind](out, x, move)
    return x


def varying(out: Emitter, x: Atom, axes: Sequence[str]) -> Atom:
    """`x` made to vary over `axes`, for ops that give each member another part."""
    missing = tuple(a for a in axes if a not in x.aval.varying)
    return out.emit(pvary_p, [x], {"axes": missing})[0] if missing else x


def _slice(out: Emitter, x: Atom, move: Move) -> Atom:
    return out.emit(all_slice_p, [x], {
        "axes": move.axes, "dimension": move.dim, "axis_size": group_size(out.mesh, move.axes)})[0]


def _gather(out: Emitter, x: Atom, move: Move) -> Atom:
    return out.emit(all_gather_invariant_p, [x], {
        "axis_name": move.axes, "axis_size": group_size(out.mesh, move.axes),
        "all_gather_dimension": move.dim, "tiled": True})[0]


def _all_to_all(out: Emitter, x: Atom, move: Move) -> Atom:
    return out.emit(all_to_all_p, [varying(out, x, move.axes)], {
        "axis_name": move.axes, "axis_size": group_size(out.mesh, move.axes),
        "split_axis": move.to_dim, "concat_axis": move.dim, "tiled": True})[0]


def _retile(out: Emitter, x: Atom, move: Move) -> Atom:
    sizes = tuple(map(out.mesh.axis_size, move.axes))
    return out.emit(retile_p, [x], {
        "axes": move.axes, "axis_sizes": sizes, "source": move.source, "target": move.target})[0]


def _view(out: Emitter, x: Atom, move: Move) -> Atom:
    return out.emit(reshape_p, [x], {
        "new_sizes": move.shape, "dimensions": None, "sharding": None})[0]


def _scatter(out: Emitter, x: Atom, move: Move) -> Atom:
    return out.emit(reduce_scatter_p, [varying(out, x, move.axes)], {
        "axis_name": move.axes, "axis_size": group_size(out.mesh, move.axes),
        "scatter_dimension": move.dim, "tiled": True})[0]


def _psum(out: Emitter, x: Atom, move: Move) -> Atom:
    return out.emit(psum_invariant_p, [x], {"axes": move.axes})[0]


def _place(out: Emitter, x: Atom, move: Move) -> Atom:
    """A whole value as a partial sum: one device keeps it, or each its own block; zeros elsewhere.
    """
    aval = x.aval
    zero = Literal(np.zeros((), aval.dtype)[()], array_type((), aval.dtype, aval.weak_type))
    if move.dim < 0:
        first = Literal(np.int32(0), array_type((), np.dtype(np.int32)))
        here = out.emit(eq_p, [out.block_offset(move.axes, 1), first], {})[0]
        zeros = _full(out, zero, aval.shape)
        return out.emit(select_n_p, [here, zeros, x], {})[0]
    shape = list(aval.shape)
    offset = out.block_offset(move.axes, shape[move.dim])
    shape[move.dim] *= group_size(out.mesh, move.axes)
    start = Literal(np.int32(0), array_type((), np.dtype(np.int32)))
    starts = [offset if d == move.dim else start for d in range(len(shape))]
    zeros = _full(out, zero, tuple(shape))
    placed = out.emit(dynamic_update_slice_p, [zeros, x, *starts], {})[0]
    if not aval.weak_type:
        return placed
    return out.emit(convert_element_type_p, [placed], {     # places are not weak
        "new_dtype": aval.dtype, "weak_type": True, "sharding": None})[0]


def _full(out: Emitter, value: Literal, shape: tuple[int, ...]) -> Atom:
    if not shape:
        return value
    return out.emit(broadcast_in_dim_p, [value], {
        "shape": shape, "broadcast_dimensions": (), "sharding": None})[0]


_MOVES = {
    "all_slice": _slice, "all_gather": _gather, "all_to_all": _all_to_all, "retile": _retile,
    "view": _view, "reduce_scatter": _scatter, "psum": _psum, "place": _place,
}
