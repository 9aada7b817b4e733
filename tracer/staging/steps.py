"""Recorded equations that can be recorded again without running the function they came from.

The equations of a library function depend on the types of its operands and on its other arguments.
If these are as before, the same equations are recorded again; neither the function nor inference
runs. Whoever stores steps must have all of that in the key.
"""
from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from ...ir.op import Op
from ...ir.op_instance import OpInstance, Signature
from ...ir.program import Equation, Literal, Var
from ...ir.reasons import Reason
from ...ir.settings.context import STATE, trace_settings
from ...ir.source.location import Location
from ...ir.support.caches import cached
from .builder import NEW, Builder
from .tracer import Tracer

MISS = object()          # what was not seen before


def value_of(literal: Literal) -> Any:
    """The value of a literal, for code that depends on it; code that only passes it on uses the
    literal.
    """
    read = STATE.numbers_read
    if read is not None:
        read.append(literal)
    return literal.val


class reads:
    """Collects the literals whose values are read within the block, in the list that is its target.
    """

    __slots__ = ("outer",)

    def __enter__(self) -> list[Literal]:
        self.outer, STATE.numbers_read = STATE.numbers_read, []
        return STATE.numbers_read

    def __exit__(self, *exc: object) -> None:
        if self.outer is not None:
            self.outer += STATE.numbers_read or ()
        STATE.numbers_read = self.outer


class _Owner:
    """The context that rules depend on besides their arguments: steps are stored in op instances
    under it.
    """

    __slots__ = ("what",)

    def __init__(self, *what: Hashable) -> None:
        self.what = what


_owner = cached(128)(_Owner)


def owner_of(kind: Hashable) -> _Owner:
    """The owner of the steps of one kind of rule in the current context."""
    state = STATE
    return _owner(kind, trace_settings(), state.mesh, state.named_axes, state.mapped_mesh_axes,
                  state.spmd_axes, state.check_vma)


# How to record an equation again: op, what picks the operands among numbered atoms, params,
# signature, op instance (None if a param cannot be hashed), reason, and the numbers of its location
# and of its first result.
Recipe = tuple[Op, Callable[[Any], Any], dict[str, Any], Signature, OpInstance | None, Reason, int,
               int]


def recipe_of(eqn: Equation, operands: Sequence[int], numbers: Mapping[Any, int], place: int = 0
              ) -> Recipe:
    """The recipe of an equation. numbers: of its results; place: the number of its location."""
    try:
        instance = eqn.instance
    except TypeError:
        instance = None
    return (eqn.op, _picker(operands), eqn.params, eqn.types, instance, eqn.reason, place,
            numbers[eqn.outvars[0]] if eqn.outvars else 0)


def follow(recipes: Sequence[Recipe], atoms: list[Any], locations: Sequence[Location],
           eqns: list[Equation]) -> None:
    """Append the equations of recipes to `eqns`, and enter their results in `atoms`."""
    for op, operands, params, known, instance, reason, place, n in recipes:
        types = known[1]
        eqn = NEW(Equation)
        eqn.op = op
        eqn.invars = operands(atoms)
        if len(types) == 1:
            var: Var = NEW(Var)
            var.aval, var.name = types[0], None
            atoms[n] = var
            eqn.outvars = (var,)
        else:
            eqn.outvars = atoms[n:n + len(types)] = tuple([Var(t) for t in types])
        eqn.params = params
        eqn.location = locations[place]
        eqn.reason = reason
        eqn.known_types = known
        if instance is not None:
            eqn.instance = instance
        eqns.append(eqn)


class Part:
    """The equations of one builder.

    used: numbers of the values that it takes from elsewhere, in the order of their first use.
    kept: numbers of the results that are read elsewhere.
    """

    __slots__ = ("equations", "kept", "used", "which")

    def __init__(self, which: int) -> None:
        self.which = which
        self.used: list[int] = []
        self.equations: list[Recipe] = []
        self.kept: list[int] = []


class Steps:
    """Equations that a function recorded, and its results: numbers of values, or constants.

    Values are numbered: what the function was given, then the results of equations in their order,
    then literals. atoms: what stands for them, as far as that is known before.
    """

    __slots__ = ("atoms", "parts", "results")

    def __init__(self, atoms: list[Any], parts: list[Part], results: list[Any]) -> None:
        self.atoms, self.parts, self.results = atoms, parts, results

    def repeat(self, builders: Sequence[Builder], given: Sequence[Any], location: Location
               ) -> list[Any]:
        """Record the equations once more; the function's results."""
        values: list[Any] = list(given)
        count = len(self.atoms) - len(values)
        values += [None] * count
        for part in self.parts:
            builder = builders[part.which]
            atoms, eqns = self.atoms.copy(), builder.eqns
            for n in part.used:
                x = values[n]
                atoms[n] = x.variable if type(x) is Tracer and x.builder is builder else (
                    builder.atom(x))
            follow(part.equations, atoms, (location,), eqns)
            for n in part.kept:
                values[n] = Tracer(builder, atoms[n])
        return [values[r] if type(r) is int else r for r in self.results]


def _picker(numbers: Sequence[int]) -> Callable[[Any], tuple[Any, ...]]:
    """A function that gives the items of these numbers."""
    if len(numbers) > 1:
        return itemgetter(*numbers)
    if not numbers:
        return lambda _: ()
    n, = numbers
    return lambda items: (items[n],)


def marks(builders: Sequence[Builder]) -> list[tuple[int, ...]]:
    """How much each builder has recorded."""
    return [(len(b.eqns), len(b.consts), len(b.captured), len(b.meshes)) for b in builders]


def steps_since(before: Sequence[tuple[int, ...]], builders: Sequence[Builder],
                given: Sequence[Any], results: Sequence[Any], constant: type | None = None,
                programs: bool = False) -> Steps | None:
    """The steps that builders recorded since their marks were `before`; None where they are not
    all that happened: something that is not given was captured, an equation has an effect or
    holds a program, or a result is neither traced, None, nor a `constant`.

    builders: in the order in which one may use what another recorded. constant: the class of
    numbers, given ones included; each has the literal that it becomes. programs: equations may
    hold programs, since the steps are for the place alone at which these were traced.
    """
    try:
        return _Recorded(given, constant, programs).steps(before, builders, results)
    except _NotRepeatable:
        return None


class _NotRepeatable(Exception):
    """More happened than the equations that were recorded."""


class _Recorded:
    """What builders recorded, by number. numbers: of variables and literals. atoms: what stands for
    them, as far as that is known.
    """

    def __init__(self, given: Sequence[Any], constant: type | None, programs: bool) -> None:
        self.constant, self.count, self.programs = constant, len(given), programs
        self.numbers: dict[Any, Any] = {}
        for i, x in enumerate(given):
            if type(x) is Tracer:
                self.numbers[x.variable] = i
            elif type(x) is constant:
                self.numbers[x.literal] = i
        self.atoms: list[Any] = []

    def steps(self, before: Sequence[tuple[int, ...]], builders: Sequence[Builder],
              results: Sequence[Any]) -> Steps:
        """What was recorded after the marks `before`, as steps that give these results."""
        spans = [self.enter(b, mark) for b, mark in zip(builders, before, strict=True)]
        self.atoms = [None] * self.count
        parts = [self.part(which, b, b.eqns[mark[0]:], span) for which, (b, mark, span) in
                 enumerate(zip(builders, before, spans, strict=True)) if mark[0] < len(b.eqns)]
        found = [self.result(x) for x in results]
        read = {n for n in found if type(n) is int}.union(*[part.used for part in parts])
        for part in parts:
            span = spans[part.which]
            part.kept += sorted([n for n in read if n in span])
        return Steps(self.atoms, parts, found)

    def enter(self, builder: Builder, mark: tuple[int, ...]) -> range:
        """Number the results of the equations of a builder since its mark."""
        first, consts, captured, meshes = mark
        if consts != len(builder.consts) or meshes != len(builder.meshes) or not all(
                [type(x) is Tracer and x.variable in self.numbers
                 for x in builder.captured[captured:]]):
            raise _NotRepeatable
        start = self.count
        for eqn in builder.eqns[first:]:
            if eqn.op.effect or eqn.op.subprograms and not self.programs:
                raise _NotRepeatable
            for v in eqn.outvars:
                self.numbers[v] = self.count
                self.count += 1
        return range(start, self.count)

    def part(self, which: int, builder: Builder, eqns: Sequence[Equation], span: range) -> Part:
        """The equations of a builder, whose results have the numbers `span`."""
        part, numbers, atoms = Part(which), self.numbers, self.atoms
        for eqn in eqns:
            operands = []
            for a in eqn.invars:
                n = numbers.get(a)
                if n is None and type(a) is Literal:
                    n = len(atoms)
                    atoms.append(a)
                elif n is None:
                    n = numbers.get(builder.stands_for(a))     # type: ignore[arg-type]
                    if n is None:
                        raise _NotRepeatable
                if n < self.count and n not in span and n not in part.used:
                    part.used.append(n)
                operands.append(n)
            recipe = recipe_of(eqn, operands, numbers)
            if recipe[4] is None:
                raise _NotRepeatable
            part.equations.append(recipe)
        return part

    def result(self, x: Any) -> Any:
        """The number of a result of the function, or the constant that it is."""
        if type(x) is self.constant:
            return self.numbers.get(x.literal, x)
        n = self.numbers.get(x.variable) if type(x) is Tracer else None
        if n is None and x is not None:
            raise _NotRepeatable
        return n
