"""`trace`, `partition`, `show`, `collectives`: programs as text, at any stage."""
from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ...ir.program import Level, Program
from ...ir.text.print import print_program, save_program
from ...partitioner.collectives import CollectiveRecord, collectives
from ...partitioner.dumps import provenance
from ..output import Output
from ..problems import USAGE, Problem
from ..select import one
from ..targets import Found, FoundFunction

STAGES = ("traced", "inlined", "resolved", "resharded", "local", "optimized")


def add_stage_options(sub: argparse.ArgumentParser) -> None:
    """The options of `partition`."""
    sub.add_argument("--stage",
                     help=f"the stage to print: {', '.join(STAGES)} (default: the last)")
    sub.add_argument("--dump", type=Path, metavar="DIR", help="write all stages into a directory")
    add_text_options(sub)


def add_text_options(sub: argparse.ArgumentParser) -> None:
    """How a program is printed."""
    sub.add_argument("-o", "--output", metavar="FILE.st", help="write the program to a file")
    sub.add_argument("--no-locations", action="store_true", help="without source lines")
    add_brief_option(sub)


def add_brief_option(sub: argparse.ArgumentParser) -> None:
    """How much of a program is printed."""
    sub.add_argument("--brief", action="store_true",
                     help="of each equation only results, op, operands and line")


def trace(options: argparse.Namespace) -> None:
    """The traced program, typed."""
    found = one(options.target, options)
    with found.context():
        if isinstance(found, FoundFunction):
            try:
                program = found.stages()["traced"]       # with the layouts that it is called with
            except Problem as problem:
                if problem.status == USAGE:
                    raise
                program = found.traced.jaxpr             # it cannot be partitioned
        else:
            program = found.given
    _show(program, options, {"stage": program.level.value})


def partition(options: argparse.Namespace) -> None:
    """A stage of the partitioned program, or all of them into a directory."""
    found = one(options.target, options)
    stages = found.stages()
    if options.dump:
        _dump(found, stages, options)
        return
    stage = options.stage or next(reversed(stages))
    if stage not in stages:
        first = next(iter(stages.values())).level.value
        raise Problem(f"no stage {stage!r} after a {first} program; there are "
                      f"{', '.join(stages)}")
    _show(stages[stage], options, {"stage": stage, "stages": list(stages)})


def _dump(found: Found, stages: dict[str, Program], options: argparse.Namespace) -> None:
    """Write each stage to a file of the folder, and print the names."""
    options.dump.mkdir(parents=True, exist_ok=True)
    name = "".join(c if c.isalnum() or c == "_" else "" for c in found.name) or "program"
    written = []
    for i, (stage, program) in enumerate(stages.items()):
        path = options.dump / f"{name}.{i:02d}-{stage}.st"
        save_program(program, path, comment=provenance(stage, program))
        written.append(str(path))
    out = Output(options)
    if out.as_json:
        out.json({"name": found.name, "files": dict(zip(stages, written, strict=True))})
    else:
        out.text("\n".join(written))


def show(options: argparse.Namespace) -> None:
    """The program, verified, and a summary."""
    found = one(options.target, options)
    program = (found.traced.jaxpr if isinstance(found, FoundFunction)
               else found.given)
    out = Output(options)
    records = collectives(program) if program.level is Level.LOCAL else []
    if out.as_json:
        out.json({**_described(program), "text": print_program(program),
                  "collectives": [_record(r) for r in records]})
        return
    out.program(print_program(program, width=out.width, brief=options.brief))
    out.text(f"\n{program.level.value} program, {len(program.eqns)} equations, valid")
    if program.level is Level.LOCAL:
        _summary(out, records)


def list_collectives(options: argparse.Namespace) -> None:
    """What the per-device program moves."""
    found = one(options.target, options)
    records = collectives(found.local)
    out = Output(options)
    if out.as_json:
        out.json({"name": found.name, "received_bytes": sum(r.total for r in records),
                  "collectives": [_record(r) for r in records]})
    else:
        _summary(out, records)


def _summary(out: Output, records: list[CollectiveRecord]) -> None:
    """What is moved: a line for each kind of move, the largest first; then where, and why."""
    total = sum(r.total for r in records)
    word = "collective" if len(records) == 1 else "collectives"
    out.text(f"{len(records)} {word}, {total:,} bytes received per device")
    groups: dict[tuple, list[CollectiveRecord]] = {}
    for r in records:
        key = (r.kind, r.axes, r.bytes, r.count, str(r.location), r.reason)
        groups.setdefault(key, []).append(r)
    for group in sorted(groups.values(), key=lambda g: -sum(r.total for r in g)):
        r = group[0]
        times = f" x {r.count}" if r.count != 1 else ""
        places = f", in {len(group)} places" if len(group) > 1 else ""
        out.text(f"  {r.kind} over {', '.join(map(str, r.axes))} ({r.size} devices): {r.bytes:,} B"
                 f"{times}{places}")
        scopes = list(dict.fromkeys(g.location.scope for g in group if g.location.scope))
        out.text(f"    {r.location}" + (f" under {_listed(scopes)}" if scopes else ""))
        written = r.location.text() or r.op
        out.text(f"    because {r.reason}" if r.reason else f"    asked for by `{written}`")


def _listed(scopes: list[str], most: int = 3) -> str:
    """`layers_0, layers_1, ... layers_11`."""
    if len(scopes) <= most:
        return ", ".join(scopes)
    return f"{', '.join(scopes[:most - 1])}, ... {scopes[-1]}"


def _show(program: Program, options: argparse.Namespace, more: dict[str, Any]) -> None:
    """Print a program, or write it where `--output` says."""
    out = Output(options)
    if options.output:
        save_program(program, Path(options.output))
        more = {**more, "file": str(options.output)}
        if not out.as_json:
            return
    located = not options.no_locations
    if out.as_json:
        out.json({**_described(program), **more,
                  "text": print_program(program, locations=located, brief=options.brief)})
    else:
        out.program(print_program(program, locations=located, width=out.width,
                                  brief=options.brief))


def _described(program: Program) -> dict[str, Any]:
    ins = program.global_in or program.in_avals
    outs = program.global_out or program.out_avals
    return {"name": program.name, "level": program.level.value, "equations": len(program.eqns),
            "mesh": {str(a): n for a, n in program.mesh.shape_tuple},
            "parameters": [{"name": v.name or f"arg{i}", "type": t.str_short(True)}
                           for i, (v, t) in enumerate(zip(program.invars, ins, strict=True))],
            "results": [t.str_short(True) for t in outs]}


def _record(r: CollectiveRecord) -> dict[str, Any]:
    return {"kind": r.kind, "op": r.op, "mesh_axes": list(map(str, r.mesh_axes)),
            "group_size": r.group_size, "operand_bytes": r.operand_bytes,
            "received_bytes": r.received_bytes, "count": r.count, "conditional": r.conditional,
            "source": r.source.to_dict(), "reason": r.reason,
            "reason_kind": r.reason_kind,
            "alternative": None if r.alternative is None else r.alternative.to_dict()}
