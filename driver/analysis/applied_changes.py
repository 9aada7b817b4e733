"""Programs with suggested changes applied: how `explain` tries its suggestions.

`Changed` is a jitted function that differs from another only in its specs
(report/advice/changes.py): arguments are moved to other shardings, results are requested with
other shardings, constraints are inserted, altered or removed in its trace. Values are the same.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arrays.array import ArrayImpl
from ...ir.meshes.mesh import AbstractMesh
from ...ir.passes import DONATED, Requests
from ...ir.program import Program
from ...ir.rewriting.retyped import OnMesh
from ...ir.settings.context import STATE
from ...ir.shardings.sharding import NamedSharding, Sharding
from ...ir.spec import PartitionSpec
from ...ir.support.scopes import override
from ...ir.types import ArrayType
from ...ir.values.typeof import typeof
from ...partitioner.cost.hardware import Hardware
from ...partitioner.cost.prices import Objective
from ...partitioner.passes import PREPARE, PartitionRequest
from ...partitioner.pipeline import DEFAULT_OPTIONS, Options, Partitioned, partition
from ...partitioner.preparation.dead_code import drop_unread
from ...partitioner.stages import carrying, with_attribute
from ...report.advice.changes import Change, Inside, arg_specs, edited, result_specs
from ...report.advice.code.loops import BATCHERS
from ...report.advice.interleaving.change import INTERLEAVED, Interleave, Interleaved
from ...report.advice.interleaving.row_order import Order, Rows
from ...report.advice.repetition import Shortened
from ...tracer.autodiff.replay import evaluate, stage
from ...tracer.batching.vmap import vmap
from ...tracer.trees import tree
from ..execution.executable import Executable
from ..execution.programs import asked_arguments, further
from ..execution.transfer import device_put
from ..jit.boundary import Boundary
from ..jit.jitted import Jitted
from ..jit.stages import Traced


def _trial(base: Partitioned, compared: float) -> Options:
    """The options of a program that is partitioned only to compare its cost with another's."""
    return Options(True, False, *base.objective[:3], compared, draft=True)


def inlined(program: Program, padded: bool = True, objective: Objective | None = None) -> Program:
    """The program as changes see it: every call replaced by what it calls. padded: dimensions that
    axes would split are, where sizes do not divide, as in what is partitioned, if the program's
    attributes say what is asked for (`Requests`). objective: what makes the plan of that.
    """
    new = program
    requested = program.attributes.get(Requests.KEY) or Requests(
        (None,) * len(program.invars), (None,) * len(program.outvars))
    in_specs, out_specs = [tuple([None if t is None else t.spec for t in types])
                           for types in requested]
    request = PartitionRequest(program.mesh, in_specs, out_specs, objective or Objective.of())
    for step in PREPARE:
        if step.name not in request.left_out and (padded or step.name != "pad-uneven"):
            new = step.run(new, request)
    return new


def changed_program(program: Program, changes: Sequence[Change], mesh: AbstractMesh,
                    padded: bool = True, arguments: bool = False,
                    objective: Objective | None = None) -> Program:
    """A traced program with the changes inside of it made, and typed again where that matters.

    padded, objective: as of `inlined`. arguments: whether its parameters are still typed as they
    were without the changes.
    """
    explicit = mesh.explicit_axes or any(v.aval.mesh.explicit_axes for v in program.invars)
    specs = arg_specs(changes) if arguments and explicit else {}
    if not specs and not any(isinstance(c, Inside) for c in changes):
        return program
    before = inlined(program, padded, objective)
    new = edited(before if explicit else OnMesh(mesh).program(before), changes, mesh)
    if not explicit:
        return new
    types = [t.update(sharding=NamedSharding(mesh, specs[i].padded(t.ndim))) if i in specs else t
             for i, t in enumerate(new.in_avals)]
    typed = stage(lambda *xs: evaluate(new, xs, edited=True), types, new)
    return typed.replace(arg_names=program.arg_names, result_names=program.result_names)


def _mapped(program: Program, types: Sequence[ArrayType], mapped: Sequence[bool]) -> Program:
    """A program for all items of some operands, along their first dimensions, together."""
    each = vmap(lambda *xs: evaluate(program, xs), tuple([0 if m else None for m in mapped]))
    return stage(each, types, program)


BATCHERS.append(_mapped)


class ChangedBoundary(Boundary):
    """Another boundary, with other specs for some arguments and results, by position."""

    def __init__(self, base: Boundary, mesh: Any, arg_specs: dict[int, Any],
                 result_specs: dict[int, Any]) -> None:
        super().__init__(base.in_shardings, base.out_shardings, base.arguments, base.api)
        self._mesh, self._arg_specs, self._result_specs = mesh, arg_specs, result_specs

    def argument_shardings(self, leaves: Sequence[Any], in_tree: Any, program: Program
                 ) -> list[Sharding | None]:
        if self.in_shardings is not None:       # those that change nothing are requested no longer
            leaves = [v.aval if i in self._arg_specs else x
                      for i, (x, v) in enumerate(zip(leaves, program.invars, strict=True))]
        return self._with(super().argument_shardings(leaves, in_tree, program), self._arg_specs)

    def result_shardings(self, program: Program, out_tree: Any) -> list[Sharding | None]:
        return self._with(super().result_shardings(program, out_tree), self._result_specs)

    def _with(self, shardings: list[Sharding | None], specs: dict[int, Any]
              ) -> list[Sharding | None]:
        return [NamedSharding(self._mesh, specs[i]) if i in specs else s
                for i, s in enumerate(shardings)]


class Changed(Jitted):
    """A jitted function with changes made; behaves as the other for the same arguments. padded: as
    of `inlined`. requested: how arguments are laid out, and results shall be, without the changes.
    plan: what made the plan of the program that the changes are for, in whose terms they are.
    """

    def __init__(self, base: Jitted, changes: Sequence[Change], mesh: Any, padded: bool = True,
                 requested: Requests | None = None, plan: Objective | None = None) -> None:
        self._arg_specs = arg_specs(changes)
        boundary = ChangedBoundary(base._boundary, mesh, self._arg_specs, result_specs(changes))
        super().__init__(base._f, boundary, *base._settings)
        self._base, self._changes, self._mesh = base, tuple(changes), mesh
        self._padded, self._requested, self._plan = padded, requested, plan
        self._traces = {}           # its own: other changes of the function trace otherwise

    def _relaid(self, leaves: Sequence[Any]) -> list[Any]:
        """The arguments, those that are to be passed otherwise with their new shardings."""
        leaves = list(leaves)
        for i, spec in self._arg_specs.items():
            if i >= len(leaves):
                continue
            x, sharding = leaves[i], NamedSharding(self._mesh, spec)
            if isinstance(x, ArrayImpl) and sharding.is_concrete:
                leaves[i] = device_put(x, sharding)
        return leaves

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs, static = self.arguments.split(args, kwargs)
        leaves, in_tree = tree.flatten((args, kwargs))
        leaves = self._relaid(leaves)
        passed: Sequence[Interleaved] = ()
        if any(isinstance(c, Interleave) and c.arguments for c in self._changes):
            passed = self._trace(leaves, in_tree, static)[0].attributes.get(INTERLEAVED, ())
        for order, rows, _ in passed:
            leaves = [_ordered(x, order, rows.get(i, {})) for i, x in enumerate(leaves)]
        placed, named = tree.unflatten(in_tree, leaves)
        placed, named = self.arguments.merge(placed, named, static)
        found = super().__call__(*placed, **named)
        for order, _, rows in reversed(passed):
            results, out_tree = tree.flatten(found)
            found = tree.unflatten(out_tree, [_ordered(x, order, rows.get(i, {}), True)
                                              for i, x in enumerate(results)])
        return found

    def _trace(self, leaves: Sequence[Any], in_tree: Any, static: tuple[Any, ...]
               ) -> tuple[Program, Any, list[Any]]:
        """The program that the other function traces to, with the changes in it. Changed arguments
        over Explicit axes are traced at the new type, as the type states their sharding.
        """
        mesh: AbstractMesh = self._mesh.abstract_mesh
        leaves = list(leaves)
        for i, spec in self._arg_specs.items():
            t = leaves[i] if isinstance(leaves[i], ArrayType) else typeof(leaves[i])
            if mesh.explicit_axes:
                leaves[i] = t.update(sharding=NamedSharding(mesh, spec.padded(t.ndim)))
            elif not t.mesh.axis_names:         # what is pinned inside is on the mesh
                leaves[i] = t.update(sharding=NamedSharding(mesh, PartitionSpec()))
        key = (in_tree, static, tuple(typeof(x) if not isinstance(x, ArrayType) else x
                                      for x in leaves))
        found = self._traces.get(key)
        if found is None:
            program, out_tree, captured = self._base._trace(leaves, in_tree, static)
            made = changed_program(with_attribute(program, Requests.KEY, self._requested),
                                   self._changes, mesh, self._padded, objective=self._plan or (
                                       self._base._partition_options.judged(program)))
            found = (made, out_tree, captured)
            self._traces[key] = found
        return found


def _ordered(x: Any, order: Order, rows: Rows, back: bool = False) -> Any:
    """An array with the rows of its parts side by side, or back in their usual order, placed alike.
    """
    if not rows:
        return x
    found = np.asarray(x)
    for d, group in rows.items():
        places = order.places(found.shape[d], group)
        found = np.take(found, np.argsort(places) if back else places, d)
    return device_put(found, x.sharding) if isinstance(x, ArrayImpl) else found


class TracedSubject:
    """A traced function, for `report.advice.suggestions.Search`."""

    def __init__(self, traced: Traced, executable: Executable) -> None:
        self.traced, self.executable = traced, executable
        self.partitioned: Partitioned = executable.partitioned
        assert isinstance(traced._jitted, Jitted)
        self.jitted = traced._jitted
        self.mesh = executable.placement.mesh or executable.placement.abstract_mesh
        self.donated = tuple(traced._donated())

    def changed(self, changes: Sequence[Change], longest: float) -> Partitioned:
        """The program with the changes, partitioned. Raises where types forbid them."""
        new = self.apply(changes)
        new._partition_options = _trial(self.partitioned, longest)
        traced = self.traced
        with override(STATE, **traced._meshes):
            program, out_tree, _ = new._trace(traced._leaves, traced.in_tree, traced._static)
        return new._executable(program, traced._leaves, traced.in_tree, out_tree).partitioned

    def apply(self, changes: Sequence[Change]) -> Changed:
        """The function with the changes."""
        return Changed(self.jitted, changes, self.mesh,
                       requested=self.partitioned.traced.attributes.get(Requests.KEY),
                       plan=self.partitioned.taken)

    def part(self, short: Shortened, compared: bool) -> ProgramSubject:
        """The program with some of its arguments, equations and results."""
        return _part(self, short, compared)


class ProgramSubject:
    """A program by itself, as read from a dump; applying a change gives a traced program."""

    def __init__(self, program: Program, in_shardings: Sequence[Any] = (),
                 hardware: str | Hardware | None = None, options: Options | None = None) -> None:
        self.program = program
        given = asked_arguments(program, in_shardings)
        self.specs = [v.aval.spec if s is None and v.aval.has_explicit_mesh() else s
                      for s, v in zip(given, program.invars, strict=True)]
        self.options = options or Options(hardware=hardware)
        self.partitioned: Partitioned = partition(
            program, mesh=program.mesh, in_shardings=self.specs, options=self.options)
        self.donated: tuple[bool, ...] = program.attributes.get(DONATED, ())

    def changed(self, changes: Sequence[Change], longest: float) -> Partitioned:
        """The plan of the program with changes made. longest: seconds up to which a draft of it is
        of interest.
        """
        specs = list(self.specs)
        for i, spec in arg_specs(changes).items():
            specs[i] = spec
        known = self.program.attributes.get(Requests.KEY)
        wanted: list[Any] = [None if t is None else t.spec for t in known.results] if known else (
            [None] * len(self.program.outvars))
        for i, spec in result_specs(changes).items():
            wanted[i] = spec
        program = carrying(self.apply(changes), self.program)
        return partition(program, mesh=self.program.mesh, in_shardings=specs,
                         out_shardings=wanted,
                         options=_trial(self.partitioned, min(longest, self.options.compared)))

    def apply(self, changes: Sequence[Change]) -> Program:
        return changed_program(self.partitioned.traced, changes, self.program.mesh, arguments=True,
                               objective=self.partitioned.taken)

    def part(self, short: Shortened, compared: bool) -> ProgramSubject:
        """The program with some of its arguments, equations and results."""
        return _part(self, short, compared)


def _part(whole: TracedSubject | ProgramSubject, short: Shortened, compared: bool
          ) -> ProgramSubject:
    """A shortened program as a subject of its own, with the donations and requests of what is left.
    compared: whether plans of it are compared with others.
    """
    traced, known = whole.partitioned.traced, whole.partitioned.traced.attributes.get(Requests.KEY)
    program = drop_unread(short.program).replace(attributes={**traced.attributes})
    if whole.donated:
        program.attributes[DONATED] = tuple([whole.donated[i] for i in short.arguments])
    if known is not None:
        program.attributes[Requests.KEY] = Requests(
            tuple([known.arguments[i] for i in short.arguments]),
            tuple([known.results[i] for i in short.results]))
    return ProgramSubject(program, options=_trial(whole.partitioned, math.inf if compared else 0.0))


class DecidedSubject:
    """A program whose shardings are decided, as read from a dump: nothing of it can be changed."""

    def __init__(self, program: Program, in_shardings: Sequence[Any] = ()) -> None:
        stages = further(program, in_shardings)
        for name in ("resharded", "resolved", "inlined", "traced"):
            stages = {name: stages.get(name, program), **stages}
        mesh = next((t.mesh for t in (*program.global_in, *program.in_avals)
                     if t.mesh.axis_names), program.mesh)
        self.partitioned = Partitioned(mesh, stages, (), (), DEFAULT_OPTIONS.judged(program))
        self.donated: tuple[bool, ...] = program.attributes.get(DONATED, ())

    def changed(self, changes: Sequence[Change], longest: float) -> Partitioned:
        raise ValueError("the shardings of this program are decided; explain the traced program")

    def apply(self, changes: Sequence[Change]) -> Program:
        raise ValueError("the shardings of this program are decided; explain the traced program")

    def part(self, short: Shortened, compared: bool) -> DecidedSubject:
        raise ValueError("the shardings of this program are decided; explain the traced program")
