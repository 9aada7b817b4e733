"""Programs that hold less: what is far from where it is read is computed where it is read.

Only by equations that cost next to nothing (runtime/keeping.py), on the same numbers: results do
not change. The executor does this to the programs that it plans; nobody else sees it. Scans, whose
results would be stacked for another scan to read, are in runtime/lean_scans.py.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..ir.program import Atom, Equation, Program, Var
from .flatten import FlatProgram
from .keeping import LEAST, MUCH, SMALL, VIEWS, choose, held_bytes
from .late import late, without
from .lean_scans import lean_scans


def lean_program(program: Program) -> FlatProgram:
    """The program without calls, arranged to hold little at a time; made once per program."""
    found = program.memo.get("flat")
    if found is None:
        found = program.memo["flat"] = FlatProgram(program)
        lean_scans(found)
        _lean_peak(found)
    return found


def _lean_peak(flat: FlatProgram) -> None:
    """Hold less where the most is held: between the way forward and the way back, usually."""
    eqns = flat.eqns
    born = {v: i for i, e in enumerate(eqns) for v in e.outvars if held_bytes(v.aval) >= SMALL}
    if sum([held_bytes(v.aval) for v in born]) < 2 * LEAST:
        return
    roots: dict[Var, Var] = {}
    last: dict[Var, int] = {}
    for i, eqn in enumerate(eqns):
        for a in eqn.invars:
            if a in born:
                last[a] = i                     # type: ignore[index]
        if eqn.op.name in VIEWS:
            (v,), x = eqn.outvars, eqn.invars[0]
            roots[v] = roots.get(x, x)          # type: ignore[arg-type, assignment]
    peak, most = _peak(eqns, born, last, roots, flat.outvars)
    if most < 2 * LEAST:
        return
    made = {v: eqns[i] for v, i in born.items() if i <= peak}       # small ones count as free
    stay = {roots.get(a, a) for a in flat.outvars}  # type: ignore[arg-type, call-overload]

    def root(v: Var) -> Var:
        return roots.get(v, v)

    def price(v: Var) -> int:
        r = root(v)
        if r not in made or r in stay:
            return 0
        return held_bytes(v.aval) if r is v else MUCH

    choice = choose([v for v in made if last.get(v, -1) > peak], made, price, LEAST // 16, root)
    if choice.again:
        before = without(eqns[:peak + 1], choice.again)
        flat.eqns = [*before, *late(eqns[peak + 1:], choice.again, made,
                                    {v for e in before for v in e.outvars})]


def _peak(eqns: Sequence[Equation], born: Mapping[Var, int], last: Mapping[Var, int],
          roots: Mapping[Var, Var], outvars: Sequence[Atom]) -> tuple[int, int]:
    """After which equation the most bytes are held, and how many."""
    ends: dict[Var, int] = {}
    for v in born:
        r = roots.get(v, v)
        ends[r] = max(ends.get(r, -1), last.get(v, born[v]))
    for a in outvars:
        ends.pop(roots.get(a, a), None)         # type: ignore[arg-type]
    change = [0] * (len(eqns) + 1)
    for v, end in ends.items():
        if v in born and end > born[v]:
            count = held_bytes(v.aval)
            change[born[v]] += count
            change[end] -= count
    now = most = peak = 0
    for i, more in enumerate(change):
        now += more
        if now > most:
            most, peak = now, i
    return peak, most
