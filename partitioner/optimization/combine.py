"""Small exchanges of one kind that do not wait for each other become one.

Bytes stay; what is saved is the time it takes an exchange to start. The parts are laid end to end
in one vector, which is exchanged, and cut out again, so that each is still to be seen in the
program; the exchange names the lines and reasons of all. Large parts stay alone: their time is that
of their bytes, and to copy them costs more than it saves. (A pass, not a rewrite: what waits for
what is a matter of the whole program.)
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.inference.infer import infer
from ...ir.inference.levels import together
from ...ir.op import Op, params_key
from ...ir.ops.communication.collective import pmax_p, pmin_p, ppermute_p, pprod_p, psum_invariant_p
from ...ir.ops.movement.joining import concatenate_p
from ...ir.ops.movement.reshape import reshape_p
from ...ir.ops.movement.slicing import slice_p
from ...ir.program import Atom, Equation, Program, Var
from ..resharding.delay import joined_reasons

SMALL = 16 * 1024
"""Bytes up to which a part is combined with others."""
_COMBINED = frozenset((psum_invariant_p, pmax_p, pmin_p, pprod_p, ppermute_p))
COMBINED = frozenset([op.name for op in _COMBINED])
"""Ops of which several become one."""
_MOST = 64
WINDOW = 200
"""Equations over which exchanges are combined: what reads the first waits for the last."""


def combine(program: Program) -> Program:
    """A LOCAL program (not those in it) with small independent exchanges together."""
    groups = _groups(program) if not _COMBINED.isdisjoint(program.ops) else None
    return _Combining(program, groups).run() if groups else program


def _key(eqn: Equation) -> tuple | None:
    """What exchanges must have in common."""
    if not isinstance(eqn.invars[0], Var):
        return None
    aval, result = eqn.invars[0].aval, eqn.outvars[0].aval
    if not isinstance(aval.dtype, np.dtype) or aval.manual.unreduced or aval.manual.reduced:
        return None
    if not 0 < math.prod(aval.shape) * aval.dtype.itemsize <= SMALL:
        return None
    return (eqn.op, params_key(eqn.params), aval.dtype, aval.weak_type, aval.varying,
            result.varying, aval.memory_space)


def _groups(program: Program) -> dict[Equation, _Group]:
    """The group of each exchange that has company.

    Members of a group are as many small exchanges away from the parameters, so that none waits for
    another; they are not far apart, and nothing that the host sees lies between them.
    """
    keys = {eqn: key for eqn in program.eqns
            if eqn.op in _COMBINED and (key := _key(eqn)) is not None}
    if len({*keys.values()}) == len(keys):
        return {}
    depth: dict[Atom, int] = {}
    open_: dict[tuple, _Group] = {}
    found: dict[Equation, _Group] = {}
    seen = {op for op in program.ops if op.effect or op.subprograms}
    for k, eqn in enumerate(program.eqns):
        if eqn.op in seen and eqn.effects:
            open_.clear()
        level = 0
        if depth and not depth.keys().isdisjoint(eqn.invars):
            level = max([depth[a] for a in eqn.invars if a in depth])
        key = keys.get(eqn)
        if key is not None:
            group = open_.get((key, level))
            if group is None or k - group.first > WINDOW or group.size == _MOST:
                group = open_[key, level] = _Group(k)
            group.size += 1
            found[eqn] = group
            level += 1
        if level:
            depth.update(dict.fromkeys(eqn.outvars, level))
    return {eqn: group for eqn, group in found.items() if group.size > 1}


class _Group:
    """Exchanges that become one. first: the number of its first equation; size: of all members;
    members: those whose operands are there.
    """

    def __init__(self, first: int) -> None:
        self.first = first
        self.size = 0
        self.members: list[Equation] = []


class _Combining:
    def __init__(self, program: Program, groups: dict[Equation, _Group]) -> None:
        self.program = program
        self.groups = groups
        self.eqns: list[Equation] = []
        self.missing: set[Atom] = set()         # values that wait for a group to be complete
        self.postponed: list[Equation] = []     # equations that read them

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
        flat = [self.reshaped(e, e.invars[0], (math.prod(e.invars[0].aval.shape),))
                for e in group]
        first = group[0]
        joined = self.emit(first, concatenate_p, flat, {"dimension": 0})
        reason = joined_reasons([f"{e.reason or f'`{e.op.name}`'} ({e.location})" for e in group])
        done = self.emit(first, first.op, [joined], first.params, reason=reason)
        start = 0
        for eqn, part in zip(group, flat, strict=True):
            n = part.aval.shape[0]
            cut = {"start_indices": (start,), "limit_indices": (start + n,), "strides": None}
            start += n
            result = eqn.outvars[0]
            if result.aval.shape == (n,):
                self.emit(eqn, slice_p, [done], cut, result)
            else:
                self.reshaped(eqn, self.emit(eqn, slice_p, [done], cut), result.aval.shape, result)

    def reshaped(self, like: Equation, x: Atom, shape: tuple[int, ...], result: Var | None = None
                 ) -> Any:
        if x.aval.shape == shape:
            return x
        return self.emit(like, reshape_p, [x], {
            "new_sizes": shape, "dimensions": None, "sharding": None}, result)
