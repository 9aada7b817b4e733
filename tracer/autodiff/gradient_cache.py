"""A cache of gradients, for programs that were differentiated before.

A function that is jitted in a loop, or a notebook cell that is run again, is traced anew each time,
to the same program except perhaps for numeric constants and source lines. The equations of its
gradient are then recorded again with the new ones, without linearizing or transposing the program.
Numbers that a rule has looked at must be equal.

Users' own derivative rules run each time, and so do rules that use anything besides the program's
equations (constants, other captured values).
"""
from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from ...ir.fingerprint import Abstracted, fingerprint, literal_key
from ...ir.program import Equation, Literal, Program, Var
from ...ir.settings.context import STATE
from ...ir.source.location import is_ours
from ...ir.support.caches import ProgramCache
from ..staging.bound_names import DEEP
from ..staging.builder import Builder
from ..staging.steps import follow, marks, owner_of, reads, recipe_of
from ..staging.tracer import Tracer
from .replay import Scalar

_kept = ProgramCache("tracer.autodiff.gradient_cache", "derivatives of programs",
                     most=20_000, smallest=20)


class _Recorded:
    """What was recorded of `given` (values, then the program's numbers): equations, and results,
    which are variables or constants.

    first: the places of the program, and the equations' locations; last: of the program that was
    seen last. program: the one that was differentiated; its parts, which keys name, live as long as
    this. steps: how to record the equations again. Worked out when asked, as `numbers`: of each
    location its place, None if it is none of the program's.
    """

    __slots__ = ("eqns", "first", "given", "last", "names", "numbers", "program", "results",
                 "steps")

    def __init__(self, program: Program, given: list[Any], abstracted: Abstracted,
                 eqns: list[Equation], results: list[Any]) -> None:
        self.program, self.given, self.results = program, [*given, *abstracted.numbers], results
        self.eqns = eqns
        self.steps: Any = None
        self.numbers: list[int | None] = []
        self.first = self.last = tuple(abstracted.places), list({e.location: None for e in eqns})
        # Of the program's values: what the user binds the results to is no part of it.
        self.names = {v: v.name for e in eqns for v in e.outvars if v.name is not None}

    def _steps(self) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
        """Atoms are numbered: `given`, then what the equations give, then constants.

        The atoms behind `given`, as far as they are known, the equations' recipes, the results,
        and the names, by numbers.
        """
        numbers: dict[Any, int] = {x: n for n, x in enumerate(self.given)}
        rest: list[Any] = []
        for x in [x for atoms in (*[e.outvars for e in self.eqns], *[e.invars for e in self.eqns],
                                  self.results) for x in atoms]:
            if type(x) in _ATOMS and x not in numbers:
                numbers[x] = len(self.given) + len(rest)
                rest.append(x if type(x) is Literal else None)
        where = {location: n for n, location in enumerate(self.first[1])}
        recipes = [recipe_of(e, [numbers[x] for x in e.invars], numbers, where[e.location])
                   for e in self.eqns]
        return (rest, recipes, [numbers[x] if type(x) in _ATOMS else x for x in self.results],
                [(numbers[v], name) for v, name in self.names.items()])

    def repeat(self, builder: Builder, given: Sequence[Var], abstracted: Abstracted) -> list[Any]:
        """The results for other values of the same types, other numbers and places."""
        places, (last, where) = tuple(abstracted.places), self.last
        if last != places:
            first, locations = self.first
            if not self.numbers:
                known = {place: n for n, place in enumerate(first)}
                self.numbers = [known.get(x.place) for x in locations]
            where = [x if n is None or places[n] == first[n] else
                     abstracted.locations[n].made_by(x.transform)
                     for x, n in zip(locations, self.numbers, strict=True)]
            self.last = places, where
        if self.steps is None:
            self.steps = self._steps()
        rest, recipes, results, names = self.steps
        atoms = [*given, *abstracted.numbers, *rest]
        follow(recipes, atoms, where, builder.eqns)
        depths = builder.watch.depths
        for n, name in names:
            var = atoms[n]
            var.name, depths[var] = name, DEEP
        return [Tracer(builder, atoms[r]) if type(r) is int else r for r in results]


_ATOMS = (Var, Literal)


def cached_gradient(kind: Hashable, program: Program, given: Sequence[Any],
                    derive: Callable[[], list[Any]]) -> list[Any]:
    """`derive()`, which records what follows from `kind` and from a program of these values."""
    builder: Any = STATE.interpreter
    if type(builder) is not Builder or STATE.on_equation or program.consts or not all(
            [type(x) is Tracer and x.builder is builder for x in given]):
        return derive()
    here = builder.location or builder.watch.place()
    abstracted = Abstracted({here.place: 0}, [here], [])
    own = fingerprint(program, abstracted) if _is_settled(program) else None
    if own is None:
        return derive()
    variables: list[Any] = [x.variable for x in given]
    same = tuple([variables.index(v) for v in variables]) if (
        len({*variables}) < len(variables)) else ()
    outline = owner_of(kind), STATE.abstract_mesh, own, same, here.transform
    found, fixed = _kept.get(outline), set()
    if type(found) is set:            # of the numbers that have to be the same; -1: so do places
        fixed = found
        found = _kept.get(_key(outline, fixed, abstracted))
    if found is not None:
        return found.repeat(builder, variables, abstracted)
    if len({*abstracted.numbers}) < len(abstracted.numbers):
        _tell_apart(program, abstracted.numbers)
    before = marks((builder,))
    with reads() as read:
        results = derive()
    eqns = builder.eqns[before[0][0]:]
    found = _recorded(program, builder, before[0], variables, abstracted, eqns, results)
    if found is not None:
        fixed |= _fixed([*program.eqns, *eqns], abstracted, {*read})
        if fixed:
            _kept.keep(outline, fixed, 0)
            outline = _key(outline, fixed, abstracted)
        _kept.keep(outline, found, len(eqns) + len(program.eqns))
    return results


def _key(outline: tuple, fixed: set[int], abstracted: Abstracted) -> tuple:
    key: list[Any] = [outline]
    for n in sorted(fixed):
        key.append(literal_key(abstracted.numbers[n]) if n >= 0 else tuple(abstracted.places))
    return tuple(key)


def _tell_apart(program: Program, numbers: list[Literal]) -> None:
    """Give each number of a program that was just recorded a literal of its own."""
    numbers.clear()
    seen: set[Literal] = set()
    for eqn in program.eqns:
        for i, a in enumerate(eqn.invars):
            if type(a) is Literal:
                if a in seen:
                    a = Literal(a.val, a.aval)
                    eqn.invars = (*eqn.invars[:i], a, *eqn.invars[i + 1:])
                seen.add(a)
                numbers.append(a)


def _fixed(eqns: Sequence[Equation], abstracted: Abstracted, read: set[Any]) -> set[int]:
    """What a gradient depends on: the numbers that were read, and what programs within it know."""
    within = [e for eqn in eqns
              if eqn.op.subprograms for _, program in eqn.subprograms() for e in program.walk()]
    read.update([a for e in within for a in e.invars])
    fixed = {n for n, a in enumerate(abstracted.numbers) if a in read}
    return fixed | {-1} if any([e.location.place in abstracted.places for e in within]) else fixed


def _is_settled(program: Program) -> bool:
    """Does its derivative follow from its equations, without a function of the user's?"""
    if not program.holds_programs:
        return True
    for eqn in program.eqns:
        if eqn.op.subprograms:
            for value in eqn.params.values():
                for x in value if isinstance(value, tuple) else (value,):
                    if isinstance(x, Program):
                        if not _is_settled(x):
                            return False
                    elif callable(x) and not is_ours(getattr(x, "__module__", "") or ""):
                        return False
    return True


def _recorded(program: Program, builder: Builder, before: tuple[int, ...], given: list[Var],
              abstracted: Abstracted, eqns: list[Equation], results: Sequence[Any]
              ) -> _Recorded | None:
    """What the builder recorded since it was `before`; None where more happened."""
    (after,) = marks((builder,))
    if after[1:] != before[1:] or any(
            [e.effects for e in eqns if e.op.effect or e.op.subprograms]):
        return None
    known = {*given, *[v for e in eqns for v in e.outvars]}
    used = {a for e in eqns for a in e.invars}
    if not all([type(a) is Literal for a in used - known]):
        return None
    found: list[Any] = []
    for x in results:
        if type(x) is Tracer:
            atom: Any = x.variable
            if type(atom) is not Literal and atom not in known:
                return None
            found.append(atom)
        elif type(x) is Scalar:
            found.append(x)
        else:
            return None
    return _Recorded(program, given, abstracted, eqns, found)
