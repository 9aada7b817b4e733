"""`whatif`: compare a function with itself after one change, without hardware or arrays.

The change may be a spec, a mesh size, a dimension, the priority in which axes spread, a suggestion,
other hardware, or another function; both programs are traced, partitioned and costed as wholes.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...ir.diagnostics.diagnostic import fail
from ...ir.meshes.mesh import AbstractMesh
from ...ir.ops.communication.sharding import sharding_constraint_p
from ...ir.passes import Requests
from ...ir.shardings.sharding import NamedSharding
from ...ir.spec import PartitionSpec
from ...ir.values.shape_struct import ShapeDtypeStruct
from ...partitioner.cost.hardware import Hardware
from ...partitioner.cost.topology import Topology
from ...report.advice.changes import Argument, Change, Prioritize, Result, text_of
from ...report.difference import Difference
from ...report.explanation import Explanation
from ...report.reasons.value_paths import Place, places
from ...tracer.trees import tree
from ..jit.jit import jit
from ..jit.jitted import Jitted
from .applied_changes import Changed
from .explain import explain


def whatif(fun: Callable[..., Any], change: Any = None, *,
           in_shardings: Mapping[int | str, PartitionSpec] | None = None,
           out_shardings: Mapping[int, PartitionSpec] | None = None,
           mesh: Mapping[str, int] | None = None,
           shapes: Mapping[str, tuple[int, ...]] | None = None,
           priority: Mapping[int | str, int] | None = None,
           hardware: str | Hardware | None = None,
           then_hardware: str | Hardware | None = None,
           topology: Sequence[int] | Topology | None = None) -> Callable[..., Difference]:
    """A function that reports what a change does to `fun`, for given arguments.

    change: a Suggestion; another function to compare with; or a dict, whose keys are argument
      paths with a PartitionSpec or a shape, or mesh axes with a size.
    in_shardings: other specs by the position or path of an argument leaf; out_shardings: by the
      position of a result leaf. mesh: other sizes of mesh axes, by name; shapes: other shapes by
      argument path. priority: the turn in which axes spread (0 is first) by the path of an argument
      that is laid out, or the line of a `with_sharding_constraint`. then_hardware: another device.
    The result has `before` and `after`, both explanations, and their difference: `types`,
    `removed`, `added`, `rows`, as text and `to_dict()`.
    Raises ValueError for an unknown argument, result, axis or line.

    Sharding
      Auto: the partitioner decides anew what the change leaves open.
      Explicit: a spec of an argument changes its type; what then no longer type-checks is an error.
      Manual: the body of a `shard_map` stays; what it is given may change.

    >>> mesh = st.make_mesh((8,), ("x",))
    >>> a = st.ShapeDtypeStruct((8, 64), np.float32, sharding=st.NamedSharding(mesh, P("x")))
    >>> d = st.whatif(lambda a: jnp.cumsum(a, 0), {"a": P(None, "x")})(a)
    >>> d.before.received_bytes > 0, d.after.received_bytes
    (True, 0)
    """
    jitted = fun if isinstance(fun, Jitted) else jit(fun)
    specs: dict[int | str, PartitionSpec] = dict(in_shardings or {})
    sizes, others = dict(mesh or {}), dict(shapes or {})
    if isinstance(change, Mapping):
        _sort_changes(change, specs, sizes, others)

    def compared(*args: Any, **kwargs: Any) -> Difference:
        args, kwargs = jitted.traced_arguments(args, kwargs)
        before = explain(jitted, hardware, topology=topology)(*args, **kwargs)
        names = before.partitioned.traced.arg_names
        changes: list[Change] = list(getattr(change, "changes", ()))
        for where, spec in specs.items():
            i = _argument(names, where)
            changes.append(Argument(i, names[i], spec))
        for i, spec in (out_shardings or {}).items():
            _check_result(i, len(before.partitioned.traced.outvars))
            changes.append(Result(i, f"[{i}]", spec))
        changes += [_prioritized(before, where, n) for where, n in (priority or {}).items()]
        other: Any = change if callable(change) and not changes else jitted
        text = text_of(changes)
        if sizes or others:
            args, kwargs, said = _resized(args, kwargs, names, sizes, others)
            text = ", and ".join(filter(None, [text, said]))
        if changes:
            placed = before.subject.mesh      # type: ignore[attr-defined]
            if sizes:
                placed = _mesh_of(tree.leaves((args, kwargs)))
            other = Changed(jitted, changes, placed,
                            requested=before.partitioned.traced.attributes.get(Requests.KEY),
                            plan=before.partitioned.taken)
        after = explain(other, then_hardware or hardware,
                        topology=None if sizes or then_hardware else topology)(*args, **kwargs)
        if then_hardware is not None:
            text = ", and ".join(filter(None, [text, f"on {after.topology.hardware.name}"]))
        return Difference(before, after, text or "another program")

    return compared


def _sort_changes(change: Mapping[Any, Any], specs: dict[int | str, PartitionSpec],
                  sizes: dict[str, int], shapes: dict[str, tuple[int, ...]]) -> None:
    """Enter each item of a change, by its type, as a spec, the size of a mesh axis, or a shape."""
    for key, value in change.items():
        if isinstance(value, PartitionSpec):
            specs[key] = value
        elif isinstance(value, int):
            sizes[key] = value
        else:
            shapes[key] = tuple(value)


def _argument(names: Sequence[str], where: int | str) -> int:
    """The number of an argument leaf, given by that or by its path."""
    if where in (range(len(names)) if isinstance(where, int) else names):
        return where if isinstance(where, int) else names.index(where)
    fail(ValueError, f"there is no argument {where!r}; there are {', '.join(names)}",
         code="unknown-argument", help="name an argument by its path, or by its position from 0 on")


def _check_result(position: int, count: int) -> None:
    """Raise ValueError for a result that a function with `count` of them does not have."""
    if not 0 <= position < count:
        fail(ValueError, f"there is no result {position}; there {'is' if count == 1 else 'are'} "
             f"{count}", code="unknown-result", help="count the leaves of the results from 0 on")


def _prioritized(found: Explanation, where: int | str, priority: int) -> Prioritize:
    """The change of priority of an argument, or of the constraint at a line."""
    partitioned = found.partitioned
    names = partitioned.traced.arg_names
    if isinstance(where, str):
        i = _argument(names, where)
        return Prioritize(Place((), -1, i), priority, f"`{where}`", partitioned.in_specs[i])
    for place, _, eqn in places(partitioned.stages["inlined"]):
        if eqn is not None and eqn.op is sharding_constraint_p and eqn.location.line == where:
            return Prioritize(place, priority, "the `with_sharding_constraint`",
                              eqn.params["sharding"].spec, eqn.location)
    raise ValueError(f"there is no `with_sharding_constraint` at line {where}")


def _resized(args: Any, kwargs: Any, names: Sequence[str], mesh: Mapping[str, int],
             shapes: Mapping[str, tuple[int, ...]]) -> tuple[Any, Any, str]:
    """The arguments as structs on a mesh of other sizes, and with other shapes."""
    leaves, form = tree.flatten((args, kwargs))
    for name in shapes:
        _argument(names, name)
    said = [f"mesh axis {a} of size {n}" for a, n in mesh.items()]
    made = []
    for x, name in zip(leaves, names, strict=True):
        sharding = getattr(x, "sharding", None)
        if isinstance(sharding, NamedSharding) and mesh:
            own = sharding.mesh.abstract_mesh
            unknown = set(mesh) - set(own.axis_names)
            if unknown:
                raise ValueError(f"mesh {own} has no axis {', '.join(sorted(unknown))}")
            sizes = tuple(mesh.get(a, n) for a, n in zip(own.axis_names, own.axis_sizes,
                                                         strict=True))
            sharding = NamedSharding(AbstractMesh(sizes, own.axis_names, own.axis_types),
                                     sharding.spec)
        shape = shapes.get(name, getattr(x, "shape", ()))
        if name in shapes:
            said.append(f"`{name}` of shape {tuple(shape)}")
        if isinstance(sharding, NamedSharding):
            x = ShapeDtypeStruct(tuple(shape), x.dtype, sharding=sharding)
        elif name in shapes:
            x = ShapeDtypeStruct(tuple(shape), x.dtype)
        made.append(x)
    if mesh and not any(isinstance(getattr(x, "sharding", None), NamedSharding) for x in leaves):
        raise ValueError(f"no argument lies on a mesh of which {', '.join(mesh)} could be another "
                         "size: pass one with a NamedSharding")
    args, kwargs = tree.unflatten(form, made)
    return args, kwargs, ", ".join(said)


def _mesh_of(leaves: Sequence[Any]) -> Any:
    return next(x.sharding.mesh for x in leaves
                if isinstance(getattr(x, "sharding", None), NamedSharding))
