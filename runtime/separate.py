"""Exchanges that were made one (partitioner/combine.py), each for itself again.

Between real devices one exchange of many parts starts once; here it starts for nothing, and to lay
the parts end to end is all that it costs.
"""
from __future__ import annotations

from collections.abc import Sequence

from ..ir.ops.collective import pmax_p, pmin_p, pprod_p, psum_invariant_p
from ..ir.ops.joining import concatenate_p
from ..ir.ops.reshape import reshape_p
from ..ir.ops.slicing import slice_p
from ..ir.program import Atom, Equation, Var
from .flatten import FlatProgram, needed

REDUCTIONS = frozenset((pmax_p, pmin_p, pprod_p, psum_invariant_p))


def separate(flat: FlatProgram) -> None:
    """Let the program reduce over devices the parts themselves, not a vector of them all."""
    made: dict[Atom, Equation] = {}
    readers: dict[Atom, list[Equation]] = {}
    for eqn in flat.eqns:
        for v in eqn.outvars:
            made[v] = eqn
        for a in eqn.invars:
            if type(a) is Var:
                readers.setdefault(a, []).append(eqn)
    results = set(flat.outvars)
    instead: dict[Equation, Equation] = {}
    for eqn in flat.eqns:
        if eqn.op in REDUCTIONS and results.isdisjoint(eqn.outvars):
            joined = made.get(eqn.invars[0])
            cuts = readers.get(eqn.outvars[0], ())
            if joined is None or joined.op is not concatenate_p:
                continue
            parts = _parts(joined, cuts)
            for cut, part in parts:
                new = eqn.on((part,), cut.outvars)
                instead[cut] = new
                source, after = made.get(part), readers.get(cut.outvars[0], ())
                if source is None or source.op is not reshape_p or len(after) != 1 or (
                        cut.outvars[0] in results):
                    continue
                (last,) = after
                (whole,) = source.invars
                if last.op is reshape_p and last.outvars[0].aval.shape == whole.aval.shape:
                    instead[last] = eqn.on((whole,), last.outvars)
    if instead:
        flat.rewrite(needed([instead.get(eqn, eqn) for eqn in flat.eqns], flat.outvars))


def _parts(joined: Equation, cuts: Sequence[Equation]) -> list[tuple[Equation, Atom]]:
    """The equations that cut a vector into the parts that it is made of, with these; none if it is
    cut in another way."""
    if len(joined.outvars[0].aval.shape) != 1:
        return []
    at: dict[tuple[int, int], Atom] = {}
    start = 0
    for part in joined.invars:
        end = start + part.aval.shape[0]
        at[start, end] = part
        start = end
    found: list[tuple[Equation, Atom]] = []
    for cut in cuts:
        if cut.op is not slice_p or cut.params["strides"] is not None:
            return []
        (low,), (high,) = cut.params["start_indices"], cut.params["limit_indices"]
        if (low, high) not in at:
            return []
        found.append((cut, at[low, high]))
    return found
