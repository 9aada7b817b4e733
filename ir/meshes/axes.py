"""Names of mesh axes and of parts of them.

A *sub-axis* `X:(1)4` is a part of axis X: view X, of size n, as `[pre, size, rest]` with pre=1 and
size=4, and take the middle. Sub-axes are those of Shardy (`sdy.axis_ref`); a name that a mesh has
as it stands is that axis, whatever it looks like.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from ..support.caches import cached
from ..support.lazy import lazy_pattern

__all__ = [
    "AxisName", "axes_overlap", "axis_factor", "axis_size", "format_sub_axis", "parse_axis",
]

AxisName = Any  # nearly always a str; any hashable is accepted, as in JAX

_SUB_AXIS = lazy_pattern(r"(.+):\((\d+)\)(\d+)", re.DOTALL)


@cached(4096)
def parse_axis(name: AxisName) -> tuple[AxisName, int, int | None]:
    """Split an axis name into `(base, pre, size)`; a whole axis has pre 1 and size None.

    >>> parse_axis("X"), parse_axis("X:(2)4")
    (('X', 1, None), ('X', 2, 4))
    """
    if isinstance(name, str) and name.endswith(tuple("0123456789")):
        match = _SUB_AXIS.fullmatch(name)
        if match:
            base, pre, size = match.groups()
            return base, int(pre), int(size)
    return name, 1, None


def format_sub_axis(base: AxisName, pre: int, size: int) -> str:
    """The name of a sub-axis: `format_sub_axis("X", 1, 4)` is `"X:(1)4"`."""
    return f"{base}:({pre}){size}"


def axis_size(name: AxisName, mesh_shape: Mapping[AxisName, int]) -> int:
    """Number of parts that the axis or sub-axis `name` cuts a dimension into.

    A name that the mesh has as it stands is that axis, whatever it looks like. Raises `KeyError`
    for an unknown axis, `ValueError` for a sub-axis that its axis does not have.
    """
    size = mesh_shape.get(name)
    if size is not None:
        return size
    return axis_factor(name, mesh_shape)[2]


def axis_factor(
    name: AxisName, mesh_shape: Mapping[AxisName, int]
) -> tuple[AxisName, int, int, int]:
    """`(base, pre, size, rest)` of an axis or sub-axis: base axis of size `pre * size * rest`."""
    whole = mesh_shape.get(name)
    if whole is not None:
        return name, 1, whole, 1
    base, pre, size = parse_axis(name)
    if size is None or base not in mesh_shape:
        raise KeyError(name)
    whole = mesh_shape[base]
    if pre * size == 0 or whole % (pre * size):
        raise ValueError(
            f"Sub-axis {name} does not divide mesh axis {base} of size {whole}: "
            f"pre-size {pre} times size {size} must divide {whole}."
        )
    return base, pre, size, whole // (pre * size)


@cached(4096)
def _span(name: AxisName) -> tuple[AxisName, int, float]:
    """The axis that a name is part of at last, and where in it the part begins and ends.

    A sub-axis may be cut again (an axis called 'X:(1)4' of a mesh that was split): 'X:(1)4:(2)2'
    is ('X', 2, 4). A whole axis ends nowhere, since its size is not known here.
    """
    base, pre, size = parse_axis(name)
    if size is None:
        return name, 1, math.inf
    root, start, _ = _span(base)
    return root, start * pre, start * pre * size


def axes_overlap(a: AxisName, b: AxisName) -> bool:
    """Whether two axis names share a device's coordinate: equal, or parts with common digits."""
    if a == b:
        return True
    root_a, start_a, stop_a = _span(a)
    root_b, start_b, stop_b = _span(b)
    return root_a == root_b and start_a < stop_b and start_b < stop_a
