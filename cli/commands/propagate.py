"""`propagate`: what each step of propagation decided, and from where; a debugger at a terminal."""
from __future__ import annotations

import argparse
import sys

from ...ir.support.spelling import none_such
from ...report.propagation.steps import Propagation, Step
from ..output import Output
from ..problems import Problem
from ..select import one

HELP = ("Enter: the next step; c: on to the next break, or the end; b NAME: break where NAME "
        "changes; p NAME: the steps of NAME so far; q: quit")


def add_options(sub: argparse.ArgumentParser) -> None:
    """The options of the command."""
    sub.add_argument("--step", action="store_true",
                     help="stop after each step, at a terminal; without one all are printed")
    sub.add_argument("--break", dest="breaks", action="append", default=[], metavar="NAME",
                     help="stop, or without --step print, where the value NAME changes")


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
    out.text("\n".join(p.ending()))


def check_name(name: str, known: set[str]) -> None:
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
        self.out.text(HELP)
        for step in self.p.steps:
            if self.running and not is_of(step, self.breaks):
                continue
            self.out.text(str(step))
            if not self.is_shown(step):
                return False
        return True

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
            elif word == "p":
                lines = [str(s) for s in self.p.of(name) if s.number <= step.number]
                lines += [str(a) for a in self.p.annotations if a.value.strip("`") == name]
                self.out.text("\n".join(lines) or f"`{name}` has no axes yet")
            else:
                self.out.text(HELP)
