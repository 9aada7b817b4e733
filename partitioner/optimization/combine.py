"""Combines small, independent exchanges of one kind.

The number of bytes stays the same; the saving is the start-up time of an exchange. The parts are
concatenated, exchanged as one vector and sliced apart again, so that each remains visible in the
program; the exchange lists the lines and reasons of all. Large parts are not combined, because
copying them takes longer than starting an exchange. An exchange that only moves elements moves
bits, so parts with different dtypes of one width travel as integers of that width. (This is a pass
rather than a rewrite because independence is a property of the whole program.)
"""
from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from ...ir.dtypes import itemsize_bits
from ...ir.inference.infer import infer
from ...ir.inference.levels import together
from ...ir.op import Op, params_key
from ...ir.ops.communication.collective import (
    SCATTERS,
    all_gather_invariant_p,
    pmax_p,
    pmin_p,
    ppermute_p,
    pprod_p,
    psum_invariant_p,
    pvary_p,
)
from ...ir.ops.communication.sharding import assume_invarying_p
from ...ir.ops.elementwise.convert import bitcast_convert_type_p, has_no_bits
from ...ir.ops.movement.joining import concatenate_p
from ...ir.ops.movement.reshape import reshape_p
from ...ir.ops.movement.shape import transpose_p
from ...ir.ops.movement.slicing import slice_p
from ...ir.program import Atom, Equation, Program, Var
from ..cost.prices import Prices
from ..reasons import merged_reasons
from .parted_sums import with_parted_sums

# ops that split a block among all devices, and the reverse, with their dimension param
_SCATTERED = dict.fromkeys(SCATTERS.values(), "scatter_dimension")
_GATHERED = {all_gather_invariant_p: "all_gather_dimension"}
_MOVING = frozenset((ppermute_p, *_GATHERED))      # without arithmetic
_COMBINED = frozenset((psum_invariant_p, pmax_p, pmin_p, pprod_p, *_SCATTERED, *_MOVING))
COMBINED = frozenset([op.name for op in _COMBINED])
"""Ops of which several become one."""

_MOST = 64
TRANSPOSED = 64 * 1024
"""Bytes up to which a part is joined that has to be transposed for that."""
WINDOW = 200
"""Equations over which exchanges are combined: what reads the first waits for the last."""


def combine(program: Program, prices: Prices, every: bool = False, parted: bool = False
            ) -> Program:
    """A LOCAL program (without nested ones) with small independent exchanges joined.

    every: however far apart they are, and over whatever else their operands vary. parted: let sums
    over several axes take two steps if that allows more joining.
    """
    if _COMBINED.isdisjoint(program.ops):
        return program
    joint = _priced_groups(program, prices, every)
    if parted:
        program, joint = with_parted_sums(program, prices, joint,
                                          lambda p: _priced_groups(p, prices, every))
    _, groups = joint
    return _Combining(program, groups).run() if groups else program


def _priced_groups(program: Program, prices: Prices, every: bool
                   ) -> tuple[dict[Equation, tuple], dict[Equation, _Group]]:
    """(what each small exchange must have in common with others, the group of each that has
    company).
    """
    keys = {eqn: key for eqn in program.eqns
            if eqn.op in _COMBINED and (key := _key(eqn, prices, every)) is not None}
    return keys, _groups(program, keys, every)


def _key(eqn: Equation, prices: Prices, every: bool) -> tuple | None:
    """What exchanges must have in common to be joined; None for one that is too large to be copied.
    """
    op, params = eqn.op, eqn.params
    stacked = op in _GATHERED and not params[_GATHERED[op]]     # along a new dimension
    if not isinstance(eqn.invars[0], Var) or not (stacked or params.get("tiled", True)):
        return None
    aval, result = eqn.invars[0].aval, eqn.outvars[0].aval
    if not isinstance(aval.dtype, np.dtype) or aval.manual.unreduced or aval.manual.reduced:
        return None
    assert op.collective is not None
    size = math.prod(aval.shape) * aval.dtype.itemsize
    dimension = _SCATTERED.get(op) or _GATHERED.get(op)
    most = prices.worth_joining(op.collective.kind, op.collective.axes(params))
    if dimension and math.prod(aval.shape[:params[dimension]]) > 1:
        most = min(most / 2, TRANSPOSED)                # a transpose is one more read and write
    if not 0 < size <= most:
        return None
    common = {k: v for k, v in params.items() if k not in (dimension, "tiled")}
    varying = () if every or op is psum_invariant_p else (aval.varying, result.varying)
    dtype, weak = aval.dtype, aval.weak_type
    if op in _MOVING and not (every or weak or has_no_bits(dtype) or itemsize_bits(dtype) < 8):
        dtype = _bits(dtype)
    return op, params_key(common), dtype, weak, *varying, aval.memory_space


def _bits(dtype: np.dtype) -> np.dtype:
    """The unsigned integer dtype of the same width."""
    return np.dtype(f"u{dtype.itemsize}")


def _groups(program: Program, keys: Mapping[Equation, tuple], every: bool
            ) -> dict[Equation, _Group]:
    """The group of each exchange that has company.

    Members of a group are equally many small exchanges away from the results, so that none waits
    for another; those that no other exchange waits for come last, together. Those that wait for no
    exchange themselves, such as gathers of parameters, may join an earlier group. Members are not
    far apart, and no effect on the host lies between them.
    """
    if len({*keys.values()}) == len(keys):
        return {}
    if every:
        return _groups_in_order(program, keys)
    height: dict[Atom, int] = {}
    open_: dict[tuple, _Group] = {}
    made: dict[tuple, list[_Group]] = {}            # by key, the last group first
    found: dict[Equation, _Group] = {}
    seen = {op for op in program.ops if op.effect or op.subprograms}
    waiting = _waiting(program, keys)
    region = 0
    for k, eqn in enumerate(reversed(program.eqns)):
        if eqn.op in seen and eqn.effects:
            open_.clear()
            region += 1
        level = 0
        for v in eqn.outvars:
            if v in height and height[v] > level:
                level = height[v]
        key = keys.get(eqn)
        if key is not None:
            group = open_.get((key, level))
            if group is None or k - group.first > WINDOW or group.size == _MOST:
                group = open_[key, level] = _Group(k, level)
                made.setdefault((key, region), []).append(group)
            group.size += 1
            group.waits = group.waits or eqn.invars[0] in waiting
            found[eqn] = group
            level += 1
        if level:
            for a in eqn.invars:
                if height.get(a, 0) < level:
                    height[a] = level
    merged_into = _with_earlier_ones(made.values())
    found = {eqn: merged_into.get(group, group) for eqn, group in found.items()}
    return {eqn: group for eqn, group in found.items() if group.size > 1}


def _waiting(program: Program, keys: Mapping[Equation, tuple]) -> set[Atom]:
    """The values that depend on one of these exchanges."""
    found: set[Atom] = set()
    for eqn in program.eqns:
        if eqn in keys or (found and not found.isdisjoint(eqn.invars)):
            found.update(eqn.outvars)
    return found


def _with_earlier_ones(made: Iterable[list[_Group]]) -> dict[_Group, _Group]:
    """For groups that wait for no exchange, the earlier groups that they join."""
    merged_into: dict[_Group, _Group] = {}
    for groups in made:
        for i, group in enumerate(groups):
            if group.waits:
                continue
            for other in islice(groups, i + 1, None):
                if other.first - group.first > WINDOW or other.size + group.size > _MOST:
                    break
                if other.level > group.level:
                    other.size += group.size
                    other.first = group.first
                    merged_into[group] = other
                    break
    for group in reversed(merged_into):                  # those of the last ones are known
        merged_into[group] = merged_into.get(merged_into[group], merged_into[group])
    return merged_into


def _groups_in_order(program: Program, keys: Mapping[Equation, tuple]) -> dict[Equation, _Group]:
    """The groups of XLA: each exchange with the next ones that do not depend on it.

    Sets of exchanges are integers, a bit for each.
    """
    waits: dict[Atom, int] = {}                     # value to the exchanges on which it depends
    own: dict[Equation, int] = {}
    for eqn in program.eqns:
        mask = 0
        for a in eqn.invars:
            mask |= waits.get(a, 0)
        if eqn in keys:
            own[eqn] = mask
            mask |= 1 << len(own) - 1
        if mask:
            waits.update(dict.fromkeys(eqn.outvars, mask))
    joint: list[tuple[int, int]] = []               # groups, and on what they depend

    def all_of(mask: int) -> int:
        before = -1
        while mask != before:
            before = mask
            for group, rest in joint:
                if mask & group:
                    mask |= group | rest
        return mask

    bits = {eqn: 1 << k for k, eqn in enumerate(own)}
    found: dict[Equation, _Group] = {}
    by_key: dict[tuple, list[Equation]] = {}
    for eqn in own:
        by_key.setdefault(keys[eqn], []).append(eqn)
    for first in own:
        rest = by_key[keys[first]]
        if first in found:
            continue
        group, members, before = _Group(0), 0, 0
        for eqn in rest[:_MOST]:
            after = all_of(own[eqn])
            if not (after & members or (before | after) & bits[eqn]):
                members |= bits[eqn]
                before = all_of(before | after)
                found[eqn] = group
                group.size += 1
        by_key[keys[first]] = [eqn for eqn in rest if eqn not in found]
        if group.size > 1:
            joint.append((members, before))
    return {eqn: group for eqn, group in found.items() if group.size > 1}


class _Group:
    """Exchanges that become one.

    first: the number of its last equation, counted from the end. level: how many exchanges away
    from the results it is. size: number of members. waits: whether a member waits for another
    exchange. members: those whose operands are available.
    """

    def __init__(self, first: int, level: int = 0) -> None:
        self.first = first
        self.level = level
        self.size = 0
        self.waits = False
        self.members: list[Equation] = []


class _Combining:
    def __init__(self, program: Program, groups: dict[Equation, _Group]) -> None:
        self.program = program
        self.groups = groups
        self.eqns: list[Equation] = []
        self.missing: set[Atom] = set()        # values that wait for a group to complete
        self.postponed: list[Equation] = []    # equations that read them

    def run(self) -> Program:
        groups, missing, eqns = self.groups, self.missing, self.eqns
        for eqn in self.program.eqns:
            if eqn not in groups and (not missing or missing.isdisjoint(eqn.invars)):
                eqns.append(eqn)
                continue
            complete = self.add(eqn)
            while complete:
                again, self.postponed, complete = self.postponed, [], False
                for waiting in again:
                    self.missing.difference_update(waiting.outvars)
                for waiting in again:
                    complete |= self.add(waiting)
        assert not self.postponed, "every group is complete at the end"
        return self.program.replace(eqns=self.eqns)

    def add(self, eqn: Equation) -> bool:
        """Write an equation down if its operands are there; whether this completes a group."""
        group = self.groups.get(eqn)
        if self.missing and not self.missing.isdisjoint(eqn.invars):
            self.postponed.append(eqn)
            self.missing.update(eqn.outvars)
            return False
        if group is None:
            self.eqns.append(eqn)
            return False
        group.members.append(eqn)
        if len(group.members) < group.size:
            self.missing.update(eqn.outvars)
            return False
        for member in group.members:
            self.missing.difference_update(member.outvars)
        self.together(group.members)
        return True

    def emit(self, like: Equation, op: Op, operands: Sequence[Atom], params: dict[str, Any],
             result: Var | None = None, reason: str = "") -> Var:
        types = together(tuple(a.aval for a in operands)) if op.manual is None else tuple(
            a.aval for a in operands)
        (aval,) = infer(op, types, params, self.program.mesh)
        out = result if result is not None else Var(aval)
        assert out.aval is aval or out.aval == aval, (out.aval, aval)
        self.eqns.append(Equation(op, operands, (out,), params, like.location, reason))
        return out

    def together(self, group: Sequence[Equation]) -> None:
        first = group[0]
        op, params = first.op, first.params
        dimension = _SCATTERED.get(op) or _GATHERED.get(op)
        if op in _SCATTERED:
            scattered = _SCATTERED[op]
            flat = [self.in_rows(e, e.invars[0], e.params[scattered], params["axis_size"])
                    for e in group]
        else:
            row = (1,) if op in _GATHERED else ()
            flat = [self.reshaped(e, e.invars[0], (*row, math.prod(e.invars[0].aval.shape)))
                    for e in group]
        if len({x.aval.dtype for x in flat}) > 1:
            flat = [self.with_bits_of(e, x, _bits(x.aval.dtype))
                    for e, x in zip(group, flat, strict=True)]
        every = frozenset().union(*[x.aval.varying for x in flat])
        flat = [self.emit(e, pvary_p, [x], {"axes": extra})
                if (extra := tuple(sorted(every - x.aval.varying))) else x
                for e, x in zip(group, flat, strict=True)]
        if dimension:
            params = {**params, dimension: 0, "tiled": True}
        merged = self.emit(first, concatenate_p, flat, {"dimension": flat[0].aval.ndim - 1})
        reason = merged_reasons([f"{e.reason or f'`{e.op.name}`'} ({e.location})" for e in group])
        done = self.emit(first, op, [merged], params, reason=reason)
        start = 0
        for eqn, part in zip(group, flat, strict=True):
            size = part.aval.shape[-1]
            cut = {"start_indices": (*(0,) * (done.aval.ndim - 1), start),
                   "limit_indices": (*done.aval.shape[:-1], start + size), "strides": None}
            start += size
            result = eqn.outvars[0]
            extra = tuple(sorted(done.aval.varying - result.aval.varying))
            if extra:                                   # over which other parts vary
                own = self.reshaped(eqn, self.cut_out(eqn, done, cut), result.aval.shape)
                self.emit(eqn, assume_invarying_p, [own], {"axes": extra}, result)
                continue
            d = eqn.params[_GATHERED[op]] if op in _GATHERED else 0
            behind = math.prod(result.aval.shape[:d]) == 1      # blocks lie behind each other
            if behind and result.aval.shape == (*done.aval.shape[:-1], size):
                self.cut_out(eqn, done, cut, result)
                continue
            own = self.cut_out(eqn, done, cut)
            if not behind:
                self.from_rows(eqn, own, d, result)
            else:
                self.reshaped(eqn, own, result.aval.shape, result)

    def cut_out(self, like: Equation, x: Var, cut: dict[str, Any], result: Var | None = None
                ) -> Any:
        dtype = like.outvars[0].aval.dtype
        if dtype == x.aval.dtype:
            return self.emit(like, slice_p, [x], cut, result)
        return self.with_bits_of(like, self.emit(like, slice_p, [x], cut), dtype, result)

    def with_bits_of(self, like: Equation, x: Atom, dtype: Any, result: Var | None = None) -> Any:
        """The bits of x as another dtype."""
        if x.aval.dtype == dtype:
            return x
        return self.emit(like, bitcast_convert_type_p, [x], {"new_dtype": dtype}, result)

    def in_rows(self, like: Equation, x: Atom, d: int, n: int) -> Var:
        """x with dimension d cut into n parts, a row for each."""
        shape = x.aval.shape
        x = self.reshaped(like, x, (*shape[:d], n, shape[d] // n, *shape[d + 1:]))
        if math.prod(shape[:d]) > 1:
            order = (d, *range(d), *range(d + 1, len(shape) + 1))
            x = self.emit(like, transpose_p, [x], {"permutation": order})
        return self.reshaped(like, x, (n, math.prod(shape) // n))

    def from_rows(self, like: Equation, x: Var, d: int, result: Var) -> None:
        """The rows joined along dimension d; the inverse of `in_rows`."""
        n, shape = x.aval.shape[0], result.aval.shape
        x = self.reshaped(like, x, (n, *shape[:d], shape[d] // n, *shape[d + 1:]))
        order = (*range(1, d + 1), 0, *range(d + 1, len(shape) + 1))
        x = self.emit(like, transpose_p, [x], {"permutation": order})
        self.reshaped(like, x, shape, result)

    def reshaped(self, like: Equation, x: Atom, shape: tuple[int, ...], result: Var | None = None
                 ) -> Any:
        if x.aval.shape == shape and result is None:
            return x
        return self.emit(like, reshape_p, [x], {
            "new_sizes": shape, "dimensions": None, "sharding": None}, result)
