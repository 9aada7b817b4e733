"""with_sharding_constraint: how Auto axes shall shard a value inside of a program."""
from __future__ import annotations

from typing import Any

from ...ir.context import STATE
from ...ir.diagnostic import fail
from ...ir.mesh import empty_abstract_mesh, entered_mesh
from ...ir.ops.sharding import check_constraint, sharding_constraint_p
from ...ir.sharding import NamedSharding, Sharding, named_sharding_abstract
from ...ir.spec import PartitionSpec
from .. import tree
from ..constants import as_array, put_on_device
from ..staging import current_builder, record_mesh
from ..tracer import typeof

_REPLICATED = PartitionSpec()


def _is_leaf(x: Any) -> bool:
    return x is None or isinstance(x, (PartitionSpec, Sharding))


def with_sharding_constraint(x, shardings):
    """x (any pytree), whose sharding over Auto axes is fixed to `shardings` (a tree prefix of
    PartitionSpecs and NamedShardings).

    Over a mesh whose axes are all Explicit it is an assertion about the type. Raises RuntimeError
    for a PartitionSpec without a context mesh, AssertionError where the assertion does not hold,
    ValueError for axes that are not Auto. Source: JAX's function of the same name.
    """
    leaves, treedef = tree.flatten(x)
    wanted = tree.broadcast_prefix(shardings, x, _is_leaf, "shardings")
    return tree.unflatten(treedef, [_constrain(v, s) for v, s in zip(leaves, wanted, strict=True)])


def _constrain(x: Any, sharding: Any) -> Any:
    if not _is_leaf(sharding):
        raise TypeError("shardings leaf specifications are expected to be PartitionSpec instances "
                        f"or None, but got {sharding}")
    context = STATE.abstract_mesh
    if context is empty_abstract_mesh and not entered_mesh().empty and (
            isinstance(sharding, PartitionSpec) or sharding is None):
        sharding = NamedSharding(entered_mesh(), sharding or _REPLICATED)
    if isinstance(sharding, PartitionSpec) or sharding is None:
        if context is empty_abstract_mesh:
            if sharding is None:
                return as_array(x)
            fail(RuntimeError,
                 "with_sharding_constraint requires a non-empty mesh in context if you are passing "
                 "`PartitionSpec`s to shardings. You can define a context mesh via "
                 "`jax.set_mesh(mesh)`. Alternatively, provide `Sharding`s to shardings and then "
                 "the mesh context manager is not required.", code="no-mesh",
                 help="write `with set_mesh(mesh): ...`, or pass `NamedSharding(mesh, spec)`")
        sharding = named_sharding_abstract(context, sharding or _REPLICATED)
    elif not isinstance(sharding, NamedSharding):
        return x if current_builder() is not None else put_on_device(x, sharding)
    given = sharding
    mesh = sharding.mesh.abstract_mesh
    if mesh is not sharding.mesh:
        record_mesh(sharding.mesh)  # type: ignore[arg-type]
        sharding = named_sharding_abstract(mesh, sharding.spec)
    x = as_array(x)
    check_constraint(_typed_on(x, mesh), sharding)
    if mesh.are_all_axes_explicit:
        return x
    if current_builder() is None and isinstance(STATE.interpreter, type(None)):
        return _eager(x, given)
    return sharding_constraint_p.bind(x, sharding=sharding)


def _typed_on(x: Any, mesh: Any) -> Any:
    aval = typeof(x)
    if aval.mesh.axis_names:
        return aval
    return aval.update(sharding=named_sharding_abstract(mesh, aval.spec))


def _eager(x: Any, sharding: NamedSharding) -> Any:
    """Outside of a trace the constraint is a placement at once."""
    mesh = STATE.mesh if not sharding.is_concrete else sharding.mesh
    spec = sharding.spec
    concrete = NamedSharding(mesh, spec)
    concrete.shard_shape(typeof(x).shape)
    return put_on_device(x, concrete)
