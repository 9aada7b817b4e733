"""A spec on a mesh: whether they fit, how many tiles there are, which device holds which.

The arithmetic of shardings, without devices or arrays: coordinates of a device on the mesh to
the index of its tile, dimension by dimension, and the canonical form that tells whether two
specs on two meshes mean the same.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..diagnostics.diagnostic import error, fail
from ..diagnostics.errors import DuplicateSpecError
from ..meshes.mesh import AbstractMesh, AxisType, Mesh
from ..spec import (
    UNCONSTRAINED,
    AxisName,
    Entry,
    PartitionSpec,
    axes_overlap,
    axis_factor,
    axis_size,
    parse_axis,
)
from ..support.caches import cached
from ..support.spelling import close_match

__all__ = ["canonical_tiling", "check_spec", "dim_factors", "merge_digits", "tile_index"]


# --------------------------------------------------------------------------- arithmetic


def dim_factors(mesh_shape: Mapping[AxisName, int], entries: Sequence[Entry]) -> tuple[int, ...]:
    """Number of tiles along each dimension: the product of its axes' sizes."""
    return tuple(
        1 if entry is UNCONSTRAINED else math.prod([axis_size(a, mesh_shape) for a in entry])
        for entry in entries
    )


def tile_index(
    mesh_shape: Mapping[AxisName, int], entries: Sequence[Entry],
    device_coordinates: Mapping[AxisName, Any] | Sequence[Any],
) -> tuple[Any, ...]:
    """Index of the tile of each dimension that the device at these mesh coordinates holds.

    `entries`: a tuple of axes a dimension, major first (`spec.entries`). `device_coordinates`:
    one integer a mesh axis, in mesh order or by name; or integer arrays that broadcast together,
    for many devices at once. Returns one index (or array) a dimension; 0 where it is not split.

    >>> tile_index({"X": 2, "Y": 4}, (("Y", "X"), ()), (1, 3))
    (7, 0)
    """
    if not isinstance(device_coordinates, Mapping):
        device_coordinates = dict(zip(mesh_shape, device_coordinates, strict=True))
    out = []
    for entry in entries:
        index: Any = 0
        for name in () if entry is UNCONSTRAINED else entry:
            base, _, size, rest = axis_factor(name, mesh_shape)
            index = index * size + device_coordinates[base] // rest % size
        out.append(index)
    return tuple(out)


# --------------------------------------------------------------------------- canonical form


@cached(4096)
def canonical_tiling(mesh: Mesh | AbstractMesh, spec: PartitionSpec) -> tuple:
    """See `Sharding.tiling`: the digits of a device's number, each with what it selects.

    A device's place in mesh order is a number in mixed radix whose digits are the mesh axes, cut
    at the borders of sub-axes. Each digit selects a tile (dimension, place among the dimension's
    digits), or nothing, or is Manual or unreduced. Neighbouring digits that select neighbouring
    places are one digit of a larger radix, which makes the form canonical.
    """
    whole = mesh.shape
    cuts: dict[AxisName, set[int]] = {name: {1, size} for name, size in whole.items()}
    mentioned = [*spec.axes(), *sorted(spec.unreduced, key=str)]
    for name in mentioned:
        base, pre, size, _ = axis_factor(name, whole)
        cuts[base] |= {pre, pre * size}
    ordered = {base: sorted(at) for base, at in cuts.items()}

    def digits_of(name: AxisName) -> list[tuple[AxisName, int, int]]:
        """(axis, start, stop) for each digit that an axis or sub-axis consists of, major first."""
        base, pre, size, _ = axis_factor(name, whole)
        at = [c for c in ordered[base] if pre <= c <= pre * size]
        return [(base, lo, hi) for lo, hi in itertools.pairwise(at)]

    selects: dict[tuple[AxisName, int, int], tuple] = {}
    for dim, entry in enumerate(spec.entries):
        places = [d for name in (() if entry is UNCONSTRAINED else entry) for d in digits_of(name)]
        for place, digit in enumerate(places):
            selects[digit] = ("tile", dim, place)
    if not any(hi > lo for _, lo, hi in selects) and not spec.unreduced and not mesh.manual_axes:
        return ()
    for name in spec.unreduced:
        for digit in digits_of(name):
            selects[digit] = ("unreduced",)
    for name in mesh.manual_axes:
        for digit in digits_of(name):
            selects.setdefault(digit, ("manual",))

    found = []
    for name in mesh.axis_names:
        for digit in digits_of(name):
            kind = selects.get(digit, ("replicated",))
            found.append((digit[2] // digit[1], kind[:2], kind[2] if kind[0] == "tile" else 0))
    return merge_digits(found)


def merge_digits(digits: Sequence[tuple[int, tuple, int]]) -> tuple[tuple[int, tuple, int], ...]:
    """The shortest list of digits that says the same; see `canonical_tiling`.

    Each is (radix, what it selects, place among the digits that select the same), in order of
    significance in a device's number; in the result places of a dimension are 0, 1, 2...
    """
    merged: list[list] = []  # [radix, kind, first place, last place]
    for radix, kind, place in digits:
        if radix == 1:
            continue
        if merged and merged[-1][1] == kind and (
            kind[0] != "tile" or merged[-1][3] + 1 == place
        ):
            merged[-1][0] *= radix
            merged[-1][3] = place
        else:
            merged.append([radix, kind, place, place])
    # Places are renumbered, since merging and dropping digits of radix 1 leaves gaps.
    rank = {
        id(item): n
        for dim in {item[1] for item in merged}
        for n, item in enumerate(sorted((i for i in merged if i[1] == dim), key=lambda i: i[2]))
    }
    return tuple((radix, kind, rank[id(item)] if kind[0] == "tile" else 0)
                 for item in merged for radix, kind in [item[:2]])


# --------------------------------------------------------------------------- checks


def _show_axes(axes: Sequence[AxisName]) -> str:
    return ", ".join(sorted(f"`{name}`" for name in axes))


def _check_axis(name: AxisName, mesh: Mesh | AbstractMesh, spec: PartitionSpec) -> None:
    """Refuse an axis, or a part of one, that the mesh does not have."""
    if name in mesh.shape:
        return
    base, _, size = parse_axis(name)
    if size is None or base not in mesh.shape:
        fail(ValueError,
             f"Resource axis: {name} of {spec} is not found in mesh: {tuple(mesh.shape)}.",
             code="unknown-axis", label=f"the mesh has the axes {tuple(mesh.shape)}",
             help=close_match(name, mesh.shape) or
             f"name one of {tuple(mesh.shape)}, or make a mesh with an axis {name!r}")
    axis_factor(name, mesh.shape)  # raises if the axis has no such part


def check_spec(mesh: Mesh | AbstractMesh, spec: PartitionSpec) -> None:
    """Raise unless `spec` can be used on `mesh`, in JAX's order and words.

    `DuplicateSpecError` if an axis (or a part of one) splits twice; ValueError for an unknown
    axis, for UNCONSTRAINED without an Auto axis, and for unreduced or reduced axes that are
    unknown or not Explicit.
    """
    used = spec.axes()
    if len(used) > 1:
        repeated = [
            a for i, a in enumerate(used)
            if a not in used[:i] and any(axes_overlap(a, b) for b in used[:i] + used[i + 1:])
        ]
        if repeated:
            problem = error(
                DuplicateSpecError,
                "A single NamedSharding spec specification can map every mesh axis to at most one "
                f"positional dimension, but {spec} has duplicate entries for "
                f"{_show_axes(repeated)}", code="axis-reused",
                notes=("a device has one coordinate along an axis, so the axis can split one "
                       "dimension",),
                help="split one of the dimensions over another axis, or leave it whole (None)")
            problem.mesh, problem.pspec = mesh, spec  # type: ignore[attr-defined]
            raise problem
    for name in used:
        if name not in mesh.shape:
            _check_axis(name, mesh, spec)
    if UNCONSTRAINED in spec.entries and AxisType.Auto not in mesh.axis_types:
        raise ValueError(
            f"{spec} cannot contain `P.UNCONSTRAINED` when no mesh axis_types are `Auto`. Got mesh "
            f"axis_types: {mesh.axis_types}"
        )
    if spec.unreduced:
        _check_set(mesh, spec, spec.unreduced, "Unreduced")
    if spec.reduced:
        _check_set(mesh, spec, spec.reduced, "Reduced")


def _check_set(
    mesh: Mesh | AbstractMesh, spec: PartitionSpec, axes: frozenset, which: str
) -> None:
    """Refuse unreduced or reduced axes that the mesh lacks, that are not Explicit, or that split a
    dimension as well. which: the word for them.
    """
    for name in sorted(axes, key=str):
        try:
            axis_type = mesh.axis_type(name)
        except KeyError:
            raise ValueError(
                f"{which} axes {name} is not found in mesh.axis_names={mesh.axis_names}. "
                f"Got pspec={spec}"
            ) from None
        if axis_type is not AxisType.Explicit:
            shown = ", ".join(repr(a) for a in sorted(axes, key=str))
            raise ValueError(
                f"{which} axes can only refer to mesh axes that is of type `Explicit`. Got "
                f"{which.lower()} axes: frozenset({{{shown}}}) and mesh: {mesh}"
            )
        _check_axis(name, mesh, spec)
        clash = [a for a in spec.axes() if axes_overlap(a, name)]
        if clash:
            raise ValueError(
                f"partitions cannot overlap with {which.lower()} axes passed to PartitionSpec. Got "
                f"partitions: {spec.partitions} and {which.lower()} axes: {name}"
            )
