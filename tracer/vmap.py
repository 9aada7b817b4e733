"""vmap: a function of one example made into a function of a stack of them.

The function is called once, on tracers of one example. Each op that touches a mapped value is bound
at once, batched (batching.py), in the interpreter that surrounds the vmap: that may run it, record
it, or be another vmap. What does not depend on a mapped value goes there as it is, so outside of
jit unmapped arguments, and all that is computed from them, are concrete: Python control flow and
printing work on them. Messages are JAX's.
Source: JAX's `jax.vmap`.
"""
from __future__ import annotations

import collections
import functools
import inspect
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from ..ir.array import Array
from ..ir.context import STATE
from ..ir.diagnostic import fail
from ..ir.infer import infer
from ..ir.location import UNKNOWN, Location, capture
from ..ir.mesh import Mesh
from ..ir.op import DEFAULT_INTERPRETER, Interpreter, Op
from ..ir.program import Atom, Var
from ..ir.types import ArrayType
from . import batching_collectives, batching_regions, tree
from .batching import MappedAxis, batch_op, element_type, to_dim, uses_axis
from .constants import as_array
from .sharding_functions import EAGER_CALL
from .staging import Builder, canonical_value, cast_operands, record_mesh
from .tracer import Tracer, typeof

_REGISTERED = (batching_collectives, batching_regions)     # their rules are entered on import


class _BatchedVar(Var):
    """A variable of one example: `value` holds all of them, along its dimension `dim`.

    Where dim is None, value is the one value for all.
    """

    __slots__ = ("dim", "location", "op", "value")

    def __init__(self, aval: ArrayType, value: Any, dim: int | None, *, name: str | None = None,
                 op: Op | None = None, location: Location = UNKNOWN) -> None:
        super().__init__(aval, name)
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
        variables = [x.variable if type(x) is Tracer and x.builder is self else self.atom(x)
                     for x in operands]
        if (all(v.dim is None for v in variables)
                and not uses_axis(self.axis, op, params)):
            out = self._outside(op, [v.value for v in variables], params)
            return [Tracer(self, self.atom(x)) for x in out] if self.casting else out
        context = STATE.abstract_mesh
        types = op.infer_cache.get(
            (tuple(v.aval for v in variables), tuple(params.items()), context))
        if types is None:
            variables = self._cast(op, variables)
            types = infer(op, tuple(v.aval for v in variables), params, context)
        location = self.location or capture()
        parent, outer = self.parent, STATE.interpreter
        saved = parent.location if parent else None
        STATE.interpreter = _OnMeshes(self.meshes) if self._names_meshes() else self.outer
        if parent is not None:
            parent.location = location.under("batch")
        try:
            values, dims = batch_op(self.axis, op, [v.value for v in variables],
                                    [v.dim for v in variables], params, types)
        finally:
            STATE.interpreter = outer
            if parent is not None:
                parent.location = saved
        return [x if d is None and not self.casting else
                Tracer(self, _BatchedVar(t, x, d, op=op, location=location))
                for x, d, t in zip(values, dims, types, strict=True)]

    def _cast(self, op: Op, variables: list[Any]) -> list[Any]:
        saved, self.casting = self.casting, True
        try:
            return cast_operands(self, op, variables)
        finally:
            self.casting = saved

    def _outside(self, op: Op, values: Sequence[Any], params: dict[str, Any]) -> list[Any]:
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
        """Whether ops that run at once must be told of a mesh that is named in the body."""
        return self.outer is None and any(m is not STATE.mesh for m in self.meshes)

    @property
    def at_once(self) -> bool:
        return self.outer is None or getattr(self.outer, "at_once", False)

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
        if isinstance(x, Tracer):
            if x.builder is self:
                return x.variable
            if not self._encloses(x.builder):
                self._leaked(x)
            return _BatchedVar(x.aval, x, None)
        aval = typeof(x)
        if isinstance(x, (np.ndarray, np.generic)) and x.dtype != aval.dtype:
            x = canonical_value(x)
        return _BatchedVar(aval, x, None)

    def value(self, var: Atom) -> Any:
        if isinstance(var, _BatchedVar) and var.dim is None:
            x = var.value
            return x.builder.value(x.variable) if isinstance(x, Tracer) else x
        return None

    def shown(self, tracer: Tracer) -> str:
        var: Any = tracer.variable
        return f"VmapTracer(aval={tracer.aval}, batched={typeof(var.value)})"

    def describe(self, var: Var) -> str:
        if isinstance(var, _BatchedVar) and var.op is not None:
            text = var.location.text()
            shown = f"`{text}` " if text else ""
            return f"the result of {shown}({var.op.name}) at {var.location}, {var.aval}"
        return super().describe(var)


class _OnMeshes:
    """The interpreter that runs ops at once, on the devices of meshes that the program names."""

    def __init__(self, meshes: Sequence[Mesh]) -> None:
        self.meshes = tuple(meshes)

    def process(self, op: Op, operands: Sequence[Any], params: dict[str, Any]) -> list[Any]:
        def run(*values: Any) -> list[Any]:
            for m in self.meshes:
                record_mesh(m)
            results = op.bind(*values, **params)
            return list(results) if op.multiple_results else [results]

        STATE.interpreter = None
        try:
            return EAGER_CALL[0](op.name, run, *operands)
        finally:
            STATE.interpreter = self


# -- the API ---------------------------------------------------------------------------------------

def vmap(fun: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0,
         axis_name: Hashable | None = None, axis_size: int | None = None,
         spmd_axis_name: str | tuple[str, ...] | None = None) -> Callable[..., Any]:
    """`fun` mapped over a dimension of its arguments, without a loop.

    in_axes: the dimension of each positional argument that is mapped, an int or None (the same for
      all), or a tuple with a tree prefix of them for each argument; keyword arguments are mapped
      along dimension 0. out_axes: where the mapped dimension goes in the results (a tree prefix);
      None for results that are the same for all.
    axis_name: what collectives in `fun` (`lax.psum`, ...) call the mapped dimension.
    axis_size: its size, needed where no argument is mapped.
    spmd_axis_name: mesh axes over which constraints and shard_maps in `fun` split it.
    On Explicit meshes all mapped dimensions are split alike; so is that of every result, and what
    `fun` says about shardings is about the other dimensions.
    """
    if not callable(fun):
        raise TypeError(f"Expected a callable value, got {fun}")
    if isinstance(spmd_axis_name, str):
        spmd_axis_name = (spmd_axis_name,)
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    if in_axes is not None and type(in_axes) not in (int, tuple):
        raise TypeError("vmap in_axes must be an int, None, or a tuple of entries corresponding to "
                        f"the positional arguments passed to the function, but got {in_axes}.")
    for what, axes in (("in_axes", in_axes), ("out_axes", out_axes)):
        if not all(type(d) is int for d in tree.leaves(axes)):
            raise TypeError(f"vmap {what} must be an int, None, or (nested) container with those "
                            f"types as leaves, but got {axes}.")

    @functools.wraps(fun)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        return _call(fun, args, kwargs, in_axes, out_axes, axis_name, axis_size, spmd_axis_name)

    mapped.__doc__ = (f"Vectorized version of {getattr(fun, '__name__', fun)}: takes its arguments "
                      "with one more dimension, over which it is mapped.\n\n"
                      f"{getattr(fun, '__doc__', None) or ''}")
    return mapped


def _call(fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], in_axes: Any,
          out_axes: Any, axis_name: Hashable, axis_size: int | None,
          spmd: tuple[str, ...] | None) -> Any:
    if isinstance(in_axes, tuple) and len(in_axes) != len(args):
        raise ValueError("vmap in_axes must be an int, None, or a tuple of entries corresponding "
                         "to the positional arguments passed to the function, but got "
                         f"len(in_axes)={len(in_axes)}, len(args)={len(args)}")
    leaves, treedef = tree.flatten((args, kwargs))
    dims = [*_prefix("vmap in_axes", in_axes, args), *[0] * len(tree.leaves(kwargs))]
    size = _axis_size(fun, args, kwargs, leaves, dims, axis_size)
    axis = _mapped_axis(leaves, dims, size, axis_name, spmd)
    outer = STATE.interpreter
    name = getattr(fun, "__name__", type(fun).__name__)
    builder = VmapBuilder(name, outer, axis)
    inputs = [x if d is None else _argument(builder, x, d)
              for x, d in zip(leaves, dims, strict=True)]
    names, split = STATE.named_axes, STATE.mapped_mesh_axes
    STATE.interpreter = builder
    STATE.mapped_mesh_axes = split | frozenset(axis.entry)
    if axis_name is not None:
        STATE.named_axes = (*names, (axis_name, size))
    try:
        inner_args, inner_kwargs = tree.unflatten(treedef, inputs)
        results = fun(*inner_args, **inner_kwargs)
    finally:
        STATE.interpreter = outer
        STATE.named_axes, STATE.mapped_mesh_axes = names, split
    return _results(builder, results, out_axes)


def _prefix(what: str, axes: Any, full: Any) -> list[Any]:
    try:
        return tree.broadcast_prefix(axes, full, name=what)
    except tree.PrefixError as e:
        raise ValueError(f"{what} specification must be a tree prefix of the corresponding value; "
                         f"\n  Mismatch details (1 found):\n  {e}") from None


def _argument(builder: VmapBuilder, x: Any, dim: int) -> Tracer:
    t = typeof(x)
    if isinstance(x, (np.ndarray, np.generic)):
        x = canonical_value(x)
    dim %= t.ndim
    var = _BatchedVar(element_type(t, dim), x, dim)
    builder.args.append(var)
    return Tracer(builder, var)


def _results(builder: VmapBuilder, results: Any, out_axes: Any) -> Any:
    pairs, treedef = tree.flatten_with_path(results)
    places = _prefix("vmap out_axes", out_axes, results)
    out = []
    for (path, x), place in zip(pairs, places, strict=True):
        try:
            t = typeof(x)
        except TypeError:
            raise TypeError(f"Output from batched function {x!r} with type {type(x)} is not a "
                            "valid JAX type") from None
        dim = None
        if isinstance(x, Tracer) and x.builder is builder:
            var: Any = x.variable
            x, dim = var.value, var.dim
        if place is None:
            if dim is not None:
                where = tree.keystr(path) if isinstance(out_axes, (tuple, list, dict)) else ""
                fail(ValueError, f"at vmap out_axes{where}, got axis spec None but output was "
                     f"batched on axis {dim}", code="mapped-output",
                     label="this result differs from example to example",
                     help="give it a dimension in out_axes")
            out.append(x)
            continue
        if not -t.ndim - 1 <= place <= t.ndim:
            raise ValueError(f"axis {place} is out of bounds for array of dimension {t.ndim + 1}")
        out.append(to_dim(x, dim, place % (t.ndim + 1), builder.axis))
    return tree.unflatten(treedef, out)


# -- the mapped axis -------------------------------------------------------------------------------

def _mapped_axis(leaves: Sequence[Any], dims: Sequence[int | None], size: int, name: Hashable,
                 spmd: tuple[str, ...] | None) -> MappedAxis:
    """The axis, with the Explicit mesh axes that split it: the same ones in every mapped leaf."""
    mapped = [(typeof(x), d) for x, d in zip(leaves, dims, strict=True) if d is not None]
    entries = [t.entries[d] for t, d in mapped]
    for entry in entries[1:]:
        if entry != entries[0]:
            fail(ValueError, "Mapped away dimension of inputs passed to vmap should be sharded the "
                 f"same. Got inconsistent axis specs: {_text(entries[0])} vs {_text(entry)}",
                 code="mapped-sharding",
                 label=", ".join(f"{t.str_short(True)} along {d}" for t, d in mapped),
                 help="bring the mapped dimensions to one sharding with `reshard`")
    entry = entries[0] if entries else ()
    if not entry:
        return MappedAxis(size, name, spmd=spmd or ())
    for x, d in zip(leaves, dims, strict=True):
        if d is None:
            t = typeof(x)
            if {a for e in t.entries for a in e} & set(entry):
                fail(ValueError, "Unmapped values passed to vmap cannot be sharded along the mesh "
                     f"axis you are vmapping over. Got type: {t.str_short(True)}, in_axes: None "
                     f"and vmapped mesh axis: {entry}", code="unmapped-sharding",
                     help="bring the unmapped value to another sharding with `reshard`")
    if spmd is not None and spmd != entry:
        fail(ValueError, "Only one of spmd_axis_name or arrays sharded on `Explicit` mesh axis "
             f"type is allowed. Got spmd_axis_name={spmd} and arrays sharded on "
             f"explicit_mesh_axis={entry}", code="spmd-axis",
             help="leave spmd_axis_name out: the arrays say how they are split")
    return MappedAxis(size, name, entry, mapped[0][0].mesh)


def _text(entry: tuple[str, ...]) -> Any:
    return None if not entry else entry[0] if len(entry) == 1 else entry


def _axis_size(fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
               leaves: Sequence[Any], dims: Sequence[int | None], given: int | None) -> int:
    if not leaves:
        if given is not None:
            return given
        raise ValueError("vmap wrapped function must be passed at least one argument containing an "
                         "array or axis_size must be specified, got empty "
                         f"*args={args} and **kwargs={kwargs}")
    sizes: list[int | None] = []
    for x, d in zip(leaves, dims, strict=True):
        if d is None:
            sizes.append(None)
            continue
        shape = typeof(x).shape
        if not -len(shape) <= d < len(shape):
            raise ValueError(
                f"vmap was requested to map its argument along axis {d}, which implies that its "
                f"rank should be at least {d + 1 if d >= 0 else -d}, but is only {len(shape)} "
                f"(its shape is {shape})")
        sizes.append(shape[d])
    found = {n for n in sizes if n is not None}
    if given is not None:
        found.add(given)
    if not found:
        raise ValueError("vmap must have at least one non-None value in in_axes or axis_size must "
                         "be specified")
    if len(found) == 1:
        return found.pop()
    names = _leaf_names(fun, args, kwargs)
    lines = [] if given is None else [f"  * the `axis_size` argument was {given}"]
    counts = collections.Counter(n for n in sizes if n is not None).most_common()
    for i, (n, count) in enumerate(counts):
        first = sizes.index(n)
        place = f"axis {dims[first]} of {names[first]} of type {typeof(leaves[first]).str_short()}"
        if count == 1:
            lines.append(f"  * one axis had size {n}: {place}")
        else:
            many = "some" if i else "most"
            lines.append(f"  * {many} axes ({count} of them) had size {n}, e.g. {place}")
    raise ValueError("vmap got inconsistent sizes for array axes to be mapped:\n"
                     + ";\n".join(lines))


def _leaf_names(fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
                ) -> list[str]:
    try:
        parameters = list(inspect.signature(fun).bind(*args, **kwargs).signature.parameters)
    except (TypeError, ValueError):
        parameters = []
    names = []
    for path, _ in tree.leaves_with_path(args):
        i = path[0].idx
        names.append(f"argument {parameters[i]}{tree.keystr(path[1:])}" if i < len(parameters)
                     else f"args{tree.keystr(path)}")
    return names + [f"kwargs{tree.keystr(path)}" for path, _ in tree.leaves_with_path(kwargs)]
