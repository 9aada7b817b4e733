"""Exchanges of which the partitioner made one are done part by part.

On hardware one exchange starts sooner than several; here nothing has to start, and laying the parts
end to end and cutting them out again are copies. So a collective of a concatenation, of whose
result only slices at the same places are read, becomes one collective for each part.
"""
from __future__ import annotations

from ...ir.program import Equation, Program, Var
from .equations import makers

JOINED = frozenset((
    "psum_invariant", "pmax", "pmin", "pprod", "ppermute", "reduce_scatter",
    "all_gather_invariant"))


def part_exchanges(program: Program) -> Program:
    """A LOCAL program (not those in it) whose joined exchanges are done part by part."""
    made = makers(program.eqns)
    readers: dict[Var, list[Equation]] = {}
    for eqn in program.eqns:
        for a in dict.fromkeys(eqn.invars):
            if isinstance(a, Var):
                readers.setdefault(a, []).append(eqn)
    results = {*program.outvars}
    gone: set[Equation] = set()
    parts: dict[Equation, list[Equation]] = {}
    for eqn in program.eqns:
        source = made.get(eqn.invars[0]) if eqn.op.name in JOINED else None     # type: ignore
        if source is None or source.op.name != "concatenate":
            continue
        (joined,), (done,) = source.outvars, eqn.outvars
        slices = readers.get(done, [])
        if joined in results or done in results or len(readers[joined]) > 1:
            continue
        cut = {_place(s, source): s for s in slices}
        wanted = _places(source)
        if None in cut or len(cut) < len(slices) or set(cut) != set(wanted):
            continue
        gone.update((source, *slices))
        parts[eqn] = [Equation(eqn.op, (part,), cut[place].outvars, eqn.params, eqn.location,
                               eqn.reason)
                      for place, part in zip(wanted, source.invars, strict=True)]
    if not parts:
        return program
    return program.replace(eqns=[part for eqn in program.eqns if eqn not in gone
                                 for part in parts.get(eqn, (eqn,))])


def _places(source: Equation) -> list[tuple[int, int]]:
    """Where the operands of a concatenation begin and end."""
    found, start = [], 0
    for part in source.invars:
        n = part.aval.shape[source.params["dimension"]]
        found.append((start, start + n))
        start += n
    return found


def _place(eqn: Equation, source: Equation) -> tuple[int, int] | None:
    """Where a slice begins and ends along the dimension of a concatenation; None if it is another
    equation, or cuts elsewhere too.
    """
    params, d = eqn.params, source.params["dimension"]
    if eqn.op.name != "slice" or params["strides"] is not None:
        return None
    starts, limits = params["start_indices"], params["limit_indices"]
    if any([k != d and (starts[k] or limits[k] != n)
            for k, n in enumerate(eqn.invars[0].aval.shape)]):
        return None
    return starts[d], limits[d]
