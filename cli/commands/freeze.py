"""`freeze` and `thaw`: write the decisions of a partition to a file; list which no longer hold."""
from __future__ import annotations

import argparse
from pathlib import Path

from ...driver.analysis.freeze import Thawed
from ...report.frozen.plan import FrozenPlan
from ..output import Output
from ..problems import FINDING, Problem, failure
from ..select import load_plan, one
from ..targets import FoundFunction


def function_of(options: argparse.Namespace) -> FoundFunction:
    """The function that a target names."""
    found = one(options.target, options)
    if not isinstance(found, FoundFunction):
        raise Problem(f"{options.target}: plans are of functions; give FILE.py:FUNCTION")
    return found


def add_output(sub: argparse.ArgumentParser) -> None:
    """The options of `freeze`."""
    sub.add_argument("-o", "--output", type=Path, metavar="FILE.json", help="the file to write")


def freeze(options: argparse.Namespace) -> None:
    """Print the plan of a target, or write it into a file."""
    found = function_of(options)
    plan = FrozenPlan.of(found.lowered()._executable.partitioned)
    out = Output(options)
    if options.output:
        plan.save(options.output)
        said = f"{options.output}: {len(plan.decisions)} decisions of {plan.name}"
    if out.as_json:
        out.json({"function": plan.name, "file": str(options.output),
                  "decisions": len(plan.decisions)} if options.output else plan.to_dict())
    elif options.output:
        out.text(said)
    else:
        out.as_it_is(plan.to_json().rstrip())


def add_plan(sub: argparse.ArgumentParser) -> None:
    """The options of `thaw`."""
    sub.add_argument("file", type=Path, metavar="PLAN.json", help="a plan that `freeze` wrote")


def thaw(options: argparse.Namespace) -> int:
    """Show what of a plan a target keeps."""
    plan, found = load_plan(options.file), function_of(options)
    kept = found.with_plan(plan)
    thawed = kept.traced._jitted
    assert isinstance(thawed, Thawed)
    try:
        with kept.context():
            difference = thawed.difference_of(kept.lowered())
    except Problem:
        raise
    except Exception as error:
        raise failure(error, f"partitioning `{found.name}` by {options.file}") from error
    out = Output(options)
    if out.as_json:
        out.json(difference.to_dict())
    else:
        out.text(str(difference))
    return 0 if difference.fits else FINDING
