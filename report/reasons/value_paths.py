"""The position of a value in a program, by which it is found again in another trace.

A position is the path to the nested program that holds the value, then the number of a parameter or
equation. It is the same for all traces of a function on arguments of the same types.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator

from ...ir.program import Equation, Program, Var
from ...ir.support.named_tuple import NamedTuple

Path = tuple[tuple[int, str, int], ...]     # (equation, param, place in it or -1) from the top


class Place(NamedTuple):
    """The position of a value. equation: that makes it, -1 for a parameter. index: which parameter
    or result.
    """
    path: Path
    equation: int
    index: int

    @property
    def is_argument(self) -> bool:
        return not self.path and self.equation < 0


def places(program: Program, path: Path = ()) -> Iterator[tuple[Place, Var, Equation | None]]:
    """Every value of a program, nested ones included, with the equation that makes it."""
    for i, v in enumerate(program.invars):
        yield Place(path, -1, i), v, None
    for n, eqn in enumerate(program.eqns):
        for k, v in enumerate(eqn.outvars):
            yield Place(path, n, k), v, eqn
        for step, inner in inner_programs(eqn, n):
            yield from places(inner, (*path, step))


def equations(program: Program) -> Iterator[Equation]:
    """All equations of a program and of those inside."""
    for n, eqn in enumerate(program.eqns):
        yield eqn
        for _, inner in inner_programs(eqn, n):
            yield from equations(inner)


def inner_programs(eqn: Equation, n: int) -> Iterator[tuple[tuple[int, str, int], Program]]:
    for name in eqn.op.subprograms:
        held = eqn.params.get(name)         # `fmt` passes programs that are not verified
        if isinstance(held, tuple):
            for j, p in enumerate(held):
                if isinstance(p, Program):
                    yield (n, name, j), p
        elif isinstance(held, Program):
            yield (n, name, -1), held


def rewritten(program: Program, path: Path, change: Callable[[Program], Program]) -> Program:
    """The program with the nested one at `path` replaced by `change(it)`."""
    if not path:
        return change(program)
    (n, name, j), rest = path[0], path[1:]
    eqn = program.eqns[n]
    held = eqn.params[name]
    inner = held if j < 0 else held[j]
    new = rewritten(inner, rest, change)
    value = new if j < 0 else (*held[:j], new, *held[j + 1:])
    eqns = list(program.eqns)
    eqns[n] = eqn.replace(params={**eqn.params, name: value})
    return program.replace(eqns=eqns)
