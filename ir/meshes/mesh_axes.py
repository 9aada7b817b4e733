"""The axes of a mesh, without its devices: their names, sizes and types.

`BaseMesh` is the common base of `Mesh` and `AbstractMesh`, with everything that concerns axes.
"""

from __future__ import annotations

import enum
import functools
import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

from ..support.interning import Immutable
from .axes import AxisName, axis_factor, axis_size, parse_axis

__all__ = ["AxisType", "BaseMesh", "group_size", "normalize_axis_types"]


class AxisType(enum.Enum):
    """Who decides how values are split over a mesh axis.

    Auto: the partitioner, guided by constraints. Explicit: the types, equation by equation.
    Manual: the user's code inside `shard_map`.

    >>> from shardtrace.sharding import AxisType
    >>> mesh = st.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit, AxisType.Auto))
    >>> st.typeof(st.device_put(np.ones((8, 8), np.float32), st.NamedSharding(mesh, P("x", "y"))))
    ShapedArray(float32[8@x,8])
    """

    Auto = enum.auto()
    Explicit = enum.auto()
    Manual = enum.auto()

    def __repr__(self) -> str:
        return self.name

    __hash__ = object.__hash__  # quicker than Enum's, which hashes the name


def normalize_axis_types(axis_names: tuple, axis_types: Any, owner: str) -> tuple[AxisType, ...]:
    """One type an axis, all Auto if None is given; raises in JAX's words. `owner`: mesh class."""
    if axis_types is None:
        return (AxisType.Auto,) * len(axis_names)
    if isinstance(axis_types, list):
        axis_types = tuple(axis_types)
    if not isinstance(axis_types, tuple):
        axis_types = (axis_types,)
    for one in axis_types:
        if type(one) is not AxisType:
            raise TypeError(
                f"axis_types passed to {owner} must be of type `jax.sharding.AxisType`. Got "
                f"{axis_types} of type {tuple(type(t) for t in axis_types)}"
            )
    if len(axis_names) != len(axis_types):
        raise ValueError(
            "Number of axis names should match the number of axis_types. Got "
            f"axis_names={axis_names} and axis_types={axis_types}"
        )
    return axis_types


class BaseMesh(Immutable):
    """What both kinds of mesh can be asked: sizes, names and types of their axes."""

    axis_names: tuple[AxisName, ...]
    axis_sizes: tuple[int, ...]
    axis_types: tuple[AxisType, ...]
    size: int
    """Number of devices; 0 for the empty mesh."""
    empty: bool

    @functools.cached_property
    def shape_tuple(self) -> tuple[tuple[AxisName, int], ...]:
        return tuple(zip(self.axis_names, self.axis_sizes, strict=True))

    @functools.cached_property
    def shape(self) -> OrderedDict[AxisName, int]:
        """Axis name to size, in mesh order."""
        return OrderedDict(self.shape_tuple)

    @functools.cached_property
    def name_to_type(self) -> Mapping[AxisName, AxisType]:
        return dict(zip(self.axis_names, self.axis_types, strict=True))

    @functools.cached_property
    def axis_positions(self) -> Mapping[AxisName, int]:
        """Axis name to its place in mesh order."""
        return {name: i for i, name in enumerate(self.axis_names)}

    def axis_type(self, name: AxisName) -> AxisType:
        """Type of an axis, or of the axis that a sub-axis is part of; KeyError if unknown."""
        found = self.name_to_type.get(name)
        return self.name_to_type[parse_axis(name)[0]] if found is None else found

    def axis_size(self, name: AxisName) -> int:
        """Size of an axis or a sub-axis such as 'X:(1)4'; KeyError if the mesh has no such axis."""
        shape = self.shape
        return shape[name] if name in shape else axis_size(name, shape)

    def sort_axes(self, names: Iterable[AxisName]) -> tuple[AxisName, ...]:
        """The names in mesh order; sub-axes of one axis major first."""
        names = tuple(names)
        if len(names) < 2 and self.shape.keys() >= {*names}:
            return names

        def place(name: AxisName) -> tuple[int, int]:
            base, pre, _, _ = axis_factor(name, self.shape)
            return self.axis_positions[base], pre

        return tuple(sorted(names, key=place))

    def _axes_of_type(self, wanted: AxisType) -> tuple[AxisName, ...]:
        pairs = zip(self.axis_names, self.axis_types, strict=True)
        return tuple([name for name, axis_type in pairs if axis_type is wanted])

    @functools.cached_property
    def auto_axes(self) -> tuple[AxisName, ...]:
        return self._axes_of_type(AxisType.Auto)

    @functools.cached_property
    def explicit_axes(self) -> tuple[AxisName, ...]:
        return self._axes_of_type(AxisType.Explicit)

    @functools.cached_property
    def manual_axes(self) -> tuple[AxisName, ...]:
        return self._axes_of_type(AxisType.Manual)

    # `are_all_axes_...` is False for a mesh without axes, `any_axis_...` too.

    @functools.cached_property
    def are_all_axes_auto(self) -> bool:
        return bool(self.axis_names) and len(self.auto_axes) == len(self.axis_names)

    @functools.cached_property
    def are_all_axes_explicit(self) -> bool:
        return bool(self.axis_names) and len(self.explicit_axes) == len(self.axis_names)

    @functools.cached_property
    def are_all_axes_manual(self) -> bool:
        return bool(self.axis_names) and len(self.manual_axes) == len(self.axis_names)

    @functools.cached_property
    def any_axis_auto(self) -> bool:
        return bool(self.auto_axes)

    @functools.cached_property
    def any_axis_explicit(self) -> bool:
        return bool(self.explicit_axes)

    @functools.cached_property
    def any_axis_manual(self) -> bool:
        return bool(self.manual_axes)


def group_size(mesh: BaseMesh, axes: Iterable[AxisName]) -> int:
    """How many devices there are along these axes, and so in a replica group over them."""
    return math.prod(map(mesh.axis_size, axes))
