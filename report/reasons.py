"""Why a collective exists: from its equation back to what the user wrote.

A collective comes from a change of layout that the partitioner wrote down with a reason; here the
equation and the values of that reason get the user's names and lines, and every axis in it is
followed back, op by op, to the annotation that put it there.
"""
from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..ir.location import UNKNOWN, Location
from ..ir.ops.sharding import reshard_p
from ..ir.program import Atom, Equation, Literal, Program, Var
from ..ir.spec import spec_from_entries
from ..partitioner.collectives import CollectiveRecord
from ..partitioner.graph import Node
from ..partitioner.origins import KEY, Origins
from ..partitioner.pipeline import Partitioned
from ..partitioner.regions import has_region, region_of
from .changes import spec_text
from .places import inner_programs


@dataclass(frozen=True)
class Path:
    """How an axis came to a value. root: the annotation it comes from; steps: the equations that
    handed it on, the first one nearest to the annotation. tensors: the values on the way.
    """
    axis: str
    dim: int
    value: str
    root: str
    root_location: Location
    steps: tuple[tuple[str, Location], ...]
    tensors: tuple[int, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        text = f"{self.axis} on dimension {self.dim} of {self.value} comes from {self.root}"
        if self.root_location.line:
            text += f" at line {self.root_location.line}"
        if self.steps:
            ways = [f"`{name}` line {at.line}" if at.line else f"`{name}`"
                    for name, at in self.steps]
            if len(ways) > 4:
                ways = [*ways[:2], "...", *ways[-1:]]
            text += f" through {', '.join(ways)}"
        return text


@dataclass(frozen=True)
class Hold:
    """A value that an annotation keeps in one layout. tensor: as in propagation."""
    value: str
    spec: str
    root: str
    root_location: Location
    axes: frozenset[str] = frozenset()
    tensor: int = field(default=-1, compare=False)

    def __str__(self) -> str:
        at = f" at line {self.root_location.line}" if self.root_location.line else ""
        return f"{self.value} is held as {self.spec} by {self.root}{at}"


@dataclass(frozen=True)
class Step:
    """One step back: through `equation`, from dimension `dim` of `tensor`."""
    equation: Equation
    tensor: int
    dim: int


@dataclass(frozen=True)
class Cause:
    """What a collective was written down for.

    move: the `reshard` of the RESHARDED program, None where the user asked for the collective
    itself. equation: the one that needs its operand otherwise, or leaves a pending sum. text: why,
    with names; paths: where the axes come from; holds: what keeps a value from having them.
    """
    move: Equation | None
    equation: Equation | None
    text: str
    paths: tuple[Path, ...] = ()
    holds: tuple[Hold, ...] = ()

    def lines(self) -> list[str]:
        """The reason in sentences, the nearest first."""
        return [*([self.text] if self.text else []), *map(str, self.paths), *map(str, self.holds)]

    def __str__(self) -> str:
        return "; ".join(self.lines())


class Reasons:
    """Finds the causes of the collectives of one partitioned program."""

    def __init__(self, partitioned: Partitioned) -> None:
        self.resolved = partitioned.resolved
        self.resharded = partitioned.resharded
        origins = self.resolved.memo.get(KEY)
        self.origins: Origins | None = origins if isinstance(origins, Origins) else None
        self.argument_of = {v: i for i, v in enumerate(self.resolved.invars)}
        self.of_tensor: dict[int, Var] = {}
        for v, t in (self.origins.tensors.items() if self.origins else ()):
            self.of_tensor.setdefault(t, v)
        self.neighbours: dict[int, list[Node]] = {}
        for node in (self.origins.solution.graph.nodes if self.origins else ()):
            if len(node.tensors) == 2:
                self.neighbours.setdefault(node.tensors[0], []).append(node)
        self.moves: dict[tuple, list[Equation]] = {}
        self.made: dict[Var, Equation] = {}
        self.readers: dict[Var, list[Equation]] = {}
        self.arguments = {v: i for i, v in enumerate(self.resharded.invars)}
        for eqn in _equations(self.resharded):
            for v in eqn.outvars:
                self.made[v] = eqn
            for a in eqn.invars:
                if isinstance(a, Var):
                    self.readers.setdefault(a, []).append(eqn)
            if eqn.op is reshard_p:
                self.moves.setdefault(where(eqn.location), []).append(eqn)
        # parameter of a body -> (what it is outside, whether it is a slice of that)
        self.enters: dict[Var, tuple[Atom, bool]] = {}
        self.named_at: dict[tuple, list[Equation]] = {}
        self.first_made: dict[tuple, list[Equation]] = {}
        for eqn in _equations(self.resolved):
            self.first_made.setdefault((where(eqn.location), eqn.op.name), []).append(eqn)
            for v in eqn.outvars:
                self.made.setdefault(v, eqn)
        for eqn in (*_equations(self.resharded), *_equations(self.resolved)):
            self.named_at.setdefault((where(eqn.location), eqn.op.name), []).append(eqn)
            if has_region(eqn):
                region = region_of(eqn)
                for slot in region.slots:
                    if slot.operand >= 0:
                        for program, i in slot.inputs:
                            self.enters[region.programs[program][2].invars[i]] = (
                                eqn.invars[slot.operand], slot.stacked)

    # -- from the collective to the move ---------------------------------------------------------

    def cause(self, record: CollectiveRecord) -> Cause:
        """Why this collective is there."""
        move = self.move_of(record)
        if move is None:
            equation = self.spoken_of(record.reason, record.source)
            if equation is None:
                return Cause(None, None, record.reason or f"`{record.op}` is written here")
            axes = frozenset(map(str, record.mesh_axes))
            return Cause(None, equation, self.named(record.reason, equation),
                         tuple(self.operand_paths(equation, axes)))
        operand, result = move.invars[0], move.outvars[0]
        summed = operand.aval.sharding.spec.unreduced - result.aval.sharding.spec.unreduced
        equation, word = self.context(move, record.reason)
        text = self.named(move.reason or record.reason, equation) if equation else (
            move.reason or record.reason or "`reshard` is written here")
        text = text.replace("`reshard` is written here",
                            f"`reshard` to {result.aval.sharding.spec} is written here")
        paths = list(self.sum_paths(operand, summed)) if summed else []
        if not summed:
            paths += self.layout_paths(operand, result, equation)
        return Cause(move, equation, text, tuple(dict.fromkeys(paths)),
                     tuple(dict.fromkeys(self.holds(move, equation, frozenset(
                         map(str, record.mesh_axes))))))

    def holds(self, move: Equation, equation: Equation | None, axes: frozenset[str]
              ) -> Iterator[Hold]:
        """Annotations that keep one of the values at hand from being split over the axes."""
        near = [*move.invars, *move.outvars]
        if equation is not None:
            near += [*equation.outvars, *equation.invars]
        for atom in near:
            if isinstance(atom, Var):
                yield from (h for h in self.held(atom) if not axes <= h.axes)

    def held(self, var: Var) -> Iterator[Hold]:
        """Annotations other than arguments' that fix how a value is laid out."""
        if self.origins is None:
            return
        graph = self.origins.solution.graph
        t = self.tensor(var)
        for at in (t, *self.leaving(t)):
            root = graph.asked.get(at)
            if root is None or not graph.layouts[at].shape or root.text.startswith("argument"):
                continue
            entries = graph.layouts[at].entries
            yield Hold(self.name(var), spec_text(spec_from_entries(entries)), self.root(root.text),
                       root.location, frozenset(str(a) for e in entries for a in e), at)

    def leaving(self, tensor: int) -> Iterator[int]:
        """What a value is where a constraint or the end of the program lays it out again."""
        assert self.origins is not None
        for node in self.neighbours.get(tensor, ()):
            op = node.equation.op.name if node.equation is not None else ""
            if op in ("sharding_constraint", "") and node.tensors[0] == tensor:
                yield from node.tensors[1:]

    def move_of(self, record: CollectiveRecord) -> Equation | None:
        found = self.moves.get(where(record.source), [])
        axes = {str(a) for a in record.mesh_axes}

        def score(eqn: Equation) -> tuple:
            before, after = eqn.invars[0].aval, eqn.outvars[0].aval
            changed = _axes_changed(before, after)
            named = bool(eqn.reason) and (eqn.reason in record.reason
                                          or record.reason in eqn.reason)
            return (bool(axes & changed), named or eqn.reason == record.reason,
                    -len(axes ^ changed))

        best = max(found, key=score, default=None)
        return best if best is not None and score(best)[0] else None

    def context(self, move: Equation, reason: str) -> tuple[Equation | None, str]:
        """The equation that a reason speaks of: the one that reads the value, or that makes it."""
        op = re.match(r"`([\w\-]+)`", move.reason or reason)
        name = op.group(1) if op else ""
        made = self.made.get(move.invars[0]) if isinstance(move.invars[0], Var) else None
        if made is not None and made.op.name == name and "leaves" in (move.reason or reason):
            return made, "makes"
        for eqn in self.readers.get(move.outvars[0], ()):
            if eqn.op.name == name:
                return eqn, "reads"
        if made is not None and made.op.name == name:
            return made, "makes"
        return self.spoken_of(move.reason or reason, move.location), "near"

    def spoken_of(self, reason: str, location: Location) -> Equation | None:
        """The equation at a place whose op a reason begins with."""
        op = re.match(r"`([\w\-]+)`", reason)
        found = self.named_at.get((where(location), op.group(1)), []) if op else []
        return found[0] if found else None

    # -- words -----------------------------------------------------------------------------------

    def name(self, atom: Atom) -> str:
        """What the user calls a value: a name, else the text of its expression."""
        if isinstance(atom, Literal):
            return f"`{atom.val}`"
        source = self.source(atom)
        for v in (atom, source):
            made = self.made.get(v)
            if v in self.arguments:
                return f"`{v.name or f'argument {self.arguments[v]}'}`"
            if made is not None:
                name = made.location.assigned_name() or v.name
                if name and len(made.outvars) == 1 or v.name:
                    return f"`{name or v.name}`"
        made = self.made.get(source)
        if source.name:
            return f"`{source.name}`"
        if made is None and source in self.enters:
            outer, stacked = self.enters[source]
            name = self.name(outer)
            return f"a slice of {name}" if stacked else f"the loop's {name}"
        if made is not None:
            text = made.location.text()
            if text and len(text) <= 40 and not made.location.transform:
                return f"`{text}`"
            line = f", line {made.location.line}" if made.location.line else ""
            kind = f"the {made.location.transform} of " if made.location.transform else ""
            return f"{kind}the result of `{made.op.name}`{line}"
        return "a value"

    def source(self, var: Var) -> Var:
        """The value that this is another layout of."""
        while True:
            made = self.made.get(var)
            if made is None or made.op is not reshard_p or not isinstance(made.invars[0], Var):
                return var
            var = made.invars[0]

    def tensor(self, var: Var) -> int:
        """The value's number in propagation, also where a later pass laid it out again; or -1."""
        if self.origins is None:
            return -1
        source = self.source(var)
        t = self.origins.tensors.get(source, -1)
        made = self.made.get(source)
        if t < 0 and made is not None:
            k = made.outvars.index(source)
            for eqn in self.first_made.get((where(made.location), made.op.name), ()):
                if eqn.outvars[k].aval.shape == source.aval.shape:
                    return self.origins.tensors.get(eqn.outvars[k], -1)
        return t

    def named(self, reason: str, eqn: Equation) -> str:
        """The reason with the names of operands and the line of the equation."""
        def operand(match: re.Match) -> str:
            i = int(match.group(1))
            return self.name(eqn.invars[i]) if i < len(eqn.invars) else match.group(0)

        def result(match: re.Match) -> str:
            k = int(match.group(1) or 0)
            return self.name(eqn.outvars[k]) if k < len(eqn.outvars) else match.group(0)

        text = re.sub(r"operand (\d+)", operand, reason)
        text = re.sub(r"its result(?: (\d+))?\b", result, text)
        at = f" line {eqn.location.line}" if eqn.location.line else ""
        return text.replace(f"`{eqn.op.name}`", f"`{eqn.op.name}`{at}", 1)

    # -- paths -----------------------------------------------------------------------------------

    def sum_paths(self, operand: Atom, summed: frozenset[str]) -> Iterator[Path]:
        """Where the axes come from over which a sum is spread: the operands that are cut there."""
        made = self.made.get(operand) if isinstance(operand, Var) else None
        seen = 0
        while made is not None and seen < 20:
            seen += 1
            hits = [(v, d, a) for v in made.invars if isinstance(v, Var)
                    for d, axes in enumerate(v.aval.entries) for a in axes if a in summed]
            if hits:
                for v, d, a in hits:
                    path = self.path(v, d, a)
                    if path is not None:
                        yield path
                return
            made = next((self.made.get(v) for v in made.invars if isinstance(v, Var)
                         and v.aval.sharding.spec.unreduced & summed), None)

    def operand_paths(self, eqn: Equation, axes: frozenset[str]) -> Iterator[Path]:
        """Where axes come from that the operands of an equation have."""
        for v in dict.fromkeys(eqn.invars):
            if isinstance(v, Var):
                for d, own in enumerate(v.aval.entries):
                    for a in own:
                        path = self.path(v, d, a) if a in axes else None
                        if path is not None:
                            yield path

    def layout_paths(self, operand: Atom, result: Var, equation: Equation | None
                     ) -> Iterator[Path]:
        """Where the axes come from that the value has, and that it shall have."""
        if not isinstance(operand, Var):
            return
        before, after = operand.aval.entries, result.aval.entries
        for d, (have, want) in enumerate(zip(before, after, strict=True)):
            for a in have:
                if a not in want:
                    path = self.path(operand, d, a)
                    if path is not None:
                        yield path
        if equation is None:
            return
        moved = {a for d, axes in enumerate(before) for a in axes
                 if a not in after[d]} | {a for d, axes in enumerate(after) for a in axes
                                          if a not in before[d]}
        for v in (*equation.invars, *equation.outvars):
            if isinstance(v, Literal) or v is result:
                continue
            for d, axes in enumerate(v.aval.entries):
                for a in axes:
                    if a in moved:
                        path = self.path(v, d, a)
                        if path is not None:
                            yield path

    def path(self, var: Var, dim: int, axis: str) -> Path | None:
        """The way of an axis from an annotation to this value."""
        name = self.name(var)
        source = self.source(var)
        if self.origins is None:
            return None
        tensor = self.tensor(source)
        if tensor < 0 or axis not in dict(enumerate(source.aval.entries)).get(dim, ()):
            made = self.made.get(var)
            if made is not None and made.op is reshard_p and not made.reason:
                return Path(axis, dim, name, "`reshard`", made.location, ())
            return None
        graph, notes = self.origins.solution.graph, self.origins.solution.origins
        steps: list[tuple[str, Location]] = []
        tensors, at = [tensor], dim
        seen: set[tuple[int, int]] = set()
        while (tensor, at) not in seen:
            seen.add((tensor, at))
            note = notes.get((tensor, at, axis))
            if note is not None:
                eqn = note.node.equation
                steps.append((eqn.op.name if eqn is not None else "the result",
                              eqn.location if eqn is not None else UNKNOWN))
                tensor, at = note.tensor, note.dim
                tensors.append(tensor)
                continue
            root = graph.roots[tensor].get((at, axis)) if tensor >= 0 else None
            if root is None:
                return None
            text, where = self.root(root.text), root.location
            if root.text == "its type":
                further = self.typed(tensor, at, axis)
                if isinstance(further, Step):
                    steps.append((further.equation.op.name, further.equation.location))
                    tensor, at = further.tensor, further.dim
                    tensors.append(tensor)
                    continue
                text, where = further
            return Path(axis, dim, name, text, where, tuple(reversed(steps)), tuple(tensors))
        return None

    def typed(self, tensor: int, dim: int, axis: str) -> Step | tuple[str, Location]:
        """One step back through the types of a program with Explicit axes, or where they begin."""
        assert self.origins is not None
        var = self.of_tensor.get(tensor)
        if var is None:
            return "its type", UNKNOWN
        if var in self.argument_of:
            i = self.argument_of[var]
            return self.root(f"argument `{self.resolved.arg_names[i]}`"), UNKNOWN
        eqn = self.made.get(var)
        if eqn is None:
            return "its type", UNKNOWN
        if eqn.op.subprograms or eqn.op.collective is not None:
            return f"`{eqn.op.name}`", eqn.location
        rule = eqn.op.factor_rule(tuple(a.aval.shape for a in eqn.invars),
                                  tuple(v.aval.shape for v in eqn.outvars), eqn.params)
        factors = rule.results[eqn.outvars.index(var)][dim]
        for i, a in enumerate(eqn.invars):
            for d, own in enumerate(rule.operands[i]):
                if isinstance(a, Var) and set(own) & set(factors) and axis in a.aval.entries[d]:
                    t = self.origins.tensors.get(a, -1)
                    if t >= 0:
                        return Step(eqn, t, d)
        word = "`reshard`" if eqn.op is reshard_p else f"the sharding asked of `{eqn.op.name}`"
        return word, eqn.location

    def root(self, text: str) -> str:
        """`argument `x`` with its place among in_shardings."""
        match = re.fullmatch(r"argument `(.*)`", text)
        if match and match.group(1) in self.resolved.arg_names:
            index = self.resolved.arg_names.index(match.group(1))
            return f"`in_shardings[{index}]`, argument `{match.group(1)}`"
        return text


def _axes_changed(before, after) -> set[str]:
    changed = {str(a) for a in before.sharding.spec.unreduced ^ after.sharding.spec.unreduced}
    for have, want in zip(before.entries, after.entries, strict=True):
        if have != want:
            changed |= {str(a) for a in (*have, *want)}
    return changed


def where(location: Location) -> tuple:
    return (location.file, location.line, location.column, location.end_line,
            location.end_column, location.transform)


def _equations(program: Program) -> Iterator[Equation]:
    for n, eqn in enumerate(program.eqns):
        yield eqn
        for _, inner in inner_programs(eqn, n):
            yield from _equations(inner)
