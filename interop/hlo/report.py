"""The collectives of a compiled program, with what they cost, as a table."""
from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...driver.jit.jitted import Jitted
from ...driver.jit.stages import Compiled, Lowered
from ...ir.diagnostics.extras import need_jax
from ...ir.source.location import Location
from ...ir.source.wording import duration
from ...ir.support.lazy import lazy_import
from ...partitioner.cost.hardware import Hardware
from ...partitioner.cost.hardware import hardware as find_hardware
from ...partitioner.cost.links import collective_seconds
from ...partitioner.cost.topology import Topology
from ...report.words import quantity
from ..imported import Imported
from .read import Exchange, Module, Place, read

jax = lazy_import("jax")
rich_console, rich_table = lazy_import("rich.console"), lazy_import("rich.table")

_GROUP = "group"


@dataclass(frozen=True)
class HloCollective:
    """A collective of a compiled program.

    kind: as of `CollectiveRecord`; also "collective-broadcast" and "ragged-all-to-all".
    group_size, group: devices of a group, and the first of them. pairs: of a permutation.
    operand_bytes, received_bytes: of one device and one run; of a ragged exchange at most.
    times: how often it runs. is_known: whether the text says so; else the number was read off the
    loop's condition, or is 1. in_branch: it stands in a branch, which may be another's turn.
    seconds: of one run, modelled on the hardware of the report. place: in the user's source.
    """
    name: str
    kind: str
    group_size: int
    group: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...]
    operand_bytes: int
    received_bytes: int
    arrays: int
    times: int
    is_known: bool
    in_branch: bool
    is_async: bool
    seconds: float
    place: Place

    @property
    def total_bytes(self) -> int:
        """Received by one device, all runs together."""
        return self.received_bytes * self.times

    @property
    def total_seconds(self) -> float:
        return self.seconds * self.times


@dataclass(frozen=True)
class XlaReport:
    """What XLA made of a program: its collectives in the order of the text. `print` it."""
    name: str
    devices: int
    hardware: Hardware
    collectives: tuple[HloCollective, ...]

    @property
    def received_bytes(self) -> int:
        """By one device, in one run of the program."""
        return sum(c.total_bytes for c in self.collectives)

    @property
    def seconds(self) -> float:
        """Seconds of all collectives, one after another."""
        return sum(c.total_seconds for c in self.collectives)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"name": self.name, "devices": self.devices, "hardware": self.hardware.name,
                "received_bytes": self.received_bytes, "seconds": self.seconds,
                "collectives": [{**vars(c), "place": vars(c.place), "total_bytes": c.total_bytes,
                                 "total_seconds": c.total_seconds} for c in self.collectives]}

    def __str__(self) -> str:
        return self.text()

    def text(self, width: int = 100) -> str:
        """The table, the costliest line first: equal collectives of a line are one row."""
        rows: dict[tuple, list[HloCollective]] = {}
        for c in self.collectives:
            rows.setdefault((c.place.file, c.place.line, c.kind, c.group_size), []).append(c)
        ordered = sorted(rows.values(), key=lambda row: -sum(c.total_seconds for c in row))
        received = quantity(self.received_bytes, "B")
        head = (f"{self.name} on {self.devices} devices ({self.hardware.name}): "
                f"{len(self.collectives)} collectives, {received} received per device, "
                f"{duration(self.seconds)}")
        if not rows:
            return head + "\n"
        table = empty_table((("time", "right"), ("bytes", "right"), ("runs", "right"),
                             ("collective", "left"), ("devices", "right"), ("line", "left")))
        for row in ordered:
            runs = sum(c.times for c in row)
            marks = ("" if all(c.is_known for c in row) else "?") + (
                "*" if any(c.in_branch for c in row) else "")
            table.add_row(duration(sum(c.total_seconds for c in row)),
                          quantity(sum(c.total_bytes for c in row), "B"), f"{runs:,}{marks}",
                          row[0].kind, str(row[0].group_size), _where(row[0].place))
        notes = []
        if any(not c.is_known for c in self.collectives):
            notes.append("?: the text does not say how often a loop runs")
        if any(c.in_branch for c in self.collectives):
            notes.append("*: in a branch that may not be taken")
        return printed(head, table, notes, width)


def empty_table(columns: Iterable[tuple[str, Any]]) -> Any:
    """A table without lines, with columns of these names, each at the left or right."""
    table = rich_table.Table(box=None, pad_edge=False)
    for name, side in columns:
        table.add_column(name, justify=side, overflow="fold")
    return table


def printed(head: str, table: Any, notes: Iterable[str], width: int) -> str:
    """A heading, a table and notes as text."""
    out = io.StringIO()
    console = rich_console.Console(file=out, width=width, color_system=None)
    console.print(head, soft_wrap=True, highlight=False, markup=False)
    console.print(table)
    for note in notes:
        console.print(note)
    return "\n".join([line.rstrip() for line in out.getvalue().splitlines()]) + "\n"


def _where(place: Place) -> str:
    if not place.file:
        return place.scope or "?"
    at = f"{place.file.rpartition('/')[2]}:{place.line}"
    return f"{at} in {place.function}" if place.function else at


def report_of(lines: Iterable[str], hardware: str | Hardware = "v5p",
              places: Mapping[int, Location] | None = None) -> XlaReport:
    """The report of HLO text, given by lines. Raises HloError where it is none.

    places: where the lines of a source that was written by a program stand in the user's.
    """
    module = read(lines)
    device = find_hardware(hardware) if isinstance(hardware, str) else hardware
    found = [_priced(*each, device) for each in _walk(module)]
    if places is not None:
        found = [replace(c, place=_user_place(c.place, places)) for c in found]
    return XlaReport(module.name, module.devices, device, tuple(found))


def _user_place(place: Place, places: Mapping[int, Location]) -> Place:
    at = places.get(place.line)
    return place if at is None else Place(at.file, at.line, at.function, place.scope)


def xla_report(fun: Any, *args: Any, hardware: str | Hardware = "v5p", **kwargs: Any) -> XlaReport:
    """What XLA makes of a function: each collective by line, with bytes, time and loop count.

    fun: a function of JAX arrays, jitted or not, or what `jax.jit(f).lower(...).compile()` gives,
      which takes no arguments; what `from_jax` or `from_stablehlo` made, which knows its own; or a
      jitted function of shardtrace, or what its `lower` or `compile` gives.
    args, kwargs: its arguments, or jax.ShapeDtypeStructs with shardings.
    hardware: for which times are modelled; see `explain`.
    JAX must have as many devices as the program is for.

    >>> import jax
    >>> print(st.interop.xla_report(lambda x: x + 1, 1.0), end="")
    jit__lambda on 1 devices (TPU v5p): 0 collectives, 0 B received per device, 0 s
    """
    need_jax("xla_report")
    if isinstance(fun, Imported):
        return report_of(fun.hlo().splitlines(), hardware)
    if isinstance(fun, Jitted):
        fun = fun.lower(*args, **kwargs)
    if isinstance(fun, Lowered | Compiled):
        text, places = fun.xla_hlo()
        return report_of(text.splitlines(), hardware, places)
    if not hasattr(fun, "as_text"):
        jitted = fun if hasattr(fun, "lower") else jax.jit(fun)
        fun = jitted.lower(*args, **kwargs).compile()
    return report_of(fun.as_text().splitlines(), hardware)


def _walk(module: Module) -> Iterator[tuple[Exchange, int, bool, bool]]:
    """(exchange, how often it runs, whether that is known, whether in a branch)."""
    reach: dict[str, bool] = {}

    def exchanges(name: str) -> bool:
        """Is there anything in a computation, or in those that it calls?"""
        if name not in reach:
            reach[name] = False
            own = module.computations.get(name)
            reach[name] = own is not None and (bool(own.exchanges) or any(
                [exchanges(called) for called, _, _ in own.calls]))
        return reach[name]

    stack = [(module.entry, 1, True, False, 0)]
    while stack:
        name, times, known, branch, depth = stack.pop()
        own = module.computations.get(name)
        if own is None or depth > 1000 or not exchanges(name):
            continue
        for e in own.exchanges:
            yield e, times, known, branch
        for called, runs, kind in reversed(own.calls):
            if runs.startswith("?"):
                n, sure = _limit(module, runs[1:]), False
            else:
                n, sure = int(runs), True
            stack.append((called, times * n, known and sure, branch or bool(kind), depth + 1))


def _limit(module: Module, condition: str) -> int:
    """The number that a loop's condition compares with, if there is only one; else 1."""
    names, found = [condition], list[int]()
    for name in names:
        own = module.computations.get(name)
        if own is not None:
            found += own.constants
            names += [called for called, _, _ in own.calls if called not in names]
    return found[0] if len(found) == 1 else 1


def _priced(e: Exchange, times: int, known: bool, branch: bool, device: Hardware
            ) -> HloCollective:
    """An exchange with its bytes and seconds. XLA gives the size of the result, from which those of
    operand and received bytes follow by kind. known: whether `times` is.
    """
    n, result = max(e.size, 1), e.result
    operand = {"all-gather": result // n, "reduce-scatter": result * n}.get(e.kind, result)
    received = {"all-reduce": 2 * result * (n - 1) // n, "reduce-scatter": result * (n - 1),
                "collective-permute": result, "collective-broadcast": result}.get(
                    e.kind, result * (n - 1) // n)
    kind = {"ragged-all-to-all": "all-to-all", "collective-broadcast": "collective-permute"}.get(
        e.kind, e.kind)
    seconds = 0.0
    if n > 1:
        place = {device: i for i, device in enumerate(e.group)}
        pairs = [(place[a], place[b]) for a, b in e.pairs] or None
        seconds = collective_seconds(Topology.of(device, {_GROUP: n}), kind, (_GROUP,), n, operand,
                                     received, pairs)
    return HloCollective(e.name, e.kind, n, e.group, e.pairs, operand, received, e.arrays, times,
                         known, branch, e.is_async, seconds, e.place)
