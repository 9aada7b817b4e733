"""An explanation as plain data, for all that show it: pages, editors, notebooks.

Whatever recurs has a number: files, places (`[file, line, column, end line, end column, function,
transformation]`, lines from 1, columns from 0), types, values, equations, collectives. -1 means
none. Everything can be written as JSON.
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...ir.program import Program
from ...ir.support.collector import collector_paused
from ...partitioner.collectives import CollectiveRecord
from ..analysis import Analysis
from ..render import totals
from ..warnings.warnings import warnings_of
from .costs import (
    cause_data,
    collective_data,
    line_seconds,
    memory_data,
    reason_data,
    timeline_data,
    warning_data,
)
from .sources import Sources
from .stages import stage_data
from .tables import Tables

SCHEMA = 1               # increased when a field changes or is removed


def type_data(program: Program) -> dict[str, Any]:
    """The values of a resolved program with their types, at its lines; they have no `from`."""
    with collector_paused():
        tables = Tables()
        sources = Sources(program, tables)
        return _with_tables({"name": program.name, "values": sources.values}, tables)


def moved_data(costed: Iterable[tuple[CollectiveRecord, float]]) -> dict[str, Any]:
    """Collectives at their lines, with the seconds of each, without reasons."""
    with collector_paused():
        tables = Tables()
        return _with_tables({"collectives": collective_data(costed, tables)}, tables)


def source_data(e: Analysis) -> dict[str, Any]:
    """What belongs to lines: values with their types and the origin of these, and collectives with
    reasons. Only these are costed.
    """
    with collector_paused():
        tables = Tables()
        return _with_tables(_at_lines(e, tables), tables)


def view_data(e: Analysis, advised: int = 3) -> dict[str, Any]:
    """All there is to show, with fixes for the `advised` most expensive collectives."""
    with collector_paused():
        tables = Tables()
        data = _at_lines(e, tables)
        data |= {"totals": [list(t) for t in totals(e)], "received_bytes": e.received_bytes,
                 "time": e.time, "peak_bytes": e.peak_bytes,
                 "warnings": warning_data(warnings_of(e), tables),
                 "seconds": line_seconds(e, tables), "stages": stage_data(e, tables),
                 "timeline": timeline_data(e, tables), "memory": memory_data(e, tables)}
        data["causes"] = cause_data(e, advised)
        return _with_tables(data, tables)


def _at_lines(e: Analysis, tables: Tables) -> dict[str, Any]:
    """What is shown at the lines of a program: its values, equations and collectives, by number."""
    sources = Sources(e.partitioned.resolved, tables, e.reasons)
    moved = [{**c, **why} for c, why in zip(
        collective_data([(c.record, c.time) for c in e.parts], tables),
        reason_data(e, tables), strict=True)]
    mesh = e.partitioned.mesh
    return {
        "schema": SCHEMA, "name": e.name, "topology": str(e.topology),
        "mesh": [[str(a), n] for a, n in zip(mesh.axis_names, mesh.axis_sizes, strict=True)],
        "links": {str(a): e.topology.describe(a) for a in e.topology.axes},
        "values": sources.values, "equations": sources.equations, "results": sources.results,
        "collectives": moved}


def _with_tables(data: dict[str, Any], tables: Tables) -> dict[str, Any]:
    files = tables.files()
    return {**data, "files": files, "places": tables.places, "types": tables.type_data()}
