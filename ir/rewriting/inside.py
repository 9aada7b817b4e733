"""Applies a rewrite to the programs that equations hold: bodies of loops, branches."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..program import Program


def inside(program: Program, rewrite: Callable[[Program], Program]) -> Program:
    """The program with `rewrite` applied to the programs in it."""
    if not program.holds_programs:
        return program
    changed, eqns = False, list(program.eqns)
    for k, eqn in enumerate(program.eqns):
        for name in eqn.op.subprograms:
            held = eqn.params[name]
            new = rewrite(held) if held.__class__ is Program else _rewritten(held, rewrite)
            if new is not held and not _same(new, held):
                changed, eqn = True, eqn.replace(params={**eqn.params, name: new})
                eqns[k] = eqn
    return program.replace(eqns=eqns) if changed else program


def _rewritten(held: Any, rewrite: Callable[[Program], Program]) -> Any:
    if isinstance(held, tuple):
        return tuple([_rewritten(h, rewrite) for h in held])
    return rewrite(held) if isinstance(held, Program) else held


def _same(new: Any, old: Any) -> bool:
    """Is a param with programs what it was?"""
    if isinstance(new, tuple):
        return all(map(_same, new, old))
    return new is old
