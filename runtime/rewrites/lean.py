"""Programs that hold less: what is far from where it is read is computed where it is read.

Only by equations that cost next to nothing (runtime/rewrites/keeping.py), on the same numbers:
results do not change. The executor does this to the programs that it plans; nobody else sees it.
Scans, whose results would be stacked for another scan to read, are in
runtime/rewrites/lean_scans.py.
"""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Set
from itertools import accumulate

from ...ir.lazy import lazy_import
from ...ir.ops.arithmetic import ceil_p, rem_p
from ...ir.ops.dynamic_slicing import dynamic_update_slice_p
from ...ir.ops.padding import pad_p
from ...ir.ops.placing import place_p
from ...ir.ops.select import select_n_p
from ...ir.program import Atom, Program, Var
from .flatten import FlatProgram
from .keeping import LEAST, MUCH, SMALL, VIEWS, choose, held_bytes, is_cheap
from .late import late, without
from .lean_scans import lean_scans

_part_updates = lazy_import(".part_updates", __package__)
_pieces = lazy_import(".pieces", __package__)
_rounding = lazy_import(".rounding", __package__)


def lean_program(program: Program) -> FlatProgram:
    """The program without calls, arranged to hold little at a time; made once per program."""
    found = program.memo.get("flat")
    if found is None:
        found = program.memo["flat"] = FlatProgram(program)
        if found.arranged:
            _arrange(found)
        _lean_peak(found)
    return found


def _arrange(flat: FlatProgram) -> None:
    """Let the program have what does the same as some of its equations in less time."""
    if dynamic_update_slice_p in flat.ops:
        _part_updates.choose_parts(flat)
    if pad_p in flat.ops or place_p in flat.ops:
        _pieces.join_pieces(flat)
    if select_n_p in flat.ops and (ceil_p in flat.ops or rem_p in flat.ops):
        _rounding.round_at_once(flat)
    lean_scans(flat)


def _lean_peak(flat: FlatProgram) -> None:
    """Hold less where the most is held: between the way forward and the way back, usually."""
    eqns = flat.eqns
    # of large values
    size = {v: n for eqn in eqns for v in eqn.outvars if (n := held_bytes(v.aval)) >= SMALL}
    if sum(size.values()) < 2 * LEAST:
        return
    born = {v: i for i, eqn in enumerate(eqns) for v in eqn.outvars if v in size}
    last: dict[Var, int] = {
        a: i for i, eqn in enumerate(eqns) for a in eqn.invars if a in size}  # type: ignore[misc]
    roots: dict[Var, Var] = {}
    views = {op for op in flat.ops if op.name in VIEWS}
    for eqn in eqns if views else ():
        if eqn.op in views:
            (v,), x = eqn.outvars, eqn.invars[0]
            roots[v] = roots[x] if x in roots else x            # type: ignore[assignment, index]
    # what could be computed later: another equation stands between it and its last reader
    far = [v for v, end in last.items() if end > born[v] + 1 and is_cheap(eqns[born[v]])]
    if not far:
        return
    stay = {roots.get(a, a) for a in flat.outvars}  # type: ignore[arg-type, call-overload]
    peak, most = _peak(size, born, last, roots, stay, len(eqns))
    if most < 2 * LEAST or not any([born[v] <= peak < last[v] for v in far]):
        return
    made = {v: eqns[i] for v, i in born.items() if i <= peak}       # small ones count as free

    def root(v: Var) -> Var:
        return roots[v] if v in roots else v

    prices = defaultdict(int, {v: size[v] for v in made if v not in stay})
    prices.update({v: MUCH if r in made and r not in stay else 0 for v, r in roots.items()})
    choice = choose([v for v in made if v in last and last[v] > peak], made,
                    prices.__getitem__, LEAST // 16, root)
    if choice.again:
        before = without(eqns[:peak + 1], choice.again)
        flat.eqns = [*before, *late(eqns[peak + 1:], choice.again, made,
                                    {v for e in before for v in e.outvars})]


def _peak(size: Mapping[Var, int], born: Mapping[Var, int], last: Mapping[Var, int],
          roots: Mapping[Var, Var], stay: Set[Atom], count: int) -> tuple[int, int]:
    """After which of `count` equations the most bytes are held, and how many.

    stay: results, which do not count.
    """
    ends = dict(last)
    for v, r in roots.items():          # a view is held with what it is a view of
        if v in born:
            end = ends.pop(v, born[v])
            if r not in ends or ends[r] < end:
                ends[r] = end
    change = [0] * (count + 1)
    for v, end in ends.items():
        if v in born and end > born[v] and v not in stay:
            change[born[v]] += size[v]
            change[end] -= size[v]
    held = list(accumulate(change))
    most = max(held)
    return held.index(most), most
