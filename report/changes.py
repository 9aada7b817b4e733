"""Changes of how a program is laid out, as data: what to pass, ask for, constrain, or take out.

None of them changes a value. `edited` makes those that stand inside of the program; what concerns
its arguments and results is read by whoever partitions it (`arg_specs`, `result_specs`).
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..ir.location import UNKNOWN, Location
from ..ir.mesh import AbstractMesh
from ..ir.ops.sharding import reshard_p, sharding_constraint_p
from ..ir.program import Equation, Program, Var
from ..ir.sharding import NamedSharding
from ..ir.spec import PartitionSpec
from .places import Place, rewritten


def spec_text(spec: PartitionSpec) -> str:
    """`P('X', None)`, as the user writes it."""
    entries = []
    for e in spec:
        if isinstance(e, tuple) and len(e) == 1:
            e = e[0]
        entries.append("None" if e is None or e == () else repr(e))
    while entries and entries[-1] == "None":
        entries.pop()
    return f"P({', '.join(entries)})"


@dataclass(frozen=True)
class Argument:
    """Pass argument `index` as `spec`."""
    index: int
    name: str
    spec: PartitionSpec
    was: str = ""

    @property
    def text(self) -> str:
        now = f" instead of {self.was}" if self.was else ""
        return f"pass `{self.name}` as {spec_text(self.spec)}{now}"


@dataclass(frozen=True)
class Result:
    """Ask for result `index` as `spec`."""
    index: int
    name: str
    spec: PartitionSpec
    was: str = ""

    @property
    def text(self) -> str:
        now = f" instead of {self.was}" if self.was else ""
        name = f"result {self.name}" if self.name else "the result"
        return f"ask for {name} as {spec_text(self.spec)} in out_shardings{now}"


@dataclass(frozen=True)
class Constrain:
    """Insert a constraint (over Explicit axes: a `reshard`) behind the equation of a value."""
    place: Place
    name: str
    spec: PartitionSpec
    location: Location
    explicit: bool = False

    @property
    def text(self) -> str:
        word = "reshard" if self.explicit else "with_sharding_constraint"
        at = f", behind line {self.location.line}" if self.location.line else ""
        return f"insert `{word}({self.name}, {spec_text(self.spec)})`{at}"


@dataclass(frozen=True)
class Respec:
    """Give the constraint or reshard at a place another spec, or (None) take it out."""
    place: Place
    spec: PartitionSpec | None
    word: str
    location: Location = UNKNOWN
    was: str = ""

    @property
    def text(self) -> str:
        if self.spec is None:
            to = f" to {self.was}" if self.was else ""
            return f"take out the `{self.word}`{to} at line {self.location.line}"
        now = f" instead of {self.was}" if self.was else ""
        return f"`{self.word}` at line {self.location.line} to {spec_text(self.spec)}{now}"


Change = Argument | Result | Constrain | Respec


def text_of(changes: Iterable[Change]) -> str:
    """The changes in words."""
    return ", and ".join(c.text for c in changes)


def edited(program: Program, changes: Sequence[Change], mesh: AbstractMesh) -> Program:
    """The inlined program with the changes that stand inside of it made.

    mesh: that of the computation. Over Explicit axes types behind a change are stale afterwards.
    """
    inside = [c for c in changes if isinstance(c, Constrain | Respec)]
    # from the last equation to the first, so that the places of the others hold
    for change in sorted(inside, key=lambda c: (c.place.path, c.place.equation), reverse=True):
        program = rewritten(program, change.place.path, lambda p, c=change: _made(p, c, mesh))
    return program


def _made(program: Program, change: Constrain | Respec, mesh: AbstractMesh) -> Program:
    at = change.place
    eqns = list(program.eqns)
    if isinstance(change, Constrain):
        var = program.invars[at.index] if at.equation < 0 else eqns[at.equation].outvars[at.index]
        new = Var(var.aval, var.name)
        made = _constraint(var, new, NamedSharding(mesh, change.spec), change.location,
                           change.explicit)
        same = {var: new}
        head = at.equation + 1
        tail = [_renamed(e, same) for e in eqns[head:]]
        outvars = [same.get(v, v) if isinstance(v, Var) else v for v in program.outvars]
        return _with(program, [*eqns[:head], made, *tail], outvars)
    eqn = eqns[at.equation]
    (operand,), (result,) = eqn.invars, eqn.outvars
    if change.spec is not None:
        key = "sharding" if eqn.op is sharding_constraint_p else "dst_sharding"
        eqns[at.equation] = eqn.replace(
            params={**eqn.params, key: eqn.params[key].update(spec=change.spec)})
        return _with(program, eqns, program.outvars)
    same = {result: operand}
    tail = [_renamed(e, same) for e in eqns[at.equation + 1:]]
    outvars = [same.get(v, v) if isinstance(v, Var) else v for v in program.outvars]
    return _with(program, [*eqns[:at.equation], *tail], outvars)


def _constraint(var: Var, new: Var, sharding: NamedSharding, location: Location, explicit: bool
                ) -> Equation:
    if explicit:
        new.aval = var.aval.update(sharding=sharding)
        return Equation(reshard_p, (var,), (new,), {"dst_sharding": sharding}, location)
    return Equation(sharding_constraint_p, (var,), (new,), {"sharding": sharding}, location)


def _renamed(eqn: Equation, same: dict) -> Equation:
    if not any(isinstance(a, Var) and a in same for a in eqn.invars):
        return eqn
    return eqn.replace(invars=tuple(same.get(a, a) if isinstance(a, Var) else a
                                    for a in eqn.invars))


def _with(program: Program, eqns: Sequence[Equation], outvars: Sequence) -> Program:
    new = program.replace(eqns=eqns, outvars=outvars)
    if "meshes" in program.memo:
        new.memo["meshes"] = program.memo["meshes"]
    return new


def arg_specs(changes: Iterable[Change]) -> dict[int, PartitionSpec]:
    """What the changes say of arguments, by position."""
    return {c.index: c.spec for c in changes if isinstance(c, Argument)}


def result_specs(changes: Iterable[Change]) -> dict[int, PartitionSpec]:
    """What the changes say of results, by position."""
    return {c.index: c.spec for c in changes if isinstance(c, Result)}
