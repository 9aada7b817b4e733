"""`check`: does a program stay within its communication budget?

A budget file is TOML or JSON with `max_bytes`, `max_peak_bytes`, `kinds`, `axis` and `exact` as of
`shardtrace.testing.assert_comm`, at the top or in a table named after a function or target. Parts
that no budget covers are listed, and it is an error if nothing was checked at all.
"""
from __future__ import annotations

import argparse
import ast
import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...driver.analysis.budgets import assert_comm, check_limits
from ...ir.diagnostics.diagnostic import Diagnostic, clipped
from ...ir.support.progress import counted
from ...ir.support.spelling import close_match, none_such
from ...report.explanation import Explanation
from ..output import Output
from ..problems import FINDING, Problem
from ..select import several
from ..targets import Found, is_python, parts_of
from .explain import different, explained

LIMITS = ("max_bytes", "max_peak_bytes", "kinds", "axis", "exact")


def add_options(sub: argparse.ArgumentParser) -> None:
    """The options of the command."""
    sub.add_argument("more", nargs="*", metavar="target", help="further targets")
    sub.add_argument("--budget", type=Path, metavar="FILE",
                     help="a TOML or JSON file with max_bytes, max_peak_bytes, kinds, axis")
    sub.add_argument("--warnings", action="store_true",
                     help="fail on waste: silent replication, padding, repeated gathers, ...")


def check(options: argparse.Namespace) -> int:
    """Does a target keep to its budget, and has it no warnings?"""
    if options.budget is None and not options.warnings:
        raise Problem("give --budget FILE, --warnings, or both")
    out = Output(options)
    budget = Budget(options.budget) if options.budget else None
    found: list[Found] = []
    missing: list[str] = []
    for target in (options.target, *options.more):
        some, lacking = several(target, options, complete=True)
        found, missing = [*found, *some], [*missing, *lacking]
    if budget is not None:
        budget.check_sections(found, (options.target, *options.more), missing)
    rows: list[dict[str, Any]] = []
    texts: list[str] = []
    for f, e in different([(f, explained(f, options)) for f in counted(found, "checking")]):
        limits = budget.limits(f) if budget else {}
        with f.context():
            problem = _over(e, limits, options) if limits else None
            warned = e.warnings if options.warnings else ()
        checked = bool(limits) or options.warnings
        rows.append({"target": f.label, "ok": not problem and not warned, "checked": checked,
                     "message": str(problem) if problem else "",
                     "location": _location(problem), "limits": limits,
                     "received_bytes": e.received_bytes, "peak_bytes": e.peak_bytes,
                     "warnings": [w.to_dict() for w in warned]})
        texts += [str(problem)] if problem else []
        texts += [f"warning: {w}" for w in warned]
        if not checked:
            texts.append(f"{e.name}: not checked, {options.budget} sets no limit for it")
        elif not problem and not warned:
            texts.append(f"{e.name}: {e.received_bytes:,} bytes received, {e.peak_bytes:,} bytes "
                         "held per device: " + ("within the budget" if limits else "no warnings"))
    if not any(r["checked"] for r in rows):
        raise Problem(f"{options.budget} sets no limit for "
                      f"{', '.join(r['target'] for r in rows)}: nothing was checked")
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


class Budget:
    """A budget file: limits at its top, and in tables named after functions or targets.

    Raises Problem for a file that cannot be read, or that has an entry that is no limit.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        try:
            text = file.read_text(encoding="utf-8")
            table = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
        except (OSError, ValueError, RecursionError) as problem:
            raise Problem(f"{file}: {problem}") from problem
        if not isinstance(table, dict):
            raise Problem(f"{file}: a budget is a table of limits")
        self.sections = {k: v for k, v in table.items() if isinstance(v, dict) and k != "kinds"}
        self.common = {k: v for k, v in table.items() if k not in self.sections}
        for name, limits in (("", self.common), *self.sections.items()):
            inside = f" in [{name}]" if name else ""
            for key in limits:
                if key not in LIMITS:
                    hint = close_match(key, LIMITS) or f"limits are {', '.join(LIMITS)}"
                    raise Problem(f"{file}: {clipped(repr(key), 200)}{inside} is no limit; {hint}")
            if not limits and (name or not self.sections):
                raise Problem(f"{file} sets no limit{inside}: give one of {', '.join(LIMITS[:3])}")
            try:
                check_limits(**limits) if limits else None
            except (TypeError, ValueError) as problem:
                raise Problem(f"{file}{inside}: {_plain(problem)}") from problem

    def section(self, found: Found) -> str | None:
        """The table that is named after a program, or the file that it is in."""
        names = (found.label, found.label.partition(".py:")[0] + ".py", found.name)
        return next((n for n in names if n in self.sections), None)

    def limits(self, found: Found) -> dict[str, Any]:
        """The limits of a program; {} if the file has none for it."""
        name = self.section(found)
        return self.common if name is None else self.sections[name]

    def check_sections(self, found: Sequence[Found], targets: Sequence[str],
                       missing: Sequence[str]) -> None:
        """Raise Problem for a table that no program has, unless it is named after something of a
        file of which one function is asked for."""
        used = {self.section(f) for f in found}
        others = {name for t in targets if is_python(t) and parts_of(t)[1]
                  for name in defined_names(parts_of(t)[0])}
        for name in self.sections:
            if name not in used and name.rpartition(".py:")[2] not in others:
                known = sorted({f.name for f in found} | others)
                listed = "\n".join(["", *missing])
                raise Problem(f"{self.file}: [{name}]: {none_such(name, known, 'program')}; "
                              f"nothing was checked for it{listed}")


def defined_names(path: Path) -> set[str]:
    """The names that a Python file defines, at any depth."""
    try:
        tree = ast.parse(path.read_text())
    except (OSError, SyntaxError, ValueError):
        return set()
    return {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)} | {
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _over(e: Explanation, limits: dict[str, Any], options: argparse.Namespace
          ) -> AssertionError | None:
    try:
        assert_comm(e, **limits)
    except AssertionError as failed:
        return failed
    except (TypeError, ValueError) as problem:
        raise Problem(f"{options.budget}: {e.name}: {_plain(problem)}") from problem
    return None


def _plain(problem: Exception) -> str:
    """What an error says, without the place in our own code that noticed it."""
    found = getattr(problem, "diagnostic", None)
    if found is None:
        return str(problem)
    return "; ".join(clipped(str(text)) for text in (found.message, *found.help))


def _location(problem: AssertionError | None) -> dict[str, Any] | None:
    diagnostic = getattr(problem, "diagnostic", None)
    if not isinstance(diagnostic, Diagnostic) or not diagnostic.location.line:
        return None
    return diagnostic.location.to_dict()
