"""`propagate`: what each step of propagation decided, and from where; a debugger at a terminal."""
from __future__ import annotations

import argparse
import contextlib
import sys

from ...ir.support.lazy import lazy_import
from ...ir.support.spelling import none_such
from ...report.propagation.steps import SHOWN, Propagation, Step
from ..output import Output
from ..problems import Problem
from ..select import one

_readline = lazy_import("readline")

HELP = ("Enter: the next step; c: on to the next break, or the end; b NAME: break where NAME "
        "changes; p NAME: the steps of NAME so far; q: quit")


def add_options(sub: argparse.ArgumentParser) -> None:
    """The options of the command."""
    sub.add_argument("--step", action="store_true",
                     help="stop after each step, at a terminal; without one all are printed")
    sub.add_argument("--break", dest="breaks", action="append", default=[], metavar="NAME",
                     help="stop, or without --step print, where the value NAME changes")
    sub.add_argument("--all", action="store_true",
                     help=f"all conflicts, not the {SHOWN} most expensive alone")


def propagate(options: argparse.Namespace) -> None:
    """Print the steps of propagation, or go through them."""
    found = one(options.target, options)
    with found.context():
        e = found.explain(None)
    p, out = e.propagation(), Output(options)
    known = {s.value.strip("`") for s in p.steps} | {a.value.strip("`") for a in p.annotations}
    for name in options.breaks:
        check_name(name, known)
    if out.as_json:
        out.json(p.to_dict())
        return
    out.text("\n".join(p.heading()))
    if options.step and sys.stdin.isatty() and sys.stdout.isatty():
        if not Session(p, out, options.breaks, known).run():
            return
    else:
        for step in p.steps:
            if not options.breaks or is_of(step, options.breaks):
                out.text(str(step))
    out.text("\n".join(p.ending(None if options.all else SHOWN, "--all shows them")))


def check_name(name: str, known: set[str]) -> None:
    if not name:
        raise Problem(f"name a value: {', '.join(sorted(known))}")
    if name not in known:
        raise Problem(none_such(name, sorted(known), "value"))


def is_of(step: Step, names: list[str]) -> bool:
    return step.value.strip("`") in names


class Session:
    """The steps one by one, as the user asks for them."""

    def __init__(self, p: Propagation, out: Output, breaks: list[str], known: set[str]) -> None:
        self.p, self.out, self.known = p, out, known
        self.breaks = list(breaks)
        self.running = bool(breaks)

    def run(self) -> bool:
        """Go through them; whether to the end."""
        with contextlib.suppress(ImportError):          # where there is one, arrow keys edit
            _readline.set_auto_history(True)
        self.out.text(HELP)
        for name in self.breaks:
            self.say_break(name, 0)
        for step in self.p.steps:
            if self.running and not is_of(step, self.breaks):
                continue
            self.out.text(str(step))
            if not self.is_shown(step):
                return False
        return True

    def say_break(self, name: str, after: int) -> None:
        """Say where a break will stop, of the steps that are to come."""
        numbers = [str(s.number) for s in self.p.of(name) if s.number > after]
        self.out.text(f"`c` stops at step {', '.join(numbers)}" if numbers else
                      f"`{name}` changes in no step from here on")

    def is_shown(self, step: Step) -> bool:
        """Do what the user says until he wants to go on; False where he is done."""
        while True:
            try:
                word, _, name = input("> ").strip().partition(" ")
            except EOFError:
                return False
            name = name.strip().strip("`")
            try:
                if word in ("b", "p"):
                    check_name(name, self.known)
            except Problem as problem:
                self.out.text(str(problem))
                continue
            if word in ("", "n", "c"):
                self.running = word == "c"
                return True
            if word == "q":
                return False
            if word == "b":
                self.breaks.append(name)
                self.say_break(name, step.number)
            elif word == "p":
                lines = [str(s) for s in self.p.of(name) if s.number <= step.number]
                lines += [str(a) for a in self.p.annotations if a.value.strip("`") == name]
                self.out.text("\n".join(lines) or f"`{name}` has no axes yet")
            else:
                self.out.text(HELP)
