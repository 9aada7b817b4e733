"""Coordination between the processes of a program that are ranks of an MPI job."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arrays.processes.coordinator import (
    Call,
    Coordinator,
    GlobalProgram,
    GlobalValue,
    own_block,
)
from ...arrays.storage import (
    DeviceBlocks,
    LocalBlocks,
    Shape,
    Storage,
    Stored,
    assemble,
    block_index,
    filled,
    frozen,
)
from ...ir.meshes.device import Device
from ...ir.meshes.process import ProcessIdentity
from ...ir.shardings.sharding import Sharding
from ...ir.support.caches import cached
from ...ir.support.lazy import lazy_import
from ...ir.types import ArrayType
from .link import Link
from .values import data_of, decode, encode
from .wire import RankRun

hashlib = lazy_import("hashlib")


class RankCoordinator(Coordinator):
    """The coordinator of a process that is a rank."""

    def __init__(self, link: Link, identity: ProcessIdentity) -> None:
        self.link, self.identity = link, identity

    def all_gather(self, call: Call, value: Any) -> list[Any]:
        link = self.link
        with link.lock:
            link.agree(call)()
            found = link.swap(call.processes, encode(value), call)
        return [value if r == link.rank else decode(data)
                for r, data in zip(call.processes, found, strict=True)]

    def same(self, call: Call, data: np.ndarray) -> np.ndarray | None:
        digest = hashlib.sha256(data_of(data)).hexdigest()
        return data if set(self.all_gather(call, digest)) == {digest} else None

    def whole(self, call: Call, values: Sequence[GlobalValue]) -> list[Stored]:
        """Values of which each rank has the blocks of its devices, put together on every rank."""
        own_blocks = [[own_block(v, d) for d in v.slot.sharding.device_assignment
                      if d.process_index == self.link.rank] for v in values]
        given = dict(zip(call.processes, self.all_gather(call, own_blocks), strict=True))
        out = []
        for i, (_, slot) in enumerate(values):
            turn = {r: iter(blocks[i]) for r, blocks in given.items()}
            blocks = {d: next(turn[d.process_index]) for d in slot.sharding.device_assignment}
            out.append(assemble(blocks, slot.sharding, slot.shape, slot.dtype))
        return out

    def run(self, call: Call, program: GlobalProgram, arguments: Sequence[GlobalValue]
            ) -> Sequence[Storage]:
        with self.link.lock:
            return self._run(call, program, arguments)

    def _run(self, call: Call, program: GlobalProgram, arguments: Sequence[GlobalValue]
             ) -> Sequence[Storage]:
        """Run a program on this rank's devices: arguments as blocks, messages between ranks, and
        results as stored values.
        """
        local, devices = program.local, program.devices
        key = "ranks", program.mesh, devices
        run = local.memo.get(key)
        if run is None:
            self.link.agree(call)()                   # so that all make communicators
            run = local.memo[key] = RankRun(self.link, local, program.mesh,
                                            [d.process_index for d in devices])
            run.connect()
        results = run.run_together(
            call, lambda: [self._blocks(run, call, value, t, v.aval, devices) for value, t, v in
                           zip(arguments, local.global_in, local.invars, strict=True)])
        return [self._cut(run, blocks, t, v.aval, devices) for blocks, t, v in
                zip(results, local.global_out, local.outvars, strict=True)]

    def _blocks(self, run: RankRun, call: Call, value: GlobalValue, t: ArrayType, local: ArrayType,
                devices: Sequence[Device]) -> list[Any]:
        """The blocks of an argument, as its program has them on the devices of this rank."""
        slot = value.slot
        shape = local.shape
        found: list[Any] = [None] * len(devices)
        if _lies_so(slot.sharding, slot.shape, run.mesh, t, local, tuple(devices)):
            for d in run.own:
                found[d] = filled(own_block(value, devices[d]), shape)
            return found
        (whole,) = self.whole(call, [value])
        everything = run.scatter(whole, t, local)
        for d in run.own:
            found[d] = everything[d]
        return found

    def _cut(self, run: RankRun, blocks: Sequence[Any], t: ArrayType, local: ArrayType,
             devices: Sequence[Device]) -> LocalBlocks:
        """A result of the program as the blocks of its array: without what pads them."""
        held = {}
        for d in run.own:
            where = _inside(run.slices(t.entries, local.shape, run.coordinates[d]), t.shape)
            block = blocks[d][tuple([slice(0, hi - lo) for lo, hi in where])]
            held[devices[d]] = frozen(block)
        return LocalBlocks(held)


def _inside(where: Sequence[slice], shape: Shape) -> list[tuple[int, int]]:
    """First and last row of a block along each dimension, without those beyond the end."""
    return [s.indices(n)[:2] for s, n in zip(where, shape, strict=True)]


@cached(1024, "which arguments lie as their programs want them")
def _lies_so(sharding: Sharding, shape: Shape, mesh: Any, t: ArrayType, local: ArrayType,
             devices: tuple[Device, ...]) -> bool:
    blocks = DeviceBlocks(mesh)
    index = block_index(sharding, shape)
    return all(d in index and _inside(index[d], shape) == _inside(
        blocks.slices(t.entries, local.shape, at), shape)
        for d, at in zip(devices, blocks.coordinates, strict=True))
