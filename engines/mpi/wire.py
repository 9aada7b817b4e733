"""Carries the messages between the devices of different ranks."""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...arrays.processes.coordinator import Call
from ...arrays.processes.deadlocks import ProcessStatus, waiting
from ...ir.meshes.mesh import AbstractMesh
from ...ir.program import Equation, Program
from ...runtime.per_device.executor import PerDeviceRun
from ...runtime.per_device.wire import Arrived, Arriving, Pair, Sent, Wanted
from .link import Link
from .values import data_of

_TAGS = 1 << 14


class RankRun(PerDeviceRun):
    """A LOCAL program, of which this rank runs the devices that it owns.

    ranks: the rank of each device, in mesh order. Ranks exchange on a communicator of their own for
    each set of mesh axes: those that have devices in the same replica groups.
    """

    def __init__(self, link: Link, local: Program, mesh: AbstractMesh, ranks: Sequence[int]
                 ) -> None:
        super().__init__(local, mesh, [d for d, r in enumerate(ranks) if r == link.rank],
                         self.connected)
        self.link, self.ranks = link, ranks
        self.everybody = tuple(sorted(set(ranks)))
        self.numbers: dict[Equation, int] = {}
        self.partners: dict[tuple[str, ...], tuple[int, ...]] = {}
        self.runs = 0
        self.times: dict[Equation, int] = {}         # how often each has exchanged, in this run
        self.moment = ""
        self.call: Call | None = None
        self.agreed: Callable[[], None] = lambda: None
        operands = 0
        for eqn in local.walk():
            self.numbers.setdefault(eqn, operands)
            operands += max(1, len(eqn.invars))
            if eqn.op.collective is not None:
                if eqn.axes not in self.partners:
                    self.partners[eqn.axes] = self._connected_ranks(eqn.axes)

    def _connected_ranks(self, names: tuple[str, ...]) -> tuple[int, ...]:
        """The ranks that this one exchanges with along these axes, directly or through others."""
        groups = [{self.ranks[d] for d in group} for group in self.groups(names)]
        found = {self.link.rank}
        while True:
            more = found.union(*[g for g in groups if g & found])
            if more == found:
                return tuple(sorted(found))
            found = more

    def connect(self) -> None:
        """Make the communicators. All ranks of the program call this."""
        for ranks in (self.everybody, *self.partners.values()):
            if self.link.rank in self.everybody:
                self.link.communicator(ranks)

    def run_together(self, call: Call, blocks: Callable[[], Sequence[list[Any]]]) -> list[list]:
        """Results for these blocks. The ranks compare what they run before they first exchange."""
        self.runs += 1
        self.moment = f"{call.digest} {self.runs}"
        self.call, self.agreed = call, self.link.agree(call, self.moment)
        self.times.clear()
        try:
            results = self.on_blocks(blocks())
        except Exception as problem:
            if self.link.status.broken is None:
                self.link.stop(problem, self.moment)
            raise
        self.agreed()
        return results

    def connected(self, eqn: Equation, number: int, itemsize: int) -> RankWire:
        return RankWire(self, eqn, number, itemsize)


class RankWire:
    """A wire between ranks, for one operand of an equation. All that one rank sends to another in a
    round is one message of bytes.
    """

    __slots__ = ("comm", "eqn", "itemsize", "members", "place", "received", "rounds", "run", "tag")

    def __init__(self, run: RankRun, eqn: Equation, number: int, itemsize: int) -> None:
        self.run, self.eqn, self.itemsize = run, eqn, itemsize
        run.times[eqn] = run.times.get(eqn, 0) + 1
        self.place, self.rounds = f"{run.moment} {run.numbers[eqn]} {run.times[eqn]}", 0
        self.tag = (run.numbers[eqn] + number) % _TAGS
        self.received = np.zeros(len(run.ranks), np.int64)
        self.members = (run.everybody if eqn.op.collective is None
                        else run.partners[eqn.axes])
        self.comm: Any = None

    def begin(self, sent: Sent, wanted: Wanted, dtype: np.dtype) -> Arriving:
        """Send and receive without waiting: one message to and from each other rank. Returns a
        function that gives what arrived, or None if it need not wait and something is missing.
        """
        run, link = self.run, self.run.link
        run.agreed()
        if self.comm is None:
            self.comm = link.communicator(self.members)
        me, ranks = link.rank, run.ranks
        outgoing: dict[int, list[np.ndarray]] = {}
        for source, to in sorted(sent):
            if ranks[to] != me:
                outgoing.setdefault(ranks[to], []).extend(sent[source, to])
        incoming: dict[int, list[Pair]] = {}
        sizes: dict[int, int] = {}
        for source, to in sorted(wanted):
            rank = ranks[source]
            if rank != me:
                incoming.setdefault(rank, []).append((source, to))
                sizes[rank] = sizes.get(rank, 0) + sum([
                    math.prod(shape) * (its or dtype).itemsize
                    for shape, its in wanted[source, to]])
        number = self.members.index
        buffers = {r: np.empty(n, np.uint8) for r, n in sizes.items()}
        requests = []
        for r, buffer in buffers.items():
            requests += link.receive(self.comm, buffer, number(r), r, self.tag)
        for r, arrays in outgoing.items():
            data = [data_of(a) for a in arrays]
            requests += link.send(self.comm, data[0] if len(data) == 1 else np.concatenate(data),
                                  number(r), r, self.tag)
        self.rounds += 1
        place = f"{self.place} {self.rounds}"

        def arriving(wait: bool) -> Arrived | None:
            if wait:
                assert run.call is not None
                link.wait(requests, self._status, place,
                          f"`{self.eqn.op.name}` of {run.call.what}", self.eqn.location)
            elif not link.done(requests):
                return None
            return self._arrived(sent, wanted, dtype, incoming, buffers)

        return arriving

    def _arrived(self, sent: Sent, wanted: Wanted, dtype: np.dtype,
                 incoming: dict[int, list[Pair]], buffers: dict[int, np.ndarray]) -> Arrived:
        """Messages, of the bytes that came from each rank and of what devices here sent."""
        arrived: Arrived = {pair: sent[pair] for pair in wanted if pair in sent}
        for r, pairs in incoming.items():
            at = 0
            for pair in pairs:
                found = arrived[pair] = []
                for shape, its in wanted[pair]:
                    kind = its or dtype
                    size = math.prod(shape) * kind.itemsize
                    piece = buffers[r][at:at + size]
                    at += size
                    found.append((piece if piece.ctypes.data % kind.alignment == 0
                                  else piece.copy()).view(kind).reshape(shape))
        for (source, to), arrays in arrived.items():
            if source != to:
                self.received[to] += sum([a.size for a in arrays]) * self.itemsize
        return arrived

    def _status(self, missing: set[int]) -> ProcessStatus:
        """Where this rank waits, for these."""
        run = self.run
        assert run.call is not None
        here = waiting(Call(f"`{self.eqn.op.name}` of {run.call.what}", (), (),
                            self.eqn.location))
        return here._replace(processes=tuple(sorted({*missing, run.link.rank})))
