"""A tiling restated with the axes of a mesh: from which device holds what, back to a spec.

The canonical form of a tiling (`Sharding.tiling`) is a list of digits of a device's number. The
axes of a mesh are digits of the same number, so that both lists are walked side by side: a digit
that is an axis, several axes, or a part of one becomes an entry of the spec.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..diagnostics.diagnostic import error
from ..diagnostics.errors import IndivisibleError
from ..meshes.mesh import AbstractMesh, AxisType, Mesh
from ..spec import AxisName, PartitionSpec
from ..support.lazy import lazy_import

if TYPE_CHECKING:
    from . import hlo_sharding as _hlo
    from .hlo_sharding import HloSharding, OpSharding
else:
    _hlo = lazy_import(".hlo_sharding", __package__)

__all__ = ["hlo_to_spec", "parse_flatten_op_sharding", "spec_for_tiling"]


def spec_for_tiling(
    mesh: Mesh | AbstractMesh, tiling: tuple, *, loose: bool = False
) -> PartitionSpec | None:
    """The spec on `mesh` with this canonical tiling, or None if there is none.

    Axes that the tiling says are manual or unreduced must be axes of type Manual or Explicit.
    loose: leave dimensions whole whose tiles need a part of an axis, instead of giving up.
    """
    if not tiling:
        return PartitionSpec() if not mesh.manual_axes else None
    parts = _axis_parts(mesh, tiling)
    if parts is None:
        return PartitionSpec() if loose and not _manual_or_pending(tiling) else None
    entries: dict[int, dict[int, list[AxisName]]] = {}
    unreduced: set[AxisName] = set()
    dropped: set[int] = set()
    types = mesh.name_to_type
    for name, kind, place, whole in parts:
        if not whole and kind[0] == "tile" and loose:
            dropped.add(kind[1])
            continue
        if not whole and kind[0] != "replicated":
            return None
        manual = whole and types[name] is AxisType.Manual
        if manual is not (kind[0] == "manual"):
            return None
        if kind[0] == "tile":
            entries.setdefault(kind[1], {}).setdefault(place, []).append(name)
        elif kind[0] == "unreduced":
            if types[name] is not AxisType.Explicit:
                return None
            unreduced.add(name)
    remaining = {dim: entry for dim, entry in entries.items() if dim not in dropped}
    partitions = []
    for dim in range(max(remaining, default=-1) + 1):
        axes = [a for _, named in sorted(remaining.get(dim, {}).items()) for a in named]
        partitions.append(tuple(axes) if axes else None)
    return PartitionSpec(*partitions, unreduced=unreduced)


def _manual_or_pending(tiling: tuple) -> bool:
    if tiling[0] == "irregular":
        return bool({g.name for g in tiling[2]} - {"REPLICATED"})
    return any(kind[0] in ("manual", "unreduced") for _, kind, _ in tiling)


def _axis_parts(mesh: Mesh | AbstractMesh, tiling: tuple
            ) -> list[tuple[AxisName, tuple, int, bool]] | None:
    """(axis, what it or a part of it selects, place, whether it is the whole axis), mesh order."""
    if tiling[0] == "irregular":
        return None
    digits = [list(d) for d in tiling]
    out = []
    for name, size in mesh.shape.items():
        left = size
        while left > 1:
            if not digits:
                return None
            radix, kind, place = digits[0]
            if left % radix == 0:
                step = radix
                digits.pop(0)
            elif radix % left == 0:
                step = left
                digits[0][0] = radix // left
            else:
                return None
            out.append((name, kind, place, step == size))
            left //= step
    return None if digits else out


def hlo_to_spec(sharding: HloSharding | OpSharding, mesh: Mesh | AbstractMesh) -> PartitionSpec:
    """The spec on `mesh` that has the tiles of `sharding`.

    Raises ValueError (IndivisibleError where the sizes of axes do not multiply to the numbers of
    tiles) if no spec on that mesh has them.

    >>> from shardtrace.sharding import AbstractMesh
    >>> mesh = AbstractMesh((4, 2), ("x", "y"))
    >>> hlo_to_spec(st.sharding.HloSharding.from_string("{devices=[2,4]<=[4,2]T(1,0)}"), mesh)
    P('y', 'x')
    """
    if isinstance(sharding, _hlo.OpSharding):
        sharding = _hlo.HloSharding.from_proto(sharding)
    if sharding.elements:
        raise ValueError(f"{sharding} describes {len(sharding.elements)} values; take one of its "
                         "tuple_elements()")
    spec = None
    if not sharding.is_unknown():
        spec = spec_for_tiling(mesh, sharding.tiling(mesh.size))
    if spec is not None:
        return spec
    sizes = None
    if sharding.is_tiled() and sharding.tiles is not None and sharding.tiles.digits_by_dim:
        sizes = sharding.get_axis_sizes()
    help = (f"a mesh of the sizes {sizes} has one" if sizes else
            "no mesh of the devices in their order has one: keep it as a GSPMDSharding")
    raise error(IndivisibleError if sizes else ValueError,
                f"No PartitionSpec on mesh {mesh} describes the sharding {sharding}",
                code="no-spec", help=help)


def parse_flatten_op_sharding(
    sharding: HloSharding | OpSharding, mesh: Mesh | AbstractMesh
) -> list[PartitionSpec]:
    """`hlo_to_spec` of a sharding, or of each element of a tuple of shardings, as a flat list."""
    if isinstance(sharding, _hlo.OpSharding):
        sharding = _hlo.HloSharding.from_proto(sharding)
    if not sharding.elements:
        return [hlo_to_spec(sharding, mesh)]
    return [s for part in sharding.elements for s in parse_flatten_op_sharding(part, mesh)]
