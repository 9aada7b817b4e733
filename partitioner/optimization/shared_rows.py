"""Fetches several slices of one value in a single exchange.

The thirds of a fused projection are three slices of it. Which device lacks most differs from slice
to slice. Fetched separately, the slices cost the sum of the three maxima; fetched together, the
maximum of the sums. (This is a pass rather than a rewrite because it weighs all readers of a
value.)
"""
from __future__ import annotations

from ...ir.inference.infer import infer
from ...ir.ops.communication.exchange_rows import exchange_rows_p
from ...ir.ops.communication.row_exchange_plan import lacking
from ...ir.ops.derivatives import slice_along
from ...ir.ops.movement.slicing import slice_p
from ...ir.program import Atom, Equation, Program, Var
from ..reasons import reason_of_group

_SHARED = ("axis_name", "axis_size", "dimension", "parts")


def share_rows(program: Program) -> Program:
    """A LOCAL program (without nested ones) with row exchanges of the same value joined."""
    groups: dict[tuple, list[Equation]] = {}
    for eqn in program.eqns:
        if eqn.op is exchange_rows_p:
            key = (eqn.invars[0], *(eqn.params[name] for name in _SHARED))
            groups.setdefault(key, []).append(eqn)
    shared = {e: group for group in groups.values() if len(group) > 1 and _saves(group)
              for e in group}
    if not shared:
        return program
    eqns: list[Equation] = []
    for eqn in program.eqns:
        group = shared.get(eqn)
        if group is None:
            eqns.append(eqn)
        elif eqn is group[0]:
            eqns += _together(group, program)
    return program.replace(eqns=eqns)


def _saves(group: list[Equation]) -> bool:
    devices, parts = group[0].params["axis_size"], group[0].params["parts"]
    separate = [e.params["wanted"] for e in group]
    return lacking(devices, parts, tuple(w for one in separate for w in one)) < sum(
        lacking(devices, parts, wanted) for wanted in separate)


def _together(group: list[Equation], program: Program) -> list[Equation]:
    """One fetch of the rows that all fetches of a group want, and a slice of it for each of them.
    """
    first = group[0]
    operands: tuple[Atom, ...] = tuple(first.invars)
    d = first.params["dimension"]
    params = {**first.params, "wanted": tuple(w for e in group for w in e.params["wanted"])}
    (aval,) = infer(first.op, tuple(a.aval for a in operands), params, program.mesh)
    whole = Var(aval)
    out = [first.replace(outvars=(whole,), params=params, reason=reason_of_group(group))]
    start = 0
    for eqn in group:
        shape = eqn.outvars[0].aval.shape
        out.append(eqn.replace(op=slice_p, invars=(whole,), reason=(),
                               params=slice_along(shape, d, start, start + shape[d])))
        start += shape[d]
    return out
