"""debug.breakpoint: stop a running program and look at the values around.

The local variables of the user's frames are arguments of a debug callback; when the program comes
there, a prompt on the terminal shows them. In a shard_map every device stops, with its own blocks.
Source: JAX's `jax.debug.breakpoint`, whose commands these are.
"""
from __future__ import annotations

import cmd
import linecache
import pprint
import sys
import types
from typing import Any

from ...ir.source.location import is_between
from .callbacks import debug_callback

_HIDDEN = (types.ModuleType, types.FunctionType, type)


def breakpoint(*, backend: str | None = None, filter_frames: bool = True,
               num_frames: int | None = None, ordered: bool = False, token: Any = None,
               stdin: Any = None, stdout: Any = None) -> None:
    """Stop here when the program runs; a prompt reads commands until `c` (continue).

    num_frames: how many frames can be looked at (default all of functions). filter_frames: leave
    out those of libraries in between. ordered: on one device only. stdin, stdout: where the prompt
    reads and writes. backend and token are taken for compatibility: there is one terminal.
    Raises ValueError for an unknown backend; `q` (quit) ends the program with JaxRuntimeError.
    """
    if backend not in (None, "cli"):
        raise ValueError(f"Unknown debugger: {backend!r}. Expected one of: 'cli'")
    frames = []
    frame = sys._getframe(1)
    while frame is not None and (num_frames is None or len(frames) < num_frames):
        name = frame.f_globals.get("__name__", "")
        if frame.f_code.co_name == "<module>":
            break
        if not (filter_frames and is_between(name)):
            values = {k: v for k, v in frame.f_locals.items()
                      if k.isidentifier() and not isinstance(v, _HIDDEN)}
            frames.append(((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name),
                           values))
        frame = frame.f_back
    places = [place for place, _ in frames]

    def stop(*values: dict[str, Any]) -> None:
        Prompt(places, values, stdin, stdout).cmdloop()

    debug_callback(stop, *(values for _, values in frames), ordered=ordered)


class Prompt(cmd.Cmd):
    """The prompt of a breakpoint: frames from the innermost, with their variables."""

    prompt = "(jdb) "

    def __init__(self, places: list[tuple[str, int, str]], values: tuple[dict[str, Any], ...],
                 stdin: Any = None, stdout: Any = None) -> None:
        super().__init__(stdin=stdin, stdout=stdout)
        self.use_rawinput = stdin is None
        self.places, self.values = places, values
        self.at = 0

    def preloop(self) -> None:
        self.do_where("")

    def _say(self, text: str) -> None:
        self.stdout.write(text + "\n")

    def _value(self, expression: str) -> Any:
        return eval(expression, {}, dict(self.values[self.at]))     # the user's, at his own prompt

    def do_p(self, expression: str) -> None:
        """p expression: print its value in this frame."""
        try:
            self._say(repr(self._value(expression)))
        except Exception as problem:
            self._say(f"*** {type(problem).__name__}: {problem}")

    def do_pp(self, expression: str) -> None:
        """pp expression: print its value in several lines."""
        try:
            self._say(pprint.pformat(self._value(expression)))
        except Exception as problem:
            self._say(f"*** {type(problem).__name__}: {problem}")

    def do_where(self, _: str) -> None:
        """bt, where: the frames; an arrow stands at the current one."""
        for i, (file, line, function) in enumerate(self.places):
            arrow = "> " if i == self.at else "  "
            self._say(f"{arrow}{file}({line}) {function}: "
                      f"{linecache.getline(file, line).strip()}")

    do_bt = do_w = do_where

    def do_list(self, _: str) -> None:
        """l, list: the source around the current line."""
        file, line, _name = self.places[self.at]
        for n in range(max(line - 5, 1), line + 6):
            text = linecache.getline(file, n).rstrip()
            if text:
                self._say(f"{'->' if n == line else '  '} {n:4} {text}")

    do_l = do_list

    def do_up(self, _: str) -> None:
        """u, up: to the frame that called this one."""
        self.at = min(self.at + 1, len(self.places) - 1)
        self.do_where("")

    def do_down(self, _: str) -> None:
        """d, down: to the frame that this one called."""
        self.at = max(self.at - 1, 0)
        self.do_where("")

    do_u, do_d = do_up, do_down

    def do_continue(self, _: str) -> bool:
        """c, continue: let the program go on."""
        return True

    do_c = do_EOF = do_continue

    def do_quit(self, _: str) -> None:
        """q, quit: end the program."""
        raise RuntimeError("the breakpoint was left with `quit`")

    do_q = do_quit

    def emptyline(self) -> bool:
        return False

    def default(self, line: str) -> None:
        self.do_p(line)
