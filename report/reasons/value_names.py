"""Names for the values of a partitioned program: the user's names, lines and expressions.

Each stage has its own variable for the same value of the user's program. The variables are matched
through the equations that produce them, so that a report can name the value in the user's words.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Self

from ...ir.ops.communication.sharding import reshard_p
from ...ir.program import Atom, Equation, Literal, Var
from ...ir.reasons import MOVED, OPERAND, RESULT, Clause, Tensor
from ...ir.source.location import Location
from ...partitioner.pipeline import Partitioned
from ...partitioner.propagation.graph import Node
from ...partitioner.propagation.origins import origins_of
from ...partitioner.regions import has_region, region_of
from ..words import as_written
from .calls import Calls
from .causes import AS_WRITTEN, reached
from .value_paths import equations


class Values:
    """The names of the values of one partitioned program."""

    def __init__(self, partitioned: Partitioned) -> None:
        self.inlined = partitioned.stages.get("inlined", partitioned.resolved)
        self.resolved = partitioned.resolved
        self.resharded = partitioned.resharded
        self.local = partitioned.local
        self.calls = Calls(self.inlined)
        self.origins = origins_of(self.resolved)
        self.argument_of = {v: i for i, v in enumerate(self.resolved.invars)}
        self.of_tensor: dict[int, Var] = {}
        for v, t in (self.origins.tensors.items() if self.origins else ()):
            self.of_tensor.setdefault(t, v)
        self.neighbours: dict[int, list[Node]] = {}
        for node in (self.origins.solution.graph.nodes if self.origins else ()):
            if len(node.tensors) == 2:
                self.neighbours.setdefault(node.tensors[0], []).append(node)
        self.moves: dict[tuple, list[Equation]] = {}
        self.finished: dict[Var, str] = {}        # a pending sum -> the finished value
        self.made: dict[Var, Equation] = {}
        self.readers: dict[Var, list[Equation]] = {}
        self.arguments = {v: i for i, v in enumerate(self.resharded.invars)}
        # parameter of a body -> (what it is outside, whether it is a slice of that)
        self.enters: dict[Var, tuple[Atom, bool]] = {}
        self.named_at: dict[tuple, list[Equation]] = {}
        self.first_made: dict[tuple, list[Equation]] = {}
        self.then_made: dict[tuple, dict[Equation, int]] = {}      # with its number among them
        self.begins: dict[tuple, str] = {}          # the op of the first equation of a place
        self._index_values()
        self._index_places()

    def beside(self, at: Location) -> Self:
        """This, for what is read beside a place: lines of its file are said without the file."""
        self.calls = self.calls.beside(at)
        return self

    def _index_values(self) -> None:
        """Which equation makes a value, which read it, and where it is resharded."""
        for eqn in equations(self.resharded):
            for v in eqn.outvars:
                self.made[v] = eqn
            for a in eqn.invars:
                if isinstance(a, Var):
                    self.readers.setdefault(a, []).append(eqn)
            if eqn.op is reshard_p:
                (operand,), (result,) = eqn.invars, eqn.outvars
                if isinstance(operand, Var) and not operand.name and result.name:
                    self.finished.setdefault(operand, result.name)
                self.moves.setdefault(reached(eqn.location), []).append(eqn)

    def _index_places(self) -> None:
        """Which equations stand at a place of the user's code, and what enters their bodies."""
        resharded, resolved = [*equations(self.resharded)], [*equations(self.resolved)]
        for eqn in resharded:
            key = (reached(eqn.location), eqn.op.name)
            same = self.then_made.setdefault(key, {})
            same[eqn] = len(same)
            self.named_at.setdefault(key, []).append(eqn)
        for eqn in resolved:
            key = (reached(eqn.location), eqn.op.name)
            self.begins.setdefault(key[0], eqn.op.name)
            self.first_made.setdefault(key, []).append(eqn)
            self.named_at.setdefault(key, []).append(eqn)
            for v in eqn.outvars:
                self.made.setdefault(v, eqn)
        for eqn in (*resharded, *resolved):
            if has_region(eqn):
                region = region_of(eqn)
                for slot in region.slots:
                    if slot.operand >= 0:
                        for program, i in slot.inputs:
                            self.enters[region.programs[program][2].invars[i]] = (
                                eqn.invars[slot.operand], slot.stacked)

    def name(self, atom: Atom) -> str:
        """The user's name for a value: a name, or the text of its expression."""
        if isinstance(atom, Literal):
            return f"`{atom.val}`"
        source = self.source(atom)
        for v in (atom, source):
            if v in self.arguments:
                return f"`{v.name or f'argument {self.arguments[v]}'}`"
            if v.name or v in self.finished:
                return f"`{v.name or self.finished[v]}`"
        made = self.made.get(source)
        if made is None and source in self.enters:
            outer, stacked = self.enters[source]
            name = self.name(outer)
            return f"a slice of {name}" if stacked else f"the loop's {name}"
        if made is not None:
            at, text = made.location, made.location.text()
            kind = "" if self.is_as_written(made) else f"the {at.transform} of "
            if text and len(text) <= 40:
                return f"{kind}`{text}`"
            line = f", {self.calls.line(at)}" if at.line else ""
            return f"{kind}the result of `{made.op.name}`{line}"
        return "a value"

    def is_as_written(self, made: Equation) -> bool:
        """Does it compute what is written at its place? With derivatives, the first one there does;
        the others compute what these need.
        """
        at = made.location
        return not at.transform or at.transform in AS_WRITTEN and (
            self.begins.get(reached(at)) == made.op.name)

    def source(self, var: Var) -> Var:
        """The value of which this is another layout."""
        while True:
            made = self.made.get(var)
            if made is None or made.op is not reshard_p or not isinstance(made.invars[0], Var):
                return var
            var = made.invars[0]

    def tensor(self, var: Var) -> int:
        """The value's number in propagation, also if a later pass changed its layout; or -1."""
        if self.origins is None:
            return -1
        source = self.source(var)
        t = self.origins.tensors.get(source, -1)
        made = self.made.get(source)
        if t < 0 and made is not None:
            k = made.outvars.index(source)
            key = (reached(made.location), made.op.name)
            first, then = self.first_made.get(key, []), self.then_made.get(key, {})
            # a line that runs for several layers makes as many values, in this order
            turn = then.get(made, 0) * len(first) // max(1, len(then))
            for eqn in (*first[turn:], *first[:turn]):
                if eqn.outvars[k].aval.shape == source.aval.shape:
                    return self.origins.tensors.get(eqn.outvars[k], -1)
        return t

    def named(self, clauses: Iterable[Clause], eqn: Equation | None, moved: Atom | None = None
              ) -> str:
        """Clauses in words, with the names of tensors and the line of the equation. moved: the
        value that is moved.
        """
        shown = self.shown(eqn, moved)
        return self.with_line("; ".join([c.in_words(shown) for c in clauses]), eqn)

    def shown(self, eqn: Equation | None, moved: Atom | None = None) -> Callable[[Any], str]:
        """How to write a value of a clause about this equation."""
        tensors = {} if moved is None else {MOVED.role: (moved,)}
        if eqn is not None:
            tensors |= {OPERAND: eqn.invars, RESULT.role: eqn.outvars}

        def text(value: Any) -> str:
            if not isinstance(value, Tensor):
                return str(value) if eqn is None else as_written(str(value))
            atoms, k = tensors.get(value.role, ()), max(value.number, 0)
            return self.name(atoms[k]) if k < len(atoms) else str(value)
        return text

    def with_line(self, text: str, eqn: Equation | None) -> str:
        """A text with the line of the equation after its name."""
        if eqn is None or not eqn.location.line:
            return text
        name = f"`{eqn.op.name}`"               # values without a name are said with their line
        return re.sub(rf"(?<!result of ){name}", lambda at: (
            f"{at.group()} {self.calls.line(eqn.location)}"), text, count=1)
