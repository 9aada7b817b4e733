"""What a loop's body computes several times is computed once in an iteration.

`x[i]` and `x.at[i]` each bring the index into the array, and rows are read again where they are
named again. Only what is small, or a view: of others a user may want two rather than hold one.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from ...ir.caches import cached
from ...ir.op import Op
from ...ir.program import Atom, Equation, Literal, Program
from .flatten import FlatProgram
from .keeping import SMALL, VIEWS, held_bytes
from .lean import lean_program


@cached(1024)
def _is_plain(op: Op) -> bool:
    """Does an equation say all about its result, and nobody see how often it is computed?"""
    return not (op.collective is not None or op.effect or op.subprograms or op.multiple_results
                or op.evaluate is None)


def _named(atom: Atom) -> Any:
    """Equal for equal values."""
    if type(atom) is Literal:
        value = atom.val
        return atom.aval, type(value), np.asarray(value).tobytes()
    return atom


@cached(1024)
def _indexes(ops: frozenset[Op]) -> bool:
    """Is one of the ops such that users' programs name a part of an array by it?"""
    return not _BY_INDEX.isdisjoint([op.name for op in ops])


_BY_INDEX = frozenset({"dynamic_slice", "dynamic_update_slice", "gather", "scatter", "scatter-add",
                       "scatter-max", "scatter-min", "scatter-mul", "scatter-sub"})


def lean_body(program: Program) -> FlatProgram:
    """A loop's body as `lean_program` gives it, with equal equations once if it has indices."""
    flat = lean_program(program)
    if "once" not in program.memo and _indexes(flat.ops):
        program.memo["once"] = True
        _compute_once(flat)
    return flat


def _compute_once(flat: FlatProgram) -> None:
    known: dict[tuple, Any] = {}
    names: dict[Any, Any] = {}
    eqns: list[Equation] = []
    for eqn in flat.eqns:
        if names and not names.keys().isdisjoint(eqn.invars):
            eqn = eqn.on([names.get(a, a) for a in eqn.invars], eqn.outvars)
        op = eqn.op
        if _is_plain(op):
            (v,) = eqn.outvars
            if op.name in VIEWS or op.name == "dynamic_slice" or held_bytes(v.aval) < SMALL:
                key = (eqn.use.identity, v.aval, *map(_named, eqn.invars))
                first = known.setdefault(key, v)
                if first is not v:
                    names[v] = first
                    continue
        eqns.append(eqn)
    if names:
        flat.outvars = [names.get(a, a) for a in flat.outvars]      # type: ignore[call-overload]
        flat.rewrite(eqns)
