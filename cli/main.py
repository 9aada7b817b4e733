"""`shardtrace VERB TARGET`: look at a function or a dumped program, take it further, run it.

    shardtrace explain train.py                    every collective: line, reason, cost, cure
    shardtrace trace train.py:step                 the traced program, typed
    shardtrace partition step.00-traced.st         the per-device program, or any stage
    shardtrace run train.py:step --profile         on simulated devices
    shardtrace check train.py --budget budget.toml for continuous integration

A target is FILE.py:FUNCTION, FILE.py (whatever it calls), a program in text form (a dump of
SHARDTRACE_DUMP, edited or not, at any stage), or `-`. docs/cli.md describes every command.
"""
from __future__ import annotations

import argparse
import contextlib
import os
import sys
import traceback
from collections.abc import Sequence

from ..driver import progress_bars
from ..ir.diagnostics.diagnostic import visible
from ..ir.settings.context import config
from ..ir.settings.phases import profile_phases
from ..ir.source.prose import wrapped
from .output import Output
from .parser import make_parser
from .problems import FAILED, FINDING, INTERRUPTED, USAGE, Problem


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status. Errors are printed without a traceback."""
    parser = make_parser()
    words = sys.argv[1:] if arguments is None else arguments
    if not words:
        parser.print_help()
        return USAGE
    try:
        options = parser.parse_args(words)
    except SystemExit as end:             # argparse has printed what is wrong, or printed its help
        return end.code if isinstance(end.code, int) else USAGE
    try:
        with progress_bars.bars(enabled=not options.no_progress), _judged_by(options):
            return _run(options)
    except Problem as problem:
        return _print_problem(options, str(problem), problem.status)
    except BrokenPipeError:               # the reader of the output has seen enough
        sys.stdout = open(os.devnull, "w")
        return FINDING
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as problem:
        return _print_problem(options, str(problem), USAGE)
    except Exception as problem:          # --traceback shows where
        return _print_problem(options, f"{type(problem).__name__}: {problem}", FAILED)


def _judged_by(options: argparse.Namespace) -> contextlib.AbstractContextManager[None]:
    """What plans are judged by, as the options say."""
    overrides = {"shardtrace_objective": getattr(options, "objective", None),
                 "shardtrace_hardware": getattr(options, "hardware", None),
                 "shardtrace_memory_limit": getattr(options, "memory_limit", None)}
    return config.override(**{name: value for name, value in overrides.items()
                              if value is not None})


def _run(options: argparse.Namespace) -> int:
    """Run the command; its exit status. With --time-passes, say then how long each pass took."""
    if not getattr(options, "time_passes", False):
        return options.run(options) or 0
    with profile_phases() as profile:
        status = options.run(options) or 0
    Output(options).console(sys.stderr).print(profile.pass_table())
    return status


def _print_problem(options: argparse.Namespace, message: str, status: int) -> int:
    """Say what went wrong, for people and, with --json, for programs; the exit status."""
    if options.traceback:
        traceback.print_exc()
    out = Output(options)
    print(wrapped(visible(f"shardtrace {options.verb}: {message}"), out.width), file=sys.stderr)
    if options.json:
        out.json({"error": message, "status": status})
    return status


if __name__ == "__main__":
    sys.exit(main())
