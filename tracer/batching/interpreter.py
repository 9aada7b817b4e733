"""The interpreter of a vmapped function's body: tracers show one example and hold all of them.

A tracer of it has the type of one example; its variable holds the value for all of them, and along
which dimension. Each op that touches a mapped value is bound at once, batched (rules.py), in the
interpreter around the vmap: that may run it, record it, or be another vmap. Other ops go there as
they are, so outside of jit what does not depend on a mapped value is concrete.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ir.inference.infer import infer
from ...ir.meshes.mesh import Mesh
from ...ir.op import DEFAULT_INTERPRETER, Op
from ...ir.program import Atom, Var
from ...ir.settings.context import STATE, Interpreter
from ...ir.source.location import UNKNOWN, Location, capture
from ...ir.types import ArrayType
from ...ir.values.array import Array
from ...ir.values.typeof import canonical_value, typeof
from ..staging.builder import Builder
from ..staging.constants import as_array, note_mesh
from ..staging.operand_casts import cast_operands
from ..staging.tracer import Tracer
from .rules import MappedAxis, batch_op, element_type, uses_axis


class BatchedVar(Var):
    """A variable of one example: `value` holds all of them, along its dimension `dim`.

    Where dim is None, value is the one value for all.
    """

    __slots__ = ("dim", "location", "op", "value")

    def __init__(self, aval: ArrayType, value: Any, dim: int | None, *, name: str | None = None,
                 op: Op | None = None, location: Location = UNKNOWN) -> None:
        self.aval, self.name = aval, name
        self.value, self.dim = value, dim
        self.op, self.location = op, location


class VmapBuilder(Builder):
    """The interpreter of a vmapped function's body."""

    __slots__ = ("axis", "casting", "outer")

    def __init__(self, name: str, outer: Interpreter | None, axis: MappedAxis) -> None:
        super().__init__(name, outer)
        self.outer, self.axis = outer, axis
        self.casting = False
        if self.parent is not None:
            self.meshes = self.parent.meshes      # a mesh named in the body is named outside

    # -- the interpreter -----------------------------------------------------------------------
    def process(self, op: Op, operands: Sequence[Any], params: dict[str, Any]) -> list[Any]:
        """Bind an op in the surrounding interpreter, batched where an operand is mapped."""
        variables: Sequence[Any] = [
            x.variable if type(x) is Tracer and x.builder is self else self.atom(x)
            for x in operands]
        dims = [v.dim for v in variables]
        if dims.count(None) == len(dims) and not (
                self.axis.name is not None and uses_axis(self.axis, op, params)):
            out = self._outside(op, [v.value for v in variables], params)
            return [Tracer(self, self.atom(x)) for x in out] if self.casting else out
        context = STATE.abstract_mesh
        found = op.infer_cache.get(                                         # inference_key
            (tuple([v.aval for v in variables]), context, *params.items()))
        if found is not None:
            types = found[0]
        else:
            variables = self._cast_variables(op, variables)
            dims = [v.dim for v in variables]
            types = infer(op, tuple([v.aval for v in variables]), params, context)
        location = self.location or capture()
        parent, outer = self.parent, STATE.interpreter
        saved = parent.location if parent else None
        STATE.interpreter = self.outer
        if parent is not None:
            parent.location = location.under("batch")
        elif self._names_meshes():
            STATE.interpreter = _OnMeshes(self.meshes)
        try:
            values, dims = batch_op(self.axis, op, [v.value for v in variables], dims, params,
                                    types)
        finally:
            STATE.interpreter = outer
            if parent is not None:
                parent.location = saved
        return [x if d is None and not self.casting else
                Tracer(self, BatchedVar(t, x, d, op=op, location=location))
                for x, d, t in zip(values, dims, types, strict=True)]

    def _cast_variables(self, op: Op, variables: Sequence[Any]) -> Sequence[Any]:
        saved, self.casting = self.casting, True
        try:
            return cast_operands(self, op, variables)
        finally:
            self.casting = saved

    def _outside(self, op: Op, values: Sequence[Any], params: dict[str, Any]) -> list[Any]:
        """Bind an op in the interpreter around the vmap, at the location of the equation at hand.
        """
        parent, outer = self.parent, STATE.interpreter
        saved = parent.location if parent else None
        interpreter = _OnMeshes(self.meshes) if self._names_meshes() else self.outer
        STATE.interpreter = interpreter
        if parent is not None and self.location is not None:
            parent.location = self.location
        try:
            return (interpreter or DEFAULT_INTERPRETER[0]).process(op, values, params)
        finally:
            STATE.interpreter = outer
            if parent is not None:
                parent.location = saved

    def _names_meshes(self) -> bool:
        """Do ops that run at once need to know a mesh that the body names?"""
        return self.outer is None and any(m is not STATE.mesh for m in self.meshes)

    @property
    def is_eager(self) -> bool:
        return self.outer is None or getattr(self.outer, "is_eager", False)

    @property
    def concrete(self) -> bool:
        """Whether unmapped values are known (tracer/autodiff/recording.py)."""
        return self.outer is None or getattr(self.outer, "concrete", False)

    def constant(self, x: Any) -> Array:
        """A constant is an unmapped value: the surrounding interpreter's."""
        outer, STATE.interpreter = STATE.interpreter, self.outer
        try:
            return as_array(x)
        finally:
            STATE.interpreter = outer

    # -- operands ------------------------------------------------------------------------------
    def atom(self, x: Any) -> Any:
        """A value as this vmap has it: its own variable, or an unmapped one for what comes from
        outside.
        """
        if isinstance(x, Tracer):
            if x.builder is self:
                return x.variable
            if not self._encloses(x.builder):
                return self.atom(x.builder.outside(x))
            return BatchedVar(x.aval, x, None)
        aval = typeof(x)
        if isinstance(x, (np.ndarray, np.generic)) and x.dtype != aval.dtype:
            x = canonical_value(x)
        return BatchedVar(aval, x, None)

    def value(self, var: Atom) -> Any:
        if isinstance(var, BatchedVar) and var.dim is None:
            x = var.value
            return x.builder.value(x.variable) if isinstance(x, Tracer) else x
        return None

    def shown(self, tracer: Tracer) -> str:
        var: Any = tracer.variable
        return f"VmapTracer(aval={tracer.aval}, batched={typeof(var.value)})"

    def describe(self, var: Var) -> str:
        if isinstance(var, BatchedVar) and var.op is not None:
            text = var.location.text()
            shown = f"`{text}` " if text else ""
            return (f"the result of {shown}({var.op.name}), {var.aval}, which was created on line "
                    f"{var.location}")
        return super().describe(var)


class _OnMeshes:
    """The interpreter that runs ops at once, on the devices of meshes that the program names."""

    def __init__(self, meshes: Sequence[Mesh]) -> None:
        self.meshes = tuple(meshes)

    def process(self, op: Op, operands: Sequence[Any], params: dict[str, Any]) -> list[Any]:
        STATE.interpreter = None
        saved, STATE.eager_meshes = STATE.eager_meshes, (*STATE.eager_meshes, *self.meshes)
        try:
            return DEFAULT_INTERPRETER[0].process(op, operands, params)
        finally:
            STATE.interpreter, STATE.eager_meshes = self, saved


# -- running a function under it -------------------------------------------------------------------

def mapped_argument(builder: VmapBuilder, x: Any, dim: int) -> Tracer:
    """The tracer of one example of x, which holds all of them along `dim`."""
    t = typeof(x)
    if isinstance(x, (np.ndarray, np.generic)):
        x = canonical_value(x)
    if t.mesh.explicit_axes:
        note_mesh(builder, x)
    dim %= t.ndim
    var = BatchedVar(element_type(t, dim), x, dim)
    builder.args.append(var)
    return Tracer(builder, var)


def call_mapped(builder: VmapBuilder, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`f(*args, **kwargs)` in the builder's axis: its name, and the mesh axes that split it."""
    axis, outer = builder.axis, STATE.interpreter
    names, split, spmd = STATE.named_axes, STATE.mapped_mesh_axes, STATE.spmd_axes
    STATE.interpreter = builder
    STATE.mapped_mesh_axes = split | frozenset(axis.entry)
    STATE.spmd_axes = spmd | frozenset(axis.spmd)
    if axis.name is not None:
        STATE.named_axes = (*names, (axis.name, axis.size))
    around = builder.parent
    if around is not None and around.location is None:
        around.watch.place()                   # what the user binds the results to
    watched = None if around is None else around.watch.state()
    try:
        return f(*args, **kwargs)
    finally:
        if around is not None:
            around.watch.restore(watched)      # type: ignore[arg-type]
        STATE.interpreter = outer
        STATE.named_axes, STATE.mapped_mesh_axes, STATE.spmd_axes = names, split, spmd


def unmapped(builder: VmapBuilder, x: Any) -> tuple[Any, int | None]:
    """A result of a mapped call: the value for all examples, and its mapped dimension."""
    if isinstance(x, Tracer) and x.builder is builder:
        var: Any = x.variable
        return var.value, var.dim
    return x, None


def map_flat(axis: MappedAxis, f: Callable[..., Sequence[Any]],
             operands: Sequence[tuple[Any, int | None]]) -> list[tuple[Any, int | None]]:
    """`f` of one example of the operands, mapped: (value, mapped dimension) of each result."""
    builder = VmapBuilder(getattr(f, "__name__", "rule"), STATE.interpreter, axis)
    inputs = [x if d is None else mapped_argument(builder, x, d) for x, d in operands]
    return [unmapped(builder, x) for x in call_mapped(builder, f, *inputs)]
