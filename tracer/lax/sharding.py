"""with_sharding_constraint: how Auto axes shall shard a value inside of a program."""
from __future__ import annotations

from typing import Any

from ...ir.diagnostics.diagnostic import Remedy, fail
from ...ir.meshes.mesh import AbstractMesh, empty_abstract_mesh, entered_mesh
from ...ir.ops.communication.sharding import check_constraint, sharding_constraint_p
from ...ir.ops.elementwise.identity import shard_alike_p
from ...ir.settings.context import STATE
from ...ir.shardings.formats import Format, Layout
from ...ir.shardings.gspmd import GSPMDSharding, named_on, single_device_mesh
from ...ir.shardings.sharding import NamedSharding, Sharding, named_sharding_abstract
from ...ir.source.wording import warn
from ...ir.spec import PartitionSpec
from ...ir.values.typeof import typeof
from ..staging.builder import current_builder, record_mesh
from ..staging.call_places import bind_where_called
from ..staging.constants import as_array, put_on_device
from ..trees import tree

__all__ = ["with_sharding_constraint"]
_REPLICATED = PartitionSpec()


def _is_leaf(x: Any) -> bool:
    return x is None or isinstance(x, (PartitionSpec, Sharding, Format))


def with_sharding_constraint(x, shardings):
    """`x`, a pytree of arrays, with its sharding fixed at this point of the program.

    shardings: a PartitionSpec (on the context mesh), a NamedSharding, a Format (of which a program
    looks at the sharding), or a tree prefix of these.
    None leaves a dimension whole, `P.UNCONSTRAINED` leaves it to the partitioner.
    Raises RuntimeError for a PartitionSpec without a context mesh, and ValueError for a spec that
    does not fit the value.

    Sharding
      Auto: the value is laid out like this here, and collectives are inserted where its maker or
        its users would have it otherwise.
      Explicit: asserts that the type says so already, else AssertionError; `reshard` changes it.
      Manual: ValueError for Manual axes; a block has no more to be split over them.

    >>> with st.set_mesh(st.make_mesh((8,), ("x",), axis_types=(st.sharding.AxisType.Auto,))):
    ...     st.jit(lambda a: st.lax.with_sharding_constraint(a, P("x")))(
    ...         jnp.arange(16)).sharding.spec
    P('x',)
    """
    return prioritized_sharding_constraint(x, shardings, 0)


def prioritized_sharding_constraint(x, shardings, priority):
    """`with_sharding_constraint` whose axes spread through the program in the order of `priority`.

    priority: 0, 1, 2, ...: constraints of lower numbers spread first, and those of higher ones only
    to what is left open then (0: batch, 1: model, 2: what remains). On an argument that is given in
    just this sharding it says when that one spreads. Raises ValueError for a priority that is no
    such number. Source: Shardy's priorities (github.com/openxla/shardy, docs/propagation.md).

    >>> from shardtrace.experimental import prioritized_sharding_constraint
    >>> with st.set_mesh(st.make_mesh((8,), ("x",), axis_types=(st.sharding.AxisType.Auto,))):
    ...     st.jit(lambda a: prioritized_sharding_constraint(a, P("x"), 1))(
    ...         jnp.arange(16)).sharding.spec
    P('x',)
    """
    if not isinstance(priority, int) or isinstance(priority, bool) or priority < 0:
        fail(ValueError, f"a sharding constraint has priority {priority!r}; it is one of 0, 1, "
             "2, ...", code="priority", help="0 spreads first, higher numbers later")
    leaves, treedef = tree.flatten(x)
    wanted = tree.broadcast_prefix(shardings, x, _is_leaf, "shardings")
    return tree.unflatten(treedef, [_constrain(v, s, priority)
                                    for v, s in zip(leaves, wanted, strict=True)])


def _constrain(x: Any, sharding: Any, priority: int = 0) -> Any:
    """One leaf with its sharding, by the kind of sharding: an equation inside a trace, a move
    outside. Explicit axes need none, as the type states their sharding.
    """
    if isinstance(sharding, Format):
        return _laid_out(x, sharding, priority)
    if not _is_leaf(sharding):
        raise TypeError("shardings leaf specifications are expected to be PartitionSpec instances "
                        f"or None, but got {sharding}")
    context = STATE.abstract_mesh
    if isinstance(sharding, PartitionSpec) or sharding is None:
        sharding = _in_context(sharding, context)
    elif isinstance(sharding, GSPMDSharding):
        if current_builder() is None:
            return _moved(x, sharding)
        named = named_on(sharding, STATE.mesh)
        if named.device_assignment != sharding.device_assignment:
            warn(f"no mesh of the devices in their order has the tiles of {sharding}: the "
                 "constraint is left out; give it to jit as in_shardings or "
                 "out_shardings, or to device_put")
            return as_array(x)
        sharding = named
    elif not isinstance(sharding, NamedSharding):
        if current_builder() is None:
            return _moved(x, sharding)
        _refuse_spmd(sharding)
        record_mesh(single_device_mesh(sharding.device_assignment[0]))
        return x
    given = sharding
    mesh = sharding.mesh.abstract_mesh
    if mesh is not sharding.mesh:
        record_mesh(sharding.mesh)  # type: ignore[arg-type]
        sharding = named_sharding_abstract(mesh, sharding.spec)
    if context.manual_axes and mesh.shape_tuple == context.shape_tuple:
        sharding = _in_region(sharding, context)
        mesh = context
    check_constraint(_typed_on(x, mesh), sharding)
    if mesh.are_all_axes_explicit:
        return as_array(x)
    if current_builder() is None and isinstance(STATE.interpreter, type(None)):
        return _eager(x, given)
    x = as_array(x)
    if priority:
        return bind_where_called(sharding_constraint_p, x, sharding=sharding, priority=priority)
    return bind_where_called(sharding_constraint_p, x, sharding=sharding)


def _in_context(spec: PartitionSpec | None, context: AbstractMesh) -> NamedSharding:
    """The sharding that a spec, or None for whole values, means on the mesh around."""
    if context is not empty_abstract_mesh:
        return named_sharding_abstract(context, spec or _REPLICATED)
    if not entered_mesh().empty:
        return NamedSharding(entered_mesh(), spec or _REPLICATED)
    if spec is None:
        fail(ValueError, "One of with_sharding_constraint arguments got sharding None which is not "
             "allowed. Please only pass `jax.sharding.Sharding` instances.",
             code="no-sharding", help="leave the value as it is, or pass a `NamedSharding` with an "
             "empty spec to have it whole on every device")
    fail(RuntimeError,
         "with_sharding_constraint requires a non-empty mesh in context if you are passing "
         "`PartitionSpec`s to shardings. You can define a context mesh via `jax.set_mesh(mesh)`. "
         "Alternatively, provide `Sharding`s to shardings and then the mesh context manager is not "
         "required.", code="no-mesh",
         help=Remedy("make the call under `set_mesh`, or pass a `NamedSharding`", "mesh"))


def _refuse_spmd(sharding: Sharding) -> None:
    """Raise where a vmap would split a value that must stay on one device."""
    axis = getattr(current_builder(), "axis", None)
    if axis is not None and axis.spmd:
        fail(ValueError, "If you are using spmd_axis_name parameter of jax.vmap, please make sure "
             "to run your jitted function inside the mesh context manager. Only "
             "`jax.lax.with_sharding_constraint` with `jax.sharding.NamedSharding` as an input can "
             "be transformed with spmd_axis_name batching rules outside of an explicit mesh "
             f"context manager scope. Got {sharding}", code="spmd-axis",
             label=f"spmd_axis_name is {axis.spmd}",
             help="leave the constraint or spmd_axis_name out")


def _laid_out(x: Any, wanted: Format, priority: int) -> Any:
    """`x` as a Format says; within a program (memory is not laid out) as its sharding does."""
    layout, sharding = wanted.layout, wanted.sharding
    if isinstance(layout, Layout):
        try:
            layout.check_compatible_aval(typeof(x).shape)
        except ValueError as e:
            raise ValueError("One of with_sharding_constraint arguments is incompatible with its "
                             f"layout annotation {layout}: {e}") from None
    x = _constrain(x, sharding, priority)
    eager = isinstance(layout, Layout) and current_builder() is None
    return put_on_device(x, wanted) if eager else x


def _in_region(sharding: NamedSharding, context: AbstractMesh) -> NamedSharding:
    """The sharding on the mesh of a manual region, of whose Manual axes it may not speak."""
    named = [a for a in sharding.spec.axes() if a in context.manual_axes]
    if named:
        fail(ValueError, f"pspec {sharding.spec} contains a manual axes {context.manual_axes} of "
             "mesh which is not allowed. If you are using a with_sharding_constraint under a "
             "shard_map, only use the mesh axis in PartitionSpec which are not manual.",
             code="manual-axis", help=f"leave out {', '.join(map(repr, named))}: inside of the "
             "region every device has its own block along it")
    return named_sharding_abstract(context, sharding.spec)


def _typed_on(x: Any, mesh: Any) -> Any:
    aval = typeof(x)
    if aval.mesh.axis_names:
        return aval
    return aval.update(sharding=named_sharding_abstract(mesh, aval.spec))


def _eager(x: Any, sharding: NamedSharding) -> Any:
    """Outside of a trace the constraint is a placement at once."""
    mesh = sharding.mesh
    if not sharding.is_concrete:
        mesh = _mesh_of_operand(x, sharding) if STATE.mesh.empty else STATE.mesh
    concrete = NamedSharding(mesh, sharding.spec)
    concrete.shard_shape(typeof(x).shape)
    return _moved(x, concrete)


def _mesh_of_operand(x: Any, sharding: NamedSharding) -> Any:
    """The mesh that an array is on, where the constraint names an abstract one."""
    own = getattr(x, "sharding", None)
    if own is None:
        fail(ValueError, "Target sharding contains a `jax.sharding.AbstractMesh` which requires "
             f"the input passed should be a `jax.Array`. Got {type(x)} with shape "
             f"{typeof(x).str_short()}", code="no-mesh", help="`device_put` the value first")
    if not isinstance(own, NamedSharding):
        fail(TypeError, "The sharding on the input must be a `NamedSharding` since the target "
             f"sharding has an `AbstractMesh` in it. Got sharding: {own} of type {type(own)}",
             code="no-mesh", help="pass a NamedSharding on a Mesh, or enter one with `set_mesh`")
    if own.mesh.shape_tuple != sharding.mesh.shape_tuple:
        fail(ValueError, f"Mesh shape of the input {own.mesh.shape_tuple} does not match the mesh "
             f"shape of the target sharding {sharding.mesh.shape_tuple} for shape "
             f"{typeof(x).str_short()}", code="mesh-shape",
             help="name the axes of the mesh that the array is on")
    return own.mesh


def _moved(x: Any, sharding: Sharding) -> Any:
    """`x` with this sharding; a committed array stays on its devices, in their order."""
    own = getattr(x, "sharding", None)
    if isinstance(own, Sharding) and getattr(x, "committed", False):
        ids = [[d.id for d in s.device_assignment] for s in (own, sharding)]
        if ids[0] != ids[1]:
            fail(ValueError, "Received incompatible devices for jitted computation. Got argument x "
                 f"of with_sharding_constraint with shape {typeof(x).str_short()} and with device "
                 f"ids {ids[0]} on platform CPU and sharding_constraint with device ids {ids[1]} "
                 "on platform CPU", code="incompatible-devices",
                 help="move the array there with `device_put`")
    return put_on_device(x, sharding)


def shard_alike(x, y):
    """`(x, y)`, two pytrees of arrays of equal shapes, each array of x laid out like that of y.

    Raises ValueError where structures or shapes differ.

    Sharding
      Auto: what says how one of them is split says it of the other, too.
      Explicit: types stay as they are.
      Manual: blocks are what they are.

    >>> from shardtrace.experimental.shard_alike import shard_alike
    >>> rows = st.NamedSharding(st.make_mesh((8,), ("x",)), P("x"))
    >>> st.jit(lambda a: shard_alike(a, jnp.arange(16))[1])(
    ...     st.device_put(jnp.zeros(16), rows)).sharding.spec
    P('x',)
    """
    xs, x_tree = tree.flatten(x)
    ys, y_tree = tree.flatten(y)
    if x_tree != y_tree:
        raise ValueError(f"Trees should be equal. Got x_tree: {x_tree}, y_tree: {y_tree}")
    pairs = []
    for a, b in zip(xs, ys, strict=True):
        if typeof(a).shape != typeof(b).shape:
            raise ValueError("The leaves shapes of `x` and `y` should match. Got `x` leaf shape: "
                             f"{typeof(a).shape} and `y` leaf shape: {typeof(b).shape}.")
        pairs.append(shard_alike_p.bind(as_array(a), as_array(b)))
    return (tree.unflatten(x_tree, [a for a, _ in pairs]),
            tree.unflatten(y_tree, [b for _, b in pairs]))
