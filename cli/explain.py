"""`explain`, `check`, `diff`, `why`: what a function or a dumped program communicates, and why.

    shardtrace explain train.py:step --mesh data=8,model=4 --arg "x=bf16[64@data,512]" --arg ...
    shardtrace explain train.py:step --args "example_arguments()" --hardware h100
    shardtrace explain step.00-traced.st --json
    shardtrace check train.py:step --budget budget.toml        exit status 3 when over the budget
    shardtrace diff before.st after.st                         exit status 3 when they differ
    shardtrace why step.00-traced.st h.0

A Python target is FILE.py:FUNCTION. Its arguments are an expression in the file's own names
(`--args`), or types (`--arg` per parameter, over `--mesh`); a function that needs none may also
return an explanation or something lowered itself. A budget file is TOML or JSON with `max_bytes`,
`max_peak_bytes`, `kinds`, `axis` and `exact` as of `shardtrace.testing.assert_comm`, at the top or
in a table named after the target.
"""
from __future__ import annotations

import argparse
import ast
import importlib.util
import inspect
import json
import re
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..driver.budgets import assert_comm
from ..driver.explain import DEFAULT_HARDWARE, explain, explain_program
from ..driver.stages import Compiled, Lowered
from ..ir.dtypes import parse_short
from ..ir.lazy import lazy_import
from ..ir.mesh import AbstractMesh
from ..ir.parse import load_program
from ..ir.program import Var
from ..ir.shape_struct import ShapeDtypeStruct
from ..ir.sharding import NamedSharding
from ..ir.spec import PartitionSpec
from ..ir.verify import verify
from ..report.difference import Difference
from ..report.explanation import Explanation
from ..report.hardware import hardware_names
from ..report.places import places

_console = lazy_import("rich.console")

NO = 3      # exit status: the answer is no (over the budget, different)


def add_verbs(verbs: Any) -> None:
    """Add the commands to the parser of `shardtrace`."""
    def verb(name: str, run: Callable[..., Any], text: str, *targets: str
             ) -> argparse.ArgumentParser:
        sub = verbs.add_parser(name, help=text, description=text)
        for target in targets:
            sub.add_argument(target, help="FILE.py:FUNCTION or a program in text form (.st)")
        sub.add_argument("--hardware", default=DEFAULT_HARDWARE, choices=hardware_names())
        sub.add_argument("--topology", help="shape of a slice's torus: 8,16,16")
        sub.add_argument("--args", help="the arguments, an expression in the names of the file")
        sub.add_argument("--arg", action="append", default=[], metavar="NAME=TYPE",
                         help="the type of a parameter: x=bf16[64@data,512]")
        sub.add_argument("--mesh", help="sizes of the mesh axes: data=8,model=4")
        sub.add_argument("--in", dest="specs", action="append", default=[], metavar="NAME=SPEC",
                         help="how a parameter of a traced program is split: x=P('X', None)")
        sub.add_argument("--json", action="store_true", help="print JSON")
        sub.set_defaults(run=run)
        return sub

    sub = verb("explain", _explain, "Every collective: line, reason, cost, and what avoids it.",
               "target")
    sub.add_argument("--suggest", type=int, default=3, metavar="N",
                     help="search suggestions for the N dearest collectives (default 3)")
    sub.add_argument("--table", action="store_true", help="a table instead of text")
    sub = verb("check", _check, "Fail when bytes, collectives or memory exceed a budget.", "target")
    sub.add_argument("--budget", type=Path, required=True, help="a TOML or JSON file")
    verb("diff", _diff, "What differs between two programs: collectives, bytes, memory, time.",
         "target", "other")
    sub = verb("why", _why, "Where the axes on a dimension of a value come from.", "target")
    sub.add_argument("value", help="NAME.DIM, such as h.0, or NAME for all dimensions")


# -- targets ---------------------------------------------------------------------------------------

def explanation(target: str, options: argparse.Namespace) -> Explanation:
    """The explanation of what a target names."""
    file, colon, name = target.rpartition(":")
    shape = tuple(map(int, options.topology.split(","))) if options.topology else None
    if not colon or not file.endswith(".py"):
        program = load_program(Path(target))
        verify(program)
        names = [v.name or f"arg{i}" for i, v in enumerate(program.invars)]
        return explain_program(program, options.hardware, topology=shape,
                               in_shardings=specs_of(names, options.specs))
    module = _module(Path(file))
    fun = module
    for part in name.split("."):
        if not hasattr(fun, part):
            raise ValueError(f"{file} has no {name!r}")
        fun = getattr(fun, part)
    args, kwargs = _arguments(module, fun, options)
    if not args and not kwargs:
        made = fun()
        if isinstance(made, Explanation):
            return made
        if isinstance(made, Lowered | Compiled):
            return made.explain(options.hardware, topology=shape)
    return explain(fun, options.hardware, topology=shape)(*args, **kwargs)


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"_target_{path.stem}", path)
    if spec is None or spec.loader is None or not path.exists():
        raise ValueError(f"there is no Python file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    return module


def _arguments(module: Any, fun: Any, options: argparse.Namespace) -> tuple[tuple, dict]:
    if options.args:
        found = eval(options.args, vars(module))
        return (found if isinstance(found, tuple) else (found,)), {}
    if not options.arg:
        needed = [p for p in inspect.signature(fun).parameters.values()
                  if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY,
                                                         p.POSITIONAL_OR_KEYWORD)]
        if needed:
            raise ValueError(f"{options.target} needs arguments: give --args EXPRESSION, or --mesh "
                             f"and --arg {needed[0].name}=f32[...] for each")
        return (), {}
    sizes: dict[str, int] = {}
    for part in (options.mesh or "").split(","):
        axis, _, n = part.partition("=")
        if n:
            sizes[axis.strip()] = int(n)
    mesh = AbstractMesh(tuple(sizes.values()), tuple(sizes))
    named = dict(_typed(text, mesh) for text in options.arg)
    return inspect.signature(fun).bind(**named).args, {}


def _typed(text: str, mesh: AbstractMesh) -> tuple[str, ShapeDtypeStruct]:
    """`x=bf16[64@data,512@(a,b)]` as a name and a type."""
    match = re.fullmatch(r"\s*(\w+)\s*=\s*(\w+)\[(.*)\]\s*", text)
    if not match:
        raise ValueError(f"--arg {text!r}: write NAME=TYPE, such as x=f32[64@data,512]")
    name, dtype, dims = match.groups()
    shape, entries = [], []
    for dim in re.findall(r"[^,(]+(?:\([^)]*\))?", dims):
        n, _, axes = dim.strip().partition("@")
        shape.append(int(n))
        entries.append(tuple(a.strip() for a in axes.strip("()").split(",") if a.strip()))
    sharding = NamedSharding(mesh, PartitionSpec(*entries)) if mesh.axis_names else None
    return name, ShapeDtypeStruct(tuple(shape), parse_short(dtype), sharding=sharding)


def specs_of(names: Sequence[str], given: Sequence[str]) -> list[PartitionSpec | None]:
    """`x=P('X', None)` for each parameter that was named."""
    specs: list[PartitionSpec | None] = [None] * len(names)
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or name not in names:
            raise ValueError(f"--in {text!r}: write NAME=P(...), NAME one of {', '.join(names)}")
        call = ast.parse(value, mode="eval").body
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
                and call.func.id == "P" and not call.keywords):
            raise ValueError(f"--in {text!r}: {value!r} is no spec; write P('X', None)")
        specs[names.index(name)] = PartitionSpec(*(ast.literal_eval(a) for a in call.args))
    return specs


# -- verbs -----------------------------------------------------------------------------------------

def _explain(options: argparse.Namespace) -> None:
    found = explanation(options.target, options)
    if options.json:
        print(json.dumps(found.to_dict(suggestions=bool(options.suggest)), indent=1))
    elif options.table:
        _console.Console().print(found.table(options.suggest))
    else:
        print(found.text(options.suggest))


def _check(options: argparse.Namespace) -> int:
    text = options.budget.read_text()
    table = json.loads(text) if options.budget.suffix == ".json" else tomllib.loads(text)
    budget = table.get(options.target, table)
    known = ("max_bytes", "max_peak_bytes", "kinds", "axis", "exact")
    limits = {k: budget[k] for k in known if k in budget}
    if not limits:
        raise ValueError(f"{options.budget} sets no limit for {options.target}: give one of "
                         f"{', '.join(known[:3])}")
    found = explanation(options.target, options)
    problem = ""
    try:
        assert_comm(found, **limits)
    except AssertionError as failed:
        problem = str(failed)
    if options.json:
        print(json.dumps({"ok": not problem, "message": problem, "limits": limits,
                          "received_bytes": found.received_bytes,
                          "peak_bytes": found.peak_bytes}, indent=1))
    elif problem:
        print(problem, file=sys.stderr)
    else:
        print(f"{found.name}: {found.received_bytes:,} bytes received, {found.peak_bytes:,} bytes "
              "held per device: within the budget")
    return NO if problem else 0


def _diff(options: argparse.Namespace) -> int:
    found = Difference(explanation(options.target, options), explanation(options.other, options),
                       f"{options.target} -> {options.other}")
    print(json.dumps(found.to_dict(), indent=1) if options.json else found)
    return NO if found else 0


def _why(options: argparse.Namespace) -> int:
    found = explanation(options.target, options)
    name, _, dim = options.value.partition(".")
    resolved = found.partitioned.resolved
    values: list[Var] = [v for _, v, _ in places(resolved)
                         if v.name == name or found.reasons.name(v) == f"`{name}`"]
    if not values:
        known = sorted({v.name for _, v, _ in places(resolved) if v.name})
        raise ValueError(f"there is no value {name!r}; there are {', '.join(known)}")
    lines = []
    for v in values[:1]:
        dims = [int(dim)] if dim else range(v.aval.ndim)
        for d in dims:
            if not 0 <= d < v.aval.ndim:
                raise ValueError(f"{name} is {v.aval.str_short(True)}: no dimension {d}")
            for axis in v.aval.entries[d]:
                path = found.reasons.path(v, d, axis)
                lines.append(str(path or f"{axis} on dimension {d} of `{name}`: its type"))
            if not v.aval.entries[d]:
                lines.append(f"dimension {d} of `{name}` is whole")
        lines += [str(h) for h in found.reasons.held(v)]
    if options.json:
        print(json.dumps({"value": name, "type": values[0].aval.str_short(True), "why": lines},
                         indent=1))
    else:
        print(f"{name}: {values[0].aval.str_short(True)}")
        print("\n".join(f"  {line}" for line in lines))
    return 0
