"""Which dimension of a gather or a scatter is what, and what becomes of windows out of bounds.

A gather reads, for every index vector, a window of the operand that starts there. Dimensions of the
operand are *batching* (in step with a dimension of the indices), *whole* windows (pass through),
*partial* windows, or *collapsed* (windows of size one, dropped from the result). A scatter
writes what the gather with the same numbers reads. The semantics are those of XLA's Gather and
Scatter; the index vector is always the last dimension of the indices.
"""
from __future__ import annotations

import enum

from ..param_types import register_param_type
from ..support.named_tuple import NamedTuple


@register_param_type
class GatherDimensionNumbers(NamedTuple):
    """Which dimension of a gather is what.

    offset_dims: result dimensions that are window dimensions, in the operand's order.
    collapsed_slice_dims: operand dimensions with windows of size one that the result lacks.
    start_index_map: operand dimension that each component of an index vector is a position in.
    operand_batching_dims, start_indices_batching_dims: pairs that go in step.
    """
    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()

    def as_scatter(self) -> ScatterDimensionNumbers:
        """The numbers of the scatter that writes what this gather reads."""
        return ScatterDimensionNumbers(*self)


@register_param_type
class ScatterDimensionNumbers(NamedTuple):
    """Which dimension of a scatter is what: a gather's numbers with the updates as its result."""
    update_window_dims: tuple[int, ...]
    inserted_window_dims: tuple[int, ...]
    scatter_dims_to_operand_dims: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    scatter_indices_batching_dims: tuple[int, ...] = ()

    def as_gather(self) -> GatherDimensionNumbers:
        """The numbers of the gather that reads what this scatter writes."""
        return GatherDimensionNumbers(*self)


@register_param_type
class GatherScatterMode(enum.Enum):
    """What happens to windows that are not inside the operand.

    CLIP: they are moved inside. FILL_OR_DROP: a gather gives the fill value for the whole window, a
    scatter drops it. PROMISE_IN_BOUNDS: there are none (a gather clips, a scatter drops). ONE_HOT:
    as CLIP; asks for a contraction with a one-hot array instead of a gather.
    """
    CLIP = 1
    FILL_OR_DROP = 2
    PROMISE_IN_BOUNDS = 3
    ONE_HOT = 4

    @staticmethod
    def from_any(mode: str | GatherScatterMode | None) -> GatherScatterMode:
        """A mode from what users pass: a mode, its name, or None (fill or drop)."""
        if isinstance(mode, GatherScatterMode):
            return mode
        if mode is None or mode in ("fill", "drop"):
            return GatherScatterMode.FILL_OR_DROP
        named = {"clip": GatherScatterMode.CLIP, "one_hot": GatherScatterMode.ONE_HOT,
                 "promise_in_bounds": GatherScatterMode.PROMISE_IN_BOUNDS}
        if mode in named:
            return named[mode]
        raise ValueError(f'Unknown gather mode "{mode}"')
