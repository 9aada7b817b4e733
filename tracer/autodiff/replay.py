"""Replays the equations of a program in the current interpreter.

A replayed equation keeps the location of the user's expression, with the transformation named, and
the mesh that its types live on: a program may switch axes to Auto and back (`auto_axes`).
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...ir.diagnostics.diagnostic import placed
from ...ir.meshes.mesh import AbstractMesh, empty_abstract_mesh
from ...ir.op import DEFAULT_INTERPRETER, Op
from ...ir.program import Atom, Equation, Literal, Program, Var
from ...ir.settings.context import STATE, config, interpreter_context
from ...ir.source.location import UNKNOWN, Location, is_ours
from ...ir.spec import PartitionSpec
from ...ir.types import ArrayType
from ...ir.values.array import Array
from ...ir.values.typeof import canonical_value, type_of_constant, typeof
from ..references.frames import no_references
from ..staging.bound_names import copy_names
from ..staging.builder import Builder
from ..staging.leaks import watching
from ..staging.signature import function_name
from ..staging.staging import trace_to_program
from ..staging.steps import value_of
from ..trees import tree


class Scalar(Array):
    """A number with a type (it may be weak), outside of any program: what a literal stands for.
    That its value is read is noted (`reads`): what a rule gives may depend on it then.
    """

    __slots__ = ("aval", "literal")

    def __init__(self, literal: Literal) -> None:
        self.literal, self.aval = literal, literal.aval

    @property
    def value(self) -> Any:
        return value_of(self.literal)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.asarray(self.value, dtype)

    def item(self) -> Any:
        return np.asarray(self.value).item()

    def __bool__(self) -> bool:
        return bool(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __index__(self) -> int:
        return np.asarray(self.value).__index__()

    def __float__(self) -> float:
        return float(self.value)

    def __complex__(self) -> complex:
        return complex(self.value)

    def __repr__(self) -> str:
        return str(self.value)

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(self.value, spec)


def scalar(x: Any) -> Scalar:
    """A Python or numpy scalar as an operand that has a type."""
    aval = type_of_constant(x)
    return Scalar(Literal(aval.dtype.type(x) if isinstance(aval.dtype, np.dtype) else x, aval))


def as_operand(x: Any) -> Any:
    """An operand that rules can ask for its type: an array, a tracer or a Scalar.

    Numpy arrays stay, narrowed to the dtypes of programs.
    """
    if isinstance(x, Array):
        return x
    convert = getattr(x, "__jax_array__", None)
    if convert is not None and not isinstance(x, np.ndarray):
        return as_operand(convert())
    if isinstance(x, np.ndarray) and x.ndim:
        return canonical_value(x)
    return scalar(x[()] if isinstance(x, np.ndarray) else x)


def operand(atom: Atom, env: Mapping[Var, Any]) -> Any:
    """The value that a variable or literal has in this replay."""
    return Scalar(atom) if isinstance(atom, Literal) else env[atom]


def process(op: Op, operands: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    """Use an op in the current interpreter: the list of its results."""
    interpreter = STATE.interpreter
    if interpreter is None:
        interpreter = DEFAULT_INTERPRETER[0]
    return interpreter.process(op, operands, params)


def equation_context(eqn: Equation, context: AbstractMesh) -> AbstractMesh:
    """The context mesh that an equation was traced under."""
    outvars = eqn.outvars
    if not outvars:
        return context
    for v in outvars:
        mesh = v.aval.sharding.mesh
        if mesh is not empty_abstract_mesh and mesh.axis_names:
            return mesh  # type: ignore[return-value]
    return empty_abstract_mesh if not eqn.op.subprograms else context


class Replay:
    """While equations are replayed: sets their location in these builders, and their mesh.

        with Replay("transpose", builder) as at:
            for eqn in ...:
                at(eqn)
    """

    __slots__ = ("at", "builders", "context", "last", "locations", "under", "word")

    def __init__(self, word: str, *builders: Any) -> None:
        self.word = word
        self.at = UNKNOWN                     # of the equation at work
        self.last = self.under = UNKNOWN      # the location seen last, and with the word
        flat = [b for x in builders for b in getattr(x, "builders", (x,))]
        self.builders = [b for b in flat if isinstance(b, Builder)]

    def __enter__(self) -> Replay:
        self.context = STATE.abstract_mesh
        self.locations = [b.location for b in self.builders]
        for b in self.builders:
            if b.location is None:
                b.watch.place()                # what the user binds the results to
        return self

    def __call__(self, eqn: Equation) -> Location:
        """The location that equations made of this one have."""
        outvars = eqn.outvars
        mesh: Any = outvars[0].aval.sharding.mesh if outvars else empty_abstract_mesh
        STATE.abstract_mesh = mesh if mesh is not empty_abstract_mesh and mesh.axis_names else (
            equation_context(eqn, self.context))
        location = self.at = eqn.location
        if self.builders:
            if location is self.last:
                return self.under             # equations made of one have one location
            self.last = location
            if self.word:
                location = location.under(self.word)
            self.under = location
            for b in self.builders:
                b.location = location
        return location

    def exactly(self, location: Location) -> None:
        """Set a location as it is, for equations that no transformation made."""
        self.last = self.under = UNKNOWN
        for b in self.builders:
            b.location = location

    def name_meshes(self, program: Program) -> None:
        """Tell the builders which concrete meshes the program names."""
        for m in program.attributes.get("meshes", ()):
            for b in self.builders:
                if m not in b.meshes:
                    b.meshes.append(m)

    def __exit__(self, *exc: Any) -> None:
        if exc[1] is not None:
            placed(exc[1], self.at)
        STATE.abstract_mesh = self.context
        for b, location in zip(self.builders, self.locations, strict=True):
            b.location = location


class user_code:
    """While a rule runs within a replay: the expressions of a user's have their own place.

    Those of a rule of ours are where the equation is that it is the derivative of.
    """

    __slots__ = ("builder", "is_users", "location", "watched")

    def __init__(self, rule: Any) -> None:
        self.is_users = not is_ours(getattr(rule, "__module__", None) or "")

    def __enter__(self) -> None:
        interpreter = STATE.interpreter
        self.builder = interpreter if self.is_users and isinstance(interpreter, Builder) else None
        if self.builder is not None:
            self.location, self.builder.location = self.builder.location, None
            self.watched = self.builder.watch.state()

    def __exit__(self, *exc: Any) -> None:
        if self.is_users and exc[1] is not None:
            placed(exc[1], None)
        if self.builder is not None:
            self.builder.location = self.location
            self.builder.watch.restore(self.watched)


def live_equations(eqns: Sequence[Equation], outvars: Iterable[Atom]) -> list[Equation]:
    """The equations that the results depend on, and those that the host sees, in order."""
    wanted = set(outvars)              # literals among them do no harm
    kept: list[Equation] = []
    for eqn in reversed(eqns):
        outs, op = eqn.outvars, eqn.op
        if (outs[0] in wanted if len(outs) == 1 else not outs or not wanted.isdisjoint(outs)) or (
                (op.effect or op.subprograms) and eqn.effects):
            kept.append(eqn)
            wanted.update(eqn.invars)
    kept.reverse()
    return kept


def evaluate(program: Program, values: Sequence[Any], word: str = "", *, edited: bool = False
             ) -> list[Any]:
    """The results of a program on these values, in the current interpreter. edited: the types of
    its equations' results are of what they were before, so that all are inferred again, in the
    programs that they hold, too.
    """
    env: dict[Var, Any] = dict(zip(program.invars, values, strict=True))
    env.update(program.consts)
    moved: dict[tuple, PartitionSpec] = {}
    if edited:
        _note_moved(moved, program.invars, values)
    interpreter = STATE.interpreter
    repeat = interpreter.repeat if type(interpreter) is Builder and not edited else None
    with Replay(word, interpreter) as at:
        at.name_meshes(program)
        for eqn in live_equations(program.eqns, program.outvars):
            if repeat is not None:
                location = eqn.location.under(word) if word else eqn.location
                tracers = repeat(eqn, env, location)
                if tracers is not None:
                    env.update(zip(eqn.outvars, tracers, strict=True))
                    continue
            at(eqn)
            operands = [operand(a, env) for a in eqn.invars]
            params = eqn.params
            if edited:
                params = _laid_out_again(eqn, moved) if eqn.op.region is None else _typed_again(
                    eqn, [typeof(x) for x in operands])
            results = process(eqn.op, operands, params)
            if edited:
                _note_moved(moved, eqn.outvars, results)
            copy_names(eqn.outvars, results)
            env.update(zip(eqn.outvars, results, strict=True))
    return [operand(a, env) for a in program.outvars]


def _note_moved(moved: dict[tuple, PartitionSpec], before: Sequence[Var], now: Sequence[Any]
                ) -> None:
    """Note, by shape and layout before, the layouts of values that have another one now."""
    for v, x in zip(before, now, strict=True):
        spec = typeof(x).sharding.spec
        if v.aval.shape and spec != v.aval.sharding.spec:
            moved[v.aval.shape, v.aval.sharding.spec] = spec


def _laid_out_again(eqn: Equation, moved: dict[tuple, PartitionSpec]) -> dict[str, Any]:
    """The params of an equation of a derivative, which lays a cotangent out as its value was: as
    that is now.
    """
    params, t = eqn.params, eqn.outvars[0].aval
    if "transpose" in eqn.location.transform:
        for name in ("sharding", "out_sharding", "dst_sharding"):
            requested = params.get(name)
            own = None if requested is None else requested.spec.padded(t.ndim)
            if requested is not None and (t.shape, own) in moved:
                params = {**params, name: requested.update(spec=moved[t.shape, own])}
    return params


def _typed_again(eqn: Equation, types: Sequence[ArrayType]) -> dict[str, Any]:
    """The params of an equation with a region, its programs typed for operands of these types."""
    assert eqn.op.region is not None
    region = eqn.op.region(eqn)
    params = dict(eqn.params)
    for p, (name, place, program) in enumerate(region.programs):
        own = list(program.in_avals)
        for slot in region.slots:
            for q, i in slot.inputs if slot.operand >= 0 else ():
                sharding = types[slot.operand].sharding
                partitions = tuple(sharding.spec)[slot.stacked:]
                if q == p and partitions != tuple(own[i].sharding.spec):
                    own[i] = own[i].update(sharding=sharding.update(
                        spec=sharding.spec.update(partitions=partitions)))
        typed = stage(lambda *xs, p=program: evaluate(p, xs, edited=True), own, program)
        typed = typed.replace(arg_names=program.arg_names, result_names=program.result_names)
        held = params[name]
        params[name] = typed if place < 0 else (*held[:place], typed, *held[place + 1:])
    return params


def flat_program(f: Callable[..., Any], types: Sequence[ArrayType], treedef: Any
                 ) -> tuple[Program, Sequence[Any], Any]:
    """The program of `f`, on leaves of `treedef`; what it closes over, which are its first
    operands; and the structure of its results."""
    trees: list[Any] = []

    def flat(*values: Any) -> list[Any]:
        outs, out_tree = tree.flatten(f(*tree.unflatten(treedef, values)))
        trees.append(out_tree)
        return outs

    program, captured = trace_to_program(flat, types, name=function_name(f))
    if program.consts:
        captured = [x for _, x in program.consts]
        program = program.replace(invars=[*program.constvars, *program.invars], consts=())
    return program, captured, trees[-1]


def stage(f: Callable[..., Sequence[Any]], types: Sequence[ArrayType], like: Program, *,
          name: str | None = None) -> Program:
    """The program of `f`, on its own: made out of `like`, whose mesh and constants it shares."""
    if watching():                    # what is built beside this program keeps its tracers for now
        with config.override(jax_check_tracer_leaks=False):
            return stage(f, types, like, name=name)
    observers, STATE.on_equation = STATE.on_equation, []
    try:
        with interpreter_context(None), no_references():
            program, _ = trace_to_program(f, types, name=name or like.name, mesh=like.mesh)
    finally:
        STATE.on_equation = observers
    program.attributes["meshes"] = tuple(dict.fromkeys(
        (*like.attributes.get("meshes", ()), *program.attributes.get("meshes", ()))))
    return program
