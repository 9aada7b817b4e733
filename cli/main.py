"""`shardtrace VERB FILE.st`: look at a dumped program, take it further, run it.

    shardtrace show layer.02-resolved.st           parse, verify, print, and sum up
    shardtrace partition layer.00-traced.st --in "x=P('X', None)" --stage optimized
    shardtrace collectives layer.05-optimized.st   what moves, how much, from which line, why
    shardtrace run layer.05-optimized.st --seed 0  run it on simulated devices
    shardtrace explain FILE.st | FILE.py:FUNCTION  cost, reasons and cures; also check, diff, why

A file holds one program in the text form of dumps (SHARDTRACE_DUMP), at any level, edited or not.
"""
from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..driver.programs import further, run_program
from ..ir.parse import load_program
from ..ir.print import print_program
from ..ir.program import Level, Program
from ..ir.spec import PartitionSpec
from ..ir.verify import verify
from ..partitioner.collectives import collectives
from .explain import add_verbs, specs_of


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status. Errors of programs are printed, not traced back."""
    options = _parser().parse_args(arguments)
    try:
        return options.run(options) or 0
    except (ValueError, TypeError, OSError) as problem:
        print(f"{type(problem).__name__}: {problem}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="shardtrace", description="Look at a dumped program, take it further, run it.")
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    def verb(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        sub = verbs.add_parser(name, help=text, description=text)
        sub.add_argument("file", type=Path, help="a program in text form (.st)")
        sub.set_defaults(run=run)
        return sub

    verb("show", _show, "Parse and verify a program, print it and sum it up.")
    sub = verb("partition", _partition, "Run the remaining passes and print a stage.")
    _shardings(sub)
    sub.add_argument("--stage", default="optimized", help="the stage to print (default: the last)")
    sub = verb("collectives", _collectives, "List the collectives of the per-device program.")
    _shardings(sub)
    sub = verb("run", _run, "Run the program on simulated devices and print its results.")
    _shardings(sub)
    sub.add_argument("--seed", type=int, default=0, help="of random arguments (default 0)")
    sub.add_argument("--load", type=Path, help="an .npz with arguments by parameter name")
    sub.add_argument("--executor", choices=["simulated", "per_device"], default="simulated")
    add_verbs(verbs)
    return parser


def _shardings(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--in", dest="specs", action="append", default=[], metavar="NAME=SPEC",
                     help="how a parameter of a traced program is split: x=P('X', None)")


def _load(path: Path) -> Program:
    program = load_program(path)
    verify(program)
    return program


def _names(program: Program) -> list[str]:
    return [v.name or f"arg{i}" for i, v in enumerate(program.invars)]


def _specs(program: Program, given: Sequence[str]) -> list[PartitionSpec | None]:
    """`x=P('X', None)` for each parameter that was named."""
    return specs_of(_names(program), given)


def _show(options: argparse.Namespace) -> None:
    program = _load(options.file)
    print(print_program(program).rstrip())
    print(f"\n{program.level.value} program, {len(program.eqns)} equations, valid")
    if program.level is Level.LOCAL:
        _summary(program)


def _partition(options: argparse.Namespace) -> None:
    program = _load(options.file)
    stages = further(program, _specs(program, options.specs))
    if options.stage not in stages:
        raise ValueError(f"no stage {options.stage!r} after a {program.level.value} program; "
                         f"there are {', '.join(stages)}")
    print(print_program(stages[options.stage]).rstrip())


def _local(options: argparse.Namespace) -> Program:
    program = _load(options.file)
    return list(further(program, _specs(program, options.specs)).values())[-1]


def _collectives(options: argparse.Namespace) -> None:
    _summary(_local(options))


def _summary(local: Program) -> None:
    records = collectives(local)
    total = sum(r.total for r in records)
    print(f"{len(records)} collectives, {total:,} bytes received per device")
    for r in records:
        times = f" x {r.count}" if r.count != 1 else ""
        print(f"  {r.op} over {', '.join(r.axes)} ({r.size} devices): {r.bytes:,} B{times}, "
              f"{r.location}" + (f" under {r.location.scope}" if r.location.scope else "")
              + (f", because {r.reason}" if r.reason else ""))


def _run(options: argparse.Namespace) -> None:
    local = _local(options)
    given = dict(np.load(options.load)) if options.load else {}
    rng = np.random.default_rng(options.seed)
    values = []
    for name, aval in zip(_names(local), local.global_in, strict=True):
        value = given[name] if name in given else _random(rng, aval.shape, aval.dtype)
        if value.shape != aval.shape:
            raise ValueError(f"argument {name} has shape {value.shape}, the program wants {aval}")
        values.append(np.asarray(value, aval.dtype))
    for aval, value in zip(local.global_out, run_program(local, values, options.executor),
                           strict=True):
        print(f"{aval}\n{value}")


def _random(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    if dtype.kind in "iu":
        return rng.integers(0, 10, shape).astype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    return rng.standard_normal(math.prod(shape)).reshape(shape).astype(dtype)


if __name__ == "__main__":
    sys.exit(main())
