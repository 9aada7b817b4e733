"""`ragged_all_to_all`: an exchange of slices whose sizes are known only when it runs.

It is made of exchanges with static shapes: the devices tell each other where their slices lie, and
every device picks the rows that are meant for it from the gathered operands.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from ....ir.ops.elementwise.arithmetic import add_p, mul_p
from ....ir.ops.elementwise.convert import convert_element_type_p
from ....ir.ops.elementwise.select import select_n_p
from ....ir.ops.movement.shape import broadcast_in_dim_p
from ....ir.values.typeof import typeof
from ..creation import broadcasted_iota, full_like
from ..elementwise import bitwise_and, div, ge, lt, sub
from ..indexed import index_take
from ..reduction import reduce_max, reduce_or
from ..shape import reshape
from .manual_axes import as_varying, group_of
from .parallel import all_gather, all_to_all


def ragged_all_to_all(operand: Any, output: Any, input_offsets: Any, send_sizes: Any,
                      output_offsets: Any, recv_sizes: Any, *, axis_name: Any,
                      axis_index_groups: Any = None) -> Any:
    """`output`, with slices of the devices' operands written into it.

    Slice i (of K, each device being sent K / n) of a device begins at row `input_offsets[i]` of its
    operand, has `send_sizes[i]` rows, and is written at row `output_offsets[i]` of its receiver,
    device i // (K / n). recv_sizes: the sizes of the slices that this device gets; they follow from
    the others. Raises ValueError where K is not divisible by the number of devices.
    """
    axes, _, _, size = group_of(axis_name, axis_index_groups, "ragged_all_to_all")
    count, rows = typeof(input_offsets).shape[0], typeof(operand).shape[0]
    for name, x in (("input_offsets", input_offsets), ("send_sizes", send_sizes),
                    ("output_offsets", output_offsets), ("recv_sizes", recv_sizes)):
        t = typeof(x)
        if t.ndim != 1 or t.dtype.kind not in "iu" or t.shape[0] != count:
            raise ValueError("ragged_all_to_all offsets and sizes must be integers of one shape "
                             f"(K,), but {name} is {t.str_short()}")
    if not count or count % size:
        raise ValueError(f"ragged_all_to_all input_offsets size {count} must be divisible by the "
                         f"size of the axis {size}")

    def gathered(x: Any) -> Any:
        return all_gather(x, axes, axis_index_groups=axis_index_groups)

    def received(x: Any) -> Any:
        """What each device tells this one about the slices that it sends: [n * K / n]."""
        x = convert_element_type_p.bind(x, new_dtype=np.dtype(np.int32), weak_type=False,
                                        sharding=None)
        return all_to_all(x, axes, 0, 0, tiled=True, axis_index_groups=axis_index_groups)

    starts, lengths, targets = map(received, (input_offsets, send_sizes, output_offsets))
    shape = typeof(output).shape
    row = broadcasted_iota(np.int32, (shape[0], count), 0)
    source = broadcasted_iota(np.int32, (shape[0], count), 1)
    source = div(source, full_like(source, count // size))
    starts, lengths, targets = (broadcast_in_dim_p.bind(
        x, shape=(shape[0], count), broadcast_dimensions=(1,), sharding=None)
        for x in (starts, lengths, targets))
    within = sub(row, targets)
    hit = bitwise_and(ge(within, full_like(within, 0)), lt(within, lengths))
    place = add_p.bind(mul_p.bind(source, full_like(source, rows)), add_p.bind(starts, within))
    place = reduce_max(select_n_p.bind(hit, full_like(place, 0), place), (1,))
    written = reduce_or(hit, (1,))
    everything = gathered(operand)
    everything = reshape(everything, (size * rows, *typeof(operand).shape[1:]))
    found = index_take(everything, (place,), (0,))
    found = reshape(found, shape)
    written = broadcast_in_dim_p.bind(written, shape=shape, broadcast_dimensions=(0,),
                                      sharding=None)
    return select_n_p.bind(written, as_varying(output, axes), found)
