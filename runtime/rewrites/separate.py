"""Exchanges that were made one (partitioner/optimization/combine.py), each for itself again.

Between real devices one exchange of many parts starts once; here it starts for nothing, and to lay
the parts end to end is all that it costs.
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...ir.ops.collective import pmax_p, pmin_p, ppermute_p, pprod_p, psum_invariant_p
from ...ir.ops.joining import concatenate_p
from ...ir.ops.reshape import reshape_p
from ...ir.ops.slicing import slice_p
from ...ir.program import Atom, Equation
from .flatten import FlatProgram, needed

ALIKE = frozenset((pmax_p, pmin_p, ppermute_p, pprod_p, psum_invariant_p))    # for all elements


def separate(flat: FlatProgram) -> None:
    """Let the program exchange the parts themselves, not a vector of them all."""
    eqns, results = flat.eqns, set(flat.outvars)
    joined: dict[Atom, Equation] = {e.outvars[0]: e for e in eqns if e.op is concatenate_p}
    totals = {e.outvars[0]: e for e in eqns if e.op in ALIKE and e.invars[0] in joined
              and results.isdisjoint(e.outvars)}
    if not totals:
        return
    cuts = _readers(eqns, totals)
    instead: dict[Equation, Equation] = {}
    parts: dict[Atom, tuple[Equation, Atom]] = {}       # what is cut out -> the total, the part
    for v, total in totals.items():
        for cut, part in _parts(joined[total.invars[0]], cuts[v]):
            instead[cut] = total.on((part,), cut.outvars)
            parts[cut.outvars[0]] = total, part
    shaped = {e.outvars[0]: e.invars[0] for e in eqns if e.op is reshape_p}
    after = _readers(eqns, parts)
    for v, (total, part) in parts.items():
        if part in shaped and len(after[v]) == 1 and v not in results:
            (last,) = after[v]
            whole = shaped[part]                                                # type: ignore
            if last.op is reshape_p and last.outvars[0].aval.shape == whole.aval.shape:
                instead[last] = total.on((whole,), last.outvars)
    if instead:
        flat.rewrite(needed([instead.get(eqn, eqn) for eqn in eqns], flat.outvars))


def _readers(eqns: Sequence[Equation], wanted: Iterable[Atom]) -> dict[Atom, list[Equation]]:
    """The equations that read each of these values, as often as they do."""
    found: dict[Atom, list[Equation]] = {v: [] for v in wanted}
    apart = found.keys().isdisjoint
    for eqn in eqns:
        if not apart(eqn.invars):
            for a in eqn.invars:
                if a in found:
                    found[a].append(eqn)
    return found


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
