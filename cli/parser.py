"""The grammar of the command line: verbs, targets, options. Completion is made from it too."""
from __future__ import annotations

import argparse
import functools
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from ..ir.source.prose import wrapped
from ..ir.support.environment import OBJECTIVES
from ..ir.support.lazy import lazy_import
from ..ir.support.named_tuple import NamedTuple
from ..ir.support.spelling import close_match
from .arguments import add_arguments, add_hardware, amount, positive
from .commands import (
    autoshard,
    check,
    completion,
    diff,
    explain,
    fmt,
    freeze,
    help,
    hlo,
    programs,
    propagate,
    reduce,
    run,
    watch,
)

_metadata = lazy_import("importlib.metadata")

TARGET = "FILE.py:FUNCTION, FILE.py, a program in text form (.st), or - for one on standard input"
STATUSES = ("exit status: 0 fine; 1 a finding (over the budget, different, not formatted, a "
            "warning); 2 wrong use, or a file that cannot be read; 3 the program failed")


class _Verb(NamedTuple):
    """A command: its name, what it runs, its help, and what adds options of its own.

    target: whether it takes one, and the options that say how that is called. plans, costs,
    passes: whether it takes the options of how a plan is made, of the machine as well, and
    --time-passes.
    """
    name: str
    run: Callable[[argparse.Namespace], Any]
    text: str
    options: Callable[[argparse.ArgumentParser], None] | None = None
    target: bool = True
    plans: bool = False
    costs: bool = False
    passes: bool = False


VERBS = (
    _Verb("explain", explain.explain,
          "Every collective: line, reason, cost, and what avoids it. (Of an error class: its help "
          "page.)", explain.add_options, costs=True, passes=True),
    _Verb("watch", watch.watch, "Explain a file, and again whenever it is saved.",
          watch.add_options, costs=True),
    _Verb("lsp", watch.lsp, "Serve an editor: types, collectives, errors and fixes beside the "
          "lines (Language Server Protocol).", watch.add_server_options, target=False),
    _Verb("autoshard", autoshard.autoshard,
          "Search the specs of arguments and results with which a step takes least time; --mesh "
          "is then the mesh that it is for.", autoshard.add_options, costs=True),
    _Verb("trace", programs.trace, "Print the traced program, typed.", programs.add_text_options),
    _Verb("partition", programs.partition, "Print the per-device program, or another stage.",
          programs.add_stage_options, plans=True, passes=True),
    _Verb("show", programs.show, "Verify a program, print it and sum it up.",
          programs.add_brief_option),
    _Verb("collectives", programs.list_collectives,
          "List the collectives of the per-device program."),
    _Verb("run", run.run, "Run on simulated devices; print the results, and a profile.",
          run.add_options, costs=True, passes=True),
    _Verb("check", check.check, "Fail when bytes, collectives or memory exceed a budget, or on "
          "warnings.", check.add_options, costs=True),
    _Verb("diff", diff.diff, "What differs between two programs, two directories of dumps, two "
          "revisions of a file, two objectives, or a program and what XLA makes of it.",
          diff.add_options, costs=True),
    _Verb("why", explain.why, "Where the axes on a dimension of a value come from.",
          explain.add_value, costs=True),
    _Verb("propagate", propagate.propagate, "What each step of propagation decided, from where, "
          "and what disagreed in the end.", propagate.add_options, plans=True),
    _Verb("freedom", explain.freedom, "Which dimensions can be split together, who decided them, "
          "and what it is worth to split them over an axis.", explain.add_trials, costs=True),
    _Verb("freeze", freeze.freeze, "Write what is decided of a function (how each value is laid "
          "out, and where it is brought elsewhere) into a file, for --plan.", freeze.add_output,
          plans=True),
    _Verb("thaw", freeze.thaw, "Show what of a plan a function keeps, what no longer fits, and "
          "what is decided anew.", freeze.add_plan, plans=True),
    _Verb("fmt", fmt.fmt, "Write programs in their canonical form.", fmt.add_options,
          target=False),
    _Verb("hlo", hlo.hlo, "The collectives of a compiled program, from a dump of XLA's.",
          hlo.add_options, target=False),
    _Verb("reduce", reduce.reduce, "Shrink a program to a small one that still shows a property.",
          reduce.add_options, costs=True),
    _Verb("completion", completion.completion, "Print a completion script for a shell.",
          completion.add_options, target=False),
    _Verb("help", help.help_, "How to read a program, and what else the command's words mean.",
          help.add_options, target=False),
)


@functools.cache
def make_parser() -> argparse.ArgumentParser:
    """The parser of `shardtrace`."""
    parser = _Parser(
        prog="shardtrace", epilog=STATUSES,
        description="What a function communicates, why, what it costs, and what would avoid it.")
    parser.add_argument("--version", action=_Version)
    verbs = parser.add_subparsers(required=True, metavar="VERB", dest="verb")
    for verb in VERBS:
        sub = verbs.add_parser(verb.name, help=verb.text, description=verb.text, epilog=STATUSES)
        common(sub)
        if verb.target:
            _add_target(sub)
        if verb.plans or verb.costs:
            _add_plan(sub)
        if verb.costs:
            sub.add_argument("--topology", metavar="SIZES",
                             help="shape of a slice's torus: 8,16,16")
        if verb.passes:
            sub.add_argument("--time-passes", action="store_true",
                             help="also print how long each pass took, on standard error")
        if verb.options is not None:
            verb.options(sub)
        sub.set_defaults(run=verb.run)
    verbs.choices["completion"].set_defaults(parser=parser)
    verbs.choices["help"].set_defaults(commands=verbs.choices)
    return parser


class _Version(argparse.Action):
    """Prints the version that is installed."""

    def __init__(self, option_strings: Sequence[str], dest: str, **kwargs: Any) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help="print the version")

    def __call__(self, parser: argparse.ArgumentParser, *given: Any) -> None:
        print(f"shardtrace {_metadata.version('shardtrace')}")
        parser.exit()


class _Parser(argparse.ArgumentParser):
    """A parser whose errors suggest the word that was probably meant."""

    def error(self, message: str) -> NoReturn:
        """End with the message, and with the nearest word to one that is not known."""
        hint = ""
        wrong = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        if wrong:
            hint = close_match(wrong[1], re.findall(r"[\w.-]+", wrong[2]))
        elif message.startswith("unrecognized arguments: "):
            known = [flag for verb in completion.verbs_of(self) for option in verb.options
                     for flag in option.flags]
            words = message.partition(": ")[2].split()
            hint = next(filter(None, (close_match(w.partition("=")[0], known) for w in words
                                      if w.startswith("-"))), "")
        self.print_usage(sys.stderr)
        message = f"{self.prog}: error: {message}" + (f"\n{hint}" if hint else "")
        self.exit(2, wrapped(message, _columns(sys.argv)) + "\n")

    def _get_formatter(self) -> argparse.HelpFormatter:
        return argparse.HelpFormatter(self.prog, width=_columns(sys.argv))


def _columns(words: Sequence[str]) -> int:
    """The columns of what is printed before options are parsed, and because they cannot be."""
    option = re.search(r"--width[ =](\d+)", " ".join(words))
    return int(option[1]) if option else shutil.get_terminal_size().columns


def common(sub: argparse.ArgumentParser) -> None:
    """The options that every command has."""
    sub.add_argument("--json", action="store_true", help="print JSON")
    sub.add_argument("--color", choices=("auto", "always", "never"), default="auto",
                     help="colours (auto: on a terminal)")
    sub.add_argument("--width", type=positive, metavar="N",
                     help="columns of what is printed (default: the terminal's, else 80)")
    sub.add_argument("--no-progress", action="store_true", help="no progress bars")
    sub.add_argument("--traceback", action="store_true", help="errors with their traceback")


def _add_target(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("target", help=TARGET)
    add_arguments(sub)
    sub.add_argument("--seconds", type=amount, metavar="S",
                     help="how long a file may run without calling a new function, when its calls "
                          "are watched (default 10; with --jax, 120)")
    sub.add_argument("--argv", metavar="ARGUMENTS",
                     help="what a file that is run finds in sys.argv: '--steps 2'")


def _add_plan(sub: argparse.ArgumentParser) -> None:
    add_hardware(sub, "that the plan is for")
    sub.add_argument("--objective", choices=OBJECTIVES,
                     help=f"what plans are judged by (default {OBJECTIVES[0]})")
    sub.add_argument("--memory-limit", type=amount, metavar="BYTES",
                     help="the most that a device may hold at once, such as 80e9")
    sub.add_argument("--plan", type=Path, metavar="FILE",
                     help="keep the decisions of a plan that `freeze` wrote")
