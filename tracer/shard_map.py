"""shard_map: write the per-device program yourself, on blocks.

    @partial(shard_map, mesh=mesh, in_specs=P('x'), out_specs=P())
    def total(block):                        # block: f32[8]{V:x}, one device's part
        return lax.psum(block.sum(), 'x')    # equal on all devices, hence P()

Each value's type says over which manual axes it varies; an output whose spec claims that it is the
same along an axis is checked against that (`check_vma`). Messages are JAX's.
Source: JAX's `jax.shard_map` and its notebook.
"""
from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from ..ir.context import STATE
from ..ir.diagnostic import fail
from ..ir.infer import spec_entry
from ..ir.mesh import AbstractMesh, AxisType, Mesh
from ..ir.op import OPS
from ..ir.ops.manual import entering_type, manual_mesh
from ..ir.sharding import NamedSharding, named_sharding_abstract
from ..ir.spec import PartitionSpec, spec_from_entries
from ..ir.types import ArrayType
from . import tree
from .region_values import BlockBuilder
from .shard_map_checks import (
    check_divisible,
    check_out_ranks,
    check_ranks,
    check_replication,
)
from .sharding_functions import traced_or_run
from .staging import Builder, current_builder, record_mesh, trace_to_program
from .tracer import typeof


class _Infer:
    """Default of in_specs: read them from the arguments' types."""

    def __repr__(self) -> str:
        return "Infer"


Infer = _Infer()


def shard_map(f: Callable[..., Any] | None = None, /, *, out_specs: Any, in_specs: Any = Infer,
              mesh: Mesh | AbstractMesh | None = None, axis_names: Any = frozenset(),
              check_vma: bool = True) -> Callable[..., Any]:
    """`f` applied on each device to its blocks of the arguments.

    in_specs, out_specs: pytree prefixes of PartitionSpec, of the positional arguments and of the
      result. An axis in a spec cuts (or puts together) that dimension; an axis in none of an
      output's entries promises that the output is the same along it. A None in in_specs marks a
      static argument; without in_specs they are the arguments' own (Explicit axes only).
    mesh: default the context mesh. axis_names: the axes that become Manual (default: all).
    check_vma: track what varies, and refuse out_specs that do not hold.
    """
    if f is None:
        return functools.partial(shard_map, out_specs=out_specs, in_specs=in_specs, mesh=mesh,
                                 axis_names=axis_names, check_vma=check_vma)
    if not callable(f):
        raise TypeError("shard_map requires a callable for its first argument, but got "
                        f"{f} of type {type(f)}.")
    if not isinstance(axis_names, (set, frozenset)):
        raise TypeError("`axis_names` argument of shard_map should be of type `frozenset` or "
                        f"`set`. Got type: {type(axis_names)}")
    if mesh is not None and not isinstance(mesh, (Mesh, AbstractMesh)):
        raise TypeError("shard_map requires a `jax.sharding.Mesh` or a `jax.sharding.AbstractMesh` "
                        f"instance for its second argument, but got {mesh} of type {type(mesh)}.")
    region = _Region(f, in_specs, out_specs, mesh, frozenset(axis_names), check_vma)

    @functools.wraps(f)
    def wrapped(*args: Any) -> Any:
        return region(args)

    return wrapped


def smap(f: Callable[..., Any] | None = None, /, *, in_axes: Any = Infer, out_axes: Any,
         axis_name: Hashable) -> Callable[..., Any]:
    """shard_map over one axis, with the cut dimension given as an integer (None: whole)."""
    if f is None:
        return functools.partial(smap, in_axes=in_axes, out_axes=out_axes, axis_name=axis_name)
    if isinstance(axis_name, (tuple, list, set, frozenset)):
        raise TypeError(f"smap axis_name should be a `str` or a `Hashable`, but got {axis_name}")

    def spec(dim: Any) -> PartitionSpec:
        return PartitionSpec() if dim is None else PartitionSpec(*(None,) * dim, axis_name)

    def specs(axes: Any) -> Any:
        return axes if axes is Infer else tree.map(spec, axes, is_leaf=lambda x: x is None)

    return shard_map(f, in_specs=specs(in_axes), out_specs=specs(out_axes),
                     axis_names={axis_name})


class _Region:
    """One use of shard_map: checks its arguments, traces the body, records the equation."""

    def __init__(self, f: Callable[..., Any], in_specs: Any, out_specs: Any,
                 mesh: Mesh | AbstractMesh | None, axis_names: frozenset[str], check_vma: bool
                 ) -> None:
        self.f, self.in_specs, self.out_specs = f, in_specs, out_specs
        self.given_mesh, self.axis_names, self.check_vma = mesh, axis_names, check_vma
        inner = f
        while isinstance(inner, functools.partial):
            inner = inner.func
        self.name = getattr(inner, "__name__", type(inner).__name__)

    # -- the mesh ------------------------------------------------------------------------------
    def mesh(self) -> AbstractMesh:
        context, given = STATE.abstract_mesh, self.given_mesh
        if given is None:
            if not context.axis_names:
                fail(ValueError, "The context mesh cannot be empty. Use `jax.set_mesh(mesh)` to "
                     "enter into a mesh context", code="no-mesh",
                     help="or pass `mesh=` to shard_map")
            return context
        abstract = given.abstract_mesh
        if context.axis_names and context.shape_tuple != abstract.shape_tuple:
            fail(ValueError, f"The context mesh {context} should match the mesh passed to "
                 f"shard_map {abstract}", code="mesh-mismatch",
                 help="leave `mesh=` out: the context mesh is the default")
        if context.axis_names and context.manual_axes:
            return context             # nested: what the enclosing region made Manual stays so
        return context if context.axis_names and _same_kinds(context, abstract) else abstract

    # -- calling -------------------------------------------------------------------------------
    def __call__(self, args: tuple[Any, ...]) -> Any:
        mesh = self.mesh()
        axes = self.axis_names or frozenset(mesh.axis_names) - STATE.mapped_mesh_axes
        unknown = axes - frozenset(mesh.axis_names)
        if unknown:
            fail(ValueError, f"jax.shard_map requires axis_names={_braces(axes)} to be a subset "
                 f"of mesh.axis_names={_braces(mesh.axis_names)}", code="unknown-axis")
        leaves, treedef = tree.flatten(args)
        specs, static = self._in_specs(args, leaves, mesh, axes)
        dynamic = [x for x, s in zip(leaves, static, strict=True) if not s]
        specs = [p for p, s in zip(specs, static, strict=True) if not s]
        names = self._leaf_names(args)
        names = [n for n, s in zip(names, static, strict=True) if not s]
        result: list[Any] = []

        def run(*values: Any) -> list[Any]:
            if isinstance(self.given_mesh, Mesh):
                record_mesh(self.given_mesh)
            elif STATE.mesh.axis_names:
                record_mesh(STATE.mesh)
            it = iter(values)

            def rebuild(blocks: Sequence[Any]) -> Any:
                blocks_it = iter(blocks)
                full = [x if s else next(blocks_it)
                        for x, s in zip(leaves, static, strict=True)]
                return tree.unflatten(treedef, full)

            outs, out_tree = self._bind(list(it), specs, names, mesh, axes, rebuild)
            result.append(out_tree)
            return outs

        outs = traced_or_run(self.name, run, *dynamic)
        return tree.unflatten(result[-1], outs)

    def _bind(self, values: list[Any], specs: list[PartitionSpec], names: list[str],
              mesh: AbstractMesh, axes: frozenset[str], rebuild: Callable[[Sequence[Any]], Any]
              ) -> tuple[list[Any], Any]:
        types = [typeof(v) for v in values]
        check_ranks(self.name, types, specs, names)
        check_divisible(self.name, types, specs, names, mesh)
        values, types = self._match_types(values, types, specs, mesh, axes)
        inner = manual_mesh(mesh, axes)
        local = [entering_type(t, s, mesh, axes, self.check_vma)
                 for t, s in zip(types, specs, strict=True)]
        trees: list[Any] = []
        wanted: list[PartitionSpec] = []

        def body(*blocks: Any) -> list[Any]:
            results = self.f(*rebuild(blocks))
            outs, out_tree = tree.flatten(results)
            trees.append(out_tree)
            wanted.extend(self._out_specs(results, mesh, axes))
            return self._leave(outs, wanted, mesh, axes, results)

        outer_check, STATE.check_vma = STATE.check_vma, self.check_vma
        outer_names = STATE.named_axes
        STATE.named_axes = tuple((n, size) for n, size in outer_names if n not in axes)
        try:
            program, captured = trace_to_program(
                body, local, name=self.name, arg_names=names, mesh=inner,
                capture_type=functools.partial(self._captured_type, inner),
                make=self._builder(mesh, axes, values, specs))
        finally:
            STATE.check_vma, STATE.named_axes = outer_check, outer_names
        all_specs = [PartitionSpec()] * len(captured) + specs
        outs = OPS["shard_map"].bind(
            *captured, *values, jaxpr=program, mesh=mesh, manual_axes=axes,
            in_specs=tuple(all_specs), out_specs=tuple(wanted), check_vma=self.check_vma)
        return outs, trees[-1]

    @staticmethod
    def _builder(mesh: AbstractMesh, axes: frozenset[str], values: list[Any],
                 specs: list[PartitionSpec]) -> Callable[..., Builder]:
        """What records the body: where all values are known, they can be printed."""
        arguments, builder = STATE.eager_arguments, current_builder()
        if arguments is None or builder is None or builder.parent is not None or (
                axes != frozenset(mesh.axis_names) or mesh.manual_axes):
            return Builder
        return functools.partial(BlockBuilder, mesh=mesh, operands=values, specs=specs,
                                 arguments=arguments)

    def _captured_type(self, inner: AbstractMesh, t: ArrayType) -> ArrayType:
        if t.mesh.explicit_axes and any(t.entries):
            fail(NotImplementedError, "Closing over inputs to shard_map where the input is sharded "
                 "on `Explicit` axes is not implemented. As a workaround, please pass those inputs "
                 f"as an argument to shard_map. Got input with shape {t.str_short(True, True)}",
                 code="captured-array", help="add it to the function's parameters and to in_specs")
        return t.update(sharding=named_sharding_abstract(
            inner, spec_from_entries(((),) * t.ndim)))

    # -- arguments -----------------------------------------------------------------------------
    def _in_specs(self, args: tuple[Any, ...], leaves: list[Any], mesh: AbstractMesh,
                  axes: frozenset[str]) -> tuple[list[PartitionSpec], list[bool]]:
        if self.in_specs is Infer or (self.in_specs is None):
            return self._infer_specs(leaves, mesh, axes), [False] * len(leaves)
        prefix = self.in_specs
        if isinstance(prefix, list):
            prefix = tuple(prefix)
        self._check_spec_tree(prefix, "in_specs", mesh, axes)
        try:
            flat = tree.broadcast_prefix(prefix, args, _is_spec, "shard_map in_specs")
        except tree.PrefixError as e:
            raise ValueError(str(e)) from None
        static = [s is None for s in flat]
        return [PartitionSpec() if s is None else s for s in flat], static

    def _infer_specs(self, leaves: list[Any], mesh: AbstractMesh, axes: frozenset[str]
                     ) -> list[PartitionSpec]:
        open_axes = [a for a in mesh.axis_names
                     if a in axes and mesh.axis_type(a) is not AxisType.Explicit]
        if open_axes:
            kinds = ", ".join(str(mesh.axis_type(a)) for a in mesh.axis_names if a in axes)
            fail(TypeError, "shard_map in_specs argument must be a pytree of "
                 "`jax.sharding.PartitionSpec` instances, but it was `None` when axis_names="
                 f"{_braces(axes)} are of type {kinds}", code="no-in-specs",
                 help="pass `in_specs=`: over Auto axes the arguments' types do not say how they "
                      "are cut")
        return [PartitionSpec(*(spec_entry(tuple(a for a in dim if a in axes))
                                for dim in typeof(x).entries)) for x in leaves]

    def _check_spec_tree(self, specs: Any, what: str, mesh: AbstractMesh, axes: frozenset[str]
                         ) -> None:
        static = what == "in_specs"     # elsewhere None is an empty subtree, as in a result
        for path, s in tree.leaves_with_path(specs, lambda x: _is_spec(x) or (
                static and x is None)):
            where = what + tree.keystr(path)
            if s is None and what == "in_specs":
                continue
            if not isinstance(s, PartitionSpec):
                raise TypeError(
                    f"shard_map {what} argument must be a pytree of `jax.sharding.PartitionSpec` "
                    f"instances, but:\n\n  {where} is {s} of type {type(s).__name__}, \n\nCheck "
                    f"the {what} values passed to shard_map.")
            for a in s.axes():
                if a not in axes and a not in mesh.manual_axes:
                    raise ValueError(
                        f"shard_map {what} argument must refer to an axis marked as manual "
                        f"({_braces(axes)}), but:\n\n  {where} refers to {a!r}\n\nCheck the {what} "
                        "values passed to shard_map.")
            NamedSharding(mesh.update_axis_types(dict.fromkeys(mesh.axis_names, AxisType.Explicit)),
                          s)                         # duplicates, unreduced axes

    def _match_types(self, values: list[Any], types: list[ArrayType], specs: list[PartitionSpec],
                     mesh: AbstractMesh, axes: frozenset[str]
                     ) -> tuple[list[Any], list[ArrayType]]:
        """Over Explicit axes a spec must equal the argument's type, or be got by a reshard."""
        explicit = [a for a in mesh.axis_names
                    if a in axes and mesh.axis_type(a) is AxisType.Explicit]
        if not explicit:
            return values, types
        whole = axes == frozenset(mesh.axis_names) and len(explicit) == len(axes)
        out_values, out_types = [], []
        for v, t, s in zip(values, types, specs, strict=True):
            entries = s.entries + ((),) * (t.ndim - len(s.entries))
            have = tuple(tuple(a for a in dim if a in axes) for dim in t.entries)
            if have != entries and whole:
                fail(ValueError, f"in_specs passed to shard_map: {s.padded(t.ndim)} does not match "
                     f"the specs of the input: {t.spec} for arg: {t}. `in_specs` is an optional "
                     "argument so you can omit specifying it and shard_map will infer the in_specs "
                     "from the arguments. If you want to reshard your inputs, you can use "
                     "`jax.reshard` on the arguments and then pass those args to shard_map.",
                     code="in-specs", help=f"reshard(x, {s.padded(t.ndim)})")
            if have != entries:
                rest = tuple(tuple(a for a in dim if a not in axes) for dim in t.entries)
                target = named_sharding_abstract(mesh, spec_from_entries(
                    tuple(e + r for e, r in zip(entries, rest, strict=True))))
                v = OPS["reshard"].bind(v, dst_sharding=target)
                t = v.aval
            out_values.append(v)
            out_types.append(t)
        return out_values, out_types

    def _leaf_names(self, args: tuple[Any, ...]) -> list[str]:
        try:
            parameters = list(inspect.signature(self.f).parameters.values())
        except (TypeError, ValueError):
            parameters = []
        names = []
        for (first, *rest), _ in tree.leaves_with_path(args):
            i = first.idx
            base = parameters[i].name if i < len(parameters) and parameters[i].kind not in (
                inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD) else f"args[{i}]"
            names.append(base + tree.keystr(rest))
        return names

    # -- results -------------------------------------------------------------------------------
    def _out_specs(self, results: Any, mesh: AbstractMesh, axes: frozenset[str]
                   ) -> list[PartitionSpec]:
        prefix = self.out_specs
        if isinstance(prefix, list):
            prefix = tuple(prefix) if isinstance(results, tuple) else prefix
        self._check_spec_tree(prefix, "out_specs", mesh, axes)
        try:
            return tree.broadcast_prefix(prefix, results, _is_spec, "shard_map out_specs")
        except tree.PrefixError as e:
            raise ValueError(str(e)) from None

    def _leave(self, outs: list[Any], specs: list[PartitionSpec], mesh: AbstractMesh,
               axes: frozenset[str], results: Any) -> list[Any]:
        paths = [tree.keystr(p) for p, _ in tree.leaves_with_path(results)]
        types = [typeof(x) for x in outs]
        check_out_ranks(self.name, types, specs, paths)
        if not self.check_vma:
            return outs
        left = []
        for x, t, s in zip(outs, types, specs, strict=True):
            named = frozenset(s.axes())
            order = mesh.axis_names
            if s.unreduced:
                cast = tuple(a for a in order if a in s.unreduced & t.varying)
                if cast:
                    x = OPS["vary_unreduced_cast_p"].bind(x, axes=cast)
                    t = typeof(x)
                if t.manual.unreduced & axes != s.unreduced:
                    fail(ValueError, "out_specs passed to shard_map should be equal to the "
                         f"unreduced present on the out_aval. Got out_specs={s} and out_aval={t}",
                         code="unreduced-output")
            missing = tuple(a for a in order if a in named - t.varying)
            if missing:
                x = OPS["pvary"].bind(x, axes=missing)
            left.append(x)
        check_replication(self.name, [typeof(x) for x in left], specs, paths, mesh, axes)
        return left

def _same_kinds(a: AbstractMesh, b: AbstractMesh) -> bool:
    return a.axis_types == b.axis_types


def _is_spec(x: Any) -> bool:
    return isinstance(x, PartitionSpec)


def _braces(names: Any) -> str:
    return "frozenset({" + ", ".join(repr(n) for n in sorted(names)) + "})"
