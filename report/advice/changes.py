"""Changes to the shardings of a program, as data: of arguments, results, constraints.

None of them changes a value. `edited` applies those inside the program; those of its arguments and
results are read by the caller that partitions it (`arg_specs`, `result_specs`). A change to a line
applies wherever the line was traced: in every iteration of a Python loop, every call of a helper,
and in its derivatives.
"""
from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...ir.meshes.mesh import AbstractMesh
from ...ir.ops.communication.sharding import reshard_p, sharding_constraint_p
from ...ir.program import Equation, Program, Var
from ...ir.rewriting.substitution import substituted
from ...ir.shardings.sharding import NamedSharding
from ...ir.source.location import UNKNOWN, Location
from ...ir.source.wording import numbered
from ...ir.spec import PartitionSpec
from ...partitioner.pipeline import Partitioned
from ..reasons.causes import sharding_key
from ..reasons.value_paths import Place, rewritten
from ..words import listed, spec_text
from .code.changes import Rewritten
from .code.left_axes import LeaveAxes
from .code.shard_map_bodies import Given, Unsum
from .interleaving.change import Interleave


@dataclass(frozen=True)
class Argument:
    """Pass argument `index` as `spec`. before: as it is without."""
    index: int
    name: str
    spec: PartitionSpec
    before: PartitionSpec | None = field(default=None, compare=False)

    @property
    def was(self) -> str:
        return spec_text(self.before) if self.before is not None else ""

    @property
    def text(self) -> str:
        return self.text_for(f"`{self.name}`")

    def of(self, index: int, name: str) -> Argument:
        """This change, made to another argument."""
        return Argument(index, name, self.spec, self.before)

    def text_for(self, name: str) -> str:
        """The change in words, for an argument of this name."""
        now = f" instead of {self.was}" if self.was else ""
        return f"pass {name} as {spec_text(self.spec)}{now}"


@dataclass(frozen=True)
class Result:
    """Ask for result `index` as `spec`. before: as it is without."""
    index: int
    name: str
    spec: PartitionSpec
    before: PartitionSpec | None = field(default=None, compare=False)

    @property
    def was(self) -> str:
        return spec_text(self.before) if self.before is not None else ""

    @property
    def text(self) -> str:
        return self.text_for(f"result {self.name}" if self.name else "the result")

    def of(self, index: int, name: str) -> Result:
        """This change, made to another result."""
        return Result(index, name, self.spec, self.before)

    def text_for(self, name: str) -> str:
        """The change in words, for a result of this name."""
        if self.was == spec_text(self.spec):
            return f"keep {name} as {self.was} by out_shardings"
        now = f" instead of {self.was}" if self.was else ""
        return f"ask for {name} as {spec_text(self.spec)} in out_shardings{now}"


@dataclass(frozen=True)
class Constrain:
    """Insert a constraint (over Explicit axes: a `reshard`) after the equation of a value, at each
    of its places. written: is it the value of the expression at the location? axes: of the mesh.
    """
    places: tuple[Place, ...]
    name: str = field(compare=False)
    spec: PartitionSpec
    location: Location = field(compare=False)
    explicit: bool = False
    written: bool = field(default=False, compare=False)
    axes: tuple[str, ...] = field(default=(), compare=False)

    @property
    def word(self) -> str:
        return "reshard" if self.explicit else "with_sharding_constraint"

    @property
    def text(self) -> str:
        return self.text_for(f"`{self.name}`")

    def text_for(self, name: str) -> str:
        """The change in words, for a value of this name."""
        at = f" after line {self.location.line}" if self.location.line else ""
        return f"bring {name} to {spec_text(self.spec)}{at}, with {self.word}"


@dataclass(frozen=True)
class Respec:
    """Give the constraint, `reshard` or `out_sharding=` of a line another spec, or (None) remove
    it, at each of its places.
    """
    places: tuple[Place, ...]
    spec: PartitionSpec | None
    word: str = field(compare=False)
    location: Location = field(default=UNKNOWN, compare=False)
    was: str = field(default="", compare=False)

    @property
    def text(self) -> str:
        return self.text_at([self.location.line] if self.location.line else [])

    def text_at(self, lines: Sequence[int]) -> str:
        """The change in words, for these lines."""
        at = f" at {numbered('line', 'lines', lines)}" if lines else ""
        if self.spec is None:
            to = f" to {self.was}" if self.was else ""
            return f"take out the `{self.word}`{to}{at}"
        now = f" instead of {self.was}" if self.was else ""
        return f"`{self.word}`{at} to {spec_text(self.spec)}{now}"


@dataclass(frozen=True)
class Prioritize:
    """Let the axes of an argument, or of a constraint, spread in turn `priority` (0 is first).

    spec: the layout that the value has already.
    """
    place: Place
    priority: int
    name: str
    spec: PartitionSpec
    location: Location = field(default=UNKNOWN, compare=False)

    @property
    def text(self) -> str:
        at = f" at line {self.location.line}" if self.location.line else ""
        return f"{self.name}{at} with priority {self.priority}"

    @property
    def places(self) -> tuple[Place, ...]:
        return (self.place,)


_DIGITS = re.compile(r"\d+")
Placed = Constrain | Respec | Given | Unsum | LeaveAxes | Prioritize
Inside = Placed | Rewritten | Interleave
Change = Argument | Result | Inside


def row_of(name: str) -> str:
    """The row of a table of specs to which a name belongs: `ws[*]['o']` for `ws[0]['o']`.

    The number of an argument (`w1`), or of a result in a tuple (`[1]`), is part of a name like any
    other.
    """
    base, bracket, steps = name.partition("[")
    nested = base or "[" in steps or "." in steps
    return base + (_DIGITS.sub("*", bracket + steps) if nested else bracket + steps)


def forms_of(partitioned: Partitioned) -> dict[tuple, list[int]]:
    """The arguments of each row, shape and layout, by position."""
    found: dict[tuple, list[int]] = {}
    program = partitioned.resolved
    for i, (v, name, spec) in enumerate(zip(program.invars, program.arg_names, partitioned.in_specs,
                                            strict=False)):
        found.setdefault((row_of(name), v.aval.shape, spec_text(spec)), []).append(i)
    return found


def unlike_siblings(forms: Mapping[tuple, Sequence[int]]) -> dict[int, int]:
    """The arguments that are laid out otherwise than most of their row and shape, each with one of
    these. forms: by `forms_of`.
    """
    of: dict[tuple, list[Sequence[int]]] = {}
    for (row, shape, _), found in forms.items():
        of.setdefault((row, shape), []).append(found)
    unlike: dict[int, int] = {}
    for alike in of.values():
        most = max(alike, key=len)
        if 2 * len(most) > sum(map(len, alike)):
            unlike |= {i: most[0] for one in alike if one is not most for i in one}
    return unlike


def tree_of(name: str) -> str:
    """The tree of arguments to which a name belongs: `ws` for `ws[0]['o']`."""
    return name.partition("[")[0]


def rows(changes: Iterable[Change]) -> list[list[Change]]:
    """The changes as a person would write them: equal ones of arguments or results in one row
    together, those of results in one tuple, too, likewise constraints after one line, and one
    change of several lines, such as what is asked for at them.
    """
    found: dict[Any, list[Change]] = {}
    for i, c in enumerate(changes):
        key: Any = i
        if isinstance(c, Argument | Result):
            name = row_of(c.name) if isinstance(c, Argument) else _DIGITS.sub("*", c.name)
            key = (type(c), c.spec, c.was, name)
        elif isinstance(c, Constrain):
            key = (Constrain, c.spec, c.location)
        elif isinstance(c, Respec):
            key = (Respec, c.spec, c.word, c.was)
        elif isinstance(c, Rewritten):
            key = (Rewritten, c.change.words)
        elif isinstance(c, Interleave) and c.arguments:
            key = (Interleave, c.dim, c.counts)
        found.setdefault(key, []).append(c)
    return list(found.values())


def pattern_of(names: Sequence[str]) -> str:
    """`ws[*]['o']` for names of one row: the numbers in which they differ are left out."""
    columns = zip(*[_DIGITS.split(name) for name in names], strict=True)
    numbers = zip(*[_DIGITS.findall(name) for name in names], strict=True)
    between = [n[0] if len(set(n)) == 1 else "*" for n in numbers]
    return "".join([f"{c[0]}{n}" for c, n in zip(columns, [*between, ""], strict=True)])


def text_of(changes: Iterable[Change]) -> str:
    """The changes in words, those of a row once."""
    texts = []
    for first, *others in rows(changes):
        names = [getattr(c, "name", "") for c in (first, *others)]
        if others and isinstance(first, Result) and row_of(first.name) == first.name:
            texts.append(first.text_for(f"results {listed(names)}"))
        elif others and isinstance(first, Argument | Result):
            pattern = pattern_of(names)
            kind = "" if isinstance(first, Argument) else "results "
            texts.append(first.text_for(f"all {len(others) + 1} {kind}`{pattern}`"))
        elif others and isinstance(first, Constrain):
            texts.append(first.text_for(", ".join([f"`{name}`" for name in names])))
        elif others and isinstance(first, Interleave):
            texts.append(first.text_for(listed(names)))
        elif others and isinstance(first, Rewritten | Respec):
            at = sorted({c.location.line for c in (first, *others)
                         if isinstance(c, Rewritten | Respec) and c.location.line})
            texts.append(first.text_at(at) if isinstance(first, Respec) else
                         f"{first.change.words} at {numbered('line', 'lines', at)}")
        else:
            texts += [c.text for c in (first, *others)]
    return ", and ".join(texts)


def edited(program: Program, changes: Sequence[Change], mesh: AbstractMesh) -> Program:
    """The inlined program with the changes made that are inside of it.

    mesh: of the computation. Over Explicit axes, types after a change are stale.
    """
    found = [(place, c) for c in changes if isinstance(c, Placed) for place in c.places]
    # from the last equation to the first, so that places stay valid
    for place, change in sorted(found, key=lambda f: (f[0].path, f[0].equation), reverse=True):
        program = rewritten(program, place.path,
                            lambda p, at=place, c=change: _made(p, at, c, mesh))
    for change in changes:
        if isinstance(change, Rewritten | Interleave):
            program = change.made(program)
    return program


def _made(program: Program, at: Place, change: Placed, mesh: AbstractMesh) -> Program:
    """The program with a change made at one place of it."""
    eqns = list(program.eqns)
    if isinstance(change, Given | Unsum | LeaveAxes):
        old, new = eqns[at.equation], change.made(eqns[at.equation])
        head = at.equation + 1
        return _renamed(program, [*eqns[:at.equation], new], eqns[head:], {
            v: w for v, w in zip(old.outvars, new.outvars, strict=True) if v is not w})
    if isinstance(change, Prioritize) and at.equation >= 0:
        eqn = eqns[at.equation]
        eqns[at.equation] = eqn.replace(params={**eqn.params, "priority": change.priority})
        return _with(program, eqns, program.outvars)
    if isinstance(change, Constrain | Prioritize):
        var = program.invars[at.index] if at.equation < 0 else eqns[at.equation].outvars[at.index]
        new = Var(var.aval, var.name)
        made = _constraint(var, new, NamedSharding(mesh, change.spec), change.location,
                           isinstance(change, Constrain) and change.explicit)
        if isinstance(change, Prioritize):
            made = made.replace(params={**made.params, "priority": change.priority})
        head = at.equation + 1
        return _renamed(program, [*eqns[:head], made], eqns[head:], {var: new})
    eqn = eqns[at.equation]
    layout = eqn.op in (sharding_constraint_p, reshard_p)
    if change.spec is None and layout:
        return _renamed(program, eqns[:at.equation], eqns[at.equation + 1:],
                        {eqn.outvars[0]: eqn.invars[0]})
    key = sharding_key(eqn)
    asked = None if change.spec is None else eqn.params[key].update(spec=change.spec)
    eqns[at.equation] = eqn.replace(params={**eqn.params, key: asked})
    return _with(program, eqns, program.outvars)


def _constraint(var: Var, new: Var, sharding: NamedSharding, location: Location, explicit: bool
                ) -> Equation:
    if explicit:
        new.aval = var.aval.update(sharding=sharding)
        return Equation(reshard_p, (var,), (new,), {"dst_sharding": sharding}, location)
    return Equation(sharding_constraint_p, (var,), (new,), {"sharding": sharding}, location)


def _renamed(program: Program, head: Sequence[Equation], tail: Sequence[Equation], same: dict
             ) -> Program:
    """The program with these equations; `same` takes effect after `head`."""
    behind = substituted(program.replace(eqns=tail), same)
    return _with(program, [*head, *behind.eqns], behind.outvars)


def _with(program: Program, eqns: Sequence[Equation], outvars: Sequence) -> Program:
    return program.replace(eqns=eqns, outvars=outvars)


def arg_specs(changes: Iterable[Change]) -> dict[int, PartitionSpec]:
    """The specs that the changes give arguments, by position."""
    return {c.index: c.spec for c in changes if isinstance(c, Argument)}


def result_specs(changes: Iterable[Change]) -> dict[int, PartitionSpec]:
    """The specs that the changes give results, by position."""
    return {c.index: c.spec for c in changes if isinstance(c, Result)}
