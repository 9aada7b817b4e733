"""Arrays that are changed in part on some devices, or not at all: only the part is chosen.

`where(here, dynamic_update_slice(x, part, i), x)`, as stages of a pipeline write it, copies all of
`x` twice. It is `dynamic_update_slice(x, where(here, part, x[i]), i)`, which changes `x` in place.
"""
from __future__ import annotations

from ...ir.ops.elementwise.select import select_n_p
from ...ir.ops.movement.dynamic_slicing import dynamic_slice_p
from ...ir.ops.movement.dynamic_update_slicing import dynamic_update_slice_p
from ...ir.program import Atom
from ...ir.rewriting.rewrite import Match, Rewrite, Rewrites


def _is_small(m: Match) -> bool:
    return not m.which.aval.shape and 2 * m.part.aval.size <= m.x.aval.size


def _by_part(m: Match) -> Atom:
    before = m.emit(dynamic_slice_p, m.x, *m.starts, slice_sizes=m.part.aval.shape)
    cases = [m.part if case is m.updated else before for case in m.eqn.invars[1:]]
    return m.emit(dynamic_update_slice_p, m.x, m.emit(select_n_p, m.which, *cases), *m.starts,
                  like=m.maker(m.updated))


NARROW_UPDATES = Rewrites(*[
    Rewrite(f"update-{order}", f"""
        updated = dynamic_update_slice x part *starts
        out = select_n which {cases}
        """, _by_part, where=_is_small, why="x is changed in place instead of copied twice")
    for order, cases in (("or-not", "updated x"), ("if", "x updated"))])
