"""Global arrays put together from what the processes hold of them.

A process holds the blocks of its own devices (`LocalBlocks`), or a whole value of which only these
blocks count (`Stored`): a host value that it gives to a program as replicated, or the result of a
program of all processes, which they share. What is the same everywhere is taken as it is; replicas
that differ stay different, as they would on devices.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..storage import LocalBlocks, Storage, Stored, assemble, block_of
from .coordinator import GlobalValue, Slot


def merge(held: Mapping[int, GlobalValue]) -> Stored:
    """The whole value of an array of which each process (by number) holds its blocks."""
    values = list(held.values())
    first = values[0]
    stored = [v.storage for v in values if isinstance(v.storage, Stored)]
    if len(stored) == len(values) and all(same_value(stored[0], s) for s in stored[1:]):
        return stored[0]
    slot = first.slot
    blocks = {d: _block(held[d.process_index].storage, slot, d)
              for d in slot.sharding.device_assignment}
    return assemble(blocks, slot.sharding, slot.shape, slot.dtype)


def _block(storage: Storage, slot: Slot, device) -> np.ndarray:
    if isinstance(storage, LocalBlocks):
        return storage.blocks[device]
    return block_of(storage, slot.sharding, slot.shape, device)


def same_value(a: Stored, b: Stored) -> bool:
    """Whether two whole values are equal, bit for bit."""
    if a is b:
        return True
    x, y = a.data, b.data
    if a.lead != b.lead or x.shape != y.shape or x.dtype != y.dtype:
        return False
    if x.__array_interface__["data"][0] == y.__array_interface__["data"][0] \
            and x.strides == y.strides:
        return True
    if x.size == 0:
        return True
    # a look at the first element first: what differs most often differs there
    at = (0,) * x.ndim
    return x[at].tobytes() == y[at].tobytes() and x.tobytes() == y.tobytes()


def by_process(values: Sequence[Sequence[GlobalValue]], processes: Sequence[int]
               ) -> list[dict[int, GlobalValue]]:
    """For each array what every process holds of it, from what each process gave."""
    return [dict(zip(processes, held, strict=True)) for held in zip(*values, strict=True)]
