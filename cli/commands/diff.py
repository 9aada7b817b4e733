"""`diff`: compare two programs, two directories of dumps, two revisions of a file, the plans of a
program under two objectives, or its plan and XLA's.
"""
from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ...ir.settings.context import config
from ...ir.support.environment import OBJECTIVES
from ...ir.support.lazy import lazy_import
from ...partitioner.cost.hardware import DEFAULT_HARDWARE
from ...report.difference import Difference
from ...report.type_changes import TypeChange, type_changes
from ..output import Output
from ..problems import FINDING, Problem, failure
from ..select import several
from ..targets import Found, FoundExplanation, FoundFunction, is_python, parts_of
from .explain import explained

_comparison = lazy_import("...interop.hlo.plan_comparison", __package__)
_imported = lazy_import("...interop.imported", __package__)
_report = lazy_import("...interop.hlo.report", __package__)
_DUMP = re.compile(r"(.+?)\.(\d\d)-(\w+)\.st")


def add_options(sub: argparse.ArgumentParser) -> None:
    """The options of the command."""
    sub.add_argument("other", nargs="?", help="the program to compare with; without one, and with "
                     "--objective, the plans by time and by that; after two revisions: the target")
    sub.add_argument("--xla", action="store_true", help="compare the collectives of each line with "
                     "those of XLA's own partition of the same function (needs JAX)")
    sub.add_argument("revised", nargs="?", help="FILE.py:FUNCTION, where the first two are "
                     "revisions of git")


def diff(options: argparse.Namespace) -> int:
    """What differs; exit status 1 if anything does."""
    if options.xla:
        return _compare_with_xla(options)
    with tempfile.TemporaryDirectory() as folder:      # revisions lie there until all is printed
        return _compared(options, Path(folder))


def _compared(options: argparse.Namespace, folder: Path) -> int:
    """Compare the pairs that the options name, print the differences, and return the exit status.
    folder: for files of other revisions.
    """
    sides = options.target, options.other
    if options.other is None:
        sides = OBJECTIVES[0], options.objective
        pairs = _objectives(options)
    elif options.revised is not None:
        pairs = _revisions(options, folder)
    elif Path(options.target).is_dir() and Path(options.other).is_dir():
        pairs = _directories(options)
    else:
        pairs = _matched(_by_name(options.target, options), _by_name(options.other, options),
                         whole=not (_is_file(options.target) and _is_file(options.other)))
    rows: list[dict[str, Any]] = []
    texts: list[str] = []
    for name, before, after in pairs:
        if before is None or after is None:
            rows.append({"function": name, "differs": True,
                         "only": "after" if before is None else "before"})
            texts.append(f"{'+' if before is None else '-'} {name}: only in "
                         f"{sides[before is None]}")
            continue
        text = " -> ".join(sides) + (f": {name}" if len(pairs) > 1 or options.other is None else "")
        a, b = explained(before, options), explained(after, options)
        found = Difference(a, b, text)
        types = type_changes(a.partitioned.resolved, b.partitioned.resolved)
        rows.append({"function": name, "differs": bool(found or types), **found.to_dict(),
                     "inner_types": [t.to_dict() for t in types]})
        texts.append(_text(found, types))
    differs = any(r["differs"] for r in rows)
    out = Output(options)
    if out.as_json:
        out.json(rows[0] if len(rows) == 1 else {"differs": differs, "functions": rows})
    else:
        out.text("\n".join(texts))
    return FINDING if differs else 0


def _compare_with_xla(options: argparse.Namespace) -> int:
    """The collectives of each function, line by line, beside those of XLA's own partition."""
    if options.other is not None:
        raise Problem("--xla compares a target with what XLA makes of it; leave the other out")
    out = Output(options)
    found = []
    for name, target in _by_name(options.target, options).items():
        if not isinstance(target, FoundFunction):
            raise Problem(f"{options.target} is a program as text, which XLA does not read; give "
                          "FILE.py or FILE.py:FUNCTION")
        ours = explained(target, options)
        jitted = target.traced._jitted
        try:
            theirs = _report.xla_report(
                jitted if isinstance(jitted, _imported.Imported) else target.lowered(),
                hardware=options.hardware or DEFAULT_HARDWARE)
        except Exception as error:
            raise failure(error, f"compiling `{name}` by XLA") from error
        found.append(_comparison.PlanComparison(name, ours, theirs))
    if out.as_json:
        rows = [{"differs": bool(b), **b.to_dict()} for b in found]
        out.json(rows[0] if len(rows) == 1 else {
            "differs": any(found), "functions": rows})
    else:
        out.as_it_is("\n".join([b.text(out.width) for b in found]).rstrip())
    return FINDING if any(found) else 0


def _text(found: Difference, types: list[TypeChange]) -> str:
    """The difference, with the values that are laid out otherwise."""
    if not found and types:
        return "\n".join([found.text, *(f"  {t}" for t in types)])
    lines = str(found).split("\n")
    where = next((i for i, line in enumerate(lines) if line.startswith(("  - ", "  + ",
                                                                        "  collectives:"))),
                 len(lines))
    return "\n".join([*lines[:where], *(f"  {t}" for t in types), *lines[where:]])


# -- pairs -----------------------------------------------------------------------------------------

Pairs = list[tuple[str, Found | None, Found | None]]


def _is_file(target: str) -> bool:
    return not is_python(target) or bool(parts_of(target)[1])


def _by_name(target: str, options: argparse.Namespace) -> dict[str, Found]:
    return {f.name: f for f in several(target, options)[0]}


def _matched(before: dict[str, Found], after: dict[str, Found], whole: bool) -> Pairs:
    """By name; two single programs are a pair whatever they are called."""
    if not whole or len(before) == len(after) == 1:
        (a, x), (b, y) = next(iter(before.items())), next(iter(after.items()))
        return [(a if a == b else f"{a} and {b}", x, y)]
    return [(n, before.get(n), after.get(n)) for n in sorted({*before, *after})]


def _objectives(options: argparse.Namespace) -> Pairs:
    """The plans of a target by time, the default, and by the objective that is asked for.
    """
    if options.objective in (None, OBJECTIVES[0]):
        raise Problem(f"write what to compare {options.target} with: another target, or "
                      "--objective xla for the plan that XLA makes")
    pairs: Pairs = []
    for name, found in _by_name(options.target, options).items():
        made = []
        for objective in (OBJECTIVES[0], options.objective):
            with config.override(shardtrace_objective=objective):
                made.append(FoundExplanation(explained(found.again(), options), found.label))
        pairs.append((name, *made))
    return pairs


def _directories(options: argparse.Namespace) -> Pairs:
    """Compare two directories of dumps: the last stage of each program that both have."""
    found = []
    for folder in (Path(options.target), Path(options.other)):
        programs: dict[str, dict[str, Path]] = {}
        for path in sorted(p for p in folder.glob("*.st") if p.is_file()):
            match = _DUMP.fullmatch(path.name)
            name, stage = (match[1], match[3]) if match else (path.stem, "")
            programs.setdefault(name, {})[stage] = path
        if not programs:
            raise Problem(f"{folder} has no programs (*.st)")
        # resharded: global types, every change of layout written down
        found.append({name: next(stages[s] for s in ("resharded", "resolved", "traced",
                                                     *stages) if s in stages)
                      for name, stages in programs.items()})
    made = [{name: several(str(path), options)[0][0] for name, path in side.items()}
            for side in found]
    return [(n, made[0].get(n), made[1].get(n)) for n in sorted({*made[0], *made[1]})]


def _revisions(options: argparse.Namespace, folder: Path) -> Pairs:
    """Two revisions of a file: each is checked out whole, so that what it imports fits."""
    path, name = parts_of(options.revised)
    if path.suffix != ".py":
        raise Problem(f"{options.revised}: between revisions a target is FILE.py:FUNCTION or "
                      "FILE.py")
    top = Path(_git(path.resolve().parent, "rev-parse", "--show-toplevel"))
    inside = path.resolve().relative_to(top)
    sides = []
    for i, revision in enumerate((options.target, options.other)):
        commit = _git(top, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
        where = folder / str(i)
        where.mkdir()
        archive = subprocess.run(["git", "archive", commit], cwd=top, capture_output=True,
                                 check=True)
        subprocess.run(["tar", "-x"], cwd=where, input=archive.stdout, check=True)
        target = where / inside
        found = {}
        if target.exists():
            found = _by_name(f"{target}:{name}" if name else str(target), options)
            for f in found.values():
                f.stages()
        _forget_modules(where)
        sides.append(found)
    if not sides[0] and not sides[1]:
        raise Problem(f"{inside} is in neither {options.target} nor {options.other}")
    return [(n, sides[0].get(n), sides[1].get(n)) for n in sorted({*sides[0], *sides[1]})]


def _forget_modules(folder: Path) -> None:
    """What one revision imported is not to be what the other one imports."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and Path(file).resolve().is_relative_to(folder.resolve()):
            del sys.modules[name]


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True,
                          check=False)
    if done.returncode:
        said = done.stderr.strip() or f"git {' '.join(arguments)} found nothing"
        raise Problem(said.removeprefix("fatal: "))
    return done.stdout.strip()

