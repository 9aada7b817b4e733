"""Calls of host functions in the per-device executor."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.kernels.key_data import storage_dtype
from ...ir.program import Equation
from ..callbacks import HostCall
from ..device_blocks import Buffers
from . import exchanges
from .wire import Flight


def run_callback(executor: Any, eqn: Equation, operands: Sequence[Buffers]) -> list[Buffers]:
    """Call for each place along the axes, with the blocks of its first device that is at work. The
    others of the place get its results."""
    axes = eqn.params.get("axes", ())
    call = HostCall(eqn)
    types = [(v.aval.shape, storage_dtype(v.aval.dtype)) for v in eqn.outvars]
    results: list[Buffers] = [[None] * len(executor.coordinates) for _ in eqn.outvars]
    moves = []
    done: set[int] = set()
    for d in executor.active:
        if d in done:
            continue
        place = [i for i in executor.same_place(axes, d)
                 if i in executor.active or i not in executor.own]
        values: dict[int, list[np.ndarray]] = {i: [] for i in place if i in executor.active}
        done.update(values)
        if place[0] in values:
            values[place[0]] = call([x[place[0]] for x in operands])
        if types:
            moves.append(exchanges.handed_on(place, values, types))
    flight = Flight(executor.wire(eqn, 0), moves, np.dtype(np.uint8))
    flight.advance(True)
    for d, values in flight.results.items():
        for held, value in zip(results, values, strict=True):
            held[d] = value
    return results
