"""What a rank has of the others: bytes both ways, and who waits where.

Nothing here blocks inside of MPI: a rank that waits looks at its requests, lets others have the
processor, and tells now and then where it waits. A wait that cannot end is found by what the others
say: one that is waited for has ended or raised; or all that are waited for, directly or through
others, wait themselves, and no two of them for each other at the same place. For a rank that says
nothing, since it computes, there is a time to wait. Then all that wait raise ProcessMismatchError,
which says who waits where; a rank that ends by an exception takes the job with it.
"""
from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ir.diagnostics.errors import ProcessMismatchError
from ...ir.diagnostics.extras import need
from ...ir.diagnostics.location import Location
from ...ir.support.lazy import lazy_import
from ...runtime.processes.coordinator import Call
from ...runtime.processes.standing import (
    Standing,
    State,
    mismatch,
    named,
    places,
    raised,
    reason,
    waiting,
)

MPI = lazy_import("mpi4py.MPI")
json = lazy_import("json")

SPINS = 200            # looks at the requests before the first nap
NAP = 1e-4             # seconds
LOOK = 0.05            # seconds between looks at what others say
TELL = 0.5             # seconds until a rank that waits says so, and until it says so again
SILENT = 4 * TELL      # after which one that has said nothing computes
LINGER = 3.0           # seconds for others to say why they end
PIECE = 1 << 30        # bytes of a message

_CALL, _VALUE = 1, 2                        # tags


class _Heard:
    """What a rank said last. place: compared, of those that wait. peers: whom it waits for. since:
    when it first said so. failed: that it raised in a program, and where, whatever came then."""

    __slots__ = ("failed", "last", "peers", "place", "since", "standing", "token")

    def __init__(self, standing: Standing, token: int, place: str, peers: Sequence[int]) -> None:
        self.standing, self.token, self.place, self.peers = standing, token, place, set(peers)
        self.since = self.last = time.monotonic()
        self.failed = (place, standing) if place and standing.state is State.FAILED else None

    def failed_at(self, place: str) -> bool:
        """Whether it raised in the program that this is a place of."""
        return self.failed is not None and place.startswith(self.failed[0])


class Link:
    """This rank of an MPI job, and the others.

    patience: seconds to wait for a rank that does not say that it waits. broken: why the ranks
    cannot go on, and where each of them is.
    """

    def __init__(self) -> None:
        need("mpi4py", "mpi", "the mpi engine")
        world = MPI.COMM_WORLD
        self.rank, self.size = world.rank, world.size
        self.patience = 100.0
        self.calls, self.news = world.Dup(), world.Dup()
        self.groups: dict[tuple[int, ...], Any] = {}
        self.heard: list[_Heard | None] = [None] * self.size
        self.token = 0
        self.now: Standing | None = None            # where this rank waits
        self.broken: tuple[str, tuple[str, ...]] | None = None
        self.speaks = True                         # whether it is this rank that says why
        self.told: list[Any] = []
        self.lock = threading.RLock()
        self.failed = False
        self._hook = sys.excepthook
        if self.size > 1:
            sys.excepthook = self._fail
            atexit.register(self._end)
            threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
            if threading.current_thread() is threading.main_thread() and signal.getsignal(
                    signal.SIGTERM) is signal.SIG_DFL:
                signal.signal(signal.SIGTERM, self._terminated)

    # -- bytes ---------------------------------------------------------------------------------
    def communicator(self, ranks: tuple[int, ...]) -> Any:
        """The communicator of these ranks, which all of them ask for in the same order."""
        found = self.groups.get(ranks)
        if found is None:
            whole = self.calls.Get_group()
            found = self.groups[ranks] = self.calls.Create_group(whole.Incl(list(ranks)))
        return found

    def swap(self, ranks: Sequence[int], data: bytes, call: Call, tag: int = _VALUE
             ) -> list[np.ndarray]:
        """What each of these ranks gives, in their order."""
        mine = np.frombuffer(data, np.uint8)
        sizes = {r: np.empty(1, np.int64) for r in ranks}
        length = np.array([len(mine)], np.int64)
        others = [r for r in ranks if r != self.rank]
        self.wait([(self.calls.Irecv([sizes[r], MPI.BYTE], r, tag), r) for r in others] +
                  [(self.calls.Isend([length, MPI.BYTE], r, tag), r) for r in others],
                  lambda _: waiting(call), f"{call.digest} sizes", call.what, call.location)
        found = {r: np.empty(int(sizes[r][0]), np.uint8) for r in others}
        found[self.rank] = mine
        requests = []
        for r in others:
            requests += self.receive(self.calls, found[r], r, r, tag)
            requests += self.send(self.calls, mine, r, r, tag)
        self.wait(requests, lambda _: waiting(call), f"{call.digest} values", call.what,
                  call.location)
        return [found[r] for r in ranks]

    def send(self, comm: Any, data: np.ndarray, to: int, rank: int, tag: int
             ) -> list[tuple[Any, int]]:
        """Requests, with the rank that they wait for. to: the rank's number in `comm`."""
        return [(comm.Isend([data[i:i + PIECE], MPI.BYTE], to, tag), rank)
                for i in range(0, len(data), PIECE)]

    def receive(self, comm: Any, into: np.ndarray, source: int, rank: int, tag: int
                ) -> list[tuple[Any, int]]:
        return [(comm.Irecv([into[i:i + PIECE], MPI.BYTE], source, tag), rank)
                for i in range(0, len(into), PIECE)]

    # -- agreement -----------------------------------------------------------------------------
    def agree(self, call: Call, place: str = "") -> Callable[[], None]:
        """Begin to compare a call with those of the other processes; a function that ends it.

        place: where that is, by default the call. Raises ProcessMismatchError where they do not
        make the same.
        """
        self.check(call)
        mine = np.frombuffer(bytes.fromhex(call.digest), np.uint8)
        theirs = {r: np.empty_like(mine) for r in call.processes if r != self.rank}
        requests = [(self.calls.Irecv([x, MPI.BYTE], r, _CALL), r) for r, x in theirs.items()]
        requests += [(self.calls.Isend([mine, MPI.BYTE], r, _CALL), r) for r in theirs]

        def end() -> None:
            if not requests:
                return
            self.wait(requests, lambda _: waiting(call), place or call.digest, call.what,
                      call.location)
            requests.clear()
            if any(x.tobytes() != mine.tobytes() for x in theirs.values()):
                self._compare(call)

        return end

    def _compare(self, call: Call) -> None:
        """Raise the error for calls that differ: all of the group come here."""
        texts = self.swap(call.processes, json.dumps(waiting(call)._replace(
            state=State.WAITING.name)).encode(), call)
        standings = [self._standing(i) for i in range(self.size)]
        for r, text in zip(call.processes, texts, strict=True):
            standings[r] = _standing(json.loads(text.tobytes()))
        self._break(standings, min(call.processes))
        self.check(call)

    def check(self, call: Call) -> None:
        """Raise ProcessMismatchError where the ranks cannot go on."""
        self._hear()
        if self.broken is not None:
            raise mismatch(call.what, call.location, *self.broken)

    # -- waiting -------------------------------------------------------------------------------
    def wait(self, requests: Sequence[tuple[Any, int]], standing: Callable[[set[int]], Standing],
             place: str, what: str, location: Location) -> None:
        """Return when all requests are done. standing: where this rank then is, given whom it
        waits for. Raises ProcessMismatchError if that cannot be."""
        peers = [rank for _, rank in requests]
        pending = [request for request, _ in requests]
        left = len(pending)
        began = looked = told = 0.0
        spins = 0
        try:
            while left:
                done = MPI.Request.Testsome(pending)
                if done:
                    left -= len(done)
                    for i in done:
                        peers[i] = -1
                    continue
                spins += 1
                if spins < SPINS:
                    os.sched_yield()
                    continue
                time.sleep(NAP)
                now = time.monotonic()
                began = began or now
                if now - looked < LOOK:
                    continue
                looked = now
                missing = {p for p in peers if p >= 0}
                if self.now is None:
                    self.token += 1
                self.now = standing(missing)
                self._hear()
                if self.broken is None and now - began > TELL and now - told > TELL:
                    told = now
                    self._tell(self.now, place, missing)
                if self.broken is None and (self._in_vain(missing, place) or
                                            now - began > self.patience):
                    self._tell(self.now, place, missing)
                    self._gather_news()
                    found = [self._standing(i, place) for i in range(self.size)]
                    speaker = min(i for i, s in enumerate(found) if s.state is State.WAITING)
                    self._break(found, speaker)
                if self.broken is not None:
                    raise mismatch(what, location, *self.broken)
        finally:
            self.now = None

    def done(self, requests: Sequence[tuple[Any, int]]) -> bool:
        """Whether all requests are done; waits for none."""
        return MPI.Request.Testall([request for request, _ in requests])

    def _in_vain(self, missing: set[int], place: str) -> bool:
        """Can none of those that this rank waits for come?"""
        now = time.monotonic()
        seen = {self.rank}
        edges = [(self.rank, place, p) for p in missing]
        while edges:
            source, its, p = edges.pop()
            heard = None if p == self.rank else self.heard[p]
            if p != self.rank:
                if heard is None:
                    return False
                if heard.failed_at(its):
                    return True
                if heard.standing.state in (State.ENDED, State.FAILED):
                    return not heard.place
                if heard.standing.state is State.RUNNING:
                    return False
                if now - heard.last > SILENT or now - heard.since < 2 * LOOK:
                    return False
                if heard.place == its and source in heard.peers:
                    return False                      # on its way
            if p in seen:
                continue
            seen.add(p)
            assert heard is not None
            edges += [(p, heard.place, q) for q in heard.peers]
        return True

    # -- what the ranks say --------------------------------------------------------------------
    def _tell(self, standing: Standing, place: str = "", peers: Sequence[int] | set[int] = (),
              broken: Any = None) -> None:
        """Tell all others where this rank is."""
        text = json.dumps([standing._replace(state=standing.state.name, parts=()), self.token,
                           place, sorted(peers), broken]).encode()
        data = np.frombuffer(text, np.uint8)
        self.told = [(r, kept) for r, kept in self.told if not r.Test()]
        self.told += [(self.news.Isend([data, MPI.BYTE], r), data)
                      for r in range(self.size) if r != self.rank]

    def _hear(self) -> None:
        """Take what others have told."""
        status = MPI.Status()
        while self.news.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG, status):
            data = np.empty(status.Get_count(MPI.BYTE), np.uint8)
            self.news.Recv([data, MPI.BYTE], status.source, status.tag)
            told, token, place, peers, broken = json.loads(data.tobytes())
            known = self.heard[status.source]
            new = _Heard(_standing(told), token, place, peers)
            if known is not None:
                new.failed = new.failed or known.failed
                if known.token == token and known.peers == new.peers:
                    new.since = known.since
            self.heard[status.source] = new
            if broken is not None and self.broken is None:
                why, where, speaker = broken
                self.broken, self.speaks = (why, tuple(where)), speaker == self.rank

    def _standing(self, rank: int, place: str = "") -> Standing:
        """Where a rank is, for one that waits at this place."""
        if rank == self.rank:
            return self.now or Standing(State.RUNNING)
        heard = self.heard[rank]
        if heard is not None and heard.failed is not None and heard.failed_at(place):
            return heard.failed[1]
        if heard is None or heard.standing.state is State.WAITING and (
                time.monotonic() - heard.last > SILENT):
            return Standing(State.RUNNING)
        return heard.standing

    def _gather_news(self) -> None:
        """Let the others say where they are."""
        until = time.monotonic() + 2 * TELL
        while time.monotonic() < until and self.broken is None and any(
                self._standing(i).state is State.RUNNING for i in range(self.size)
                if i != self.rank):
            time.sleep(LOOK)
            self._hear()

    def _break(self, standings: Sequence[Standing], speaker: int) -> None:
        if self.broken is None:
            self.broken = reason(standings), places(standings)
            self.speaks = speaker == self.rank
            self._tell(self.now or Standing(State.RUNNING), broken=[*self.broken, speaker])

    # -- the end -------------------------------------------------------------------------------
    def stop(self, problem: BaseException, place: str) -> None:
        """Tell those that are at this place that this rank has raised there."""
        self._tell(raised(problem), place)

    def _fail(self, kind: type[BaseException], problem: BaseException, trace: Any) -> None:
        """An exception that nobody caught ends the job."""
        if self.speaks or not isinstance(problem, ProcessMismatchError):
            self._hook(kind, problem, trace)
        else:
            text = str(problem).split("\n")[0]
            print(f"process {self.rank}: {kind.__name__}: {text}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        self.failed = True
        self._tell(raised(problem))
        self._wait_for_ends(LINGER)
        MPI.COMM_WORLD.Abort(1)

    def _end(self) -> None:
        """The rank has come to its end; it answers until all have."""
        if not self.failed:
            self._tell(Standing(State.ENDED))
            self._wait_for_ends()

    def _wait_for_ends(self, seconds: float = float("inf")) -> None:
        until = time.monotonic() + seconds
        nap = NAP
        while time.monotonic() < until:
            self._hear()
            if all(h is not None and h.standing.state in (State.ENDED, State.FAILED)
                   for i, h in enumerate(self.heard) if i != self.rank):
                break
            time.sleep(nap)
            nap = min(2 * nap, LOOK)

    def _terminated(self, number: int, frame: Any) -> None:
        """The job is ended from outside: by the launcher, where a rank has died."""
        if self.now is not None:
            others = [p for p in self.now.processes if p != self.rank]
            os.write(2, f"process {self.rank} was ended while it waited for {named(others)} in "
                        f"{self.now.what} at {self.now.where}\n".encode())
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def _end_with(launcher: int) -> None:
    """End this process, whatever it does, soon after the one that launched it."""
    while os.getppid() == launcher:
        time.sleep(1.0)
    try:
        os.write(2, b"the launcher of this job is gone\n")
    finally:
        os._exit(1)


def _standing(told: Sequence[Any]) -> Standing:
    state, what, parts, processes, where, said = told
    return Standing(State[state], what, tuple([(a, b) for a, b in parts]), tuple(processes), where,
                    said)


class _Known:
    link: Link | None = None


def link() -> Link:
    """The link of this operating system process, which is made when first asked for."""
    if _Known.link is None:
        _Known.link = Link()
    return _Known.link
