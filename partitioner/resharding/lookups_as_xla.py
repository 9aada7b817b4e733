"""Lookups in arrays whose rows are split, as XLA writes them where the mask moves by itself.

Each device looks all indices up among its own rows, and masks what it has not got; the sum over the
devices has everything. What is found, and the mask, which has the layout of the indices, are first
brought to the layout in which the sum is taken. With a dimension for the devices,

    out = gather x indices

of x in k blocks of m rows is

    blocks = reshape x                              [k, m, ...]
    local  = indices - m * iota                     [k, ...]
    found  = select (local in 0 .. m - 1) 0 (gather blocks local)
    out    = reduce_sum found {axes=(0,)}
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.meshes.manual_state import NOT_MANUAL
from ...ir.op import Op
from ...ir.ops.elementwise.arithmetic import mul_p, sub_p
from ...ir.ops.elementwise.bitwise import and_p
from ...ir.ops.elementwise.comparison import ge_p, le_p
from ...ir.ops.elementwise.select import clamp_p, select_n_p
from ...ir.ops.emitting import literal
from ...ir.ops.gather_numbers import GatherDimensionNumbers, GatherScatterMode
from ...ir.ops.indexing.gather import gather_p
from ...ir.ops.movement.creation import iota_p
from ...ir.ops.movement.reshape import reshape_p
from ...ir.ops.movement.shape import broadcast_in_dim_p
from ...ir.ops.reductions.reduction import reduce_and_p, reduce_sum_p
from ...ir.program import Atom, Equation, Program, Var
from ...ir.rewriting.inside import inside
from ...ir.types import Entries, Shape, array_type
from ..choice.xla.lookups import LookupGroups
from ..factors import RuleInfo, rule_info
from ..propagation.resolved_types import brought, typed
from ..redistribution.effects import tile_count


def mask_lookups_apart(program: Program) -> Program:
    """The RESOLVED program with such lookups written as above."""
    program = inside(program, mask_lookups_apart)
    eqns: list[Equation] = []
    for eqn in program.eqns:
        layouts = _layouts(eqn) if eqn.op is gather_p else None
        eqns += [eqn] if layouts is None else _Lookup(eqn).masked(*layouts)
    return program.replace(eqns=eqns) if len(eqns) > len(program.eqns) else program


def _layouts(eqn: Equation) -> tuple[Entries, Entries] | None:
    """The layouts of the indices and of what is found, inside of the groups of devices that have
    the same rows; None if the mask does not move, or if it is no lookup of single rows.
    """
    (x, indices), (out,) = [[v.aval for v in values] for values in (eqn.invars, eqn.outvars)]
    n = eqn.params["dimension_numbers"]
    if (len(n.start_index_map) != 1 or n.start_index_map != n.collapsed_slice_dims
            or not x.entries[n.start_index_map[0]] or indices.dtype not in (np.int32, np.int64)
            or x.dtype.kind not in "iuf" or any([t.manual is not NOT_MANUAL
                                                 or t.sharding.spec.unreduced
                                                 for t in (x, indices, out)])):
        return None
    info = rule_info(eqn.instance.rule(*eqn.types))
    groups = LookupGroups(info, out.mesh)
    groups.run([{f: t.entries[d] for f, d, _ in place if t.entries[d]}
                for t, place in zip((x, indices, out), info.places, strict=True)])
    if groups.masked is None:
        return None
    given, found = groups.masked
    if all([given[f] == found[f] for f in groups.free[1]]):
        return None
    return _entries(groups.merged(given), info, 1), _entries(groups.merged(found), info, 2)


def _entries(tensor: dict[int, Any], info: RuleInfo, t: int) -> Entries:
    """The layout of operand or result t, from the axes of its factors."""
    return tuple([tensor.get(f, ()) for f, _, _ in sorted(info.places[t], key=lambda p: p[1])])


class _Lookup:
    """Writes one lookup in parts. d: the dimension that is looked up; count, rows: its blocks, and
    the rows of one; axes: those of its blocks.
    """

    def __init__(self, eqn: Equation) -> None:
        self.eqn, self.out = eqn, eqn.outvars[0]
        self.eqns: list[Equation] = []
        self.mesh, shape = self.out.aval.mesh, eqn.invars[0].aval.shape
        (self.d,) = eqn.params["dimension_numbers"].start_index_map
        self.axes = eqn.invars[0].aval.entries[self.d]
        self.count = tile_count(self.mesh, self.axes)
        self.rows = shape[self.d] // self.count

    def emit(self, op: Op, operands: Sequence[Atom], entries: Entries, **params: Any) -> Var:
        """The result of an equation, in this layout."""
        shape, dtype = op.infer(*[a.aval for a in operands], **params)[:2]
        out = Var(typed(array_type(shape, dtype), self.mesh, entries))
        self.eqns.append(Equation(op, tuple(operands), (out,), params, self.eqn.location))
        return out

    def moved(self, x: Atom, entries: Entries) -> Atom:
        """The value in another layout."""
        return brought(x, typed(x.aval, self.mesh, entries), self.eqn.location, (), self.eqns)

    def repeated(self, x: Atom, shape: Shape, dims: Sequence[int], entries: Entries) -> Var:
        """The value with its dimensions at `dims` of a larger shape."""
        return self.emit(broadcast_in_dim_p, [x], entries, shape=shape,
                         broadcast_dimensions=tuple(dims), sharding=None)

    def masked(self, given: Entries, found: Entries) -> list[Equation]:
        """The equations. given, found: the layouts of the indices, and of what is found."""
        n, out = self.eqn.params["dimension_numbers"], self.out.aval
        local = self.local(self.moved(self.eqn.invars[1], given))
        entries, last = local.aval.entries, local.aval.ndim - 1
        within = [self.emit(op, [local, literal(bound, local.aval.dtype)], entries)
                  for op, bound in ((ge_p, 0), (le_p, self.rows - 1))]
        mask: Atom = self.emit(reduce_and_p, [self.emit(and_p, within, entries)], entries[:-1],
                               axes=(last,))
        shape, entries = (self.count, *out.shape), (self.axes, *found)
        others = [0, *[k + 1 for k in range(out.ndim) if k not in n.offset_dims]]
        mask = self.moved(mask, tuple([entries[k] for k in others]))
        rows = self.looked_up(local, entries)
        zero = self.repeated(literal(0, rows.aval.dtype), shape, (), entries)
        rows = self.emit(select_n_p, [self.repeated(mask, shape, others, entries), zero, rows],
                         entries)
        self.moved(self.emit(reduce_sum_p, [rows], found, axes=(0,)), out.entries)
        return [*self.eqns[:-1], self.eqns[-1].replace(outvars=(self.out,))]

    def local(self, indices: Atom) -> Var:
        """The indices, moved inside, relative to the first row of each block."""
        shape = (self.count, *indices.aval.shape)
        entries = (self.axes, *indices.aval.entries)
        dtype = indices.aval.dtype
        low, high = literal(0, dtype), literal(self.count * self.rows - 1, dtype)
        inner = self.emit(clamp_p, [low, indices, high], entries[1:])
        block = self.emit(iota_p, [], entries, dtype=dtype, shape=shape, dimension=0,
                          sharding=None)
        first = self.emit(mul_p, [block, literal(self.rows, dtype)], entries)
        return self.emit(sub_p, [self.repeated(inner, shape, range(1, len(shape)), entries), first],
                         entries)

    def looked_up(self, local: Atom, entries: Entries) -> Var:
        """What each block has at the indices, moved inside."""
        n, d, x = self.eqn.params["dimension_numbers"], self.d, self.eqn.invars[0]
        shape, own = x.aval.shape, x.aval.entries
        blocks = self.emit(
            reshape_p, [x], (*own[:d], self.axes, (), *own[d + 1:]), dimensions=None, sharding=None,
            new_sizes=(*shape[:d], self.count, self.rows, *shape[d + 1:]))
        pairs = sorted([(d, 0), *[(k + (k > d), j + 1) for k, j in zip(
            n.operand_batching_dims, n.start_indices_batching_dims, strict=True)]])
        numbers = GatherDimensionNumbers(
            tuple([k + 1 for k in n.offset_dims]), (d + 1,), (d + 1,),
            tuple([k for k, _ in pairs]), tuple([j for _, j in pairs]))
        sizes = self.eqn.params["slice_sizes"]
        return self.emit(gather_p, [blocks, local], entries, **{
            **self.eqn.params, "dimension_numbers": numbers, "fill_value": None,
            "slice_sizes": (*sizes[:d], 1, *sizes[d:]), "mode": GatherScatterMode.CLIP})
