"""debug.breakpoint: stops a running program and inspects the values in scope.

Arrays in the local variables of the user's frames are arguments of a debug callback; when the
program reaches it, a prompt on the terminal shows them. In a shard_map every device stops, with its
own blocks. Source: JAX's `jax.debug.breakpoint`, whose commands these are.
"""
from __future__ import annotations

import cmd
import inspect
import pprint
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any, NamedTuple

from ...ir.source.location import is_between
from ...ir.values.array import Array
from ..trees import tree
from .callbacks import debug_callback


def breakpoint(*, backend: str | None = None, filter_frames: bool = True,
               num_frames: int | None = None, ordered: bool = False, token: Any = None,
               stdin: Any = None, stdout: Any = None) -> Any:
    """Stop here when the program runs; a prompt reads commands until `c` (continue).

    num_frames: how many frames can be looked at (default all of functions). filter_frames: leave
    out those of libraries in between. ordered: on one device only. token: arrays, which are
    returned; not together with `ordered`. stdin, stdout: where the prompt reads and writes.
    backend: there is one, "cli". Raises ValueError for another one; `q` (quit) and the end of
    stdin end the program: SystemExit, from a jitted function JaxRuntimeError.
    """
    if backend not in (None, "cli"):
        raise ValueError(f"Unknown debugger: {backend!r}. Expected one of: 'cli'")
    if ordered and token is not None:
        raise ValueError("`ordered` and `token` are mutually exclusive arguments.")
    frames: list[tuple[Place, dict[str, tuple[list[Any], Any]]]] = []
    frame = sys._getframe(1)
    while frame is not None and (num_frames is None or len(frames) < num_frames):
        name = frame.f_globals.get("__name__", "")
        if frame.f_code.co_name == "<module>":
            break
        if not (filter_frames and is_between(name)):
            frames.append((_place(frame), {k: _flat(v) for k, v in frame.f_locals.items()}))
        frame = frame.f_back
    kept = [x for _, variables in frames for leaves, _ in variables.values() for x in leaves]
    arrays = [x for x in kept if isinstance(x, Array)]

    def stop(*values: Any) -> None:
        given = iter(values)
        leaves = iter([next(given) if isinstance(x, Array) else x for x in kept])
        shown = [{k: tree.unflatten(form, [next(leaves) for _ in flat])
                  for k, (flat, form) in variables.items()} for _, variables in frames]
        Prompt([place for place, _ in frames], shown, stdin, stdout).cmdloop()

    debug_callback(stop, *arrays, ordered=ordered)
    return token


def _flat(value: Any) -> tuple[list[Any], Any]:
    """A value's leaves and structure; what cannot be flattened is a leaf."""
    try:
        return tree.flatten(value)
    except Exception:
        return [value], tree.structure(0)


class Place(NamedTuple):
    """Where a frame is. source: its function's lines and a blank one; first: the first's number."""

    file: str
    line: int
    source: list[str]
    first: int


def _place(frame: types.FrameType) -> Place:
    try:
        source, first = inspect.getsourcelines(frame)
    except OSError:                             # typed at a prompt that keeps no lines
        source, first = [], 1
    return Place(frame.f_code.co_filename, frame.f_lineno, [*source, ""], first)


class Prompt(cmd.Cmd):
    """The prompt of a breakpoint: frames from the innermost, with their variables."""

    prompt, intro = "(jdb) ", "Entering jdb:"

    def __init__(self, places: list[Place], values: list[dict[str, Any]],
                 stdin: Any = None, stdout: Any = None) -> None:
        super().__init__(stdin=stdin, stdout=stdout)
        self.use_rawinput = stdin is None
        self.places, self.values = places, values
        self.at = 0

    def _say(self, text: str) -> None:
        self.stdout.write(text + "\n")

    def _show(self, expression: str, form: Callable[[Any], str]) -> None:
        try:                                    # the user's, at a prompt of their own
            self._say(form(eval(expression, {}, dict(self.values[self.at]))))
        except Exception as problem:
            self._say("*** " + traceback.format_exception_only(problem)[-1].strip())

    def _around(self, lines: int) -> None:
        """The place of the frame, and so many lines of its function on both sides."""
        file, line, source, first = self.places[self.at]
        self._say(f"> {file}({line})")
        for n, text in enumerate(source, first):
            if line - lines - 1 <= n <= line + lines:
                self._say(f"{'->' if n == line else '  '}  {text.rstrip()}")

    def do_p(self, expression: str) -> None:
        """p expression: print its value in this frame."""
        self._show(expression, repr)

    def do_pp(self, expression: str) -> None:
        """pp expression: print its value in several lines."""
        self._show(expression, pprint.pformat)

    def do_where(self, _: str) -> None:
        """w, where, bt: the frames, the innermost last."""
        self._say("Traceback:")
        for file, line, source, first in reversed(self.places):
            text = source[line - first].strip() if source[1:] else "<no source>"
            self._say(f'  File "{file}", line {line}\n    {text}')

    do_bt = do_w = do_where

    def do_list(self, _: str) -> None:
        """l, list: the source around the current line."""
        self._around(5)

    do_l = do_list

    def do_up(self, _: str) -> None:
        """u, up: to the frame that called this one."""
        self._go(1, "At topmost frame.")

    def do_down(self, _: str) -> None:
        """d, down: to the frame that this one called."""
        self._go(-1, "At bottommost frame.")

    def _go(self, step: int, at_end: str) -> None:
        if 0 <= self.at + step < len(self.places):
            self.at += step
        else:
            self._say(at_end)
        self._around(2)

    do_u, do_d = do_up, do_down

    def do_continue(self, _: str) -> bool:
        """c, cont, continue: let the program go on."""
        return True

    do_c = do_cont = do_continue

    def do_quit(self, _: str) -> None:
        """q, quit, exit: end the program."""
        sys.exit(0)

    do_q = do_exit = do_EOF = do_quit

    def emptyline(self) -> bool:
        return False

    def default(self, line: str) -> None:
        self.do_p(line)
