"""An explanation as text, as a rich table, as HTML and as plain data."""
from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from ..ir.diagnostics.diagnostic import visible
from ..ir.passes import OBJECTIVE
from ..ir.source.prose import wrapped
from ..ir.source.wording import duration
from ..ir.support.html import escaped, grid, page
from ..ir.support.html import listed as html_list
from ..ir.support.lazy import lazy_import
from ..ir.text.folding import WIDTH
from ..partitioner.collectives import CollectiveRecord
from ..partitioner.cost.prices import Objective
from .advice.changes import Argument, pattern_of, rows
from .advice.suggestion import Suggestion
from .advice.trials import MUCH
from .analysis import Analysis
from .equal_collectives import causes, grouped, places
from .explained_collective import ExplainedCollective
from .gaps import gaps
from .propagation.freedom import NEARLY
from .reasons.causes import Hold, Path
from .root_causes import RootCause
from .warnings.layouts import idle_axes
from .warnings.warnings import found_by, warnings_of
from .words import changed_by, excerpt, listed, quantity

rich_table = lazy_import("rich.table")
rich_console = lazy_import("rich.console")
rich_text = lazy_import("rich.text")


_FEW = 4          # collectives of one cause that have a line each
_REASONS = 3      # sentences on why a collective is there


def totals(e: Analysis) -> list[tuple[str, str]]:
    """Names and values of the totals."""
    t, m = e.times, e.memory
    gap = f", {e.gap:.3g}x the lower bound of {quantity(e.lower_bound, 'B')}" if (
        e.lower_bound) else ""
    per = e.arithmetic_intensity
    device = e.topology.hardware
    said, *_ = e.partitioned.local.attributes.get(OBJECTIVE, ("time",))
    plan = Objective.of(said).unlike_usual
    return [
        *([("plan", plan)] if plan else []),
        ("received per device", quantity(e.received_bytes, "B") + gap),
        ("time of a step", f"{duration(t.step)} (computation {duration(t.compute)}, communication "
                           f"{duration(t.communication)}, of which {duration(t.exposed)} exposed)"),
        ("peak memory", f"{quantity(m.peak_bytes, 'B')} of {quantity(device.memory, 'B')} "
                        f"(arguments {quantity(m.argument_bytes, 'B')})"),
        ("operations", f"{quantity(e.flops, 'FLOP')}, {per:.3g} for each byte of memory traffic"),
    ]


def heading(c: ExplainedCollective) -> str:
    part = "" if c.exchange is None else f", one of {c.operands} operands"
    return record_heading(c.record, c.time) + part


def record_heading(c: CollectiveRecord, seconds: float) -> str:
    """A collective, that takes so many seconds each time, in a line."""
    times = f" x {c.count}" if c.count != 1 else ""
    over = ", ".join(map(str, c.mesh_axes))
    return (f"{c.kind} over {over} ({c.group_size} devices): {quantity(c.received_bytes, 'B')}"
            f"{times}, {duration(seconds)}{' each' if c.count != 1 else ''}")


def header(e: Analysis) -> list[str]:
    """What is explained, its totals, and where the mesh lies."""
    lines = [f"{e.name} on {e.topology}: {_count(len(e.collectives), 'collective')}"]
    lines += [f"  {name}: {value}" for name, value in totals(e)]
    return lines + [f"  mesh axis {axis}: {e.topology.describe(axis)}" for axis in e.topology.axes]


def summary(e: Analysis, count: int | None = None) -> str:
    """Totals, then a line for each collective, the costliest first."""
    lines = header(e)
    for group in grouped(e.collectives)[:count]:
        total = sum(c.total_time for c in group)
        lines.append(f"  {duration(total):>8}  {heading(group[0])}{places(group)}, "
                     f"{group[0].place}")
    return wrapped("\n".join(lines), WIDTH)


def text(e: Analysis, advised: int = 3, width: int = WIDTH, each: bool = False) -> str:
    """The explanation for a terminal without colours. advised: how many get suggestions; each:
    whether all are shown in full, also those that have a cause in common.
    """
    return "\n".join(blocks(e, advised, width, each))


def blocks(e: Analysis, advised: int = 3, width: int = WIDTH, each: bool = False) -> Iterator[str]:
    """The text, block by block, each as soon as it is known: suggestions take a while."""
    for block in _blocks(e, advised, each):
        yield wrapped(block, width)


def _blocks(e: Analysis, advised: int, each: bool) -> Iterator[str]:
    """The parts of the text: heading, collectives, warnings, and what is furthest from the lower
    bound. advised: for how many collectives suggestions are shown. each: one entry for each
    collective instead of one for each cause.
    """
    yield "\n".join(header(e))
    if each:
        chosen = advised_of(e, advised)
        for i, group in enumerate(grouped(e.collectives), 1):
            yield from _entry(e, group, ["", f"{i}. "], group[0] in chosen)
    else:
        yield from _by_cause(e, advised)
    for waste in warnings_of(e):
        saved = f"\n   {effect(e, waste.suggestion)}" if waste.suggestion else ""
        yield f"\nwarning: {waste}{saved}"
    furthest = [g for g in gaps(e.parts) if g.factor > 1.05][:3]
    if furthest:
        yield "\n".join(["", "furthest from the lower bound:", *(f"  {g}" for g in furthest)])


def _by_cause(e: Analysis, advised: int) -> Iterator[str]:
    """A paragraph for each root cause: its costliest collective in full, and a line of others.

    Where fewer than `advised` are shown in full more are, first those that only change a layout.
    """
    short = 0
    # an axis that splits nothing is the worst mistake: it is tried before the budget is spent
    idle = [w.suggestion for w in found_by(idle_axes, e) if w.suggestion] if advised else []
    root_causes = e.root_causes if advised else e.causes_by_cost
    firsts = (s for cause in root_causes[:advised] for s in cause.groups[0][0].suggestions[:1])
    best = [s for s in idle if _shortens(e, s)]
    best += itertools.islice((s for s in firsts if _shortens(e, s)), 1)
    shown = _Shown()
    if best:
        least = min(s.time for s in best)
        first = next(s for s in best if s.time <= NEARLY * least)
        yield "\n".join(["", *_proposal(e, "change first", first, shown)])
    left = [g for cause in root_causes for g in cause.groups[1:]
            if g[0].exchange is None or g[0].exchange is not cause.groups[0][0].exchange]
    left.sort(key=lambda g: g[0].kind in ("all-reduce", "reduce-scatter"))
    more_advised = {id(g) for g in left[:max(0, advised - len(root_causes))]}
    for i, cause in enumerate(root_causes, 1):
        first, *others = cause.groups
        start = ["", f"{i}. because of {cause.described(e.received_bytes)}", "   "] if others else [
            "", f"{i}. because of {cause.text}: " if cause.text else f"{i}. "]
        shown.cause = cause
        yield from _entry(e, first, start, i <= advised, shown)
        for group in others:
            if id(group) in more_advised:
                yield from _entry(e, group, ["   and "], True, shown)
        others = [g for g in others if id(g) not in more_advised]
        lines = [f"   also {heading(g[0])}{places(g)}, {g[0].place}" for g in others[:_FEW]]
        more = [c for g in others[_FEW:] for c in g]
        if more:
            size = quantity(sum(c.total_bytes for c in more), "B")
            lines.append(f"   and {_count(len(more), 'other')}, {size}")
        short += len(others)
        if lines:
            yield "\n".join(lines)
    if short or shown.less:
        yield "\n(`--all`, or `text(each=True)`, shows in full what is shortened here)"


class _Shown:
    """What a text has stated already, which it does not repeat. less: has it left out reasons?
    cause: which it describes now.
    """

    def __init__(self) -> None:
        self.suggestions: set[str] = set()
        self.less = False
        self.cause: RootCause | None = None

    def asked(self, c: ExplainedCollective) -> bool:
        """Is the cause that is described what asked for this collective?"""
        return (self.cause is not None and c.asked_by is not None
                and c.asked_by.location.file == c.source.file
                and self.cause.annotation.is_of(c.asked_by))

    def nearest(self, sentences: Sequence[str], count: int,
                about: Sequence[Path | Hold | None] = ()) -> Sequence[str]:
        """A few of the sentences (one more is shown, too): the first, and those on the cause before
        others. about: what each of them is about, as far as that is known.
        """
        count += len(sentences) == count + 1
        self.less = self.less or len(sentences) > count
        own = {n for n, one in enumerate(about) if self.cause is not None and one is not None
               and self.cause.annotation.is_of(one)}
        order = sorted(range(1, len(sentences)), key=lambda n: n not in own)
        return [sentences[n] for n in (0, *order)[:min(count, len(sentences))]]

    def is_repeated(self, s: Suggestion) -> bool:
        """Was this suggestion shown? It counts as shown from now on."""
        seen = s.text in self.suggestions
        self.suggestions.add(s.text)
        return seen


def _entry(e: Analysis, group: Sequence[ExplainedCollective], start: Sequence[str], advised: bool,
           shown: _Shown | None = None) -> Iterator[str]:
    """Equal collectives: what, where, why, and what avoids them. start: what is before it; shown:
    what need not be repeated (None: all is).
    """
    c = group[0]
    lines = [*start[:-1], f"{start[-1]}{heading(c)}{places(group)}"]
    for n, at in enumerate((c.source, *c.calls)):
        inside = f" in `{at.function}`" if at.function not in ("", "<module>") else ""
        if at.line:
            lines.append(f"   {'called at' if n else '-->'} {at}{inside}")
        lines += [f"   {line}" for line in excerpt(at).splitlines()]
    lines += [f"   {quantity(sum(p.received_bytes for p in own), 'B')} of "
              f"{own[0].value or own[0].source.text()}{places(own)}, {own[0].place}: "
              f"{own[0].verdict}" for own in grouped(c.parts)]
    if shown is None and len(group) > 1:
        lines += [f"   of {one.value or one.source.text()}, {one.place}" for one in group]
    sentences, about = causes(group), c.cause.subjects
    if shown is None or not shown.asked(c):
        lines.append(f"   {c.verdict}")
    elif c.cause.move is None:
        sentences, about = sentences[1:], about[1:]      # that it is written where it was asked for
    for k, sentence in enumerate(sentences if shown is None else (
            shown.nearest(sentences, _REASONS, about))):
        lines.append(f"   {'because: ' if k == 0 else '         '}{sentence}")
    vetoes = c.vetoes if shown is None else shown.nearest(c.vetoes, 1)
    for k, sentence in enumerate(vetoes):
        lines.append(f"   {'instead: ' if k == 0 else '         '}{sentence}")
    yield "\n".join(lines)
    if advised:
        yield "\n".join(advice(e, c, shown=shown))


def advised_of(e: Analysis, count: int) -> list[ExplainedCollective]:
    """The costliest of the collectives, one of each kind and line."""
    firsts: dict[tuple, ExplainedCollective] = {}
    for group in grouped(e.collectives):
        firsts.setdefault((group[0].kind, group[0].place), group[0])
    return list(firsts.values())[:count]


def advice(e: Analysis, c: ExplainedCollective, count: int = 3, shown: _Shown | None = None
           ) -> list[str]:
    """What avoids a collective, and what that saves; the latter not for what was shown before."""
    search = c.search
    found = [s for s in _worth_showing(e, search.suggestions)[:count]
             if shown is None or s.lessens or s.text not in shown.suggestions]
    left = search.candidates - search.tried
    tried = (f"of {search.candidates} candidates the first {search.tried} were tried"
             + (", then it was stopped" if search.stopped
                else f"; trials={search.candidates} tries them all") if left else "")
    if not found:
        if not e.partitioned.out_specs and e.partitioned.local.outvars:
            return ["   explain the traced program to see what would avoid it"]
        return [f"   nothing that was tried avoids it{f': {tried}' if tried else ''}"]
    lines = []
    for s in found:
        word = "avoided" if s.removes else "less" if s.lessens else "faster"
        lines += [f"   {line}" for line in _proposal(e, f"{word} by", s, shown)]
    if search.turn is not None:
        factor, other = search.turn
        lines.append(f"   from about {factor:.2g} times the data on, "
                     + ("the first saves no time" if other is None else f"rather: {other.text}"))
    return lines + ([f"   {tried}"] if tried else [])


def _proposal(e: Analysis, word: str, s: Suggestion, shown: _Shown | None) -> Iterator[str]:
    """A suggestion, the code that it changes, and its effect; only its words if shown before."""
    if shown is not None and shown.is_repeated(s):
        yield f"{word}: {s.text} (as above)"
        return
    yield f"{word}: {s.text}"
    for both in s.diff:
        yield from (f"   {sign} {line.strip()}" for sign, text in zip("-+", both, strict=True)
                    for line in text.splitlines())
    yield f"   {effect(e, s)}"


def _worth_showing(e: Analysis, found: Sequence[Suggestion]) -> list[Suggestion]:
    """Without what takes much more memory or operations, and no less time than the first."""
    return [s for s in found if s is found[0] or s.time < found[0].time or not (
        s.peak_bytes > e.peak_bytes * MUCH or s.flops > e.flops * MUCH)]


def effect(e: Analysis, s: Suggestion) -> str:
    """What a suggestion saves, and what that costs."""
    gain = (f"saves {duration(e.time - s.time)} of {duration(e.time)}" if _shortens(e, s)
            else "saves no time")
    fewer = e.received_bytes - s.received_bytes
    less = (f"{quantity(abs(fewer), 'B')}{' more than' if fewer < 0 else ' of'} "
            f"{quantity(e.received_bytes, 'B')} received" if fewer
            else "as many bytes are received")
    price = [f"{name} {_change(now, was)}" for name, now, was in (
        ("memory", s.peak_bytes, e.peak_bytes), ("operations", s.flops, e.flops))
        if _change(now, was) != "as before"]
    whole = replicated(e, s)
    return "".join([gain, _percent(s.time, e.time), ", ", less,
                    _percent(s.received_bytes, e.received_bytes), "; ",
                    f"replicates {whole}: " if whole else "",
                    ", ".join(price) or "memory and operations as before",
                    "; in proportion to a few of the blocks" if s.estimated else ""])


def _shortens(e: Analysis, s: Suggestion) -> bool:
    """Does it save time, by more than what rounding makes of it?"""
    return s.time < e.time and bool(changed_by(s.time, e.time))


def replicated(e: Analysis, s: Suggestion) -> str:
    """The arguments that a suggestion holds whole, and that are split without it."""
    names: dict[str, None] = {}
    for first, *others in rows(s.changes):
        if isinstance(first, Argument) and not any(first.spec) and any(
                e.partitioned.in_specs[first.index]):
            names[pattern_of([first.name, *(getattr(c, "name", "") for c in others)])] = None
    return listed([f"`{name}`" for name in names])


def _percent(new: float, old: float) -> str:
    change = changed_by(new, old)
    return f" ({change})" if change else ""


def _change(new: float, old: float) -> str:
    return changed_by(new, old) or "as before"


def _count(n: int, word: str) -> str:
    return f"{n} {word}{'' if n == 1 else 's'}" if n else f"no {word}s"


def table(e: Analysis, advised: int = 3) -> Any:
    """Rich: one row for collectives that are alike, then the totals as a caption."""
    def plain(text: str) -> Any:            # no mark-up, whatever names it has
        return rich_text.Text(visible(text))

    out = rich_table.Table(title=plain(f"{e.name} on {e.topology}"), title_justify="left",
                           caption=plain("\n".join(f"{n}: {v}" for n, v in totals(e))),
                           caption_justify="left", show_lines=True)
    for name, justify in (("collective", "left"), ("bytes", "right"), ("time", "right"),
                          ("where, why, and what avoids it", "left")):
        out.add_column(name, justify=justify, overflow="fold")
    for cells in _cells(e, advised):
        out.add_row(*map(plain, cells))
    return out


def _cells(e: Analysis, advised: int) -> list[tuple[str, ...]]:
    """The rows of a table: what, how much, how long, and where, why and what avoids it."""
    chosen = advised_of(e, advised)
    rows = []
    for group in grouped(e.collectives):
        c = group[0]
        about = [text for at in (c.source, *c.calls) if at.line
                 for text in (str(at), at.source_line().strip())]
        about.append(c.verdict)
        about += [f"because {line}" if i == 0 else line for i, line in enumerate(causes(group))]
        if c in chosen and c.suggestions:
            about.append(f"avoided by {c.suggestions[0].text}")
        times = len(group) * c.count
        rows.append((f"{c.kind}\nover {', '.join(map(str, c.mesh_axes))} ({c.group_size})",
                     quantity(c.received_bytes, "B") + (f"\nx {times}" if times != 1 else ""),
                     duration(sum(g.total_time for g in group)), "\n".join(about)))
    return rows


def as_dict(e: Analysis, suggestions: bool = True) -> dict[str, Any]:
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
        "gap": e.gap, "gaps": [g.to_dict() for g in gaps(e.parts)],
        "root_causes": [r.to_dict() for r in e.root_causes],
        "collectives": [c.to_dict(suggestions) for c in e.collectives],
        "warnings": [w.to_dict() for w in warnings_of(e)],
        "memory": [{"name": h.name, "type": h.type, "bytes": h.nbytes, "line": h.location.line}
                   for h in e.memory.held[:20]],
    }


def html(e: Analysis, advised: int = 3) -> str:
    """A table for notebooks."""
    heads = ("collective", "bytes", "time", "where, why, and what avoids it")
    return page(f"<b>{escaped(e.name)}</b> on {escaped(str(e.topology))}"
                + html_list([f"{n}: {v}" for n, v in totals(e)])
                + grid(heads, _cells(e, advised)))
