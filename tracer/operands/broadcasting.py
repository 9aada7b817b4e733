"""Broadcasting to a common shape and sharding, for functions whose ops take equal operands only.

`select_n`, scatter and stack want operands of one type, sharding included. Their operands are
broadcast together: shapes as numpy does, shardings as elementwise ops do. A whole operand may be
stretched to a sharded one; an operand that is sharded otherwise is an error.
"""
from __future__ import annotations

from typing import Any

from ...ir.diagnostics.diagnostic import fail
from ...ir.diagnostics.errors import ShardingTypeError
from ...ir.inference.unreduced import is_pending, refuse_pending
from ...ir.ops.communication.sharding import reshard_p
from ...ir.ops.elementwise.select import select_n_p
from ...ir.ops.movement.shape import broadcast_in_dim_p
from ...ir.shardings.sharding import NamedSharding, named_sharding_abstract
from ...ir.spec import spec_from_entries
from ...ir.types import Shape
from ...ir.values.array import Array
from ..shardings.eager_mesh import mesh_of_operands
from ..staging.constants import as_array
from .rank_promotion import broadcast_shapes, shape_of


def broadcast_sharding(values: list[Any], shape: Shape) -> NamedSharding | None:
    """The sharding of the result of an elementwise op of these operands; None if it is whole.

    Raises ShardingTypeError where two operands are split over different axes in one dimension.
    """
    avals = [v.aval for v in values if isinstance(v, Array) and any(v.aval.entries)]
    if not avals:
        return None
    mesh = avals[0].sharding.mesh
    entries: list[tuple[str, ...]] = [()] * len(shape)
    for aval in avals:
        for d, axes in enumerate(aval.entries, len(shape) - aval.ndim):
            if not axes:
                continue
            if entries[d] and entries[d] != axes:
                listed = ", ".join(_entries_shown(v, len(shape)) for v in values)
                fail(ShardingTypeError,
                     f"broadcast_shardings got incompatible shardings for broadcasting: {listed}.",
                     code="sharding-conflict",
                     label=", ".join(a.str_short(True) for a in avals),
                     help="bring the operands to one spec with `reshard`")
            entries[d] = axes
    return named_sharding_abstract(mesh.abstract_mesh, spec_from_entries(tuple(entries)))


def _entries_shown(x: Any, rank: int) -> str:
    """The entries of a spec, as many as the result has dimensions."""
    entries = x.aval.entries if isinstance(x, Array) else ()
    shown = [None if not e else e[0] if len(e) == 1 else e for e in entries]
    return repr((None,) * (rank - len(shown)) + tuple(shown))


def to_type(x: Any, shape: Shape, sharding: NamedSharding | None = None) -> Array:
    """x broadcast to a shape (dimensions aligned at the end) and, if given, a sharding.

    Raises ValueError where a size does not fit, or a dimension is split otherwise than asked for.
    """
    have = shape_of(x)
    same = have == shape
    if same and (sharding is None or (isinstance(x, Array) and x.aval.sharding is sharding)):
        return as_array(x)
    if sharding is not None and isinstance(x, Array) and is_pending(x.aval):
        refuse_pending("broadcasting to a sharding", [x.aval], iterated=True)
    extra = len(shape) - len(have)
    entries = x.aval.entries if isinstance(x, Array) else ((),) * len(have)
    wanted = ((),) * len(shape) if sharding is None else sharding.spec.entries
    fits = extra >= 0 and all(
        n in (1, m) and (not e or n != m or e == w or sharding is None)
        for n, m, e, w in zip(have, shape[extra:], entries, wanted[extra:], strict=True))
    if not fits:
        incompatible(x, shape, sharding)
    if same:
        return reshard_p.bind(x, dst_sharding=sharding)
    return broadcast_in_dim_p.bind(x, shape=shape, sharding=sharding,
                                   broadcast_dimensions=tuple(range(extra, len(shape))))


def incompatible(x: Any, shape: Shape, sharding: NamedSharding | None) -> None:
    """Raise JAX's error about a value that does not broadcast to a type."""
    aval = as_array(x).aval
    spec = "" if sharding is None else sharding.spec.entries
    sizes = [str(n) if not e else f"{n}@{e[0]}" if len(e) == 1 else f"{n}@({','.join(e)})"
             for n, e in zip(shape, spec or ((),) * len(shape), strict=False)]
    raise ValueError("Incompatible types for broadcasting: input type="     # need not be a type
                     f"{aval.str_short()} and requested type={aval.dtype}[{','.join(sizes)}]")


def broadcast_together(*values: Any) -> list[Any]:
    """Operands broadcast to one shape and sharding; left alone where the shapes agree already."""
    shapes = [shape_of(v) for v in values]
    if all(s == shapes[0] for s in shapes[1:]):
        return list(values)
    shape = broadcast_shapes(*shapes)
    pending = [v.aval for v in values if isinstance(v, Array) and is_pending(v.aval)]
    if pending:
        refuse_pending("broadcasting", pending)
    sharding = broadcast_sharding(list(values), shape)
    with mesh_of_operands(*values):
        return [to_type(v, shape, sharding) for v in values]


def select_of(which: Any, on_false: Any, on_true: Any) -> Array:
    """`select_n` of operands that broadcast; a scalar condition stays one."""
    shapes = shape_of(which), shape_of(on_false), shape_of(on_true)
    if shapes[0] == ():
        if shapes[1] != shapes[2]:
            on_true, on_false = broadcast_together(on_true, on_false)
    elif shapes[0] != shapes[1] or shapes[1] != shapes[2]:
        which, on_true, on_false = broadcast_together(which, on_true, on_false)
    return select_n_p.bind(which, on_false, on_true)
