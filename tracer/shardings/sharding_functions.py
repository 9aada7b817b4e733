"""reshard, auto_axes and explicit_axes: changing a value's spec, and who decides it.

All three are ordinary traced code: `reshard` is one op, and the two mode switches reshard their
arguments to a mesh whose axis types differ, trace the function there, and reshard its results back.
Called outside of a trace, `reshard` is one computation, and the two others run op by op on arrays.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ...ir.diagnostics.diagnostic import fail
from ...ir.meshes.mesh import AbstractMesh, AxisType, Mesh
from ...ir.op import OPS
from ...ir.ops.control.call import jit_p
from ...ir.settings.context import STATE, abstract_mesh_context
from ...ir.shardings.sharding import NamedSharding, named_sharding_abstract
from ...ir.spec import PartitionSpec, parse_axis, spec_from_entries
from ...ir.types import ArrayType
from ...ir.values.typeof import typeof
from ..staging.builder import current_builder, record_mesh
from ..staging.call_places import bind_where_called
from ..staging.staging import trace_to_program
from ..staging.tracer import Tracer
from ..trees import tree
from .out_sharding import canonicalize_sharding

EAGER_CALL: list[Callable[..., Any]] = []    # set by the driver: trace a function and run it


def traced_or_run(name: str, f: Callable[..., Any], *args: Any,
                  shardings: Callable[[], Sequence[Any]] | None = None) -> Any:
    """`f(*args)` inside of a trace; outside, `f` traced under `name` and run on the arguments.

    shardings: then asked for those that the results shall have, each a Sharding or None. Within a
    vmap whose ops run at once, `f` is traced and becomes one call.
    """
    builder = current_builder()
    if builder is None:
        return EAGER_CALL[0](name, f, *args, shardings=shardings)
    if builder.is_eager:
        program, captured = trace_to_program(f, [typeof(x) for x in args], name=name)
        return jit_p.bind(*captured, *args, name=name, jaxpr=program, inline=False)
    return f(*args)


_ONE = tree.structure(0)


def _is_sharding(x: Any) -> bool:
    return isinstance(x, (PartitionSpec, NamedSharding)) or x is None


def reshard(xs: Any, out_shardings: Any) -> Any:
    """The values of `xs` with other shardings; the only way an Explicit axis moves.

    out_shardings: a PartitionSpec (on the context mesh) or NamedSharding, or a tree prefix of them.
    Raises ValueError where an axis is not Explicit or the sharding is None.
    Source: JAX's `jax.sharding.reshard`.

    Sharding
      Auto: moves a concrete array to a NamedSharding; inside `jit` a ValueError, since there
        `lax.with_sharding_constraint` does that.
      Explicit: moves the value: the type changes, and the collectives that it takes are inserted.
      Manual: ValueError; collectives of `lax` move blocks.

    >>> mesh = st.make_mesh((4, 2), ("x", "y"), axis_types=(st.sharding.AxisType.Explicit,) * 2)
    >>> x = st.device_put(np.ones((8, 8)), st.NamedSharding(mesh, P("x", "y")))
    >>> with st.set_mesh(mesh):
    ...     st.typeof(st.reshard(x, P("y")))
    ShapedArray(float32[8@y,8])
    """
    if type(xs) is Tracer and _is_sharding(out_shardings):
        flat, treedef, wanted = [xs], _ONE, [out_shardings]
    else:
        flat, treedef = tree.flatten(xs)
        wanted = tree.broadcast_prefix(out_shardings, xs, _is_sharding, "out_shardings")
    targets = [_target(s) for s in wanted]

    def run(*values: Any) -> list[Any]:
        for s in wanted:
            if isinstance(s, NamedSharding) and isinstance(s.mesh, Mesh):
                record_mesh(s.mesh)
        return [_reshard_one(v, t) for v, t in zip(values, targets, strict=True)]

    results = traced_or_run("reshard", run, *flat)
    return results[0] if treedef is _ONE else tree.unflatten(treedef, results)


def _target(sharding: Any) -> NamedSharding:
    """The sharding that `reshard` is asked for, on an abstract mesh."""
    if sharding is None or (isinstance(sharding, NamedSharding) and not sharding.mesh.axis_names):
        fail(ValueError, "Reshard should only be used with out_shardings which are non-None and "
             f"have a non-empty mesh. Got sharding {sharding}.", code="no-sharding",
             help="pass a spec under a mesh set with `set_mesh`, or a `NamedSharding`")
    if not _is_sharding(sharding):
        fail(TypeError, "`out_sharding` argument of reshard only supports instances of "
             f"`NamedSharding` or `PartitionSpec`. Got {sharding} of type: {type(sharding)}",
             code="not-a-sharding", help="pass a `PartitionSpec` or a `NamedSharding`")
    target = canonicalize_sharding(sharding, "reshard", check_mesh_consistency=False)
    return target  # type: ignore[return-value]


def _reshard_one(x: Any, target: NamedSharding) -> Any:
    return bind_where_called(OPS["reshard"], x, dst_sharding=_full_rank(target, typeof(x)))


def _full_rank(sharding: NamedSharding, aval: ArrayType) -> NamedSharding:
    """The sharding with an entry for each dimension of a value."""
    spec = sharding.spec
    entries = spec.entries
    ndim = len(aval.shape)
    if len(entries) > ndim and any(entries[ndim:]):
        fail(AssertionError,
             f"Sharding {sharding} is only valid for values of rank at least {len(entries)}, but "
             f"was applied to a value of rank {aval.ndim}.", code="rank",
             label=f"the value is {aval}", help=f"give the spec {aval.ndim} entries or fewer")
    if len(entries) != ndim:
        entries = entries[:ndim] + ((),) * (ndim - len(entries))
    return named_sharding_abstract(
        sharding.mesh.abstract_mesh,
        spec_from_entries(entries, spec.unreduced, spec.reduced))


def _without(aval: ArrayType, mesh: AbstractMesh, axes: frozenset[str]) -> NamedSharding:
    """The sharding of a value on `mesh`, with `axes` no longer part of its spec."""
    entries = tuple(tuple(a for a in dim if parse_axis(a)[0] not in axes) for dim in aval.entries)
    return named_sharding_abstract(mesh, spec_from_entries(
        entries, aval.spec.unreduced - axes, aval.spec.reduced - axes))


def _axis_set(axes: Any, mesh: AbstractMesh) -> frozenset[str]:
    if axes is None:
        return frozenset(mesh.axis_names)
    names = frozenset((axes,) if isinstance(axes, str) else axes)
    unknown = sorted(names - set(mesh.axis_names))
    if unknown:
        fail(ValueError, f"Axis {unknown[0]!r} is not found in mesh: {mesh.axis_names}.",
             code="unknown-axis", help=f"the mesh has the axes {mesh.axis_names}")
    return names


def _mesh_of(values: list[Any]) -> AbstractMesh:
    mesh = STATE.abstract_mesh
    if not mesh.axis_names:
        for v in values:
            found = typeof(v).mesh
            if found.axis_names:
                return found
    return mesh


def auto_axes(f: Callable[..., Any] | None = None, *, axes: Any = None,
              out_sharding: Any = None) -> Callable[..., Any]:
    """`f` with some mesh axes (default: all) switched to Auto inside.

    The partitioner then decides their shardings; results are resharded to `out_sharding`, which may
    also be given at the call. Without a mesh, or with the axes Auto already, `f` is called as is.
    Raises TypeError if no out_sharding is given.

    Sharding
      Auto: inside, the axes are Auto and types do not show them.
      Explicit: outside, `out_sharding` gives the results their types.
      Manual: Manual axes stay as they are.

    >>> mesh = st.make_mesh((8,), ("x",), axis_types=(st.sharding.AxisType.Explicit,))
    >>> with st.set_mesh(mesh):
    ...     x = st.reshard(jnp.ones((8, 8)), P("x"))
    ...     f = st.sharding.auto_axes(lambda x: x + x.T)     # an error over Explicit axes
    ...     st.typeof(f(x, out_sharding=P(None, "x")))
    ShapedArray(float32[8,8@x])
    """
    if f is None:
        return functools.partial(auto_axes, axes=axes, out_sharding=out_sharding)
    return with_auto_axes(f, axes, out_sharding, op_by_op=True)


def with_auto_axes(f: Callable[..., Any], axes: Any, out_sharding: Any, op_by_op: bool
                   ) -> Callable[..., Any]:
    """`auto_axes`; op_by_op: outside of a trace, on arrays; otherwise `f` is traced there too."""
    @functools.wraps(f)
    def wrapped(*args: Any, out_sharding: Any = out_sharding, **kwargs: Any) -> Any:
        flat, treedef = tree.flatten((args, kwargs))
        mesh = _mesh_of(flat)
        if not mesh.axis_names:
            return f(*args, **kwargs)
        names = _axis_set(axes, mesh)
        if names <= frozenset(mesh.auto_axes):
            return f(*args, **kwargs)
        if out_sharding is None:
            raise TypeError("Missing required keyword argument: 'out_sharding'")
        _refuse_manual(mesh, names)
        inner = mesh.update_axis_types({a: AxisType.Auto for a in names})
        trees: list[Any] = []

        def run(*values: Any) -> list[Any]:
            with abstract_mesh_context(inner):
                cast = [OPS["reshard"].bind(v, dst_sharding=_without(typeof(v), inner, names))
                        for v in values]
                inner_args, inner_kwargs = tree.unflatten(treedef, cast)
                results = f(*inner_args, **inner_kwargs)
            wanted = tree.broadcast_prefix(out_sharding, results, _is_sharding, "out_sharding")
            leaves, out_tree = tree.flatten(results)
            trees.append(out_tree)
            with abstract_mesh_context(mesh):
                return [_reshard_one(x, _target(s)) for x, s in zip(leaves, wanted, strict=True)]

        if op_by_op and STATE.interpreter is None and not STATE.mesh.empty:
            results = run(*flat)
        else:
            results = traced_or_run(getattr(f, "__name__", "auto_axes"), run, *flat)
        return tree.unflatten(trees[-1], results)

    return wrapped


def explicit_axes(f: Callable[..., Any] | None = None, *, axes: Any = None,
                  in_sharding: Any = None) -> Callable[..., Any]:
    """`f` with some mesh axes (default: all) switched to Explicit inside.

    Arguments are resharded to `in_sharding` (also a call argument); the types of the results drop
    those axes again. Raises ValueError without a context mesh, TypeError without in_sharding.

    Sharding
      Auto: outside, the results are open again.
      Explicit: inside, `in_sharding` gives the arguments their types.
      Manual: Manual axes stay as they are.

    >>> @st.sharding.explicit_axes(in_sharding=P("x"))
    ... def f(x):
    ...     print(st.typeof(x))
    ...     return x * 2
    >>> with st.set_mesh(st.make_mesh((8,), ("x",))):
    ...     y = st.jit(f)(np.ones(16))
    float32[16@x]
    """
    if f is None:
        return functools.partial(explicit_axes, axes=axes, in_sharding=in_sharding)

    @functools.wraps(f)
    def wrapped(*args: Any, in_sharding: Any = in_sharding, **kwargs: Any) -> Any:
        mesh = STATE.abstract_mesh
        if not mesh.axis_names:
            fail(ValueError, "Context mesh cannot be empty. Please use `jax.set_mesh` API to enter "
                 "into a mesh context when using `explicit_axes` API.", code="no-mesh")
        names = _axis_set(axes, mesh)
        if in_sharding is None:
            raise TypeError("Missing required keyword argument: 'in_sharding'")
        _refuse_manual(mesh, names)
        inner = mesh.update_axis_types({a: AxisType.Explicit for a in names})
        opened = names - frozenset(mesh.explicit_axes)
        flat, treedef = tree.flatten((args, kwargs))
        wanted = tree.broadcast_prefix(
            in_sharding, args if not kwargs else (args, kwargs), _is_sharding, "in_sharding")
        trees: list[Any] = []

        def run(*values: Any) -> list[Any]:
            with abstract_mesh_context(inner):
                cast = [_reshard_one(v, _target(s)) for v, s in zip(values, wanted, strict=True)]
                inner_args, inner_kwargs = tree.unflatten(treedef, cast)
                results = f(*inner_args, **inner_kwargs)
            leaves, out_tree = tree.flatten(results)
            trees.append(out_tree)
            return [OPS["reshard"].bind(x, dst_sharding=_without(typeof(x), mesh, opened))
                    for x in leaves]

        if STATE.interpreter is None and not STATE.mesh.empty:
            results = run(*flat)
        else:
            results = traced_or_run(getattr(f, "__name__", "explicit_axes"), run, *flat)
        return tree.unflatten(trees[-1], results)

    return wrapped


def _refuse_manual(mesh: AbstractMesh, names: frozenset[str]) -> None:
    if names & set(mesh.manual_axes):
        fail(NotImplementedError, "Going from `Manual` AxisType to `Auto` or `Explicit` AxisType "
             "is not allowed. Please file a bug at https://github.com/jax-ml/jax/issues with your "
             "use case", code="manual-axes",
             label=f"axes {sorted(names & set(mesh.manual_axes))} are Manual here",
             help="switch only axes that shard_map does not hold, with `axes`")
