"""Loops, branches and host callbacks in the per-device executor.

Devices run in lockstep, and may take different branches; those that are inactive hold no values
(None). A collective that only part of its group reaches, which would wait for ever, is an error.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arrays.axes import linear_index
from ...arrays.storage import Buffers
from ...ir.kernels.key_data import storage_dtype
from ...ir.ops.control.loop_operands import scan_operands, while_operands
from ...ir.program import Equation
from ..callbacks import HostCall
from . import exchanges
from .wire import Flight


def run_scan(executor: Any, eqn: Equation, operands: Sequence[Buffers]) -> list[Buffers]:
    """Run the body for each item on all active devices, and stack what it gives."""
    params = eqn.params
    parts, length = scan_operands(params), params["length"]
    consts, carry, xs = parts.split(operands)
    stacked = parts.results(eqn.outvars)[1]
    stacks: list[list[Buffers]] = [[] for _ in stacked]
    for i in range(length - 1, -1, -1) if params["reverse"] else range(length):
        items = [[None if b is None else np.array(b[i]) for b in x] for x in xs]
        carry, new = parts.results(executor.run(params["jaxpr"], [*consts, *carry, *items]))
        for held, y in zip(stacks, new, strict=True):
            held.append(y)
    ys = []
    for held, var in zip(stacks, stacked, strict=True):
        if params["reverse"]:
            held.reverse()
        ys.append([_stacked([y[d] for y in held], var.aval) if d in executor.active else None
                   for d in range(len(executor.coordinates))])
    return [*carry, *ys]


def _stacked(blocks: list[np.ndarray], aval: Any) -> np.ndarray:
    return np.stack(blocks) if blocks else np.zeros(aval.shape, storage_dtype(aval.dtype))


def run_while(executor: Any, eqn: Equation, operands: Sequence[Buffers]) -> list[Buffers]:
    """Run the body on the devices whose condition holds, until it holds on none."""
    params = eqn.params
    of_test, of_body, carry = while_operands(params).split(operands)
    outer = executor.active, executor.splits
    try:
        while executor.active:
            (going,) = executor.run(params["cond_jaxpr"], [*of_test, *carry])
            _activate(executor, eqn, [d for d in executor.active if going[d]])
            if not executor.active:
                break
            new = executor.run(params["body_jaxpr"], [*of_body, *carry])
            # New lists: a value that the body returns unchanged comes back in the list it was in.
            carry = [[some[d] if d in executor.active else old[d] for d in range(len(old))]
                     for old, some in zip(carry, new, strict=True)]
    finally:
        executor.active, executor.splits = outer
    return list(carry)


def run_cond(executor: Any, eqn: Equation, operands: Sequence[Buffers]) -> list[Buffers]:
    """Run each branch on the devices that choose it."""
    branches = eqn.params["branches"]
    results: list[Buffers] = [[None] * len(executor.coordinates) for _ in eqn.outvars]
    chosen = {d: min(max(int(operands[0][d]), 0), len(branches) - 1) for d in executor.active}
    outer = executor.active, executor.splits
    try:
        for i, branch in enumerate(branches):
            executor.active, executor.splits = outer
            _activate(executor, eqn, [d for d in outer[0] if chosen[d] == i])
            new = executor.run(branch, operands[1:]) if executor.active else ()
            for held, some in zip(results, new, strict=False):
                for d in executor.active:
                    held[d] = some[d]
    finally:
        executor.active, executor.splits = outer
    return results


def _activate(executor: Any, eqn: Equation, devices: list[int]) -> None:
    """Make these the active devices, and remember which predicate parted them from the others."""
    if len(devices) != len(executor.active):
        executor.active = dict.fromkeys(devices)
        executor.splits = eqn


CONTROL = {"scan": run_scan, "while": run_while, "cond": run_cond}


# -- calls of host functions -----------------------------------------------------------------------

def run_callback(executor: Any, eqn: Equation, operands: Sequence[Buffers]) -> list[Buffers]:
    """Call the function once for each place along the axes, with the blocks of its first active
    device; the other devices of the place get its results.
    """
    places = [linear_index(executor.mesh, eqn.axes, at) for at in executor.coordinates]
    call = HostCall(eqn)
    types = [(v.aval.shape, storage_dtype(v.aval.dtype)) for v in eqn.outvars]
    results: list[Buffers] = [[None] * len(executor.coordinates) for _ in eqn.outvars]
    moves = []
    done: set[int] = set()
    for d in executor.active:
        if d in done:
            continue
        place = [i for i, at in enumerate(places) if at == places[d] and (
            i in executor.active or i not in executor.own)]
        values: dict[int, list[np.ndarray]] = {i: [] for i in place if i in executor.active}
        done.update(values)
        if place[0] in values:
            values[place[0]] = call([x[place[0]] for x in operands])
        if types:
            moves.append(exchanges.from_first(place, values, types))
    flight = Flight(executor.wire(eqn, 0, 0), moves, np.dtype(np.uint8))
    flight.advance(True)
    for d, values in flight.results.items():
        for held, value in zip(results, values, strict=True):
            held[d] = value
    return results
