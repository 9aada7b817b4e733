"""Values that one device of a group has and the others hold zeros for, where only the sum matters.

What is added to a partial sum, though all devices have it, is first taken to be zero on all devices
but one. Its sum over devices is the value itself, so that this needs neither an array for each
device nor an addition of them.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...ir.program import Atom, Equation, Literal, Var
from ..axes import MeshAtoms, collective_atoms
from .equations import is_zeros


def axes_of_one(eqn: Equation, maker: Callable[[Atom], Equation | None], atoms: MeshAtoms
                ) -> frozenset[str]:
    """Axes along which a `select_n` lets its third operand through on one device alone.

    The others get zeros there. maker: what computes a value, if that is known.
    """
    which, zeros, _ = eqn.invars
    test = maker(which)
    if test is None or test.op.name != "eq" or not is_zeros(zeros, maker):
        return frozenset()
    index, place = test.invars
    source = maker(index)
    if source is None or source.op.name != "axis_index" or not isinstance(place, Literal):
        return frozenset()
    group = collective_atoms(source, atoms)
    return frozenset(group) if 0 <= int(place.val) < atoms.count(group) else frozenset()


def makers(eqns: Any) -> Mapping[Var, Equation]:
    """By value, the equation that computes it."""
    return {v: e for e in eqns for v in e.outvars}
