"""The interpreter that records equations while a function is traced.

Recording is the hot path of tracing: operand lookup, one dictionary access for the result types, a
location, and the equation object. Values of an enclosing trace that the function uses become
parameters of its program, in front of its own; only the outermost program has constants.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...ir.diagnostics.diagnostic import fail
from ...ir.diagnostics.errors import UnexpectedTracerError
from ...ir.inference.infer import infer, infer_anew
from ...ir.meshes.mesh import AbstractMesh, Mesh
from ...ir.op import Op
from ...ir.op_instance import SIGNATURES
from ...ir.program import Atom, Equation, Level, Literal, Program, Var
from ...ir.settings.context import STATE
from ...ir.source.location import Location
from ...ir.types import ArrayType
from ...ir.values.array import Array
from ...ir.values.typeof import NUMPY_SCALARS, type_of_constant, typeof
from .bound_names import DEEP, Watch
from .nesting import DEEPLY_NESTED, make_room
from .operand_casts import casts_of, reduce_scalars
from .tracer import Tracer

# Makes an object without a call of `__init__`, which takes as long as all else of it.
NEW: Any = object.__new__


class Builder:
    """The interpreter that records equations.

    parent: the builder of the enclosing trace. captured: tracers of the parent that this program
    uses, with the variables that stand for them, typed by `capture_type` (shard_map's body sees
    another mesh). meshes: concrete meshes named inside.
    """

    __slots__ = ("__weakref__", "args", "capture_type", "captured", "captured_vars", "const_vars",
                 "consts", "depth", "eqns", "keep", "location", "meshes", "name", "parent", "watch")

    def __init__(self, name: str, parent: Any = None,
                 capture_type: Callable[[ArrayType], ArrayType] | None = None) -> None:
        self.name = name
        self.capture_type = capture_type
        self.keep: list[Any] = []        # objects whose id is a key of const_vars
        self.parent = None if parent is None or not isinstance(parent, Builder) else parent
        self.depth = 1 if self.parent is None else self.parent.depth + 1
        if self.depth == DEEPLY_NESTED:
            make_room()
        self.eqns: list[Equation] = []
        self.consts: list[tuple[Var, Any]] = []
        self.const_vars: dict[int, Var] = {}
        self.captured: list[Any] = []
        self.captured_vars: list[Var] = []
        self.args: list[Var] = []
        self.meshes: list[Mesh] = []
        self.location: Location | None = None   # set while a transformation replays equations
        self.watch = Watch()

    # -- the interpreter ---------------------------------------------------------------------
    def process(self, op: Op, operands: Sequence[Any], params: dict[str, Any]) -> list[Tracer]:
        """Record one equation; tracers of its results."""
        atoms: tuple[Atom, ...]
        count = len(operands)
        if count == 2:                  # most equations by far have one or two operands
            x, y = operands
            a = x.variable if type(x) is Tracer and x.builder is self else self.atom(x)
            b = y.variable if type(y) is Tracer and y.builder is self else self.atom(y)
            atoms, types = (a, b), (a.aval, b.aval)
        elif count == 1:
            x = operands[0]
            a = x.variable if type(x) is Tracer and x.builder is self else self.atom(x)
            atoms, types = (a,), (a.aval,)
        else:
            atoms = tuple([x.variable if type(x) is Tracer and x.builder is self else self.atom(x)
                           for x in operands])
            types = tuple([a.aval for a in atoms])
        state = STATE.__dict__
        context = state["abstract_mesh"]
        key = (types, context, *params.items()) if params else (types, context)  # inference_key
        known = op.infer_cache.get(key)
        location = self.location or self.watch.place(3)      # behind `bind`
        instance = own = None
        if known is not None:
            results, instance, own = known
        else:
            manual = None
            for t in types:
                if t.sharding.spec.reduced or (t.manual is not manual and op.manual is None
                                               and manual is not None):
                    atoms, types, results = self._inferred(
                        op, atoms, types, params, context, location)
                    break
                manual = t.manual
            else:
                results = infer_anew(op, types, params, context, key)
        eqn: Equation = NEW(Equation)
        if not op.multiple_results:
            var: Var = NEW(Var)
            var.aval, var.name = results[0], None
            eqn.outvars = (var,)
            tracer: Tracer = NEW(Tracer)
            tracer.builder, tracer.variable, tracer.aval = self, var, var.aval
            tracers = [tracer]
        else:
            eqn.outvars = outvars = tuple([Var(t) for t in results])
            tracers = [Tracer(self, v) for v in outvars]
        eqn.op = op
        eqn.invars = atoms
        eqn.params = params
        eqn.location = location
        eqn.reason = ()
        eqn.known_types = own or SIGNATURES[types, results]
        if instance is not None:
            eqn.instance = instance
        self.eqns.append(eqn)
        if state["on_equation"]:
            for observer in state["on_equation"]:
                observer(eqn)
        return tracers

    def _inferred(self, op: Op, atoms: tuple[Atom, ...], types: tuple[ArrayType, ...],
                  params: dict[str, Any], context: AbstractMesh, location: Location
                  ) -> tuple[tuple[Atom, ...], tuple[ArrayType, ...], tuple[ArrayType, ...]]:
        """The operands after the casts that JAX makes silently (see `cast_operands`), their types,
        and those of the results."""
        casts = () if op.manual is not None else casts_of(types, context)
        if casts:
            changed = list(atoms)
            for i, cast, axes, t in casts:
                var = Var(t)
                eqn = Equation(cast, (changed[i],), (var,), {"axes": axes}, location)
                self.eqns.append(eqn)
                for observer in STATE.on_equation:
                    observer(eqn)
                changed[i] = var
            atoms = tuple(changed)
            types = tuple([a.aval for a in atoms])
            known = op.infer_cache.get((types, context, *params.items()))       # inference_key
            if known is not None and not any([t.sharding.spec.reduced for t in types]):
                return atoms, types, known[0]
        atoms = reduce_scalars(self, op, atoms)
        types = tuple([a.aval for a in atoms])
        return atoms, types, infer(op, types, params, context)

    def repeat(self, eqn: Equation, env: Mapping[Var, Any], location: Location
               ) -> list[Tracer] | None:
        """Record an equation of another program: `env` has its variables' values. Nothing has to
        be inferred where the operands have the types that they have there; None where they differ.
        """
        op = eqn.op
        if op.effect:
            return None
        atoms = []
        for v in eqn.invars:
            if isinstance(v, Literal):
                atoms.append(v)
                continue
            x = env[v]
            a = x.variable if type(x) is Tracer and x.builder is self else self.atom(x)
            if a.aval is not v.aval:
                return None
            atoms.append(a)
        outvars = tuple([Var(v.aval, v.name) for v in eqn.outvars])
        for v in outvars:
            if v.name is not None:
                self.watch.depths[v] = DEEP
        new = Equation(op, tuple(atoms), outvars, eqn.params, location)
        new.known_types = eqn.known_types
        self.eqns.append(new)
        for observer in STATE.on_equation:
            observer(new)
        return [Tracer(self, v) for v in outvars]

    # -- operands ----------------------------------------------------------------------------
    def atom(self, x: Any) -> Atom:
        """The variable or literal for `x` in this program."""
        kind = type(x)
        aval = NUMPY_SCALARS.get(kind)
        if aval is not None:
            literal: Literal = NEW(Literal)
            literal.val, literal.aval = x, aval
            return literal
        if kind is Literal:
            return x
        if isinstance(x, Tracer):
            if x.builder is self:
                return x.variable
            if not self._encloses(x.builder):
                return self.atom(x.builder.outside(x))
            return self._capture(x)
        if kind in (int, float, bool, complex):
            aval = type_of_constant(x)
            return Literal(aval.dtype.type(x), aval)
        if isinstance(x, np.generic):
            aval = type_of_constant(x)
            return Literal(x if x.dtype == aval.dtype else aval.dtype.type(x), aval)
        if isinstance(x, Array):
            aval = x.aval
            if not aval.shape and not aval.mesh.axis_names and isinstance(aval.dtype, np.dtype):
                return getattr(x, "literal", None) or Literal(np.asarray(x)[()], aval)
            return self._constant(x, aval)
        convert = getattr(x, "__jax_array__", None)
        if convert is not None:
            return self.atom(convert())
        aval = type_of_constant(x)
        value = np.asarray(x)
        if value.dtype != aval.dtype:
            value = value.astype(aval.dtype)
        if not aval.shape:
            return Literal(value[()], aval)
        return self._constant(x, aval, value)

    def result(self, x: Any) -> Atom:
        """The `atom` of a result of the function. Values that can never be results refuse it
        (`refuse_result`).
        """
        refuse_result = None if isinstance(x, Array) else getattr(x, "refuse_result", None)
        if refuse_result is not None:
            refuse_result(self.name)
        return self.atom(x)

    def _encloses(self, builder: Builder) -> bool:
        b = self.parent
        while b is not None:
            if b is builder:
                return True
            b = b.parent
        return False

    def _capture(self, x: Any) -> Var:
        """The parameter for a captured array, or a captured value of the enclosing trace."""
        var = self.const_vars.get(id(x))
        if var is None:
            outer = x
            if isinstance(x, Tracer) and x.builder is not self.parent:
                parent: Any = self.parent
                outer = Tracer(parent, parent.atom(x))
            self.keep.append(x)
            t = typeof(outer)
            var = Var(t if self.capture_type is None else self.capture_type(t),
                      getattr(outer.variable, "name", None) if isinstance(outer, Tracer) else None)
            self.const_vars[id(x)] = var
            self.captured.append(outer)
            self.captured_vars.append(var)
        return var

    def stands_for(self, var: Var) -> Atom | None:
        """The variable of the enclosing trace that was captured as this parameter; None for others.
        """
        if var not in self.captured_vars:
            return None
        outer = self.captured[self.captured_vars.index(var)]
        return outer.variable if isinstance(outer, Tracer) else None

    def _constant(self, x: Any, aval: ArrayType, value: Any = None) -> Var:
        """The variable of a constant: in the outermost program, or captured from it."""
        if self.parent is not None:
            return self._capture(x)
        var = self.const_vars.get(id(x))
        if var is None:
            var = Var(aval)
            self.const_vars[id(x)] = var
            self.consts.append((var, x if value is None else value))
            self.keep.append(x)
        return var

    def outside(self, x: Tracer) -> Any:
        """A value of this trace used outside it: an error in most cases."""
        known = STATE.stand_ins.get(x.variable)
        if known is not None:
            return known
        fail(UnexpectedTracerError,
             "Encountered an unexpected tracer. A function transformed by JAX had a side effect, "
             "allowing for a reference to an intermediate value with type "
             f"{x.aval.str_short()} wrapped in a {type(x).__name__} to escape the scope of the "
             "transformation.", code="leaked-tracer",
             label="this uses a value of a trace that has ended",
             notes=(f"the value is {x.builder.describe(x.variable)} in `{x.builder.name}`",),
             help="return the value from the traced function instead of saving it to global "
                  "state: an outer variable, list or attribute")

    @property
    def is_eager(self) -> bool:
        """Whether each op runs when it is bound, so that a mesh of its own is not kept in types."""
        return False

    def value(self, var: Atom) -> Any:
        """The concrete value of a variable, where the builder knows it (see tracer/autodiff)."""
        return None

    def shown(self, tracer: Tracer) -> str:
        """What `repr` of a tracer of this builder is."""
        return f"JitTracer({tracer.aval})"

    def describe(self, var: Var) -> str:
        """In words, what a variable is: an argument or the result of an expression."""
        for position, v in enumerate(self.args):
            if v is var:
                return f"argument `{v.name or position}` of `{self.name}`, {var.aval}"
        for eqn in self.eqns:
            if var in eqn.outvars:
                text = eqn.location.text()
                shown = f"`{text}` " if text else ""
                return (f"the result of {shown}({eqn.op.name}), {var.aval}, which was created on "
                        f"line {eqn.location}")
        return f"a captured value, {var.aval}"

    # -- the result --------------------------------------------------------------------------
    def argument(self, aval: ArrayType, name: str | None = None) -> Tracer:
        var = Var(aval, name)
        self.args.append(var)
        return Tracer(self, var)

    def finish(self, outvars: Sequence[Atom], mesh: AbstractMesh, **details: Any) -> Program:
        """The program, with captured values as its first parameters."""
        captured = self.captured_vars if self.parent is not None else []
        program = Program(self.name, [*captured, *self.args], self.eqns, outvars,
                          consts=self.consts, mesh=mesh, level=Level.TRACED, **details)
        program.attributes["meshes"] = tuple(self.meshes)
        return program


def current_builder() -> Builder | None:
    """The builder of the innermost trace of this thread, or None outside of any."""
    interpreter = STATE.interpreter
    return interpreter if isinstance(interpreter, Builder) else None


def record_mesh(mesh: Mesh) -> None:
    """Record in the current trace that the program names this concrete mesh, and so its devices."""
    builder = current_builder()
    if builder is not None and mesh not in builder.meshes:
        builder.meshes.append(mesh)
