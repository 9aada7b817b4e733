"""`explain`, `check`, `why`: what a program communicates, why, and whether it may.

A budget file is TOML or JSON with `max_bytes`, `max_peak_bytes`, `kinds`, `axis` and `exact` as of
`shardtrace.testing.assert_comm`, at the top or in a table named after the target.
"""
from __future__ import annotations

import argparse
import json
import sys
import tomllib
from typing import Any

from ..driver.budgets import assert_comm
from ..ir import errors
from ..ir.diagnostic import Diagnostic
from ..ir.program import Var
from ..ir.progress import counted
from ..report.explanation import Explanation
from ..report.merging import alike
from ..report.merging import places as places_of
from ..report.places import places
from .output import Output
from .problems import FINDING, Problem, failure
from .programs import place
from .select import one, several
from .targets import Found, FoundFunction, is_python

LIMITS = ("max_bytes", "max_peak_bytes", "kinds", "axis", "exact")


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

def explain(options: argparse.Namespace) -> int:
    """Every collective of a target with line, reason, cost and cure; or the help page of an error.
    """
    out = Output(options)
    page = _help_page(options.target)
    if page is not None:
        if out.as_json:
            out.json({"error": options.target, "page": page})
        else:
            out.text(page)
        return 0
    found, missing = several(options.target, options)
    made = _different([(f, explained(f, options)) for f in counted(found, "explaining")])
    for _, e in made:
        e.trials = options.trials
    made.sort(key=lambda item: (not isinstance(item[0], FoundFunction),
                              -item[1].times.communication))
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
                for block in e.blocks(options.suggest, out.width):
                    out.as_it_is(block)
                    sys.stdout.flush()
    for line in missing:
        out.text(f"\nnote: {line}" if not line.startswith("    ") else line)
    return 0


def _different(made: list[tuple[Found, Explanation]]) -> list[tuple[Found, Explanation]]:
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
            group = alike(e.collectives)[0]
            c = group[0]
            where = f" at {c.source}: {c.source.source_line().strip()}" if c.source.line else ""
            lines.append(f"    dearest: {c.kind} over {', '.join(map(str, c.mesh_axes))}"
                         f"{places_of(group)}{where}")
    return "\n".join(lines)


def _help_page(name: str) -> str | None:
    """The help page of an error class."""
    cls = getattr(errors, name, None) if name.isidentifier() else None
    if not isinstance(cls, type) or not cls.__doc__:
        return None
    lines = cls.__doc__.split("\n")
    rest = [line.removeprefix("    ") for line in lines[1:]]
    return "\n".join([f"{name}: {lines[0]}", *rest]).rstrip()


# -- check -----------------------------------------------------------------------------------------

def check(options: argparse.Namespace) -> int:
    """Does a target keep to its budget, and has it no warnings?"""
    if options.budget is None and not options.warnings:
        raise Problem("give --budget FILE, --warnings, or both")
    out = Output(options)
    found: list[Found] = []
    missing: list[str] = []
    for target in (options.target, *options.more):
        some, lacking = several(target, options)
        found, missing = [*found, *some], [*missing, *lacking]
    rows: list[dict[str, Any]] = []
    texts: list[str] = []
    for f, e in _different([(f, explained(f, options)) for f in counted(found, "checking")]):
        with f.context():
            limits = _limits(options, f) if options.budget else {}
            problem = _over(e, limits) if options.budget else None
            warned = e.warnings if options.warnings else ()
        rows.append({"target": f.label, "ok": not problem and not warned,
                     "message": str(problem) if problem else "",
                     "location": _location(problem), "limits": limits,
                     "received_bytes": e.received_bytes, "peak_bytes": e.peak_bytes,
                     "warnings": [w.to_dict() for w in warned]})
        texts += [str(problem)] if problem else []
        texts += [f"warning: {w}" for w in warned]
        if not problem and not warned:
            texts.append(f"{e.name}: {e.received_bytes:,} bytes received, {e.peak_bytes:,} bytes "
                         "held per device: " + ("within the budget" if options.budget
                                                else "no warnings"))
    fine = all(r["ok"] for r in rows)
    if out.as_json:
        single = rows[0] if len(rows) == 1 else {}
        out.json({"ok": fine, **{k: v for k, v in single.items() if k != "ok"},
                  "checked": rows, "missing": missing})
    else:
        for text in texts:
            out.text(text)
        for line in missing:
            out.text(line)
    return 0 if fine else FINDING


def _limits(options: argparse.Namespace, found: Found) -> dict[str, Any]:
    """The limits that the budget file sets for a program."""
    try:
        text = options.budget.read_text()
        table = json.loads(text) if options.budget.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as problem:
        raise Problem(f"{options.budget}: {problem}") from problem
    if not isinstance(table, dict):
        raise Problem(f"{options.budget}: a budget is a table of limits")
    budget = table
    for key in (found.label, found.label.partition(".py:")[0] + ".py", found.name):
        if isinstance(table.get(key), dict):
            budget = table[key]
            break
    limits = {k: budget[k] for k in LIMITS if k in budget}
    known = any(isinstance(v, dict) for v in table.values())
    if not limits and not known:
        raise Problem(f"{options.budget} sets no limit for {found.label}: give one of "
                      f"{', '.join(LIMITS[:3])}")
    unknown = sorted(k for k, v in budget.items() if k not in LIMITS and not isinstance(v, dict))
    if unknown:
        raise Problem(f"{options.budget} sets {', '.join(unknown)}, which is no limit; limits are "
                      f"{', '.join(LIMITS)}")
    return limits


def _over(e: Explanation, limits: dict[str, Any]) -> AssertionError | None:
    try:
        assert_comm(e, **limits)
    except AssertionError as failed:
        return failed
    return None


def _location(problem: AssertionError | None) -> dict[str, Any] | None:
    diagnostic = getattr(problem, "diagnostic", None)
    if not isinstance(diagnostic, Diagnostic) or not diagnostic.location.line:
        return None
    return place(diagnostic.location)


# -- why -------------------------------------------------------------------------------------------

def why(options: argparse.Namespace) -> int:
    """Where the axes on a dimension of a value come from."""
    found = one(options.target, options)
    e = explained(found, options)
    name, _, dim = options.value.rpartition(".")
    if not dim.isdigit():
        name, dim = options.value, ""
    resolved = e.partitioned.resolved
    values: list[Var] = [v for _, v, _ in places(resolved)
                         if v.name == name or e.reasons.name(v) == f"`{name}`"]
    if not values:
        known = sorted({n for _, v, _ in places(resolved)
                        if (n := v.name or e.reasons.name(v).strip("`")).isidentifier()})
        raise Problem(f"there is no value {name!r}; there are {', '.join(known)}")
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
    out = Output(options)
    if out.as_json:
        out.json({"value": name, "type": value.aval.str_short(True),
                  "dimensions": [{"dimension": d, "axes": list(map(str, value.aval.entries[d])),
                                  "why": lines} for d, lines in rows],
                  "held": held, "why": [*(line for _, lines in rows for line in lines), *held]})
    else:
        out.text("\n".join([f"{name}: {value.aval.str_short(True)}",
                            *(f"  {line}" for _, lines in rows for line in lines),
                            *(f"  {line}" for line in held)]))
    return 0

