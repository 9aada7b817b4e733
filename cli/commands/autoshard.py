"""`autoshard`: search for the specs with which a target takes the least time."""
from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...ir.program import Level
from ...ir.shardings.sharding import NamedSharding
from ...ir.spec import PartitionSpec
from ...ir.support.lazy import lazy_import
from ...ir.support.progress import counted
from ..arguments import parse_mesh, parse_spec, positive
from ..output import Output
from ..problems import Problem, failure
from ..select import several
from ..targets import Found, FoundFunction, FoundProgram
from .explain import topology_of

if TYPE_CHECKING:
    from ...planning.proposal import Proposal

_planning = lazy_import("...planning.autoshard", __package__)


def add_options(sub: argparse.ArgumentParser) -> None:
    """The options of the command."""
    sub.add_argument("--devices", type=positive, metavar="N",
                     help="choose the mesh, too: the best of those that N devices form")
    sub.add_argument("--fix", action="append", default=[], metavar="PATH=SPEC",
                     help="a spec that is given, of an argument or result; * stands for any part "
                          "of a path")
    sub.add_argument("--explain", action="store_true",
                     help="also every collective of the plan: line, reason, cost")


def autoshard(options: argparse.Namespace) -> int:
    """Print for each function of a target the plan that is proposed."""
    found, missing = several(options.target, options)
    known = {f.label: f for f in found if isinstance(f, FoundFunction | FoundProgram)}
    # an op outside of jit is a function of one equation
    worth = [f for f in known.values() if len(f.given.eqns) > 1] or list(known.values())
    if not worth:
        raise Problem(f"{options.target} has no function to find a plan for")
    mesh = mesh_of(worth, options)
    made: list[tuple[Found, Proposal]] = []
    for f in counted(worth, "searching"):
        try:
            made.append((f, proposed(f, mesh, options)))
        except Problem as problem:
            if len(worth) == 1:
                raise
            missing.append(f"{f.label}: {problem}")
    if not made:
        raise Problem("\n".join(missing))
    out = Output(options)
    if out.as_json:
        data = [{"target": f.label, **p.to_dict()} for f, p in made]
        out.json(data[0] if len(data) == 1 else {"file": options.target, "functions": data,
                                                 "missing": missing})
        return 0
    for k, (f, p) in enumerate(made):
        if len(made) > 1:
            out.text(("\n" if k else "") + f.label)
        out.as_it_is(p.text(out.width))
        if options.explain:
            out.as_it_is("\n" + p.explanation.text(0, out.width))
    for line in missing:
        out.text(f"\nnote: {line}" if not line.startswith("    ") else line)
    return 0


def mesh_of(found: Sequence[Found], options: argparse.Namespace) -> Any:
    """The mesh or number of devices of the options, else the mesh that some arguments are on."""
    if options.mesh and options.devices:
        raise Problem("--mesh says the mesh, and --devices lets it be chosen: give one of them")
    if options.mesh or options.devices:
        return parse_mesh(options.mesh) if options.mesh else options.devices
    shardings = [getattr(x, "sharding", None) for f in found if isinstance(f, FoundFunction)
                 for x in f.traced._leaves]
    return next((s.mesh for s in shardings if isinstance(s, NamedSharding)), None)


def proposed(found: Found, mesh: Any, options: argparse.Namespace) -> Proposal:
    """What is proposed for a target. Raises Problem where nothing is."""
    fixed: dict[str, PartitionSpec] = {}
    for text in options.fix:
        path, equals, value = text.rpartition("=")
        if not equals:
            raise Problem(f"--fix {text!r}: write PATH=P(...), such as params['w']=P('data')")
        fixed[path.strip()] = parse_spec(value, f"--fix {text!r}")
    how = {"hardware": options.hardware, "memory_limit": options.memory_limit, "fixed": fixed,
           "topology": topology_of(options)}
    try:
        with found.context():
            if isinstance(found, FoundFunction):
                return _planning.autoshard_traced(found.traced, mesh=mesh, **how)
            if found.given.level is not Level.TRACED:
                raise Problem(f"a {found.given.level.value} program has its shardings already; "
                              "give the traced one")
            if mesh is not None:
                raise Problem("a program in text form says its mesh: --mesh and --devices have no "
                              "meaning for it")
            return _planning.autoshard_program(found.given, **how)
    except Problem:
        raise
    except Exception as error:
        raise failure(error, f"finding a plan for `{found.name}`") from error
