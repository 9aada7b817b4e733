"""The decisions of a partition: how each value is laid out, and where it is brought elsewhere.

A decision is identified by the user's source: the function, the text of the line, the op, and its
number among equations equal in these (`Key`). So it stays valid while lines around it move, come
and go. Decisions are read from the RESHARDED program, whose layouts are final; each belongs to the
place in the inlined program that its equation comes from.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ...ir.facts import LAYOUT, PER_DEVICE
from ...ir.ops.communication.retiling import merged_axes
from ...ir.program import Atom, Equation, Program, Var
from ...ir.source.location import UNKNOWN, Location
from ...ir.spec import UNCONSTRAINED, PartitionSpec, spec_from_entries
from ...ir.support.named_tuple import NamedTuple
from ...ir.types import ArrayType
from ...partitioner.frozen_plan import THE_PLAN
from ...partitioner.pipeline import Partitioned
from ..advice.changes import Constrain
from ..reasons.causes import sharding_key
from ..reasons.value_paths import inner_programs
from ..words import spec_text


class Key(NamedTuple):
    """What identifies a decision in a later version of the program.

    kind: "argument", "result" (of the whole program), "value" (a result of an equation),
    "parameter" (of the body of a loop or branch) or "operand" (resharded for the equation, or with
    the op "return" for the end of a body).
    path: the ops around it, and which of their bodies. index: which argument, operand or result.
    nth: counts decisions that are equal otherwise.
    """
    kind: str
    name: str = ""
    op: str = ""
    function: str = ""
    line: str = ""
    via: str = ""
    path: str = ""
    index: int = 0
    nth: int = 0


class Decision(NamedTuple):
    """spec: as the user would write it. name, type: of the value (global shape). before: for an
    operand, the spec that the value has otherwise. location: of the equation.
    """
    key: Key
    name: str
    type: str
    spec: str
    before: str = ""
    location: Location = UNKNOWN


class Place(NamedTuple):
    """Where a program has a value.

    path: to the nested program. role: "operand" or "value" (a result) of equation `n`; "parameter"
    or "end" (what is returned) of the program itself. index: which of these.
    """
    path: tuple[tuple[int, str, int], ...]
    role: str
    index: int
    n: int = -1


class Found(NamedTuple):
    """A place in a program that a decision may be about."""
    key: Key
    place: Place
    atom: Atom
    location: Location


def found_places(program: Program) -> Iterator[Found]:
    """The values and operands of an inlined program, and of its loops and branches, with keys."""
    counts: dict[Key, int] = {}

    def numbered(key: Key) -> Key:
        nth = counts[key] = counts.get(key, -1) + 1
        return key._replace(nth=nth)

    def walk(p: Program, path: tuple, names: str, around: Location) -> Iterator[Found]:
        where = _source(around)
        for i, v in enumerate(p.invars if path else ()):
            yield Found(numbered(Key("parameter", "", "", *where, names, i)),
                        Place(path, "parameter", i), v, around)
        for n, eqn in enumerate(p.eqns):
            if LAYOUT in eqn.op.facts:
                continue
            where = _source(eqn.location)
            for kind, atoms in (("operand", eqn.invars), ("value", eqn.outvars)):
                for i, a in enumerate(atoms):
                    key = Key(kind, "", eqn.op.name, *where, names, i)
                    yield Found(numbered(key), Place(path, kind, i, n), a, eqn.location)
            if PER_DEVICE not in eqn.op.facts:              # its specs and its body are the user's
                for step, inner in inner_programs(eqn, n):
                    which = f"{eqn.op.name}.{step[1]}{'' if step[2] < 0 else step[2]}"
                    yield from walk(inner, (*path, step), f"{names}/{which}".strip("/"),
                                    eqn.location)
        where = _source(around)
        for i, a in enumerate(p.outvars if path else ()):
            yield Found(numbered(Key("operand", "", "return", *where, names, i)),
                        Place(path, "end", i), a, around)

    return walk(program, (), "", UNKNOWN)


def _source(at: Location) -> tuple[str, str, str]:
    """(function, text of the line, transformation)."""
    return (at.function, at.source_line().strip(), at.transform) if at.line else ("", "", "")


def decisions_of(program: Program, changes: Iterable[Constrain]) -> list[Decision]:
    """Constraints on values of an inlined program, as decisions."""
    at = {f.place: f for f in found_places(program)}
    found = []
    for c in changes:
        for path, n, index in c.places:
            place = at.get(Place(path, "value" if n >= 0 else "parameter", index, n))
            if place is not None:
                found.append(Decision(place.key, c.name, "", spec_text(c.spec), "", c.location))
    return found


def decisions(partitioned: Partitioned) -> list[Decision]:
    """The decisions of a partition."""
    sizes = partitioned.mesh.shape
    traced, inlined = partitioned.traced, partitioned.stages["inlined"]
    final = dict(_final_types(inlined, partitioned.resolved, partitioned.resharded))
    found = []
    for (name, v), t in zip(named_arguments(traced), partitioned.resharded.in_avals, strict=True):
        found.append(_decision(Key("argument", name), name, v.aval, t.spec, sizes))
    for (name, a), t in zip(named_results(traced), partitioned.resharded.out_avals, strict=True):
        found.append(_decision(Key("result", name), name, a.aval, t.spec, sizes))
    lies: dict[Atom, str] = dict(zip(inlined.invars, [d.spec if d else "" for d in found],
                                     strict=False))
    same: dict[Atom, Atom] = {}                 # constrained by a kept plan -> value before
    for _, eqn in _layouts(inlined):
        if eqn.reason == THE_PLAN:
            same[eqn.outvars[0]] = same.get(eqn.invars[0], eqn.invars[0])
        elif UNCONSTRAINED not in asked_spec(eqn):
            lies[eqn.outvars[0]] = written(asked_spec(eqn), sizes)
    for key, place, read, location in found_places(inlined):
        spec = final.get(place)
        atom = same.get(read, read)
        if spec is None:
            continue
        made = _decision(key, getattr(atom, "name", None) or "", atom.aval, spec, sizes, location,
                         finished="unreduced" in lies.get(atom, ""))
        if made is None:
            continue
        if key.kind != "operand":
            lies[atom] = made.spec
            found.append(made)
        elif lies.get(atom, made.spec if atom.aval.shape else "P()") != made.spec:
            found.append(made._replace(before=lies.get(atom, "P()")))
    return [d for d in found if d is not None]


def named_arguments(program: Program) -> list[tuple[str, Var]]:
    """The parameters of the whole program, with their names in decisions."""
    return list(zip(_names(program.arg_names, program.invars), program.invars, strict=True))


def named_results(program: Program) -> list[tuple[str, Atom]]:
    """The results of the whole program, with their names in decisions."""
    return list(zip(_names(program.result_names, program.outvars), program.outvars, strict=True))


def _names(names: Sequence[str], atoms: Sequence[Atom]) -> list[str]:
    return [names[i] if i < len(names) else f"[{i}]" for i in range(len(atoms))]


def asked_spec(eqn: Equation) -> PartitionSpec:
    """The spec in a constraint or `reshard`."""
    return eqn.params[sharding_key(eqn)].spec


def _layouts(program: Program) -> Iterator[tuple[int, Equation]]:
    """The constraints and reshards of a program, nested ones included."""
    for n, eqn in enumerate(program.eqns):
        if LAYOUT in eqn.op.facts:
            yield n, eqn
        for _, inner in inner_programs(eqn, n):
            yield from _layouts(inner)


def _decision(key: Key, name: str, aval: ArrayType, spec: PartitionSpec,
              sizes: Mapping[str, int], at: Location = UNKNOWN, finished: bool = False
              ) -> Decision | None:
    """None of a single number, but a sum that waits or is finished here."""
    if not (aval.shape or spec.unreduced or finished) or not all(
            isinstance(a, str) for axes in spec.entries for a in axes):
        return None
    return Decision(key, name, aval.update(sharding=None).str_short(True), written(spec, sizes), "",
                    at)


def written(spec: PartitionSpec, sizes: Mapping[str, int]) -> str:
    """`P('data', unreduced={'model'})`: the spec as the user would write it. sizes: of the mesh
    axes; consecutive parts of an axis are merged.
    """
    (entries,) = merged_axes([spec.entries], sizes)
    text = spec_text(spec_from_entries(entries))
    if not spec.unreduced:
        return text
    axes = ", ".join(repr(str(a)) for a in sorted(spec.unreduced, key=str))
    return f"{text[:-1]}{'' if text == 'P()' else ', '}unreduced={{{axes}}})"


def _final_types(inlined: Program, resolved: Program, resharded: Program, path: tuple = ()
                 ) -> Iterator[tuple[Place, PartitionSpec]]:
    """The layouts of values and operands at the places of the inlined program."""
    firsts, thens, lasts = map(_computing, (inlined, resolved, resharded))
    if [e.op for _, e in lasts] != [e.op for _, e in firsts]:
        lasts, resharded = thens, resolved          # what the planner moved has no counterpart
    if [e.op for _, e in lasts] != [e.op for _, e in firsts]:
        return
    if path:
        for role, atoms in (("parameter", resharded.invars), ("end", resharded.outvars)):
            for i, a in enumerate(atoms):
                yield Place(path, role, i), a.aval.spec
    for (n, eqn), (_, then), (_, last) in zip(firsts, thens, lasts, strict=True):
        for role, atoms in (("operand", last.invars), ("value", last.outvars)):
            for i, a in enumerate(atoms):
                yield Place(path, role, i, n), a.aval.spec
        if PER_DEVICE not in eqn.op.facts:
            for (step, first), (_, second), (_, third) in zip(
                    inner_programs(eqn, n), inner_programs(then, n), inner_programs(last, n),
                    strict=True):
                yield from _final_types(first, second, third, (*path, step))


def _computing(program: Program) -> list[tuple[int, Equation]]:
    return [(n, e) for n, e in enumerate(program.eqns) if LAYOUT not in e.op.facts]
