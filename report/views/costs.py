"""Collectives, lines, times and memory of an explanation as data."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...partitioner.collectives import CollectiveRecord
from ...partitioner.cost.kernels import kernels
from ...partitioner.cost.schedule import COMPUTATION
from ...partitioner.cost.work import equation_seconds
from ..advice.changes import Respec
from ..advice.code.changes import Rewritten
from ..advice.line_diffs import edits_of
from ..advice.suggestion import Suggestion
from ..analysis import Analysis
from ..equal_collectives import causes
from ..explained_collective import ExplainedCollective
from ..render import advised_of, effect, record_heading
from ..warnings.waste import Waste, programs
from .tables import Tables

_HELD = 200          # buffers listed at the peak, at most


def collective_data(costed: Iterable[tuple[CollectiveRecord, float]], tables: Tables
                    ) -> list[dict[str, Any]]:
    """Each collective, or part of one, in program order: kind, place, bytes and time."""
    return [{"kind": r.kind, "axes": [str(a) for a in r.mesh_axes], "group": r.group_size,
             "bytes": r.received_bytes, "count": r.count, "time": seconds,
             "heading": record_heading(r, seconds), "place": tables.place(r.source)}
            for r, seconds in costed]


def reason_data(e: Analysis, tables: Tables) -> list[dict[str, Any]]:
    """Why each collective is there, at which line, and from which arguments its axes come."""
    names = e.partitioned.resolved.arg_names
    return [{"reason_kind": c.reason_kind, "verdict": c.verdict, "reasons": c.cause.lines(),
             "arguments": [names[path.argument] for path in c.cause.paths if path.argument >= 0],
             "place": tables.place(c.source)} for c in e.parts]


def collective_numbers(e: Analysis) -> dict[int, int]:
    """From the identity of an equation to the number of its collective, or of the largest part."""
    number = {id(c): n for n, c in enumerate(e.parts)}
    return {id(c.record.equation): number[id(c.largest)] for c in e.collectives}


def cause_data(e: Analysis, advised: int) -> list[dict[str, Any]]:
    """The root causes, with groups of equal collectives, each with fixes if it is among the
    `advised` most expensive ones.
    """
    number = {id(c): n for n, c in enumerate(e.parts)}
    chosen = [c.largest for c in advised_of(e, advised)] if advised else []
    with_advice = [*chosen, *(cause.groups[0][0] for cause in e.root_causes[:advised])]
    return [{"text": cause.text, "described": cause.described(e.received_bytes),
             "bytes": cause.received_bytes, "time": cause.time,
             "groups": [{"members": [number[id(c)] for c in group],
                         "reasons": causes(group), "instead": list(group[0].vetoes),
                         "fixes": fix_data(e, group[0]) if any(
                             group[0] is c for c in with_advice) else None}
                        for group in cause.groups]}
            for cause in e.root_causes]


def fix_data(e: Analysis, c: ExplainedCollective) -> list[dict[str, Any]]:
    """Changes that avoid a collective: in words, with savings, costs, and the edited lines."""
    return [{"text": s.text, "removes": s.removes, "effect": effect(e, s),
             "bytes": s.received_bytes, "time": s.time, "diff": [list(d) for d in s.diff],
             "edits": edits(s)} for s in c.suggestions[:3]]


def edits(s: Suggestion) -> list[dict[str, Any]]:
    """The text edits of a suggestion; empty if it is none of text."""
    if not all(isinstance(c, Rewritten | Respec) and edits_of(c) for c in s.changes):
        return []
    return [{"file": at.file, "line": at.line, "column": at.column, "end_line": at.end_line,
             "end_column": at.end_column, "text": text}
            for change in s.changes for at, text in edits_of(change)]


def warning_data(warnings: tuple[Waste, ...], tables: Tables) -> list[dict[str, Any]]:
    return [{"kind": w.kind, "text": w.text, "fix": w.fix, "place": tables.place(w.source)}
            for w in warnings]


def line_seconds(e: Analysis, tables: Tables) -> list[list[Any]]:
    """Seconds of computation of one device by place, loops multiplied: `[place, seconds]`."""
    found: dict[int, float] = {}
    for program, count in programs(e.partitioned.local):
        device = e.topology.hardware
        grouped = kernels(program, device.keeps_rows)
        for eqn in program.eqns:
            seconds = equation_seconds(eqn, grouped, device) * count
            if seconds:
                place = tables.place(eqn.location)
                found[place] = found.get(place, 0.0) + seconds
    return [[place, seconds] for place, seconds in found.items()]


def timeline_data(e: Analysis, tables: Tables) -> dict[str, Any]:
    """A step on one device. Lanes are `[name, seconds busy]`, computation first, then one for each
    set of mesh axes; events are `[lane, start, seconds, op, place, collective, whole loop]`. Events
    show the first iterations of a loop, busy seconds count all.
    """
    number = collective_numbers(e)
    lanes = {COMPUTATION: 0}
    events, seen = [], set()
    for event in e.timeline():
        n = -1
        if event.stream == COMPUTATION:
            lane = COMPUTATION
        else:
            key = id(event.equation), event.start
            if key in seen:                  # a collective may use several links at once
                continue
            seen.add(key)
            n = number.get(id(event.equation), -1)
            axes = e.parts[n].mesh_axes if n >= 0 else (event.stream,)
            lane = _lane(axes)
        events.append([lanes.setdefault(lane, len(lanes)), event.start, event.seconds,
                       event.equation.op.name, tables.place(event.equation.location), n,
                       bool(event.equation.op.subprograms)])
    busy = dict.fromkeys(lanes, 0.0) | {COMPUTATION: e.times.compute}
    for c in e.collectives:
        busy[_lane(c.mesh_axes)] = busy.get(_lane(c.mesh_axes), 0.0) + c.total_time
    return {"lanes": [list(lane) for lane in busy.items()], "events": events, "seconds": e.time}


def _lane(axes: Iterable[Any]) -> str:
    return f"over {', '.join(map(str, axes))}"


def memory_data(e: Analysis, tables: Tables) -> dict[str, Any]:
    """Bytes of one device while each equation runs, `[op, place, bytes]`, and what is held at the
    peak, `[name, type, bytes, place]`, the largest first.
    """
    m = e.memory
    return {"peak": m.peak_bytes, "of": e.topology.hardware.memory, "arguments": m.argument_bytes,
            "at": tables.place(m.location),
            "moments": [[t.op, tables.place(t.location), t.nbytes] for t in m.timeline],
            "held": [[h.name, h.type, h.nbytes, tables.place(h.location)]
                     for h in m.held[:_HELD]], "others": max(0, len(m.held) - _HELD)}
