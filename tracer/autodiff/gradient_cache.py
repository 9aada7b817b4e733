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
from ...ir.source.location import Location, is_ours
from ...ir.support.program_cache import ProgramCache
from ..staging.bound_names import DEEP
from ..staging.staging import Builder
from ..staging.steps import marks, owner_of, reads
from ..staging.tracer import Tracer
from .replay import Scalar

_kept = ProgramCache("tracer.autodiff.gradient_cache", "derivatives of programs",
                     most=20_000, smallest=20)


class _Recorded:
    """What was recorded of `given` (values, then the program's numbers): equations, each with the
    number of its location, and results, which are variables or constants.

    first: the places of the program, and these locations; last: of the program that was met last.
    numbers: of each location's place; None if it is none of the program's. Worked out when asked.
    program: the one that was differentiated; its parts, which keys name, live as long as this.
    """

    __slots__ = ("eqns", "first", "given", "last", "names", "numbers", "program",
                 "results")

    def __init__(self, program: Program, given: list[Any], abstracted: Abstracted,
                 eqns: list[Equation], results: list[Any]) -> None:
        self.program, self.given, self.results = program, [*given, *abstracted.numbers], results
        found: dict[Location, int] = {}
        for e in eqns:
            if e.location not in found:
                found[e.location] = len(found)
        self.eqns = [(e, found[e.location]) for e in eqns]
        self.numbers: list[int | None] = []
        self.first = self.last = tuple(abstracted.places), list(found)
        # Of the program's values: what the user binds the results to is no part of it.
        self.names = {v: v.name for e in eqns for v in e.outvars if v.name is not None}

    def repeat(self, builder: Builder, given: Sequence[Var], abstracted: Abstracted) -> list[Any]:
        """The results for other values of the same types, other numbers and places."""
        env: dict[Any, Any] = dict(zip(self.given, [*given, *abstracted.numbers], strict=True))
        at, eqns, watch = env.get, builder.eqns, builder.watch
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
        for eqn, n in self.eqns:
            outs = eqn.outvars
            if len(outs) == 1:
                v = outs[0]
                new = env[v] = Var(v.aval)
                outvars: tuple[Var, ...] = (new,)
            else:
                outvars = tuple([Var(v.aval) for v in outs])
                env.update(zip(outs, outvars, strict=True))
            again = eqn.with_operands(tuple(map(at, eqn.invars, eqn.invars)), outvars)
            again.known_types, again.location = eqn.known_types, where[n]
            eqns.append(again)
        for v, name in self.names.items():
            new = env[v]
            new.name, watch.depths[new] = name, DEEP
        return [Tracer(builder, at(r, r)) if type(r) in _ATOMS else r for r in self.results]


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
    found = _recorded(program, builder, before[0], variables, abstracted, results)
    if found is not None:
        fixed |= _fixed(found, abstracted, {*read})
        if fixed:
            _kept.keep(outline, fixed, 0)
            outline = _key(outline, fixed, abstracted)
        _kept.keep(outline, found, len(found.eqns) + len(program.eqns))
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


def _fixed(found: _Recorded, abstracted: Abstracted, read: set[Any]) -> set[int]:
    """What a gradient depends on: the numbers that were read, and what programs within it know."""
    within = [e for eqn in (*found.program.eqns, *[e for e, _ in found.eqns])
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
              abstracted: Abstracted, results: Sequence[Any]) -> _Recorded | None:
    """What the builder recorded since it was `before`; None where more happened."""
    (after,) = marks((builder,))
    eqns = builder.eqns[before[0]:]
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
