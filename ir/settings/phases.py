"""Measures the time before and during the run of a program, phase by phase.

    with st.profile_phases() as profile:
        step(params, batch)
    print(profile)

Code marks a phase by `with phase("trace") as p:`, or by `in_phase` around a single call; a phase
within a phase is a part of it. Nothing is recorded unless the thread asks for it, so that a phase
costs one lookup otherwise. `SHARDTRACE_PROFILE=1` records all threads of a process and prints the
table when the process ends.
"""
from __future__ import annotations

import atexit
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from ..support import environment
from ..support.lazy import lazy_import
from ..support.scopes import override
from .context import STATE
from .thread_state import NEW_PHASES

_console = lazy_import("rich.console")
_table = lazy_import("rich.table")
_text = lazy_import("rich.text")

Path = tuple[str, ...]
T = TypeVar("T")


class Row:
    """A phase, all its times together.

    path: its name, after the names of the phases that it is a part of. calls: how often it was
    entered. seconds: all of it; own: without its parts. equations: those it worked on, summed;
    left: those of the programs that it made, None for a phase that makes none. rules: how often a
    rule of an op had to be evaluated (and was not remembered).
    """

    __slots__ = ("calls", "equations", "left", "own", "path", "rules", "seconds")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.calls = 0
        self.seconds = self.own = 0.0
        self.equations = self.rules = 0
        self.left: int | None = None

    def __repr__(self) -> str:
        return (f"Row(path={self.path!r}, calls={self.calls!r}, seconds={self.seconds!r}, "
                f"own={self.own!r}, equations={self.equations!r}, rules={self.rules!r})")

    @property
    def name(self) -> str:
        return self.path[-1]

    def to_dict(self) -> dict[str, Any]:
        return {"path": list(self.path), "calls": self.calls, "seconds": self.seconds,
                "own_seconds": self.own, "equations": self.equations,
                "rule_evaluations": self.rules}


class PhaseProfile:
    """What was recorded, while it is recorded. One thread writes it.

    >>> with st.profile_phases() as profile:
    ...     y = st.jit(lambda x: x + 1)(np.ones(3, np.float32))
    >>> [row.name for row in profile.rows if len(row.path) == 1]
    ['trace', 'partition', 'plan', 'run']
    >>> profile.row("trace").equations
    1
    """

    def __init__(self) -> None:
        self._rows: dict[Path, Row] = {}
        self._path: Path = ()
        self._inside: list[float] = [0.0]         # seconds of parts, by depth
        self._rules = 0

    @property
    def rows(self) -> list[Row]:
        """Phases in the order in which they first began, parts after their whole."""
        first = {path: i for i, path in enumerate(self._rows)}
        order = sorted(self._rows, key=lambda path: [
            first[path[:n + 1]] for n in range(len(path))])
        return [self._rows[path] for path in order]

    def row(self, *path: str) -> Row:
        """The phase of this path. Raises KeyError where it did not happen."""
        return self._rows[path]

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by name of phase, wherever it happened; a whole includes its parts."""
        found: dict[str, float] = {}
        for row in self._rows.values():
            found[row.name] = found.get(row.name, 0.0) + row.seconds
        return found

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {"phases": [row.to_dict() for row in self.rows]}

    def add(self, other: PhaseProfile) -> None:
        """Count what another thread recorded as well."""
        for path, row in other._rows.items():
            own = self._rows.setdefault(path, Row(path))
            own.calls, own.equations = own.calls + row.calls, own.equations + row.equations
            own.seconds, own.own = own.seconds + row.seconds, own.own + row.own
            own.rules += row.rules
            if row.left is not None:
                own.left = (own.left or 0) + row.left

    def passes(self) -> list[Row]:
        """What each pass of the partitioner and of the executor took, wherever it ran, in the order
        in which they first did, and "verify"; a pass within a pass counts for itself alone.
        """
        found: dict[str, Row] = {}
        for path, row in self._rows.items():
            if row.left is None and row.name != "verify":
                continue
            one = found.setdefault(row.name, Row((row.name,)))
            one.calls, one.equations = one.calls + row.calls, one.equations + row.equations
            one.left = (one.left or 0) + (row.left or 0)
            one.seconds += row.seconds - sum([
                r.seconds for p, r in self._rows.items() if p[:-1] == path and r.left is not None])
        return list(found.values())

    def pass_table(self) -> Any:
        """What `passes` gives, as a rich table."""
        rows = self.passes()
        whole = sum([row.seconds for row in rows]) or 1.0
        table = _table.Table(title="passes")
        table.add_column("pass")
        for head in ("runs", "ms", "share", "equations before", "after"):
            table.add_column(head, justify="right")
        for row in rows:
            table.add_row(
                row.name, f"{row.calls:,}", f"{row.seconds * 1e3:.2f}",
                f"{row.seconds / whole:.0%}", f"{row.equations:,}",
                "" if row.name == "verify" else f"{row.left:,}")
        return table

    def table(self) -> Any:
        """As a rich table, parts indented under their whole."""
        whole = sum(row.seconds for row in self.rows if len(row.path) == 1) or 1.0
        table = _table.Table(title="where time goes")
        table.add_column("phase")
        for head in ("calls", "ms", "own ms", "share", "equations", "us each", "rules"):
            table.add_column(head, justify="right")
        for row in self.rows:
            each = f"{row.seconds / row.equations * 1e6:.1f}" if row.equations else ""
            table.add_row(
                _text.Text("  " * (len(row.path) - 1) + row.name), f"{row.calls:,}",
                f"{row.seconds * 1e3:.2f}", f"{row.own * 1e3:.2f}", f"{row.seconds / whole:.0%}",
                f"{row.equations:,}" if row.equations else "", each,
                f"{row.rules:,}" if row.rules else "")
        return table

    def __str__(self) -> str:
        console = _console.Console(width=100, color_system=None)
        with console.capture() as text:
            console.print(self.table())
        return text.get().rstrip()

    # -- recording -------------------------------------------------------------------------------

    def _enter(self, name: str) -> Path:
        """Begin a phase: its path, which ends it."""
        path = (*self._path, name)
        self._rows.setdefault(path, Row(path))
        self._inside.append(0.0)
        self._path = path
        return path

    def interrupted(self) -> None:
        """No phase is under way any more."""
        self._path, self._inside = (), [0.0]

    def _leave(self, path: Path, seconds: float, equations: int, rules: int,
               left: int | None = None) -> None:
        """Add a run of a phase that ends to its row, and to the time inside of the phase around it.
        """
        row, depth = self._rows[path], len(path)
        if left is not None:
            row.left = (row.left or 0) + left
        row.calls += 1
        row.seconds += seconds
        row.own += seconds - sum(self._inside[depth:])
        row.equations += equations
        row.rules += rules
        del self._inside[depth:]
        self._inside[-1] += seconds
        self._path = path[:-1]


class phase:
    """A phase of work, within a `with` block. equations: may be set in it, when they are known;
    left: those of the program that it makes, likewise.
    """

    __slots__ = ("_began", "_path", "_profile", "_rules", "equations", "left", "name")

    def __init__(self, name: str, equations: int = 0) -> None:
        self.name, self.equations = name, equations
        self.left: int | None = None

    def __enter__(self) -> phase:
        self._profile = profile = STATE.phases
        if profile is not None:
            self._path = profile._enter(self.name)
            self._rules = profile._rules
            self._began = time.perf_counter()
        return self

    def __exit__(self, *exception: object) -> None:
        profile = self._profile
        if profile is not None:
            profile._leave(self._path, time.perf_counter() - self._began, self.equations,
                           profile._rules - self._rules, self.left)


def in_phase(name: str, work: Callable[..., T], program: Any, *given: Any) -> T:
    """`work(program, ...)` as a phase of work on the program's equations."""
    if STATE.phases is None:
        return work(program, *given)
    with phase(name, len(program.eqns)) as p:
        done = work(program, *given)
        made: Any = done
        if made is not None:
            p.left = len(made.eqns)
        return done


def rule_evaluated() -> None:
    """Say that a rule of an op had to be evaluated, since its result was not remembered."""
    profile = STATE.phases
    if profile is not None:
        profile._rules += 1


def profile_phases() -> override:
    """Record where this thread's time goes, within a `with` block.

    Phases are "trace" (with "linearize" and "transpose" of derivatives in it), "partition" (with a
    part a pass, and "verify"), "plan" (how the simulated devices will compute it) and "run". A call
    whose program is known already has the last alone. Blocks may be nested: the inner one records.

    >>> f = st.jit(lambda x: (x @ x).sum())
    >>> with st.profile_phases() as profile:
    ...     y = f(np.ones((8, 8), np.float32))
    >>> profile.seconds["trace"] > 0, profile.row("run").calls
    (True, 1)
    >>> with st.profile_phases() as profile:
    ...     y = f(np.ones((8, 8), np.float32))
    >>> [row.name for row in profile.rows]
    ['run']
    """
    profile = PhaseProfile()
    return override(STATE, profile, phases=profile)


class _WholeProcess:
    """The profiles of all threads, with SHARDTRACE_PROFILE set; prints them when Python ends."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.profiles: list[PhaseProfile] = []
        atexit.register(self.report)

    def of_new_thread(self) -> PhaseProfile:
        profile = PhaseProfile()
        with self.lock:
            self.profiles.append(profile)
        return profile

    def report(self) -> None:
        """Print the phases of all threads together."""
        whole = PhaseProfile()
        for profile in self.profiles:
            whole.add(profile)
        print(whole, file=sys.stderr)


if environment.read("SHARDTRACE_PROFILE", False):
    NEW_PHASES[0] = _WholeProcess().of_new_thread
    STATE.phases = NEW_PHASES[0]()
