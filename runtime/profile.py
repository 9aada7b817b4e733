"""Where the time of a run goes: wall time by equation, bytes by collective, and a trace of it.

`profile` runs a compiled program a few times on simulated devices and keeps the fastest run;
`profiling` records everything that runs in a block. Times are those of this machine, which computes
all devices: they say where the simulation spends time, not what hardware would take. The Chrome
trace (for Perfetto) shows the cost model's times for hardware beside them, as a process of its own.
The time of a fused group is divided among its equations.

Format: "Trace Event Format", Google, 2016 (complete events "X", metadata "M").
"""
from __future__ import annotations

import contextlib
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..ir.diagnostics.diagnostic import visible
from ..ir.program import Equation, Program
from ..ir.source.location import Location
from ..ir.source.wording import duration
from ..ir.support.immutable import immutable
from ..ir.support.lazy import lazy_import
from ..ir.support.scopes import override
from .measure import program_and_arguments
from .plans.plan import TIMED
from .simulation.executor import compile_simulated

_html = lazy_import("..ir.support.html", __package__)
_kinds = lazy_import("..ir.ops.communication.collective_kinds", __package__)
_prose = lazy_import("..ir.source.prose", __package__)
_perdevice = lazy_import(".per_device.executor", __package__)
_events = lazy_import(".trace_events", __package__)
_table = lazy_import("rich.table")
_text = lazy_import("rich.text")

MOST_EVENTS = 100_000       # of one trace; times are summed for all


@immutable
class Row:
    """An equation of a profile: all its runs together.

    type: of its first result on one device. runs: how often it ran. seconds: its own, without those
    of equations inside of it; share: of the whole run. kind: of a collective, else "". received:
    bytes that the busiest device received. devices: [devices] bytes that each received, where the
    run was device by device.
    """
    op: str
    name: str
    type: str
    source: Location
    runs: int
    seconds: float
    share: float
    kind: str = ""
    received: int = 0
    devices: np.ndarray | None = None
    equation: Equation | None = None

    @property
    def _values(self) -> tuple[Any, ...]:
        """All fields but the last two, which cannot be compared with `==`."""
        return (self.op, self.name, self.type, self.source, self.runs, self.seconds, self.share,
                self.kind, self.received)

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "op": self.op, "name": self.name, "type": self.type, "runs": self.runs,
            "seconds": self.seconds, "share": self.share, "kind": self.kind,
            "received_bytes": self.received, "source": self.source.to_dict()}
        if self.devices is not None:
            found["received_by_device"] = self.devices.tolist()
        return found


@immutable
class Span:
    """One run of an equation. start: seconds from the beginning. depth: loops around it."""
    equation: Equation
    start: float
    seconds: float
    depth: int


class Recorder:
    """Collects the times of calls while plans run."""

    def __init__(self) -> None:
        self.begin = time.perf_counter()
        self.spans: list[Span] = []
        self.seconds: defaultdict[int, float] = defaultdict(float)
        self.runs: Counter[int] = Counter()
        self.equations: dict[int, Equation] = {}
        self._inside: list[float] = []

    @contextlib.contextmanager
    def call(self, eqns: Sequence[Equation], anew: Sequence[bool] = (True,)) -> Iterator[None]:
        """Times a call; calls within it are subtracted. eqns: the equations that it computes
        (several if they are fused). anew: for each, False for a further call of one run.
        """
        self._inside.append(0.0)
        start = time.perf_counter()
        try:
            yield
        finally:
            self._add(eqns, anew, start, time.perf_counter() - start)

    def _add(self, eqns: Sequence[Equation], anew: Sequence[bool], start: float, taken: float
             ) -> None:
        """Spread what was taken since `start` over equations by their weights, without the time of
        what was measured inside. anew: whether each counts as a further run.
        """
        own = max(0.0, taken - self._inside.pop())
        if self._inside:
            self._inside[-1] += taken
        weights = [_weight(e) for e in eqns]
        whole, at = sum(weights), start - self.begin
        for eqn, weight, new in zip(eqns, weights, anew, strict=True):
            key, part = id(eqn), weight / whole
            self.equations[key] = eqn
            self.seconds[key] += own * part
            self.runs[key] += new
            if len(self.spans) < MOST_EVENTS:
                self.spans.append(Span(eqn, at, taken * part, len(self._inside)))
            at += taken * part


def _weight(eqn: Equation) -> float:
    """The weight of an equation in a fused call: the elements that it makes."""
    return float(sum(v.aval.size for v in eqn.outvars)) or 1.0


class Profile:
    """The times of one run. seconds: of all of it; rows: by equation, in program order (of a
    block: in the order they first ran).

    executor: "simulated" or "per_device". other: seconds between equations (arguments brought into
    place, results, overhead).
    """

    def __init__(self, name: str, executor: str, seconds: float, recorder: Recorder,
                 devices: dict[int, np.ndarray] | None = None,
                 explain: Callable[..., Any] | None = None, program: Program | None = None
                 ) -> None:
        self.name, self.executor, self.seconds = name, executor, seconds
        self.spans = tuple(recorder.spans)
        self._explain = explain
        self._devices = devices or {}
        # an exchange that costs the simulation nothing still moves bytes
        uses = {id(u.equation): u for u in _kinds.each_collective(program)} if program else {}
        equations = {**recorder.equations, **{k: u.equation for k, u in uses.items()}}
        if program is not None:
            written = {id(e): e for e in program.walk() if id(e) in equations}
            equations = {**written, **equations}
        self.rows = tuple(self._row(eqn, recorder, uses.get(key),
                                    not program or key in uses)
                          for key, eqn in equations.items())
        self.other = max(0.0, seconds - sum(r.seconds for r in self.rows))

    def _row(self, eqn: Equation, recorder: Recorder, exchange: Any, exchanges: bool) -> Row:
        """exchanges: whether an equation with a collective op counts as an exchange."""
        key = id(eqn)
        seconds, runs = recorder.seconds.get(key, 0.0), recorder.runs.get(key, 0)
        if exchange is not None and not exchange.conditional:
            runs = max(runs, exchange.count)
        kind: str = (_kinds.equation_kind(eqn) or "") if exchanges else ""
        aval = eqn.outvars[0].aval if eqn.outvars else None
        name = (eqn.outvars[0].name if eqn.outvars else "") or ""
        by_device = self._devices.get(key)
        received = 0
        if kind:
            received = (int(by_device.max(initial=0)) if by_device is not None
                        else _kinds.received_bytes(eqn) * runs)
        return Row(eqn.op.name, name, aval.str_short(True) if aval is not None else "",
                   eqn.location, runs, seconds, seconds / self.seconds if self.seconds else 0.0,
                   kind, received, by_device, eqn)

    @property
    def dearest(self) -> list[Row]:
        """The rows, the longest first."""
        return sorted(self.rows, key=lambda r: -r.seconds)

    def collectives(self) -> dict[str, dict[str, float]]:
        """By kind of collective: "runs", "received_bytes" of the busiest device, "seconds"."""
        found: dict[str, dict[str, float]] = {}
        for r in self.rows:
            if r.kind:
                into = found.setdefault(r.kind, {"runs": 0, "received_bytes": 0, "seconds": 0.0})
                into["runs"] += r.runs
                into["received_bytes"] += r.received
                into["seconds"] += r.seconds
        return found

    def by_device(self) -> np.ndarray | None:
        """[devices] bytes that each device received; None unless run device by device."""
        if not self._devices:
            return None
        return np.sum(list(self._devices.values()), axis=0)

    # -- forms -------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data; times in seconds."""
        found: dict[str, Any] = {
            "name": self.name, "executor": self.executor, "seconds": self.seconds,
            "other_seconds": self.other, "equations": [r.to_dict() for r in self.rows],
            "collectives": self.collectives()}
        devices = self.by_device()
        if devices is not None:
            found["received_by_device"] = devices.tolist()
        return found

    def _cells(self, count: int) -> list[tuple[str, ...]]:
        """The cells of a table of the `count` longest equations."""
        return [(duration(r.seconds), f"{r.share:.1%}", str(r.runs), r.op, r.type, _bytes(r),
                 str(r.source) if r.source.line else "", r.source.text()[:40])
                for r in self.dearest[:count]]

    def _heading(self) -> str:
        return f"{self.name}: {duration(self.seconds)} in one run, executor {self.executor}"

    def _closing(self) -> list[str]:
        lines = [f"{kind}: {int(c['received_bytes']):,} B received by the busiest device in "
                 f"{int(c['runs'])} runs, {duration(c['seconds'])}"
                 for kind, c in self.collectives().items()]
        devices = self.by_device()
        if devices is not None and len(set(devices.tolist())) > 1:
            lines.append("bytes by device: " + " ".join(f"{n:,}" for n in devices.tolist()))
        return lines

    def table(self, count: int = 20, width: int = 100) -> Any:
        """A rich table of the `count` longest equations; columns that do not fit are left out."""
        def plain(text: str) -> Any:        # names are no mark-up
            return _text.Text(visible(text))

        closing = self._closing()
        out = _table.Table(title=plain(self._heading()), caption_justify="left",
                           caption=plain("\n".join(closing)) if closing else None)
        rows = self._cells(count)
        shown = _prose.columns_that_fit([_COLUMNS, *rows], width, _DROPPED, gap=3)
        for i in shown:
            out.add_column(_COLUMNS[i], justify="right" if i in _RIGHT else "left",
                           overflow="fold")
        for cells in rows:
            out.add_row(*(plain(cells[i]) for i in shown))
        return out

    def text(self, width: int = 100) -> str:
        """The 20 longest equations as text; columns that do not fit are left out."""
        rows = [_COLUMNS, *self._cells(20)]
        return _prose.wrapped("\n".join([
            self._heading(), _prose.plain_table(rows, width, _DROPPED, _RIGHT),
            *self._closing()]), width)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<profile of {self.name}: {duration(self.seconds)}, {len(self.rows)} equations>"

    def _repr_html_(self) -> str:
        return _html.page(f"<b>{_html.escaped(self._heading())}</b>"
                          + _html.grid(_COLUMNS, self._cells(20)) + _html.listed(self._closing()))

    def save_chrome_trace(self, path: str | Path, hardware: str = "v5p", *,
                          modelled: Any = None) -> None:
        """Write the run as a Chrome trace, to be opened in https://ui.perfetto.dev.

        One process is what was measured, on a track for computation and one for communication. A
        second is what the cost model says of `hardware`, on a track for computation and one for
        each direction of links, for a compiled function or with an explanation as `modelled`.
        """
        if modelled is None and self._explain is not None:
            modelled = self._explain(hardware)
        events = _events.process_events(1, f"measured: {self.executor} executor on this machine", (
            ("communication" if _kinds.equation_kind(s.equation) else "computation", s.equation,
             s.start, s.seconds) for s in self.spans))
        if modelled is not None:
            events += _events.process_events(2, f"modelled: {modelled.topology}", (
                (e.stream, e.equation, e.start, e.seconds) for e in modelled.timeline()))
        _events.write_trace(path, events, self.name)


_COLUMNS = ("time", "share", "runs", "op", "local type", "received", "source", "expression")
_DROPPED = (7, 1, 2, 4, 6)          # columns to leave out, in this order
_RIGHT = (0, 1, 2, 5)               # numbers


def _bytes(row: Row) -> str:
    return f"{row.received:,} B" if row.kind else ""


def profile(compiled: Any, *args: Any, executor: str = "simulated", repeat: int = 3,
            **kwargs: Any) -> Profile:
    """Where the time of a compiled program goes: the fastest of `repeat` runs.

    compiled: what `jit(f).lower(...).compile()` gives, and arguments for it; or a LOCAL program and
    whole values of its parameters. executor: "simulated" (all devices at once) or "per_device"
    (each alone, which also counts the bytes that each receives). Raises TypeError for arguments
    that the program was not compiled for, ValueError for another executor.

    >>> from shardtrace.runtime import profile
    >>> mesh = st.make_mesh((8,), ("x",))
    >>> x = st.device_put(np.ones((16, 4), np.float32), st.NamedSharding(mesh, P("x")))
    >>> compiled = st.jit(lambda a: jnp.sin(a).sum(0)).lower(x).compile()
    >>> found = profile(compiled, x)
    >>> [(r.op, r.runs, r.received) for r in found.rows]
    [('sin', 1, 0), ('reduce_sum', 1, 0), ('psum_invariant', 1, 28)]
    """
    if executor not in ("simulated", "per_device"):
        raise ValueError(f"executor is 'simulated' or 'per_device', not {executor!r}")
    program, stored = program_and_arguments(compiled, args, kwargs)
    mesh = next((t.mesh for t in (*program.global_in, *program.global_out)
                 if t.mesh.axis_names), program.mesh)
    explain = None if compiled is program else compiled.explain
    run: Any = (compile_simulated(program, mesh) if executor == "simulated"
           else _perdevice.PerDeviceRun(program, mesh))
    best: Profile | None = None
    for _ in range(max(1, repeat)):
        with _recording() as recorder:
            if executor == "per_device":
                run.timing = recorder.call
            start = time.perf_counter()
            run(stored)
            seconds = time.perf_counter() - start
        devices = ({id(eqn): np.sum(received, 0) for eqn, received in run.traffic.items()}
                   if executor == "per_device" else None)
        found = Profile(program.name, executor, seconds, recorder, devices, explain,
                        program)
        if best is None or found.seconds < best.seconds:
            best = found
    assert best is not None
    return best


@contextlib.contextmanager
def profiling(name: str = "block") -> Iterator[list[Profile]]:
    """Record what this thread runs on simulated devices within the block; gives a list of one.

    >>> f = st.jit(lambda a: a @ a)
    >>> with st.runtime.profiling() as found:
    ...     _ = f(np.ones((8, 8), np.float32))
    >>> [r.op for r in found[0].rows]
    ['dot_general']
    """
    made: list[Profile] = []
    start = time.perf_counter()
    with _recording() as recorder:
        yield made
    made.append(Profile(name, "simulated", time.perf_counter() - start, recorder))


def _recording() -> override:
    recorder = Recorder()
    return override(TIMED, recorder, recorder=recorder)
