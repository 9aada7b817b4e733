"""shard_map: write the per-device program yourself, on blocks.

    @partial(shard_map, mesh=mesh, in_specs=P('x'), out_specs=P())
    def total(block):                        # block: f32[8]{V:x}, one device's part
        return lax.psum(block.sum(), 'x')    # equal on all devices, hence P()

The type of a value says over which Manual axes it varies; an output whose spec claims that it is
the same along an axis is checked against its type (`check_vma`). Messages are JAX's. Source: JAX's
`jax.shard_map` and its notebook.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NoReturn

from ...ir.diagnostics.diagnostic import fail
from ...ir.meshes.mesh import AbstractMesh, AxisType, Mesh
from ...ir.op import OPS
from ...ir.ops.control.manual import manual_mesh
from ...ir.settings.context import STATE
from ...ir.shardings.sharding import NamedSharding, named_sharding_abstract
from ...ir.spec import PartitionSpec, spec_from_entries
from ...ir.support.caches import cached
from ...ir.trees.pytree import PLAIN_LEAVES
from ...ir.types import ArrayType
from ..references.regions import of_blocks
from ..shardings.sharding_functions import traced_or_run
from ..staging.builder import Builder, current_builder, record_mesh
from ..staging.staging import trace_to_program
from ..staging.tracer import Tracer
from ..trees import tree
from .checks import check_concrete, check_pending
from .region_values import BlockBuilder
from .specs import (
    Infer,
    Specs,
    braces,
    entered,
    in_specs_of,
    leaf_names,
    leave,
    out_specs_of,
    plain_specs,
)

_ONE = tree.structure(0)


def shard_map(f: Callable[..., Any] | None = None, /, *, out_specs: Any, in_specs: Any = Infer,
              mesh: Mesh | AbstractMesh | None = None, axis_names: Any = frozenset(),
              check_vma: bool = True) -> Callable[..., Any]:
    """`f` applied on each device to its blocks of the arguments.

    in_specs, out_specs: PartitionSpecs, or pytree prefixes of them, for the positional arguments
    and the result. An axis in in_specs cuts that dimension; in out_specs it puts blocks together;
    an axis that is in none of an output's entries promises that the output is the same along it.
    A None in in_specs marks a static argument; without in_specs they are the arguments' own
    (Explicit only).
    mesh: the context mesh by default. axis_names: the axes that become Manual, by default all.
    check_vma: track in the types what varies over which axis, and refuse out_specs that do not
    hold.
    Also a decorator: `@shard_map(in_specs=..., out_specs=...)`. Raises ValueError for specs that
    do not fit the arguments or the results, and for sizes that the axes do not divide.

    Sharding
      Auto: arguments are moved to in_specs as needed; axes that are not in axis_names stay Auto
        inside.
      Explicit: arguments must be split as in_specs say, else ValueError; results are as out_specs
        say.
      Manual: inside, shapes are those of blocks; nothing is communicated but by collectives
        (`lax.psum`, `lax.all_gather`, `lax.ppermute`, ...). May be nested over other axes.

    >>> mesh = st.make_mesh((8,), ("x",))
    >>> def normalize(block):                              # of shape (2, 4)
    ...     return block / st.lax.psum(block.sum(), "x")
    >>> x = st.shard_map(normalize, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(jnp.ones((16, 4)))
    >>> x.shape, x.sharding.spec, float(x.sum())
    ((16, 4), P('x',), 1.0)
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
    """`shard_map` over one axis, with cut dimensions as integers, as in `vmap`.

    in_axes, out_axes: the dimension that is cut, or None for what is whole; or pytree prefixes.
    axis_name: the mesh axis, of the context mesh. Raises ValueError without a context mesh.

    Sharding
      Auto, Explicit: the other axes of the mesh stay what they are.
      Manual: inside, `axis_name` is Manual and shapes are those of blocks.

    >>> with st.set_mesh(st.make_mesh((8,), ("x",))):
    ...     f = st.smap(lambda v: v - st.lax.pmean(v, "x"), in_axes=0, out_axes=0, axis_name="x")
    ...     st.jit(f)(jnp.arange(8.0))
    Array([-3.5, -2.5, -1.5, -0.5,  0.5,  1.5,  2.5,  3.5], dtype=float32)
    """
    if f is None:
        return functools.partial(smap, in_axes=in_axes, out_axes=out_axes, axis_name=axis_name)
    if isinstance(axis_name, (tuple, list, set, frozenset)):
        raise TypeError(f"smap axis_name should be a `str` or a `Hashable`, but got {axis_name}")
    if in_axes is not None and in_axes is not Infer and not isinstance(in_axes, (int, tuple)):
        raise TypeError(
            "smap in_axes must be an int, None, jax.sharding.Infer, or a tuple of entries "
            f"corresponding to the positional arguments passed to the function, but got {in_axes}.")
    if in_axes is not Infer and not all(isinstance(d, int) for d in tree.leaves(in_axes)):
        raise TypeError("smap in_axes must be an int, None, jax.sharding.Infer, or (nested) "
                        f"container with those types as leaves, but got {in_axes}.")
    if not all(isinstance(d, int) for d in tree.leaves(out_axes)):
        raise TypeError("smap out_axes must be an int, None, or (nested) container with those "
                        f"types as leaves, but got {out_axes}.")

    def spec(dim: Any) -> PartitionSpec:
        return PartitionSpec() if dim is None else PartitionSpec(*(None,) * dim, axis_name)

    def specs(axes: Any) -> Any:
        return axes if axes is Infer else tree.map(spec, axes, is_leaf=lambda x: x is None)

    mapped = shard_map(f, in_specs=specs(in_axes), out_specs=specs(out_axes),
                       axis_names={axis_name})

    @functools.wraps(f)
    def wrapped(*args: Any) -> Any:
        mesh = STATE.abstract_mesh
        if in_axes is Infer and axis_name in mesh.axis_names and (
                mesh.axis_type(axis_name) is not AxisType.Explicit):
            raise TypeError(f"in_axes was not specified when axis_name={braces([axis_name])} was "
                            f"of type {mesh.axis_type(axis_name)}")
        return mapped(*args)

    return wrapped


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
        """The mesh of the region: that of the context, which one passed to shard_map must match, or
        the one passed if there is no context.
        """
        context, given = STATE.abstract_mesh, self.given_mesh
        if given is None:
            if not context.axis_names:
                fail(ValueError, "The context mesh cannot be empty. Use `jax.set_mesh(mesh)` to "
                     "enter into a mesh context", code="no-mesh",
                     help="or pass `mesh` to shard_map")
            return context
        abstract = given.abstract_mesh
        if abstract.empty:
            fail(ValueError, f"shard_map requires a non-empty mesh. Got {given}", code="no-mesh",
                 help="make one with `make_mesh`")
        if context.axis_names and not _same_mesh(context, abstract):
            fail(ValueError, f"The context mesh {context} should match the mesh passed to "
                 f"shard_map {given}", code="mesh-mismatch",
                 help="leave `mesh` out: the context mesh is the default")
        return context if context.axis_names else abstract

    # -- calling -------------------------------------------------------------------------------
    def leaf_specs(self, args: tuple[Any, ...]) -> Specs:
        """The spec of each leaf of the arguments."""
        mesh = self.mesh()
        leaves, treedef = tree.flatten(args)
        return in_specs_of(self.in_specs, args, leaves, treedef, mesh, self._axes(mesh))[0]

    def with_results(self, f: Callable[..., Any], specs: Any) -> _Region:
        """A region like this of a function with two results, of which these are the second's."""
        return _Region(f, self.in_specs, (self.out_specs, specs), self.given_mesh, self.axis_names,
                       self.check_vma)

    def _axes(self, mesh: AbstractMesh) -> frozenset[str]:
        return _manual_axes(mesh, self.axis_names, STATE.mapped_mesh_axes)

    def _flattened(self, args: tuple[Any, ...], mesh: AbstractMesh, axes: frozenset[str]
                   ) -> tuple[list[Any], Any, Specs, tuple[bool, ...]]:
        """(The leaves of the arguments, their tree, the spec of each leaf, which of them are
        static); no tree if each argument is a leaf, and () if no leaf is static.
        """
        leaves: list[Any] = list(args)
        static: tuple[bool, ...] = ()
        treedef: Any = None
        specs = None
        if PLAIN_LEAVES.issuperset(map(type, args)):
            specs = plain_specs(self.in_specs, len(args), axes)
        if specs is None:
            leaves, treedef = tree.flatten(args)
        if current_builder() is None and isinstance(self.given_mesh, AbstractMesh) and (
                STATE.mesh.empty):
            check_concrete(leaves, self.given_mesh)
        if specs is None:
            specs, static = in_specs_of(self.in_specs, args, leaves, treedef, mesh, axes)
        return leaves, treedef, specs, static

    @of_blocks
    def __call__(self, args: tuple[Any, ...]) -> Any:
        mesh = self.mesh()
        axes = self._axes(mesh)
        for spec in tree.leaves(self.out_specs):
            if isinstance(spec, PartitionSpec):
                check_pending("out_specs", spec, mesh, axes)
        leaves, treedef, specs, static = self._flattened(args, mesh, axes)
        builder = current_builder()
        names, dynamic = leaf_names(self.f, len(args), treedef), leaves
        if any(static):
            dynamic = [x for x, s in zip(leaves, static, strict=True) if not s]
            specs = tuple([p for p, s in zip(specs, static, strict=True) if not s])
            names = tuple([n for n, s in zip(names, static, strict=True) if not s])
        result: list[Any] = []

        def rebuild(blocks: Sequence[Any]) -> Any:
            if treedef is None:
                return blocks
            if len(blocks) == len(leaves):
                return tree.unflatten(treedef, blocks)
            rest = iter(blocks)
            return tree.unflatten(treedef, [x if s else next(rest) for x, s in
                                            zip(leaves, static, strict=True)])

        def run(*values: Any) -> list[Any]:
            if isinstance(self.given_mesh, Mesh):
                record_mesh(self.given_mesh)
            elif STATE.mesh.axis_names:
                record_mesh(STATE.mesh)
            outs, *more = self._bind(list(values), specs, names, mesh, axes, rebuild)
            result.append(more)
            return outs

        if builder is not None and not builder.is_eager:
            outs = run(*dynamic)
        else:
            outs = traced_or_run(self.name, run, *dynamic,
                                 shardings=lambda: self._shardings(result[-1][1]))
        out_tree = result[-1][0]
        return outs[0] if out_tree is _ONE else tree.unflatten(out_tree, outs)

    def _bind(self, values: list[Any], specs: Specs, names: tuple[str, ...], mesh: AbstractMesh,
              axes: frozenset[str], rebuild: Callable[[Sequence[Any]], Any]
              ) -> tuple[list[Any], Any, Specs]:
        """Trace the body on the types of blocks, and bind the equation. rebuild: from blocks to the
        arguments of the user's function. Returns the results, their tree, and their specs.
        """
        values, local = entered(self.name, values, specs, names, mesh, axes, self.check_vma)
        inner = manual_mesh(mesh, axes)
        trees: list[Any] = []
        wanted: Specs = ()

        def body(*blocks: Any) -> list[Any]:
            nonlocal wanted
            results = self.f(*rebuild(blocks))
            known = plain_specs(self.out_specs, 1, axes) if type(results) is Tracer else None
            if known is not None and type(self.out_specs) is PartitionSpec:
                outs, wanted = [results], known
                trees.append(_ONE)
            else:
                outs, out_tree = tree.flatten(results)
                trees.append(out_tree)
                wanted = out_specs_of(self.out_specs, results, out_tree, mesh, axes)
            return leave(self.name, outs, wanted, mesh, axes, results, self.check_vma)

        outer_check, STATE.check_vma = STATE.check_vma, self.check_vma
        outer_names = STATE.named_axes
        if outer_names:
            STATE.named_axes = tuple([(n, size) for n, size in outer_names if n not in axes])
        try:
            program, captured = trace_to_program(
                body, local, name=self.name, arg_names=names, mesh=inner,
                capture_type=functools.partial(self._captured_type, inner),
                make=self._builder(mesh, axes, values, specs))
        finally:
            STATE.check_vma, STATE.named_axes = outer_check, outer_names
        for v in program.outvars:
            if v.aval.mesh is not inner and any(v.aval.entries):
                _refuse_captured(v.aval)    # such as the derivative by a value outside
        outs = OPS["shard_map"].bind(
            *captured, *values, jaxpr=program, mesh=mesh, manual_axes=axes,
            in_specs=(PartitionSpec(),) * len(captured) + specs, out_specs=wanted,
            check_vma=self.check_vma)
        return outs, trees[-1], wanted

    @staticmethod
    def _builder(mesh: AbstractMesh, axes: frozenset[str], values: list[Any],
                 specs: Specs) -> Callable[..., Builder]:
        """What records the body: where all values are known, they can be looked at."""
        builder = current_builder()
        if builder is None or axes != frozenset(mesh.axis_names) or mesh.manual_axes:
            return Builder
        arguments = STATE.eager_arguments if builder.parent is None else None
        if arguments is None and not getattr(builder, "concrete", False):
            return Builder
        return functools.partial(BlockBuilder, mesh=mesh, operands=values, specs=specs,
                                 arguments=arguments)

    def _captured_type(self, inner: AbstractMesh, t: ArrayType) -> ArrayType:
        if t.mesh.explicit_axes and not inner.explicit_axes:
            _refuse_captured(t)
        return t.update(sharding=named_sharding_abstract(
            inner, spec_from_entries(((),) * t.ndim)))

    def _shardings(self, specs: Specs) -> list[Any]:
        """Shardings of results outside of a trace: what out_specs say, where all axes are named."""
        given = self.given_mesh
        mesh = given if isinstance(given, Mesh) else STATE.mesh
        if mesh.empty or self.axis_names and self.axis_names != frozenset(mesh.axis_names):
            return [None] * len(specs)
        return [NamedSharding(mesh, spec) for spec in specs]


def _refuse_captured(t: ArrayType) -> NoReturn:
    fail(NotImplementedError, "Closing over inputs to shard_map where the input is sharded "
         "on `Explicit` axes is not implemented. As a workaround, please pass those inputs "
         f"as an argument to shard_map. Got input with shape {t.str_short(True, True)}",
         code="captured-array", help="add it to the function's parameters and to in_specs")


@cached(256)
def _manual_axes(mesh: AbstractMesh, named: frozenset[str], mapped: frozenset[str]
                 ) -> frozenset[str]:
    """The axes that become Manual: those named, or all. mapped: those that vmaps map over."""
    known = frozenset(mesh.axis_names) - mapped
    axes = named or known
    if not axes <= known:
        fail(ValueError, f"jax.shard_map requires axis_names={braces(axes)} to be a subset "
             f"of mesh.axis_names={braces(known)}", code="unknown-axis",
             notes=(f"a vmap maps over {braces(mapped)}",) if mapped else (),
             help="name axes of the mesh only, or leave axis_names out for all of them")
    return axes - frozenset(mesh.manual_axes)    # an enclosing region speaks for its own axes


def _same_mesh(a: AbstractMesh, b: AbstractMesh) -> bool:
    return a.shape_tuple == b.shape_tuple and a.axis_types == b.axis_types
