"""How the user would write that parts are joined side by side, and read so."""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ....ir.program import Atom, Equation, Program
from ...reasons.causes import AS_WRITTEN, where
from ..code.lines.replacements import replaced_lines
from ..code.lines.statements import Edit


class Replaced(NamedTuple):
    """An equation of a program for which others stand, and its results as these compute them."""
    program: Program
    eqn: Equation
    emitted: Sequence[Equation]
    values: Sequence[Atom]

    def maker(self, atom: Atom) -> Equation | None:
        return next((e for e in self.program.eqns if atom in e.outvars), None)


def written(replaced: Iterable[Replaced]) -> tuple[Edit, ...]:
    """The edits of the lines whose equations are replaced; none if one of them cannot be written,
    or is run on other values, too. Derivatives follow from these lines.
    """
    places: dict[tuple, list[Replaced]] = {}
    for r in _as_written(replaced):
        if not r.eqn.location.transform:
            places.setdefault(where(r.eqn.location), []).append(r)
    edits: list[Edit] = []
    for place, found in places.items():
        own = [id(r.eqn) for r in found]
        lines = replaced_lines(found[0], [(r, r.values) for r in found])
        if not lines or any(where(e.location) == place and id(e) not in own and e.op is r.eqn.op
                            for r in found for e in r.program.eqns):
            return ()
        edits += lines
    return tuple(edits)


def _as_written(replaced: Iterable[Replaced]) -> list[Replaced]:
    """These, in programs in which what a derivative repeats of the user's code is as it is written.
    """
    new: dict[int, Program] = {}
    found: list[Replaced] = []
    for r in replaced:
        if id(r.program) not in new:
            new[id(r.program)] = r.program.replace(eqns=[
                e.replace(location=e.location.made_by("")) if e.location.transform in AS_WRITTEN
                else e for e in r.program.eqns])
        program = new[id(r.program)]
        n = next(n for n, e in enumerate(r.program.eqns) if e is r.eqn)
        found.append(r._replace(program=program, eqn=program.eqns[n]))
    return found
