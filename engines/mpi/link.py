"""Point-to-point transport between ranks, with deadlock detection.

No call here blocks inside MPI: a waiting rank polls its requests, yields the processor, and reports
now and then where it waits. From these reports (status.py) ranks detect a wait that cannot end; a
rank that computes reports nothing, so for it there is a timeout. Then all waiting ranks raise
ProcessMismatchError, which says who waits where. A rank that ends with an exception aborts the job.
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

from ...arrays.processes.coordinator import Call
from ...arrays.processes.deadlocks import ProcessStatus, State, failed, mismatch, named, waiting
from ...ir.diagnostics.errors import ProcessMismatchError
from ...ir.diagnostics.extras import need
from ...ir.source.location import Location
from ...ir.support.lazy import lazy_import
from .status import LOOK, TELL, RankStatus, read

MPI = lazy_import("mpi4py.MPI")
json = lazy_import("json")

SPINS = 200            # looks at the requests before the first nap
NAP = 1e-4             # seconds
LINGER = 3.0           # seconds for others to say why they end
PIECE = 1 << 30        # bytes of a message

_CALL, _VALUE = 1, 2                        # tags


class Link:
    """This rank of an MPI job, and the others.

    patience: seconds to wait for a rank that does not say that it waits.
    """

    def __init__(self) -> None:
        need("mpi4py", "mpi", "the mpi engine")
        world = MPI.COMM_WORLD
        self.rank, self.size = world.rank, world.size
        self.patience = 100.0
        self.calls, self.status = world.Dup(), RankStatus(world)
        self.groups: dict[tuple[int, ...], Any] = {}
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
        """The data that each of these ranks gives, in their order; all of them call this."""
        payload = np.frombuffer(data, np.uint8)
        sizes = {r: np.empty(1, np.int64) for r in ranks}
        length = np.array([len(payload)], np.int64)
        others = [r for r in ranks if r != self.rank]
        self.wait([(self.calls.Irecv([sizes[r], MPI.BYTE], r, tag), r) for r in others] +
                  [(self.calls.Isend([length, MPI.BYTE], r, tag), r) for r in others],
                  lambda _: waiting(call), f"{call.digest} sizes", call.what, call.location)
        found = {r: np.empty(int(sizes[r][0]), np.uint8) for r in others}
        found[self.rank] = payload
        requests = []
        for r in others:
            requests += self.receive(self.calls, found[r], r, r, tag)
            requests += self.send(self.calls, payload, r, r, tag)
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
        payload = np.frombuffer(bytes.fromhex(call.digest), np.uint8)
        received = {r: np.empty_like(payload) for r in call.processes if r != self.rank}
        requests = [(self.calls.Irecv([x, MPI.BYTE], r, _CALL), r) for r, x in received.items()]
        requests += [(self.calls.Isend([payload, MPI.BYTE], r, _CALL), r) for r in received]

        def end() -> None:
            if not requests:
                return
            self.wait(requests, lambda _: waiting(call), place or call.digest, call.what,
                      call.location)
            requests.clear()
            if any(x.tobytes() != payload.tobytes() for x in received.values()):
                self._compare(call)

        return end

    def _compare(self, call: Call) -> None:
        """Raise the error for calls that differ; all ranks of the group call this."""
        texts = self.swap(call.processes, json.dumps(waiting(call)._replace(
            state=State.WAITING.name)).encode(), call)
        statuses = self.status.statuses()
        for r, text in zip(call.processes, texts, strict=True):
            statuses[r] = read(json.loads(text.tobytes()))
        self.status.end_all(statuses, min(call.processes))
        self.check(call)

    def check(self, call: Call) -> None:
        """Raise ProcessMismatchError where the ranks cannot go on."""
        self.status.hear()
        if self.status.broken is not None:
            raise mismatch(call.what, call.location, *self.status.broken)

    # -- waiting -------------------------------------------------------------------------------
    def wait(self, requests: Sequence[tuple[Any, int]],
             status_of: Callable[[set[int]], ProcessStatus], place: str, what: str,
             location: Location) -> None:
        """Return when all requests are done. status_of: where this rank then is, given whom it
        waits for. Raises ProcessMismatchError if that cannot be."""
        status = self.status
        peers = [rank for _, rank in requests]
        pending = [request for request, _ in requests]
        left = len(pending)
        began = looked = reported = 0.0
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
                status.waits(here := status_of(missing))
                status.hear()
                if status.broken is None and now - began > TELL and now - reported > TELL:
                    reported = now
                    status.report(here, place, missing)
                if status.broken is None and (now - began > self.patience or
                                              status.in_vain(missing, place, began)):
                    status.give_up(place, missing)
                if status.broken is not None:
                    raise mismatch(what, location, *status.broken)
        finally:
            status.now = None

    def done(self, requests: Sequence[tuple[Any, int]]) -> bool:
        """Whether all requests are done; waits for none."""
        return MPI.Request.Testall([request for request, _ in requests])

    # -- the end -------------------------------------------------------------------------------
    def stop(self, problem: BaseException, place: str) -> None:
        """Tell those that are at this place that this rank has raised there."""
        self.status.report(failed(problem), place)

    def _fail(self, kind: type[BaseException], problem: BaseException, trace: Any) -> None:
        """An uncaught exception ends the job."""
        if self.status.speaks or not isinstance(problem, ProcessMismatchError):
            self._hook(kind, problem, trace)
        else:
            text = str(problem).split("\n")[0]
            print(f"process {self.rank}: {kind.__name__}: {text}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        self.failed = True
        self.status.report(failed(problem))
        self.status.wait_for_ends(LINGER)
        MPI.COMM_WORLD.Abort(1)

    def _end(self) -> None:
        """The rank has ended; it answers until all have."""
        if not self.failed:
            self.status.report(ProcessStatus(State.ENDED))
            self.status.wait_for_ends()

    def _terminated(self, number: int, frame: Any) -> None:
        """The job is ended from outside: by the launcher, where a rank has died."""
        here = self.status.now
        if here is not None:
            others = [p for p in here.processes if p != self.rank]
            os.write(2, f"process {self.rank} was ended while it waited for {named(others)} in "
                        f"{here.what} at {here.where}\n".encode())
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


class _Known:
    link: Link | None = None


def link() -> Link:
    """The link of this operating system process, which is made when first asked for."""
    if _Known.link is None:
        _Known.link = Link()
    return _Known.link
