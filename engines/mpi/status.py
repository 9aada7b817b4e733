"""Status messages between ranks, for deadlock detection: who waits where, has ended, or has raised.

A waiting rank reports twice a second. Its wait is futile if a rank that it waits for has ended or
raised. It is also futile if all ranks that it waits for, directly or through others, were seen
waiting at the same moment, and none of them waits at the place of one of its peers: a message
between ranks at the same place may still be on its way.
"""
from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...arrays.processes.deadlocks import ProcessStatus, State, places, reason
from ...ir.support.lazy import lazy_import

MPI = lazy_import("mpi4py.MPI")
json = lazy_import("json")

LOOK = 0.05            # seconds between looks at what others say
TELL = 0.5             # seconds until a rank that waits says so, and until it says so again
SILENT = 4 * TELL      # after which one that has sent nothing computes
STILL = 2 * LOOK       # for which a status must hold: messages may be on their way


class _Heard:
    """A rank's last report. place: compared, of those that wait. peers: whom it waits for. since:
    its first such report. failed: that it raised in a program, and where, whatever came then."""

    __slots__ = ("failed", "last", "peers", "place", "since", "status", "token")

    def __init__(self, status: ProcessStatus, token: int, place: str, peers: Iterable[int]) -> None:
        self.status, self.token, self.place, self.peers = status, token, place, set(peers)
        self.since = self.last = time.monotonic()
        self.failed = (place, status) if place and status.state is State.FAILED else None

    def failed_at(self, place: str) -> bool:
        """Whether it raised in the program that this is a place of."""
        return self.failed is not None and place.startswith(self.failed[0])


class RankStatus:
    """What this rank reports to the others, and what it knows of them.

    now: where this rank waits. broken: why the ranks cannot go on, and where each of them is.
    speaks: whether it is this rank that says so.
    """

    def __init__(self, world: Any) -> None:
        self.rank, self.size = world.rank, world.size
        self.comm = world.Dup()
        self.heard: list[_Heard | None] = [None] * self.size
        self.token = 0
        self.now: ProcessStatus | None = None
        self.broken: tuple[str, tuple[str, ...]] | None = None
        self.speaks = True
        self._sent: list[Any] = []

    def waits(self, status: ProcessStatus) -> None:
        """Note that this rank waits here."""
        self.token += self.now is None
        self.now = status

    def report(self, status: ProcessStatus, place: str = "", peers: Iterable[int] = (),
             broken: Any = None) -> None:
        """Tell all others where this rank is."""
        text = json.dumps([status._replace(state=status.state.name, parts=()), self.token,
                           place, sorted(peers), broken]).encode()
        data = np.frombuffer(text, np.uint8)
        self._sent = [(r, kept) for r, kept in self._sent if not r.Test()]
        self._sent += [(self.comm.Isend([data, MPI.BYTE], r), data)
                       for r in range(self.size) if r != self.rank]

    def hear(self) -> None:
        """Receive the status of other ranks."""
        status = MPI.Status()
        while self.comm.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG, status):
            data = np.empty(status.Get_count(MPI.BYTE), np.uint8)
            self.comm.Recv([data, MPI.BYTE], status.source, status.tag)
            received, token, place, peers, broken = json.loads(data.tobytes())
            known = self.heard[status.source]
            new = _Heard(read(received), token, place, peers)
            if known is not None:
                new.failed = new.failed or known.failed
                if known.token == token and known.peers == new.peers:
                    new.since = known.since
            self.heard[status.source] = new
            if broken is not None and self.broken is None:
                why, where, speaker = broken
                self.broken, self.speaks = (why, tuple(where)), speaker == self.rank

    def in_vain(self, missing: Iterable[int], place: str, began: float) -> bool:
        """Is the wait futile that this rank began at this place at that time, for the ranks that
        are missing?
        """
        now = time.monotonic()
        first, last = began, now                      # within which all waited
        seen: set[int] = set()
        edges = [(place, p) for p in missing]
        while edges:
            its, p = edges.pop()
            if p == self.rank:
                if its == place:
                    return False
                continue
            heard = self.heard[p]
            if heard is None:
                return False
            if heard.failed_at(its) or not heard.place and heard.status.state in (
                    State.ENDED, State.FAILED):
                return now - heard.last > STILL
            if heard.status.state is not State.WAITING or now - heard.last > SILENT or (
                    heard.place == its):
                return False
            if p not in seen:
                seen.add(p)
                first, last = max(first, heard.since), min(last, heard.last)
                edges += [(heard.place, q) for q in heard.peers]
        return last - first > STILL

    def status(self, rank: int, place: str = "") -> ProcessStatus:
        """Where a rank is, for one that waits at this place."""
        if rank == self.rank:
            return self.now or ProcessStatus(State.RUNNING)
        heard = self.heard[rank]
        if heard is not None and heard.failed is not None and heard.failed_at(place):
            return heard.failed[1]
        if heard is None or heard.status.state is State.WAITING and (
                time.monotonic() - heard.last > SILENT):
            return ProcessStatus(State.RUNNING)
        return heard.status

    def statuses(self, place: str = "") -> list[ProcessStatus]:
        return [self.status(i, place) for i in range(self.size)]

    def give_up(self, place: str, missing: Iterable[int]) -> None:
        """This rank waits in vain: collect where the others are, and end all."""
        assert self.now is not None
        self.report(self.now, place, missing)
        until = time.monotonic() + 2 * TELL
        while time.monotonic() < until and self.broken is None and any(
                self.status(i).state is State.RUNNING for i in range(self.size)
                if i != self.rank):
            time.sleep(LOOK)
            self.hear()
        found = self.statuses(place)
        self.end_all(found, min(i for i, s in enumerate(found) if s.state is State.WAITING))

    def end_all(self, statuses: Sequence[ProcessStatus], speaker: int) -> None:
        """Let all that wait end, and one of them say why."""
        if self.broken is None:
            self.broken = reason(statuses), places(statuses)
            self.speaks = speaker == self.rank
            self.report(self.now or ProcessStatus(State.RUNNING), broken=[*self.broken, speaker])

    def wait_for_ends(self, seconds: float = float("inf")) -> None:
        """Return when all others have ended, or when so long has passed."""
        until = time.monotonic() + seconds
        nap = 1e-4
        while time.monotonic() < until:
            self.hear()
            if all(h is not None and h.status.state in (State.ENDED, State.FAILED)
                   for i, h in enumerate(self.heard) if i != self.rank):
                break
            time.sleep(nap)
            nap = min(2 * nap, LOOK)


def read(received: Sequence[Any]) -> ProcessStatus:
    """A status from its JSON."""
    state, what, parts, processes, where, said = received
    return ProcessStatus(State[state], what, tuple([(a, b) for a, b in parts]), tuple(processes),
                         where, said)
