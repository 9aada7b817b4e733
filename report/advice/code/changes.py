"""Changes to the user's code that exchange less and compute the same: declared rewrites.

Each is a `Rewrite` (ir/rewriting/rewrite.py) of one of the files that `sites` goes through: a
pattern, a replacement and the condition under which they are equal, with a description and the
user's expression as it would read. Like changes of specs they are tried at one line at a time,
where a collective is among the replaced equations or feeds them, and at all such lines together.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from typing import Any

from ....ir.diagnostics.errors import ShardtraceError
from ....ir.program import Equation, Program, Var
from ....ir.rewriting.rewrite import Match, Rewrite, Rewrites
from ....ir.rewriting.unread import drop_dead
from ....ir.source.location import UNKNOWN, Location
from ...reasons.causes import where
from ...reasons.value_paths import inner_programs
from .blocks import BLOCKS, behind
from .enlarging import ENLARGING
from .joins import JOINS
from .lines.expressions import replaced_name
from .lines.replacements import replaced_lines
from .lines.statements import Edit, in_place
from .loops import LOOPS
from .one_block import ONE_BLOCK
from .one_hot import ONE_HOT
from .reduced_blocks import REDUCED
from .rewrites import CHANGES, CodeChange
from .selections import SELECTIONS
from .varying_axes import VARYING, with_numbers, with_varying_steps
from .weights import WEIGHTS


@dataclass(frozen=True)
class Site:
    """A place where a change of code applies. near: the places of all equations that it concerns.
    exchanges: is it of an exchange, rather than of what reads it?
    """
    change: CodeChange
    location: Location
    near: frozenset[tuple]
    exchanges: bool
    _edits: Callable[[], tuple[Edit, ...]] = field(compare=False)

    @cached_property
    def edits(self) -> tuple[Edit, ...]:
        """The edits of the user's lines that make it; none if they cannot be written."""
        return self._edits()


@dataclass(frozen=True)
class Rewritten:
    """A change of code at a line, wherever that line runs: at these sites."""
    name: str
    at: tuple
    change: CodeChange = field(compare=False)
    location: Location = field(default=UNKNOWN, compare=False)
    sites: tuple[Site, ...] = field(default=(), compare=False)

    @property
    def edits(self) -> tuple[Edit, ...]:
        """The edits of the user's lines, by the first of the sites that can be written."""
        return next((site.edits for site in self.sites if site.edits), ())

    @property
    def text(self) -> str:
        at = f" at line {self.location.line}" if self.location.line else ""
        return f"{self.change.words}{at}"

    def made(self, program: Program) -> Program:
        """The program with the change made in it and in the programs that it holds."""
        return _rewritten(program, Rewrites(Rewrite(
            self.name, self.change.rewrite.pattern, self.change.rewrite.replacement,
            why=self.change.rewrite.why, where=lambda m: where(m.eqn.location) == self.at)))


def sites(program: Program) -> Iterator[Site]:
    """The places where changes of code apply in a program and in the programs that it holds."""
    programs = [*_programs(program)]
    for change in (*CHANGES, *ENLARGING, *ONE_HOT, *WEIGHTS, *REDUCED, *BLOCKS, *ONE_BLOCK,
                   *SELECTIONS, *JOINS, *LOOPS):
        rewrites = Rewrites(change.rewrite)
        found: dict[tuple, list[tuple[Match, Any]]] = {}    # by place
        for m in chain.from_iterable(map(rewrites.matches, programs)):
            try:
                value = change.rewrite.replacement(m)      # type: ignore[operator]
            except (TypeError, ValueError, ShardtraceError):
                continue                                   # it does not type-check that way
            if value is not None:
                found.setdefault(where(m.eqn.location), []).append((m, value))
        for same in found.values():
            for m, _ in same:
                yield Site(change, m.eqn.location, frozenset(
                    where(e.location) for e in _about(m)), m.eqn.op.collective is not None,
                    partial(_edits, change, m, same, programs))


def _edits(change: CodeChange, m: Match, same: Sequence[tuple[Match, Any]],
           programs: Sequence[Program]) -> tuple[Edit, ...]:
    """The edits that make a change at an equation; none if they cannot be written, or are of lines
    that something else runs, too. same: what is replaced at the place, and by what.
    """
    code, at = change.code(m), m.eqn.location
    if isinstance(code, str):
        code = ((at, in_place(at, code)),) if code and at.line == at.end_line else ()
    if not code:
        code = replaced_lines(m, same)
    if code:                                # what took a name from an operand goes
        code = (*code, *[(e.location, name) for e in behind(m) if e.op.collective is not None
                         and (name := replaced_name(m.program, m.eqn, e))])
    inside = [where(place) for place, _ in code if place.line != at.line]
    return () if any(sum(any(where(e.location) == place for e in p.eqns) for p in programs) > 1
                     for place in inside) else tuple(code)


def _about(m: Match) -> Iterator[Equation]:
    """The equations that a change is about: exchanges among them may be made less by it."""
    makers = [m.maker(a) for a in m.eqn.invars]
    for e in makers:                                       # and what those look through
        if e is not None and e.op.name in ("pvary", "reshape", "rev"):
            makers.append(m.maker(e.invars[0]))
        elif e is not None and e.op is m.eqn.op and e.op.name == "add":
            makers += map(m.maker, e.invars)
    inside = [e for _, p in inner_programs(m.eqn, 0) for e in p.eqns
              if e.op.collective is not None]
    yield from (m.eqn, *inside, *behind(m), *[e for e in makers if e is not None])


def _programs(program: Program) -> Iterator[Program]:
    """The programs that a program holds, as changes see them, each before what holds it."""
    makers: dict[Var, Equation] = {}
    for n, eqn in enumerate(program.eqns if program.holds_programs else ()):
        makers.update(dict.fromkeys(eqn.outvars, eqn))
        for _, inner in _held(program, eqn, n, makers):
            yield from _programs(inner)
    yield program


def _held(program: Program, eqn: Equation, n: int, makers: dict[Var, Equation]
          ) -> Iterator[tuple[Any, Program]]:
    """The programs that the n-th equation of one holds, each with its place, as changes see them.
    """
    for place, inner in inner_programs(eqn, n):
        if eqn.op.name == "scan":
            inner = with_varying_steps(eqn, with_numbers(eqn, inner, makers), program,
                                     makers.get)        # type: ignore[arg-type]
        if "in_specs" in eqn.params:
            inner.attributes[VARYING] = {
                v: {str(a) for e in s.padded(v.aval.ndim).entries for a in e}
                for v, s in zip(inner.invars, eqn.params["in_specs"], strict=True)}
        yield place, inner


def _rewritten(program: Program, rewrites: Rewrites) -> Program:
    """The program, and those that it holds, after the rewrites."""
    eqns, changed = [], False
    makers: dict[Var, Equation] = {}
    for n, eqn in enumerate(program.eqns if program.holds_programs else ()):
        makers.update(dict.fromkeys(eqn.outvars, eqn))
        new = {}
        for (_, name, j), inner in _held(program, eqn, n, makers):
            made = _rewritten(inner, rewrites)
            if made is not inner:
                held = new.get(name, eqn.params[name])
                new[name] = made if j < 0 else (*held[:j], made, *held[j + 1:])
        eqns.append(eqn.replace(params={**eqn.params, **new}) if new else eqn)
        changed = changed or bool(new)
    within = program.replace(eqns=eqns) if changed else program
    after = rewrites(within)
    return after if after is within else drop_dead(after)
