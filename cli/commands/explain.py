"""`explain`, `why`, `freedom`: what a program communicates, why, and what it leaves open."""
from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from ...ir.program import Var
from ...ir.source.names import other_names
from ...ir.support.progress import counted
from ...ir.support.spelling import none_such
from ...ir.text.names import dotted
from ...report.advice.suggestions import SECONDS
from ...report.equal_collectives import grouped
from ...report.equal_collectives import places as places_of
from ...report.explanation import Explanation
from ...report.reasons.value_paths import places
from ...report.views.page import page_of
from ..arguments import amount, count, positive
from ..output import Output
from ..problems import Problem, failure
from ..select import one, several
from ..targets import Found, FoundFunction, is_python
from .help import error_page


def topology_of(options: argparse.Namespace) -> tuple[int, ...] | None:
    """`--topology 8,16,16` as numbers."""
    if not options.topology:
        return None
    try:
        return tuple(map(int, options.topology.split(",")))
    except ValueError:
        raise Problem(f"--topology {options.topology!r}: write sizes, such as 8,16,16") from None


def explained(found: Found, options: argparse.Namespace) -> Explanation:
    """The explanation of a target, with the hardware of the options."""
    try:
        return found.explain(options.hardware, topology_of(options))
    except Problem:
        raise
    except Exception as error:
        raise failure(error, f"explaining `{found.name}`") from error


# -- explain ---------------------------------------------------------------------------------------

def add_options(sub: argparse.ArgumentParser) -> None:
    """The options of `explain`."""
    add_telling(sub)
    sub.add_argument("--html", type=Path, metavar="OUT.html",
                     help="write one page to look at: lines, collectives, graph, times, memory")


def add_telling(sub: argparse.ArgumentParser) -> None:
    """Add the options for how much of an explanation is printed, and in what form."""
    sub.add_argument("--suggest", type=count, default=3, metavar="N",
                     help="search suggestions for the N most expensive collectives (default 3)")
    sub.add_argument("--trials", type=positive, metavar="N",
                     help="try N candidates for the suggestions for one collective, however long "
                          "that takes")
    sub.add_argument("--suggest-seconds", type=amount, default=SECONDS, metavar="S",
                     help="search suggestions for about S seconds, counted in equations "
                          f"(default {SECONDS:g}); Ctrl-C keeps what has been found")
    sub.add_argument("--all", action="store_true", help="show each collective in full, also where "
                     "many have one cause")
    sub.add_argument("--table", action="store_true", help="a table instead of text")


def explain(options: argparse.Namespace) -> int:
    """Every collective of a target with line, reason, cost and cure; or the help page of an error.
    """
    out = Output(options)
    page = error_page(options.target)
    if page is not None:
        if out.as_json:
            out.json({"error": options.target, "page": page})
        else:
            out.text(page)
        return 0
    found, missing = several(options.target, options)
    made = different([(f, explained(f, options)) for f in counted(found, "explaining")])
    for _, e in made:
        e.explainer.trials, e.explainer.seconds = options.trials, options.suggest_seconds
    made.sort(key=lambda item: (not isinstance(item[0], FoundFunction),
                              -item[1].times.communication))
    if options.html:
        return _written(out, options, made, missing)
    single = len(made) == 1 and not (is_python(options.target) and options.target.endswith(".py"))
    if out.as_json:
        data = []
        for f, e in made:
            with f.context():
                data.append({"target": f.label, "function": f.name,
                             **e.to_dict(suggestions=bool(options.suggest)),
                             "warnings": [w.to_dict() for w in e.warnings]})
        out.json(data[0] if single else {"file": options.target, "functions": data,
                                         "missing": missing})
        return 0
    if not single:
        out.text(_overview(options.target, made))
    for f, e in made:
        if not single:
            if not e.collectives and not e.warnings and len(made) > 1:
                continue
            out.text(f"\n{_heading(f)}")
        with f.context():
            if options.table:
                out.renderable(e.table(options.suggest))
            else:
                for block in e.blocks(options.suggest, out.width, options.all):
                    out.as_it_is(block)
                    sys.stdout.flush()
    for line in missing:
        out.text(f"\nnote: {line}" if not line.startswith("    ") else line)
    return 0


def _written(out: Output, options: argparse.Namespace, made: list[tuple[Found, Explanation]],
             missing: list[str]) -> int:
    """Write the page of all that was explained."""
    views, texts = [], []
    for f, e in made:
        with f.context():
            views.append({**e.view(options.suggest), "label": _heading(f).replace("\n", " ")})
            texts.append(e.text(options.suggest, out.width))
    page = page_of(views, Path(options.target).name, "\n\n".join(texts))
    options.html.write_text(page, encoding="utf-8")
    if out.as_json:
        out.json({"file": options.target, "html": str(options.html), "missing": missing})
    else:
        out.text("\n".join([f"{options.html}: {len(views)} program{'s' * (len(views) != 1)}",
                            *(f"note: {line}" for line in missing)]))
    return 0


def different(made: list[tuple[Found, Explanation]]) -> list[tuple[Found, Explanation]]:
    """Without the programs that are like an earlier one: of arguments placed anew, for example."""
    kept: dict[Any, tuple[Found, Explanation]] = {}
    for f, e in made:
        types = f.argument_types() if isinstance(f, FoundFunction) else id(f)
        kept.setdefault((f.label, types, tuple((c.kind, c.received_bytes, str(c.source))
                                               for c in e.collectives)), (f, e))
    return list(kept.values())


def _heading(f: Found) -> str:
    """Which program of the file it is, and on what arguments."""
    if not isinstance(f, FoundFunction):
        return f.label
    types = f.argument_types()
    types = types if len(types) <= 120 else types[:117].rsplit(",", 1)[0] + ", ..."
    start = "(" if len(f.label) + len(types.partition(" ")[0]) < 76 else "(\n  "
    return f"{f.label}{start}{types})" + (f", {f.how}" if f.how else "")


def _overview(target: str, made: list[tuple[Found, Explanation]]) -> str:
    """What a file moves, a line for each of its functions."""
    total = sum(len(e.collectives) for _, e in made)
    lines = [f"{target}: {len(made)} program{'s' if len(made) != 1 else ''}, "
             f"{total} collective{'s' if total != 1 else ''}"]
    for f, e in made:
        kinds: dict[str, int] = {}
        for c in e.collectives:
            kinds[c.kind] = kinds.get(c.kind, 0) + c.count
        listed = ", ".join(f"{n} {k}" for k, n in kinds.items()) or "no communication"
        lines.append(f"  {f.name}: {listed}"
                     + (f", {e.received_bytes:,} B received per device" if kinds else ""))
        if e.collectives:
            group = grouped(e.collectives)[0]
            c = group[0]
            where = f" at {c.source}: {c.source.source_line().strip()}" if c.source.line else ""
            lines.append(f"    costliest: {c.kind} over {', '.join(map(str, c.mesh_axes))}"
                         f"{places_of(group)}{where}")
    return "\n".join(lines)


# -- why -------------------------------------------------------------------------------------------

def add_value(sub: argparse.ArgumentParser) -> None:
    """The options of `why`."""
    sub.add_argument("value", help="NAME.DIM, such as h.0, or NAME for all dimensions")


def why(options: argparse.Namespace) -> int:
    """Where the axes on a dimension of a value come from."""
    found = one(options.target, options)
    e = explained(found, options)
    called: dict[str, list[Var]] = {}
    listed: set[str] = set()
    for again in (False, True):                 # the first name of a value counts more
        for _, v, _ in places(e.partitioned.resolved):
            own = v.name or e.reasons.name(v).strip("`")
            for n in other_names(v.name) if again else (own,):
                called.setdefault(dotted(n), []).append(v)
                if v.name or n.isidentifier():
                    listed.add(dotted(n))
    name, dim = options.value, ""
    if dotted(name) not in called and name.rpartition(".")[2].isdigit():
        name, _, dim = name.rpartition(".")
    values = called.get(dotted(name))
    if not values:
        raise Problem(none_such(name, sorted(listed), "value"))
    value = values[0]
    rows = []
    for d in [int(dim)] if dim else range(value.aval.ndim):
        if not 0 <= d < value.aval.ndim:
            raise Problem(f"{name} is {value.aval.str_short(True)}: no dimension {d}")
        lines = []
        for axis in value.aval.entries[d]:
            path = e.reasons.path(value, d, axis)
            lines.append(str(path or f"{axis} on dimension {d} of `{name}`: its type"))
        rows.append((d, lines or [f"dimension {d} of `{name}` is whole"]))
    held = [str(h) for h in e.reasons.held(value)]
    tensor = e.reasons.tensor(value)
    moved = [f"{c.kind} over {', '.join(map(str, c.mesh_axes))} at {c.source}: {c.verdict}"
             for c in e.parts if c.cause.move is not None and tensor >= 0
             and e.reasons.tensor(c.cause.move.outvars[0]) == tensor]
    out = Output(options)
    if out.as_json:
        out.json({"value": name, "type": value.aval.str_short(True),
                  "dimensions": [{"dimension": d, "axes": list(map(str, value.aval.entries[d])),
                                  "why": lines} for d, lines in rows],
                  "held": held, "moved": moved,
                  "why": [*(line for _, lines in rows for line in lines), *held, *moved]})
    else:
        out.text("\n".join([f"{name}: {value.aval.str_short(True)}",
                            *(f"  {line}" for _, lines in rows for line in lines),
                            *(f"  {line}" for line in (*held, *moved))]))
    return 0


# -- freedom ---------------------------------------------------------------------------------------

def add_trials(sub: argparse.ArgumentParser) -> None:
    """The options of `freedom`."""
    sub.add_argument("--suggest-seconds", type=amount, default=SECONDS, metavar="S",
                     help="try splits for about S seconds, counted in equations "
                          f"(default {SECONDS:g})")


def freedom(options: argparse.Namespace) -> None:
    """Print the freedom map of a target."""
    found = one(options.target, options)
    with found.context():
        e = explained(found, options)
        e.explainer.seconds = options.suggest_seconds
        made = e.freedom()
        text = str(made)
    out = Output(options)
    if out.as_json:
        out.json(made.to_dict())
    else:
        out.text(text)
