"""The rewrite engine: one walk over a program applies declared rewrites until none applies.

    HALVES = Rewrites(Rewrite(
        "halved twice", "half = div x 2\\nout = div half 2", "out = div x 4",
        why="one division instead of two", where=lambda m: m.x.aval.dtype.kind == "f"))
    program = HALVES(program)

Rewrites are looked up by the op that they replace, so a program without it costs a single test.
Equations of a replacement are rewritten in turn; they take the place, the location and, unless they
state another, the reason of the replaced equation, and the last one binds its variables. So names
and types stay: a rewrite that changes a type is wrong. What nothing reads any more is dropped.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..builder import ProgramBuilder
from ..op import OPS, Op
from ..program import Atom, Equation, Level, Literal, Program, Var
from ..reasons import Reason
from ..support.named_tuple import NamedTuple
from .pattern import Named, Step, orders, read
from .unread import without_unread

_MOST = 1000            # rewrites of what one equation has become


class Shape:
    """Equations that are looked for, in a program or as what makes a value (`made_as`).

    pattern: see pattern.py. where: a condition. single_use: values that nothing else may read.
    """

    def __init__(self, pattern: str, *, where: Callable[[Match], Any] | None = None,
                 single_use: tuple[str, ...] = ()) -> None:
        self.pattern, self.where, self.single_use = pattern, where, single_use
        self._orders: tuple[Order, ...] = ()

    @property
    def orders(self) -> tuple[Order, ...]:
        """The pattern, read when first needed: one for each order of operands that commute."""
        if not self._orders:
            self._orders = tuple([Order(self, steps, _known(*steps))
                                  for steps in orders(read(self.pattern))])
        return self._orders


class Order(NamedTuple):
    """The equations of a shape, with the operands of ops that commute in one order.

    operands: of the last one by place, the literals and the ops that compute others.
    """
    shape: Any
    steps: tuple[Step, ...]
    operands: tuple[tuple[int, Any, tuple[Op, ...]], ...]

    def fits(self, match: Match) -> bool:
        """Does the equation of a match end the pattern, under its conditions?"""
        shape = self.shape
        return match.reads_as(self.steps) and match.read_once(shape.single_use) and (
            shape.where is None or bool(shape.where(match)))

    def apply(self, match: Match) -> Any:
        """The value or values that a rewrite has read instead; None if it does not apply."""
        new = self.shape.replacement
        return None if not self.fits(match) else (
            new(match) if callable(new) else match.written(new))


def _known(*steps: Step) -> tuple[tuple[int, Any, tuple[Op, ...]], ...]:
    made = {step.result: step.ops for step in steps[:-1]}
    return tuple([(k, wanted, made.get(wanted, ())) for k, wanted in enumerate(steps[-1].operands)
                  if wanted in made or not isinstance(wanted, Named)])


class Rewrite(Shape):
    """A shape in a program, and what stands there better.

    replacement: text, or from the match the value to read instead (or several, for the results of
    an op with several); None where it turns out that there is none. why: what is gained, in a line.
    """

    def __init__(self, name: str, pattern: str, replacement: str | Callable[[Match], Any], *,
                 why: str, where: Callable[[Match], Any] | None = None,
                 single_use: tuple[str, ...] = ()) -> None:
        super().__init__(pattern, where=where, single_use=single_use)
        self.name, self.replacement, self.why = name, replacement, why


class Rewrites:
    """Rewrites that are applied together; the first of a list that applies to an equation is.

    Equations whose results only they read are dropped where their op stands in a pattern, or among
    `also_drops`: ops that replacements look for by themselves (`Match.maker`).
    """

    def __init__(self, *rewrites: Rewrite, also_drops: tuple[Op, ...] = ()) -> None:
        self.rewrites = rewrites
        self._by_op: dict[Op, list[Order]] = {}
        self._ops_of_steps: list[list[tuple[Op, ...]]] = []     # of each rewrite
        self._drops = {*also_drops}
        self._counts = any([r.single_use for r in rewrites])

    @property
    def by_op(self) -> dict[Op, list[Order]]:
        """By the op that they replace."""
        if not self._by_op:
            by_op: dict[Op, list[Order]] = {}
            every = [rewrite.orders for rewrite in self.rewrites]
            self._ops_of_steps = [[step.ops for step in first.steps] for first, *_ in every]
            for first, *others in every:
                *before, last = first.steps
                for op in last.ops:
                    by_op.setdefault(op, []).extend((first, *others))
                self._drops.update([op for step in before for op in step.ops])
            self._by_op = by_op         # the last, as other threads ask for it
        return self._by_op

    def __call__(self, program: Program) -> Program:
        """The program after all that apply, itself if none does. (Not the programs in it.)"""
        ops, by_op = program.ops, self._by_op or self.by_op
        if ops.isdisjoint(by_op):
            return program
        for steps in self._ops_of_steps:
            for some in steps:
                if ops.isdisjoint(some):
                    break
            else:
                return _Walk(program, by_op, self._counts).program(self._drops)
        return program

    def matches(self, program: Program) -> Iterator[Match]:
        """Where the patterns stand in a program, in order; nothing is rewritten."""
        walk = _Walk(program, self.by_op, self._counts)
        for eqn in () if program.ops.isdisjoint(walk.by_op) else program.eqns:
            for order in walk.fitting(eqn):
                if order.fits(match := Match(walk, eqn)):
                    yield match
            walk.made.update(dict.fromkeys(eqn.outvars, eqn))


class Match:
    """An equation as a rewrite sees it: names of the pattern are attributes.

    mesh: of the program. eqn: the equation that would be replaced.
    """

    def __init__(self, walk: _Walk, eqn: Equation) -> None:
        self._walk, self.eqn, self.mesh = walk, eqn, walk.source.mesh
        self._named: dict[str, Any] = {}
        self._builder = ProgramBuilder(
            eqn.outvars[0].aval.mesh if walk.source.level is Level.TRACED and eqn.outvars
            else self.mesh, walk.source.level)

    def __getattr__(self, name: str) -> Any:
        try:
            return self._named[name]
        except KeyError:
            raise AttributeError(f"the pattern names no {name!r}") from None

    @property
    def program(self) -> Program:
        """The program that the equation is in, as it was before any rewrite."""
        return self._walk.source

    @property
    def emitted(self) -> Sequence[Equation]:
        """The equations that were written into the replacement so far."""
        return self._builder.eqns

    def maker(self, atom: Atom) -> Equation | None:
        """The equation that computes a value; None if it is a parameter or a literal."""
        return None if atom.__class__ is Literal else self._walk.made.get(atom)  # type: ignore

    def made_as(self, atom: Atom, *shapes: Shape) -> Match | None:
        """How a value is computed, if in one of these shapes: the first that fits."""
        return self._walk.made_as(atom, shapes)

    def emit(self, op: Op, *operands: Atom, like: Equation | None = None,
             reason: Reason | None = None, **params: Any) -> Any:
        """Write an equation into the replacement; its result, or a list of them.

        like: where it comes from, if not from the equation that is replaced; it has its location
        and, where none is given, its reason.
        """
        like = like or self.eqn
        results = self._builder.emit(op, operands, params, location=like.location,
                                     reason=like.reason if reason is None else reason)
        return results if op.multiple_results else results[0]

    def full(self, number: Atom, shape: Sequence[int], sharding: Any = None) -> Atom:
        """Write an array of this shape, all of whose elements are the number."""
        return self.emit(OPS["broadcast_in_dim"], number, shape=tuple(shape),
                         broadcast_dimensions=(), sharding=sharding)

    def constant_of(self, atom: Atom) -> Literal | None:
        """The value of all elements of an array, if it is made by repeating a constant."""
        eqn = self.maker(atom)
        if eqn is not None and eqn.op is OPS["broadcast_in_dim"] and isinstance(
                eqn.invars[0], Literal):
            return eqn.invars[0]
        return None

    def reads(self, atom: Atom) -> int:
        """How often a value is read; known where a rewrite of the list names `single_use`."""
        return (self._walk.reads or {})[atom]

    # -- of the engine ---------------------------------------------------------------------------

    def read_once(self, names: Sequence[str]) -> bool:
        """Is the pattern the only reader of these values?"""
        return all([self.reads(self._named[name]) == 1 for name in names])

    def reads_as(self, steps: Sequence[Step]) -> bool:
        """Is the equation the last of the pattern, and what it reads what stands before?"""
        makers, last = {step.result.name: step for step in steps[:-1]}, steps[-1]
        if not self._is(self.eqn, last, makers):
            return False
        results = self.eqn.outvars
        self._named[last.result.name] = results if last.result.rest else results[0]
        return True

    def _is(self, eqn: Equation, step: Step, makers: dict[str, Step]) -> bool:
        """Does an equation fit a step, and what makes its operands those before? Binds names."""
        operands, given = step.operands, eqn.invars
        if eqn.op not in step.ops:
            return False
        if operands and operands[-1].__class__ is Named and operands[-1].rest:
            if len(given) < len(operands) - 1:
                return False
            given = (*given[:len(operands) - 1], given[len(operands) - 1:])
        if len(operands) != len(given):
            return False
        for name, wanted in step.params:
            if name not in eqn.params or not self._binds(wanted, eqn.params[name]):
                return False
        for wanted, atom in zip(operands, given, strict=True):
            if not self._binds(wanted, atom):
                return False
            before = makers.get(wanted.name) if wanted.__class__ is Named else None
            if before is not None:
                made = self.maker(atom)                 # type: ignore[arg-type]
                if made is None or not self._is(made, before, makers):
                    return False
        return True

    def _binds(self, wanted: Any, value: Any) -> bool:
        """Does this value match what the pattern has in its place?"""
        if wanted.__class__ is not Named:
            return _same(wanted, value)
        known = self._named.setdefault(wanted.name, value)
        return known is value or _same(known, value)

    def written(self, text: str) -> Any:
        """What a replacement in text gives."""
        if text.isidentifier():
            return self._named[text]
        result: Any = None
        for step in read(text):
            operands = [atom for a in step.operands for atom in self._meant(a)]
            result = self.emit(step.ops[0], *operands, **{
                name: self._named[value.name] if isinstance(value, Named) else value
                for name, value in step.params})
            self._named[step.result.name] = result
        return result

    def _meant(self, operand: Any) -> Sequence[Atom]:
        if not isinstance(operand, Named):
            raise ValueError(f"a replacement in text has no literal of a type: {operand!r}")
        found = self._named[operand.name]
        return found if operand.rest else (found,)

    def finished(self, given: Any) -> list[Equation]:
        """The equations of the replacement, which bind the variables of the replaced one."""
        eqns, outvars = self._builder.eqns, self.eqn.outvars
        values = given if isinstance(given, (tuple, list)) else (given,)
        names: dict[Atom, Var] = {}
        emitted = {v for e in eqns for v in e.outvars}
        for var, value in zip(outvars, values, strict=True):
            assert value.aval is var.aval or value.aval == var.aval, (
                f"{self.eqn} would be {value.aval} instead of {var.aval}")
            if value in emitted and value not in names:
                names[value] = var
            else:
                self._walk.rename(var, value)
        return [e if names.keys().isdisjoint((*e.invars, *e.outvars)) else e.with_operands(
            [names.get(a, a) for a in e.invars],
            [names.get(v, v) for v in e.outvars]) for e in eqns]


class _Walk:
    """One walk over a program. made: by value, the equation that computes it, so far."""

    def __init__(self, program: Program, by_op: dict[Op, list[Order]], counts: bool) -> None:
        self.source, self.by_op = program, by_op
        self.made: dict[Var, Equation] = {}
        self.eqns: list[Equation] = []
        self.now: dict[Atom, Atom] = {}         # values that are read as others
        self.reads: Counter[Atom] | None = None     # how often each is read, if that matters
        if counts:
            self.reads = Counter([a for e in program.eqns for a in e.invars])
            self.reads.update(program.outvars)

    def made_as(self, atom: Atom, shapes: Sequence[Shape]) -> Match | None:
        eqn = None if atom.__class__ is Literal else self.made.get(atom)    # type: ignore
        return None if eqn is None else next((
            match for shape in shapes for order in shape.orders
            if order.fits(match := Match(self, eqn))), None)

    def program(self, drops: set[Op]) -> Program:
        """The program after one walk. drops: ops that go where nothing reads them any more."""
        by_op, made, now, eqns = self.by_op, self.made, self.now, self.eqns
        given, done, changed = self.source.eqns, 0, False       # the first `done` are in `eqns`
        for k, eqn in enumerate(given):
            if now and not now.keys().isdisjoint(eqn.invars):
                eqn = eqn.with_operands([now.get(a, a) for a in eqn.invars], eqn.outvars)
            found = self.fitting(eqn) if eqn.op in by_op else ()
            if found:
                eqns += given[done:k]
                changed |= self.rewritten(eqn, found)
                done = k + 1
                continue
            for v in eqn.outvars:
                made[v] = eqn
            if eqn is not given[k]:
                eqns += (*given[done:k], eqn)
                done = k + 1
        if not changed:
            return self.source
        eqns += given[done:]
        outvars = [now.get(a, a) for a in self.source.outvars]
        return self.source.replace(eqns=without_unread(eqns, outvars, drops), outvars=outvars)

    def fitting(self, eqn: Equation) -> Sequence[Order]:
        """The rewrites whose pattern an equation may end, by its op, its literals and the ops that
        compute its operands.
        """
        made, fitting = self.made, []
        for rewrite in self.by_op[eqn.op] if eqn.op in self.by_op else ():
            for k, wanted, ops in rewrite.operands:
                atom = eqn.invars[k]
                if atom.__class__ is Literal:
                    if ops or atom.aval.shape or atom.val != wanted:    # type: ignore[union-attr]
                        break
                elif not ops or atom not in made or made[atom].op not in ops:   # type: ignore[index]
                    break
            else:
                fitting.append(rewrite)
        return fitting

    def rewritten(self, eqn: Equation, fitting: Sequence[Order]) -> bool:
        """Write down what an equation becomes in the end; whether that is not itself."""
        waiting, steps = [eqn], 0
        while waiting:
            eqn = waiting.pop()
            for rewrite in fitting if steps == 0 else self.fitting(eqn):
                match = Match(self, eqn)
                found = rewrite.apply(match)
                if found is None:
                    continue
                steps += 1
                assert steps < _MOST, f"rewrite {rewrite.shape.name} does not end"
                new = match.finished(found)
                if self.reads is not None:
                    self.reads.subtract(eqn.invars)
                    self.reads.update([a for e in new for a in e.invars])
                waiting += reversed(new)
                break
            else:
                self.eqns.append(eqn)
                for v in eqn.outvars:
                    self.made[v] = eqn
        return steps > 0

    def rename(self, old: Var, new: Atom) -> None:
        self.now[old] = new
        if self.reads is not None:
            self.reads[new] += self.reads.pop(old, 0)


def _same(one: Any, other: Any) -> bool:
    """Are these the same value or param? (A number stands for a literal.)"""
    if one is other:
        return True
    if isinstance(other, Literal):
        if other.aval.shape or isinstance(one, Var):
            return False
        if isinstance(one, Literal):
            return one.aval.dtype == other.aval.dtype and bool(one.val == other.val)
        return isinstance(one, (int, float)) and bool(other.val == one)
    return not isinstance(one, (Var, Literal)) and not isinstance(other, Var) and bool(one == other)


def finder(program: Program) -> Callable[[Atom, Sequence[Shape]], Match | None]:
    """A function that says how a value of a program is computed, as `Match.made_as` does."""
    walk = _Walk(program, {}, True)
    walk.made = {v: e for e in program.eqns for v in e.outvars}
    return walk.made_as
