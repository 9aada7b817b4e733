"""An explanation as text, as a rich table, as HTML and as plain data."""
from __future__ import annotations

import html as html_
from typing import TYPE_CHECKING, Any

from ..ir.lazy import lazy_import
from ..ir.location import Location
from .words import quantity, seconds

if TYPE_CHECKING:
    from .explanation import ExplainedCollective, Explanation

rich_table = lazy_import("rich.table")
rich_console = lazy_import("rich.console")
rich_text = lazy_import("rich.text")


def excerpt(where: Location) -> str:
    """The source line with carets under the expression; "" where the source is not at hand."""
    line = where.source_line()
    if not line.strip():
        return ""
    width = len(str(where.line))
    end = where.end_column if where.end_line == where.line else len(line)
    caret = " " * where.column + "^" * max(1, end - where.column)
    return f"{where.line:>{width}} | {line}\n{' ' * width} | {caret}"


def totals(e: Explanation) -> list[tuple[str, str]]:
    """Names and values of the totals."""
    t, m = e.times, e.memory
    gap = f", {e.gap:.3g}x the lower bound of {quantity(e.lower_bound, 'B')}" if (
        e.lower_bound) else ""
    per = e.arithmetic_intensity
    device = e.topology.hardware
    return [
        ("received per device", quantity(e.received_bytes, "B") + gap),
        ("time of a step", f"{seconds(t.step)} (computation {seconds(t.compute)}, communication "
                           f"{seconds(t.communication)}, of which {seconds(t.exposed)} exposed)"),
        ("peak memory", f"{quantity(m.peak_bytes, 'B')} of {quantity(device.memory, 'B')} "
                        f"(arguments {quantity(m.argument_bytes, 'B')})"),
        ("operations", f"{quantity(e.flops, 'FLOP')}, {per:.3g} for each byte of memory traffic"),
    ]


def heading(c: ExplainedCollective) -> str:
    times = f" x {c.count}" if c.count != 1 else ""
    over = ", ".join(map(str, c.mesh_axes))
    return (f"{c.kind} over {over} ({c.group_size} devices): {quantity(c.received_bytes, 'B')}"
            f"{times}, {seconds(c.time)}{' each' if c.count != 1 else ''}")


def dearest(e: Explanation, count: int) -> list[ExplainedCollective]:
    return sorted(e.collectives, key=lambda c: -c.total_time)[:count]


def header(e: Explanation) -> list[str]:
    """What is explained, its totals, and where the mesh lies."""
    lines = [f"{e.name} on {e.topology}: {_count(len(e.collectives), 'collective')}"]
    lines += [f"  {name}: {value}" for name, value in totals(e)]
    return lines + [f"  mesh axis {axis}: {e.topology.describe(axis)}" for axis in e.topology.axes]


def summary(e: Explanation, count: int | None = None) -> str:
    """Totals, then a line for each collective, the dearest first."""
    lines = header(e)
    for c in dearest(e, len(e.collectives) if count is None else count):
        lines.append(f"  {seconds(c.total_time):>8}  {heading(c)}, {c.source}")
    return "\n".join(lines)


def text(e: Explanation, advised: int = 3) -> str:
    """The explanation for a terminal without colours. advised: how many get suggestions."""
    lines = header(e)
    groups = alike(e)
    chosen = advised_of(e, advised)
    for i, group in enumerate(groups, 1):
        c = group[0]
        lines += ["", f"{i}. {heading(c)}{f', in {len(group)} places' if len(group) > 1 else ''}"]
        function = c.source.function
        inside = f" in `{function}`" if function not in ("", "<module>") else ""
        if c.source.line:
            lines.append(f"   --> {c.source}{inside}")
        lines += [f"   {line}" for line in excerpt(c.source).splitlines()]
        for k, sentence in enumerate(c.cause.lines()):
            lines.append(f"   {'because: ' if k == 0 else '         '}{sentence}")
        if c.vetoes:
            lines.append(f"   instead: {c.vetoes[0]}")
            lines += [f"            {v}" for v in c.vetoes[1:]]
        if c in chosen:
            lines += advice(e, c)
    for waste in e.warnings:
        lines += ["", *f"warning: {waste}".split("\n")]
    gaps = [g for g in e.gaps() if g.factor > 1.05]
    if gaps:
        lines += ["", "furthest from the lower bound:"]
        lines += [f"  {g}" for g in gaps[:3]]
    return "\n".join(lines)


def alike(e: Explanation) -> list[list[ExplainedCollective]]:
    """The collectives, the dearest first; those of one line with one reason together."""
    groups: dict[tuple, list[ExplainedCollective]] = {}
    for c in dearest(e, len(e.collectives)):
        key = (c.kind, c.mesh_axes, c.received_bytes, c.count, str(c.source), c.reason)
        groups.setdefault(key, []).append(c)
    return sorted(groups.values(), key=lambda g: -sum(c.total_time for c in g))


def advised_of(e: Explanation, count: int) -> list[ExplainedCollective]:
    """The dearest of the collectives, one of each kind and line."""
    firsts: dict[tuple, ExplainedCollective] = {}
    for group in alike(e):
        firsts.setdefault((group[0].kind, str(group[0].source)), group[0])
    return list(firsts.values())[:count]


def advice(e: Explanation, c: ExplainedCollective, count: int = 3) -> list[str]:
    search = c.search
    found = search.suggestions[:count]
    left = search.candidates - search.tried
    tried = (f"of {search.candidates} candidates the first {search.tried} were tried" if left
             else "")
    if not found:
        if not e.partitioned.out_specs and e.partitioned.local.outvars:
            return ["   explain the traced program to see what would avoid it"]
        return [f"   nothing that was tried avoids it{f': {tried}' if tried else ''}"]
    lines = []
    for s in found:
        word = "avoided" if s.removes else "less"
        lines.append(f"   {word} by: {s.text}")
        lines.append(f"      then {quantity(s.received_bytes, 'B')} received"
                     f" ({_change(s.received_bytes, e.received_bytes)}), {seconds(s.time)}"
                     f" ({_change(s.time, e.time)}), peak {quantity(s.peak_bytes, 'B')}"
                     f" ({_change(s.peak_bytes, e.peak_bytes)}), {quantity(s.flops, 'FLOP')}"
                     f" ({_change(s.flops, e.flops)})")
    return lines + ([f"   {tried}"] if tried else [])


def _change(new: float, old: float) -> str:
    if not old or new == old:
        return "as before"
    part = (new - old) / old
    return f"{part:+.0%}" if abs(part) >= 0.005 else f"{part:+.2%}"


def _count(n: int, word: str) -> str:
    return f"{n} {word}{'' if n == 1 else 's'}" if n else f"no {word}s"


def table(e: Explanation, advised: int = 3) -> Any:
    """Rich: one row a collective, then the totals as a caption."""
    out = rich_table.Table(title=f"{e.name} on {e.topology}",
                           caption="\n".join(f"{n}: {v}" for n, v in totals(e)),
                           caption_justify="left", show_lines=True)
    for name, justify in (("collective", "left"), ("axes", "left"), ("devices", "right"),
                          ("bytes", "right"), ("runs", "right"), ("time", "right"),
                          ("source", "left"), ("because", "left"), ("avoided by", "left")):
        out.add_column(name, justify=justify)
    chosen = advised_of(e, advised)
    for c in dearest(e, len(e.collectives)):
        best = c.suggestions[0].text if c in chosen and c.suggestions else ""
        source = f"{c.source}\n{c.source.source_line().strip()}" if c.source.line else ""
        cells = (c.kind, ", ".join(map(str, c.mesh_axes)), str(c.group_size),
                 quantity(c.received_bytes, "B"), str(c.count), seconds(c.total_time), source,
                 "\n".join(c.cause.lines()), best)
        out.add_row(*(rich_text.Text(cell) for cell in cells))
    return out


def as_dict(e: Explanation, suggestions: bool = True) -> dict[str, Any]:
    """Everything as plain data."""
    device = e.topology.hardware
    return {
        "name": e.name, "hardware": device.key, "topology": str(e.topology),
        "mesh": {str(a): n for a, n in zip(e.partitioned.mesh.axis_names,
                                           e.partitioned.mesh.axis_sizes, strict=True)},
        "received_bytes": e.received_bytes, "time": e.time,
        "compute_time": e.times.compute, "communication_time": e.times.communication,
        "peak_bytes": e.peak_bytes, "flops": e.flops,
        "arithmetic_intensity": e.arithmetic_intensity, "lower_bound": e.lower_bound,
        "gap": e.gap, "gaps": [g.to_dict() for g in e.gaps()],
        "collectives": [c.to_dict(suggestions) for c in e.collectives],
        "warnings": [w.to_dict() for w in e.warnings],
        "memory": [{"name": h.name, "type": h.type, "bytes": h.nbytes, "line": h.location.line}
                   for h in e.memory.held[:20]],
    }


def html(e: Explanation, advised: int = 3) -> str:
    """A table for notebooks."""
    def cell(value: str, tag: str = "td") -> str:
        body = html_.escape(value).replace("\n", "<br>")
        return f"<{tag} style='text-align:left;vertical-align:top'>{body}</{tag}>"

    chosen = advised_of(e, advised)
    head = "".join(cell(n, "th") for n in ("collective", "bytes", "time", "source", "because",
                                           "avoided by"))
    rows = []
    for c in dearest(e, len(e.collectives)):
        best = c.suggestions[0].text if c in chosen and c.suggestions else ""
        over = ", ".join(map(str, c.mesh_axes))
        rows.append("<tr>" + "".join(cell(x) for x in (
            f"{c.kind}\nover {over} ({c.group_size})",
            f"{quantity(c.received_bytes, 'B')}{f' x {c.count}' if c.count != 1 else ''}",
            seconds(c.total_time), f"{c.source}\n{c.source.source_line().strip()}",
            "\n".join(c.cause.lines()), best)) + "</tr>")
    listed = "".join(f"<li>{html_.escape(n)}: {html_.escape(v)}</li>" for n, v in totals(e))
    return (f"<div><b>{html_.escape(e.name)}</b> on {html_.escape(str(e.topology))}"
            f"<ul>{listed}</ul><table><tr>{head}</tr>{''.join(rows)}</table></div>")
