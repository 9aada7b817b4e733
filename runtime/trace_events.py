"""Events of the Chrome trace format: one process, a track for each stream, a slice a run.

Source: "Trace Event Format", Google, 2016. Times are microseconds.
"""
from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..ir.ops.communication.collective_kinds import equation_kind, received_bytes
from ..ir.program import Equation
from ..ir.reasons import reason_text

Slice = tuple[str, Equation, float, float]      # (stream, equation, start, length), in seconds


def process_events(pid: int, name: str, slices: Iterable[Slice]) -> list[dict[str, Any]]:
    """The events of one process: the names of it and its tracks, then one for each slice."""
    tracks: dict[str, int] = {}
    made: list[dict[str, Any]] = []
    for stream, eqn, start, seconds in slices:
        tid = tracks.setdefault(stream, len(tracks) + 1)
        made.append({"ph": "X", "name": _name(eqn), "cat": equation_kind(eqn) or "computation",
                     "pid": pid, "tid": tid, "ts": start * 1e6, "dur": seconds * 1e6,
                     "args": _details(eqn)})
    # a slice comes before those inside it
    made.sort(key=lambda e: (e["tid"], e["ts"], -e["dur"]))
    head: list[dict[str, Any]] = [
        _meta(pid, 0, "process_name", name), _meta(pid, 0, "process_sort_index", pid, "sort_index")]
    for stream, tid in tracks.items():
        head += [_meta(pid, tid, "thread_name", stream),
                 _meta(pid, tid, "thread_sort_index", tid, "sort_index")]
    return head + made


def write_trace(path: str | Path, events: list[dict[str, Any]], name: str) -> None:
    """Write a file that Perfetto and chrome://tracing open."""
    Path(path).write_text(json.dumps({
        "traceEvents": events, "displayTimeUnit": "ms", "otherData": {"program": name}}) + "\n")


def _meta(pid: int, tid: int, what: str, value: Any, key: str = "name") -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "ts": 0, "args": {key: value}}


def _name(eqn: Equation) -> str:
    return equation_kind(eqn) or eqn.op.name


def _details(eqn: Equation) -> dict[str, Any]:
    found: dict[str, Any] = {"op": eqn.op.name,
                             "types": ", ".join(v.aval.str_short(True) for v in eqn.outvars)}
    where = eqn.location
    if where.line:
        found["source"] = str(where)
        found["expression"] = where.text() or where.source_line().strip()
    if equation_kind(eqn):
        assert eqn.op.collective is not None
        found["received_bytes"] = received_bytes(eqn)
        found["mesh_axes"] = ", ".join(map(str, eqn.op.collective.axes(eqn.params)))
    if eqn.reason:
        found["because"] = reason_text(eqn.reason)
    return found
