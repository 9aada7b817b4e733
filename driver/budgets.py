"""What a function may communicate, as a test; and what changes if something else does.

`assert_comm` fails with the collectives and their lines where a function exceeds its budget;
`whatif` compares a function with itself under other specs, shapes, meshes or hardware.
"""
from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..ir.diagnostic import error
from ..ir.mesh import AbstractMesh
from ..ir.shape_struct import ShapeDtypeStruct
from ..ir.sharding import NamedSharding
from ..ir.spec import PartitionSpec
from ..report.changes import Argument, Change, Result, text_of
from ..report.difference import Difference
from ..report.explanation import ExplainedCollective, Explanation
from ..report.hardware import Hardware
from ..report.render import excerpt, quantity
from ..report.topology import Topology
from ..tracer import tree
from .changed import Changed
from .explain import DEFAULT_HARDWARE, explain
from .jit import Jitted, jit
from .stages import Compiled, Lowered


def assert_comm(fun: Any, *args: Any, max_bytes: int | None = None,
                kinds: Mapping[str, int] | None = None, axis: str | Sequence[str] | None = None,
                max_peak_bytes: int | None = None, exact: bool = True, **kwargs: Any) -> Any:
    """Raise AssertionError unless `fun(*args, **kwargs)` communicates as is said.

    max_bytes: most bytes that a device may receive. kinds: how many collectives of each kind
    ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute") there are,
    loops multiplied; kinds that are not named may not occur. exact: fewer are wrong too. axis:
    count only collectives over this mesh axis (or one of these). max_peak_bytes: most bytes that a
    device may hold. Arguments may be arrays or ShapeDtypeStructs; `fun` may be an explanation, or a
    lowered or compiled function. Without the arguments that `fun` needs, the result is a function
    that checks for arguments.

    >>> mesh = st.make_mesh((8,), ("x",))
    >>> a = st.ShapeDtypeStruct((8, 64), np.float32, sharding=st.NamedSharding(mesh, P("x")))
    >>> st.testing.assert_comm(lambda a: a.sum(0), a, max_bytes=448, kinds={"all-reduce": 1})
    """
    if callable(fun) and not args and not kwargs and _needs_arguments(fun):
        return functools.partial(assert_comm, fun, max_bytes=max_bytes, kinds=kinds, axis=axis,
                                 max_peak_bytes=max_peak_bytes, exact=exact)
    if isinstance(fun, Explanation):
        found = fun
    elif isinstance(fun, Lowered | Compiled):
        found = fun.explain()
    else:
        found = explain(fun)(*args, **kwargs)
    wanted = {axis} if isinstance(axis, str) else set(axis or ())
    chosen = [c for c in found.collectives
              if not wanted or wanted & {str(a).partition(":")[0] for a in c.mesh_axes}]
    over = f" over {', '.join(sorted(wanted))}" if wanted else ""
    received = sum(c.total_bytes for c in chosen)
    if max_bytes is not None and received > max_bytes:
        _refuse(found, chosen, f"each device receives {received:,} bytes{over}, "
                               f"{received - max_bytes:,} more than the {max_bytes:,} allowed")
    if kinds is not None:
        counts: dict[str, int] = {}
        for c in chosen:
            counts[c.kind] = counts.get(c.kind, 0) + c.count
        wrong = [f"{counts.get(k, 0)} {k} instead of {kinds.get(k, 0)}"
                 for k in sorted({*counts, *kinds})
                 if counts.get(k, 0) > kinds.get(k, 0)
                 or (exact and counts.get(k, 0) < kinds.get(k, 0))]
        if wrong:
            _refuse(found, [c for c in chosen if counts[c.kind] != kinds.get(c.kind, 0)],
                    f"it has {', '.join(wrong)}{over}")
    if max_peak_bytes is not None and found.peak_bytes > max_peak_bytes:
        held = ", ".join(f"{h.name} ({quantity(h.nbytes, 'B')})" for h in found.memory.held[:3])
        raise error(AssertionError, f"{found.name} holds {found.peak_bytes:,} bytes a device, "
                    f"{found.peak_bytes - max_peak_bytes:,} more than the {max_peak_bytes:,} "
                    f"allowed", code="memory-budget", location=found.memory.location,
                    label="the peak is here", because=(f"the largest then are {held}",))
    return None


def _needs_arguments(fun: Callable[..., Any]) -> bool:
    if isinstance(fun, Explanation | Lowered | Compiled):
        return False
    parameters = inspect.signature(fun).parameters.values()
    return any(p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
               for p in parameters)


def _refuse(found: Explanation, chosen: Sequence[ExplainedCollective], text: str) -> None:
    dearest = sorted(chosen, key=lambda c: -c.total_bytes)
    listed = [f"{c.kind} over {', '.join(map(str, c.mesh_axes))}: {c.received_bytes:,} B"
              f"{f' x {c.count}' if c.count != 1 else ''}, {c.source}\n{excerpt(c.source)}".rstrip()
              for c in dearest[:8]]
    notes = tuple(dearest[0].cause.lines()) if dearest else ()
    raise error(AssertionError, f"{found.name}: {text}", code="communication-budget",
                location=dearest[0].source if dearest else found.memory.location,
                label="most of it is from here" if len(dearest) > 1 else "it is from here",
                because=notes, notes=tuple(listed))


def whatif(fun: Callable[..., Any], change: Any = None, *,
           in_shardings: Mapping[int | str, PartitionSpec] | None = None,
           out_shardings: Mapping[int, PartitionSpec] | None = None,
           mesh: Mapping[str, int] | None = None,
           shapes: Mapping[str, tuple[int, ...]] | None = None,
           hardware: str | Hardware = DEFAULT_HARDWARE,
           then_hardware: str | Hardware | None = None,
           topology: Sequence[int] | Topology | None = None) -> Callable[..., Difference]:
    """A function that tells what a change does to `fun`, for arguments.

    change: a Suggestion, or another function to compare with. in_shardings: other specs by the
    position or path of an argument leaf; out_shardings: by the position of a result leaf. mesh:
    other sizes of mesh axes, by name; shapes: other shapes by argument path. then_hardware: another
    device. The result has `before` and `after`, both explanations, and their difference as text.

    >>> mesh = st.make_mesh((8,), ("x",))
    >>> a = st.ShapeDtypeStruct((8, 64), np.float32, sharding=st.NamedSharding(mesh, P("x")))
    >>> d = st.whatif(lambda a: a.sum(0), in_shardings={"a": P(None, "x")})(a)
    >>> d.before.received_bytes, d.after.received_bytes
    (448, 0)
    """
    jitted = fun if isinstance(fun, Jitted) else jit(fun)

    def compared(*args: Any, **kwargs: Any) -> Difference:
        before = explain(jitted, hardware, topology=topology)(*args, **kwargs)
        names = before.partitioned.traced.arg_names
        changes: list[Change] = list(getattr(change, "changes", ()))
        for where, spec in (in_shardings or {}).items():
            i = names.index(where) if isinstance(where, str) else where
            changes.append(Argument(i, names[i], spec))
        changes += [Result(i, f"[{i}]", spec) for i, spec in (out_shardings or {}).items()]
        other: Any = change if callable(change) and not changes else jitted
        text = text_of(changes)
        if mesh or shapes:
            args, kwargs, said = _resized(args, kwargs, names, mesh or {}, shapes or {})
            text = ", and ".join(filter(None, [text, said]))
        if changes:
            placed = before.subject.mesh      # type: ignore[attr-defined]
            if mesh:
                placed = _mesh_of(tree.leaves((args, kwargs)))
            other = Changed(jitted, changes, placed)
        after = explain(other, then_hardware or hardware,
                        topology=None if mesh or then_hardware else topology)(*args, **kwargs)
        return Difference(before, after, text or "another program")

    return compared


def _resized(args: Any, kwargs: Any, names: Sequence[str], mesh: Mapping[str, int],
             shapes: Mapping[str, tuple[int, ...]]) -> tuple[Any, Any, str]:
    """The arguments as structs on a mesh of other sizes, and with other shapes."""
    leaves, form = tree.flatten((args, kwargs))
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
    args, kwargs = tree.unflatten(form, made)
    return args, kwargs, ", ".join(said)


def _mesh_of(leaves: Sequence[Any]) -> Any:
    return next(x.sharding.mesh for x in leaves
                if isinstance(getattr(x, "sharding", None), NamedSharding))
