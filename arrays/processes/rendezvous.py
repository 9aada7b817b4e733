"""Simulated processes: threads that meet at the calls they make together.

A `World` knows the state of each of its processes: computing, waiting at a call, or ended. A
process that makes a call waits until its whole group waits at the same one. Then the lowest of them
does what the call asks for, once, with the values of all, and all continue. So a program of all
devices runs once, always in the same thread, and results do not depend on the order of arrival.

Deadlock is detected by state, not by a clock: when nobody computes and the waiting calls do not
match, all of them end with an error that says who waits where. Only a process that never started is
waited for by time (`config.shardtrace_process_timeout`).
"""
from __future__ import annotations

import copy
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from ...ir.meshes.process import ProcessIdentity
from ...ir.settings.context import config
from ..storage import Storage, Stored
from .coordinator import Call, Coordinator, GlobalProgram, GlobalValue, merged
from .deadlocks import ProcessStatus, State, failed, mismatch, places, waiting
from .deadlocks import reason as why

POLL = 0.05          # seconds between checks on the other processes while waiting
GRACE = 2.0          # seconds for a thread that left its process to enter it again
PATIENCE = 5.0       # seconds a call that cannot succeed waits while others still compute
Action = Callable[[list[Any]], Any]


class Meeting(Future):
    """The result of a call that its whole group has reached. values: what each process gave."""

    def __init__(self, values: list[Any]) -> None:
        super().__init__()
        self.values = values


class Member:
    """The state of one process in a world."""

    __slots__ = ("call", "error", "meeting", "since", "state", "thread", "value")

    def __init__(self, state: State) -> None:
        self.state = state
        self.thread: threading.Thread | None = None
        self.call: Call | None = None
        self.value: Any = None
        self.meeting: Meeting | None = None
        self.error: BaseException | None = None
        self.since = time.monotonic()

    def become(self, state: State) -> None:
        self.state, self.since = state, time.monotonic()


class World:
    """All processes of one simulation. started: whether all are running from the beginning."""

    def __init__(self, count: int, started: bool = False) -> None:
        self.changed = threading.Condition()
        self.members = [Member(State.RUNNING if started else State.ABSENT) for _ in range(count)]
        self.broken: tuple[str, tuple[str, ...]] | None = None    # reason, and where each was

    # -- coming and going ----------------------------------------------------------------------
    def enter(self, index: int) -> None:
        """Make the calling thread process `index`."""
        with self.changed:
            member = self.members[index]
            if member.state in (State.RUNNING, State.WAITING) and member.thread is not None:
                raise RuntimeError(
                    f"process {index} of {len(self.members)} runs already, in thread "
                    f"{member.thread.name!r}: a process is one thread at a time")
            member.thread = threading.current_thread()
            member.error = None
            member.become(State.RUNNING)

    def leave(self, index: int, error: BaseException | None, for_good: bool) -> bool:
        """End the calling thread's part as process `index`. Returns True if no process is left."""
        with self.changed:
            member = self.members[index]
            member.error = error
            member.become(State.FAILED if error is not None
                          else State.ENDED if for_good else State.LEFT)
            self.changed.notify_all()
            return not any(m.state in (State.RUNNING, State.WAITING) for m in self.members)

    def stop(self, reason: str) -> None:
        """End all waiting calls with an error."""
        with self.changed:
            self._break(reason)

    # -- meeting -------------------------------------------------------------------------------
    def meet(self, index: int, call: Call, value: Any, action: Action) -> Any:
        """The result of `action` on the values of all processes in the call's group.

        Raises ProcessMismatchError if some do not come, and whatever the action raises.
        """
        with self.changed:
            member = self.members[index]
            if self.broken is None:
                member.call, member.value, member.meeting = call, value, None
                member.become(State.WAITING)
                self._start_if_complete(call)
                while member.meeting is None and self.broken is None:
                    self.changed.wait(POLL)
                    if member.meeting is None and self.broken is None:
                        self._check_deadlock()
                member.become(State.RUNNING)
                member.call = member.value = None
            meeting = member.meeting
            member.meeting = None
            if meeting is None:
                assert self.broken is not None
                raise mismatch(call.what, call.location, *self.broken)
        if index == call.processes[0]:
            try:
                meeting.set_result(action(meeting.values))
            except BaseException as e:
                meeting.set_exception(e)
                raise
        else:
            error = meeting.exception()
            if error is not None:
                raise _copied(error)
        return meeting.result()

    def _start_if_complete(self, call: Call) -> None:
        """Start the meeting at this call if all of its group have reached it."""
        group = [self.members[p] for p in call.processes]
        if all(m.state is State.WAITING and m.meeting is None and m.call == call for m in group):
            meeting = Meeting([m.value for m in group])
            for m in group:
                m.meeting = meeting
            self.changed.notify_all()

    # -- who waits in vain ---------------------------------------------------------------------
    def _check_deadlock(self) -> None:
        """End the world if it has deadlocked."""
        now = time.monotonic()
        if any(m.meeting is not None for m in self.members):
            return
        moving = [m for m in self.members if self._may_move(m, now)]
        if not moving:
            self._break()
        elif all(m.state is not State.ABSENT for m in moving):
            waiting = [m for m in self.members if m.state is State.WAITING]
            if any(now - m.since > PATIENCE and self._waits_in_vain(m, now) for m in waiting):
                self._break()

    def _may_move(self, member: Member, now: float) -> bool:
        if member.state is State.ABSENT:
            arrived = max(m.since for m in self.members)
            timeout = float(config.read("shardtrace_process_timeout"))
            return now - arrived < timeout and not (
                now - arrived > 10 * POLL and self._others_only_wait())
        if member.state is State.LEFT:
            thread = member.thread
            return now - member.since < GRACE and thread is not None and thread.is_alive()
        return member.state is State.RUNNING

    def _waits_in_vain(self, member: Member, now: float) -> bool:
        """Does it wait for one that has ended, or waits with this group at another call?"""
        call = member.call
        assert call is not None
        others = [self.members[p] for p in call.processes]
        return any(
            o.state in (State.ENDED, State.FAILED)
            or (o.state is State.LEFT and not self._may_move(o, now))
            or (o.state is State.WAITING and o.call is not None
                and o.call.processes == call.processes and o.call != call) for o in others)

    def _others_only_wait(self) -> bool:
        """Do all other threads wait for threads to end, so that none can start a process?"""
        waiting = {m.thread.ident for m in self.members
                   if m.state is State.WAITING and m.thread is not None}
        frames = sys._current_frames()
        for thread in threading.enumerate():
            if thread.ident in waiting:
                continue
            frame = frames.get(thread.ident or 0)
            if frame is None or not _waits_for_threads(frame):
                return False
        return True

    def _break(self, reason: str = "") -> None:
        if self.broken is None:
            found = self._statuses()
            self.broken = reason or why(found), places(found)
        self.changed.notify_all()

    def _statuses(self) -> list[ProcessStatus]:
        return [waiting(m.call) if m.state is State.WAITING and m.call is not None
                else failed(m.error) if m.state is State.FAILED and m.error is not None
                else ProcessStatus(m.state) for m in self.members]


class ThreadCoordinator(Coordinator):
    """The coordinator of one process of a `World`."""

    def __init__(self, world: World, identity: ProcessIdentity) -> None:
        self.world = world
        self.identity = identity

    def all_gather(self, call: Call, value: Any) -> list[Any]:
        return self.world.meet(self.identity.index, call, value, list)

    def whole(self, call: Call, values: Sequence[GlobalValue]) -> list[Stored]:
        return self.world.meet(self.identity.index, call, values,
                               lambda given: merged(given, call.processes))

    def run(self, call: Call, program: GlobalProgram, arguments: Sequence[GlobalValue]
            ) -> Sequence[Storage]:
        return self.world.meet(self.identity.index, call, arguments, lambda given:
                               program.execute(merged(given, call.processes)))


def _waits_for_threads(frame: Any) -> bool:
    """Is this frame in a library function that waits for threads to end or for their results?"""
    while frame is not None and frame.f_globals.get("__name__", "") in ("threading", "queue"):
        if frame.f_code.co_name in ("join", "_shutdown"):
            return True
        frame = frame.f_back
    if frame is None:
        return False
    name, code = frame.f_globals.get("__name__", ""), frame.f_code.co_name
    return ((name == "concurrent.futures._base" and code == "result")
            or (name == "concurrent.futures.thread" and code == "_worker"))


def _copied(e: BaseException) -> BaseException:
    """A copy of an exception to raise in another thread, with a traceback of its own."""
    try:
        new = copy.copy(e)
        new.__cause__, new.__notes__ = e, list(getattr(e, "__notes__", ()))
        return new if str(new) == str(e) else e
    except Exception:      # its constructor takes other arguments
        return e
