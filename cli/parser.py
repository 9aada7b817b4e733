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
from ..ir.support.spelling import close_match
from ..partitioner.cost.hardware import DEFAULT_HARDWARE, hardware_names
from ..report.advice.suggestions import SECONDS
from .arguments import add_arguments, amount, count, positive
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


@functools.cache
def make_parser() -> argparse.ArgumentParser:
    """The parser of `shardtrace`."""
    parser = _Parser(
        prog="shardtrace", epilog=STATUSES,
        description="What a function communicates, why, what it costs, and what would avoid it.")
    parser.add_argument("--version", action=_Version)
    verbs = parser.add_subparsers(required=True, metavar="VERB", dest="verb")

    def verb(name: str, run_: Callable[[argparse.Namespace], Any], text: str,
             *, target: bool = True, plans: bool = False, costs: bool = False,
             passes: bool = False
             ) -> argparse.ArgumentParser:
        sub = verbs.add_parser(name, help=text, description=text, epilog=STATUSES)
        common(sub)
        if target:
            sub.add_argument("target", help=TARGET)
            add_arguments(sub)
            sub.add_argument("--seconds", type=amount, metavar="S",
                             help="how long a file may run without calling a new function, when "
                                  "its calls are watched (default 10; with --jax, 120)")
            sub.add_argument("--argv", metavar="ARGUMENTS",
                             help="what a file that is run finds in sys.argv: '--steps 2'")
        if plans or costs:
            sub.add_argument("--hardware", choices=hardware_names(),
                             help=f"the device that the plan is for (default {DEFAULT_HARDWARE})")
            sub.add_argument("--objective", choices=OBJECTIVES,
                             help=f"what plans are judged by (default {OBJECTIVES[0]})")
            sub.add_argument("--memory-limit", type=amount, metavar="BYTES",
                             help="the most that a device may hold at once, such as 80e9")
            sub.add_argument("--plan", type=Path, metavar="FILE",
                             help="keep the decisions of a plan that `freeze` wrote")
        if costs:
            sub.add_argument("--topology", metavar="SIZES",
                             help="shape of a slice's torus: 8,16,16")
        if passes:
            sub.add_argument("--time-passes", action="store_true",
                             help="also print how long each pass took, on standard error")
        sub.set_defaults(run=run_)
        return sub

    sub = verb("explain", explain.explain,
               "Every collective: line, reason, cost, and what avoids it. (Of an error class: its "
               "help page.)", costs=True, passes=True)
    _explained(sub)
    sub.add_argument("--html", type=Path, metavar="OUT.html",
                     help="write one page to look at: lines, collectives, graph, times, memory")
    sub = verb("watch", watch.watch, "Explain a file, and again whenever it is saved.",
               costs=True)
    _explained(sub)
    sub.set_defaults(html=None)
    sub = verb("lsp", watch.lsp, "Serve an editor: types, collectives, errors and fixes beside the "
               "lines (Language Server Protocol).", target=False)
    sub.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    sub.add_argument("--stdio", action="store_true", help=argparse.SUPPRESS)
    sub = verb("autoshard", autoshard.autoshard,
               "Search the specs of arguments and results with which a step takes least time; "
               "--mesh is then the mesh that it is for.", costs=True)
    autoshard.add_options(sub)
    sub = verb("trace", programs.trace, "Print the traced program, typed.")
    _printed(sub)
    sub = verb("partition", programs.partition, "Print the per-device program, or another stage.",
               plans=True, passes=True)
    sub.add_argument("--stage",
                     help=f"the stage to print: {', '.join(programs.STAGES)} (default: the last)")
    sub.add_argument("--dump", type=Path, metavar="DIR", help="write all stages into a directory")
    _printed(sub)
    sub = verb("show", programs.show, "Verify a program, print it and sum it up.")
    _brief(sub)
    verb("collectives", programs.list_collectives,
         "List the collectives of the per-device program.")
    sub = verb("run", run.run, "Run on simulated devices; print the results, and a profile.",
               costs=True, passes=True)
    run.add_options(sub)
    sub = verb("check", check.check,
               "Fail when bytes, collectives or memory exceed a budget, or on warnings.",
               costs=True)
    sub.add_argument("more", nargs="*", metavar="target", help="further targets")
    sub.add_argument("--budget", type=Path, metavar="FILE",
                     help="a TOML or JSON file with max_bytes, max_peak_bytes, kinds, axis")
    sub.add_argument("--warnings", action="store_true",
                     help="fail on waste: silent replication, padding, repeated gathers, ...")
    sub = verb("diff", diff.diff, "What differs between two programs, two directories of dumps, "
               "two revisions of a file, two objectives, or a program and what XLA makes of it.",
               costs=True)
    sub.add_argument("other", nargs="?", help="the program to compare with; without one, and with "
                     "--objective, the plans by time and by that; after two revisions: the target")
    sub.add_argument("--xla", action="store_true", help="compare the collectives of each line with "
                     "those of XLA's own partition of the same function (needs JAX)")
    sub.add_argument("revised", nargs="?", help="FILE.py:FUNCTION, where the first two are "
                     "revisions of git")
    sub = verb("why", explain.why, "Where the axes on a dimension of a value come from.",
               costs=True)
    sub.add_argument("value", help="NAME.DIM, such as h.0, or NAME for all dimensions")
    sub = verb("propagate", propagate.propagate, "What each step of propagation decided, from "
               "where, and what disagreed in the end.", plans=True)
    propagate.add_options(sub)
    sub = verb("freedom", explain.freedom, "Which dimensions can be split together, who decided "
               "them, and what it is worth to split them over an axis.", costs=True)
    sub.add_argument("--suggest-seconds", type=amount, default=SECONDS, metavar="S",
                     help="try splits for about S seconds, counted in equations "
                          f"(default {SECONDS:g})")
    sub = verb("freeze", freeze.freeze, "Write what is decided of a function (how each value is "
               "laid out, and where it is brought elsewhere) into a file, for --plan.", plans=True)
    sub.add_argument("-o", "--output", type=Path, metavar="FILE.json", help="the file to write")
    sub = verb("thaw", freeze.thaw, "Tell what of a plan a function keeps, what no longer fits, "
               "and what is decided anew.", plans=True)
    sub.add_argument("file", type=Path, metavar="PLAN.json", help="a plan that `freeze` wrote")
    sub = verb("fmt", fmt.fmt, "Write programs in their canonical form.", target=False)
    fmt.add_options(sub)
    sub = verb("hlo", hlo.hlo, "The collectives of a compiled program, from a dump of XLA's.",
               target=False)
    sub.add_argument("file", metavar="DUMP.txt",
                     help="HLO text after optimisation, as --xla_dump_to writes it, or `as_text` "
                          "of what JAX compiled; - for standard input")
    sub.add_argument("--hardware", choices=hardware_names(),
                     help=f"for which times are modelled (default {DEFAULT_HARDWARE})")
    sub = verb("reduce", reduce.reduce, "Shrink a program to a small one that still shows a "
               "property.", costs=True)
    reduce.add_options(sub)
    sub = verb("completion", completion.completion, "Print a completion script for a shell.",
               target=False)
    sub.add_argument("shell", choices=("bash", "zsh", "fish"))
    sub.set_defaults(parser=parser)
    sub = verb("help", help.help_, "How to read a program, and what else the command's words mean.",
               target=False)
    sub.add_argument("topic", nargs="?", metavar="TOPIC",
                     help=f"{', '.join(help.TOPICS)}, a command, the class of an error, or an op")
    sub.set_defaults(commands=verbs.choices)
    return parser


class _Version(argparse.Action):
    """Prints the version that is installed."""

    def __init__(self, option_strings: Sequence[str], dest: str, **kwargs: Any) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help="print the version")

    def __call__(self, parser: argparse.ArgumentParser, *given: Any) -> None:
        print(f"shardtrace {_metadata.version('shardtrace')}")
        parser.exit()


class _Parser(argparse.ArgumentParser):
    """A parser that says which word may have been meant."""

    def error(self, message: str) -> NoReturn:
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
    asked = re.search(r"--width[ =](\d+)", " ".join(words))
    return int(asked[1]) if asked else shutil.get_terminal_size().columns


def common(sub: argparse.ArgumentParser) -> None:
    """The options that every command has."""
    sub.add_argument("--json", action="store_true", help="print JSON")
    sub.add_argument("--color", choices=("auto", "always", "never"), default="auto",
                     help="colours (auto: on a terminal)")
    sub.add_argument("--width", type=positive, metavar="N",
                     help="columns of what is printed (default: the terminal's, else 80)")
    sub.add_argument("--no-progress", action="store_true", help="no progress bars")
    sub.add_argument("--traceback", action="store_true", help="errors with their traceback")


def _explained(sub: argparse.ArgumentParser) -> None:
    """How much is told of what is explained, and how."""
    sub.add_argument("--suggest", type=count, default=3, metavar="N",
                     help="search suggestions for the N dearest collectives (default 3)")
    sub.add_argument("--trials", type=positive, metavar="N",
                     help="try N candidates for the suggestions for one collective, however long "
                          "that takes")
    sub.add_argument("--suggest-seconds", type=amount, default=SECONDS, metavar="S",
                     help="search suggestions for about S seconds, counted in equations "
                          f"(default {SECONDS:g}); Ctrl-C keeps what has been found")
    sub.add_argument("--all", action="store_true", help="tell each collective in full, also where "
                     "many have one cause")
    sub.add_argument("--table", action="store_true", help="a table instead of text")


def _printed(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("-o", "--output", metavar="FILE.st", help="write the program to a file")
    sub.add_argument("--no-locations", action="store_true", help="without source lines")
    _brief(sub)


def _brief(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--brief", action="store_true",
                     help="of each equation only results, op, operands and line")
