"""Which names the user's code binds the values of a trace to.

Names are read where Python keeps them, among the local variables of the user's frame, once the
instruction that called an op has stored its result. The bytecode after that instruction says which
names these are (assignments.py), so a `Watch` looks at the next op, and when the trace ends. What
is stored in an attribute or item is named by its path, `self.w` or `d.h`, and so are the values in
a container that a name is bound to: `grads.w`, `parts.0`.
"""
from __future__ import annotations

import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

from ...ir.program import Program, Var
from ...ir.source.location import (
    NO_CALLERS,
    PACKAGE,
    SCOPES,
    STANDS_BETWEEN,
    UNKNOWN,
    Callers,
    Location,
    is_ours,
)
from ...ir.source.names import Name
from .assignments import ASSIGNMENTS, Place, assignments_of, items
from .tracer import Tracer

_MOST_FRAMES = 32        # callers looked at
_HOLDERS = (dict, list, tuple)

# Ours that call the user's code and trace nothing by it.
_HELPERS = frozenset(f"{PACKAGE}.{name}" for name in (
    "ir.api_boundary", "tracer.trees.tree", "tracer.trees.tree_api"))
_OURS, _HELPER, _USERS = object(), object(), object()


class _Kinds(dict[str, object]):
    """Whose modules are, by name: ours, a helper of ours, or the user's. Every call asks."""

    def __missing__(self, name: str) -> object:
        kind = self[name] = (_HELPER if name in _HELPERS else _OURS if is_ours(name) else _USERS)
        return kind


_KINDS = _Kinds()

DEEP = 1_000_000         # the depth of what is not called from where we are

# Callers: each with names to read, its depth, and the frame that it called.
Frames = tuple[tuple[FrameType, tuple[Any, ...], int, FrameType], ...]


class Watch:
    """The user's frame that called the last op, and its callers, each with names to read.

    It keeps these frames alive, and what is in them, until `end`. depths: for each value named
    here, how deep in calls; a caller's name takes precedence over a callee's.
    """

    __slots__ = ("calls", "callers", "containers", "depth", "depths", "frame", "names", "places",
                 "stores")

    def __init__(self) -> None:
        self.frame: FrameType | None = None
        self.names: tuple[Any, ...] = ()
        self.stores: Any = None              # of the frame's code
        self.callers: Frames = ()
        self.calls = NO_CALLERS              # of the frame
        self.places: dict[int, Location] = {}    # in the frame, by instruction
        self.depth = 0
        self.depths: dict[Any, int] = {}
        self.containers: dict[int, Any] = {}     # whose values were named, by id

    def place(self, above: int = 2) -> Location:
        """The current place in the user's code, as `location.capture`; reads names on the way.

        above: how many frames up the first is that may be the user's.
        """
        frame: Any = sys._getframe(above)
        between = STANDS_BETWEEN
        while frame is not None:
            try:
                name = frame.f_globals["__name__"]
            except KeyError:
                name = ""
            if not between[name]:
                lasti = frame.f_lasti
                if self.frame is not frame:
                    self._enter(frame)
                elif self.names:
                    self._bind(frame, self.names, self.depth)
                self.names = self.stores[lasti]
                scope, places = SCOPES.path, self.places
                if lasti in places and places[lasti].scope == scope:
                    return places[lasti]
                place = places[lasti] = Location(frame.f_code, lasti, scope, self.calls)
                return place
            frame = frame.f_back
        return UNKNOWN

    def _enter(self, frame: FrameType) -> None:
        """Make this the frame that is watched."""
        callers, calls, kind = [], [], _OURS
        inner, outer = frame, frame.f_back
        before, self.depth = self.depth, 0
        for depth in range(-1, -_MOST_FRAMES, -1):
            kind = _OURS
            while outer is not None:
                module = outer.f_globals
                kind = _KINDS[module["__name__"] if "__name__" in module else ""]
                if kind is not _HELPER:
                    break
                inner, outer = outer, outer.f_back
            if outer is None or kind is _OURS:
                break
            code, lasti = outer.f_code, outer.f_lasti
            names = (ASSIGNMENTS.get(id(code)) or assignments_of(code))[lasti]
            calls.append((code, lasti))
            if names:
                callers.append((outer, names, depth, inner))
            inner, outer = outer, outer.f_back
            self.depth += 1
        if self.frame is not None:
            if self.names:
                self._bind(self.frame, self.names, before)
            for caller, names, depth, inner in self.callers:
                for _, _, _, again in callers:
                    if again is inner:
                        break                        # it has not returned yet
                else:
                    self._bind(caller, names, depth)
        self.frame = frame
        # outside of a function that is traced nobody asks, and other callers would be other places
        is_traced = outer is not None and kind is _OURS
        self.calls = Callers(calls) if calls and is_traced else NO_CALLERS
        own = self.depth
        self.callers = tuple([(f, names, own + up, inner) for f, names, up, inner in callers])
        code = frame.f_code
        self.stores, self.places = ASSIGNMENTS.get(id(code)) or assignments_of(code), {}

    def _bind(self, frame: FrameType, names: tuple[Any, ...], depth: int) -> None:
        """Name the traced values that a frame's names are bound to now. Containers are searched
        once.
        """
        values, depths = frame.f_locals, self.depths
        for name in names:
            x = values.get(name)
            if type(x) is Tracer:
                variable = x.variable
                if type(variable) is Var and variable.name != name:
                    if variable.name is None:
                        variable.name = name
                        if depth:
                            depths[variable] = depth
                    else:
                        self._rename(variable, name, depth)
            elif type(name) is Place:
                self._bind_held(name.read(frame), depth, depth if name.known else DEEP)
            elif x is not None and isinstance(x, _HOLDERS) and id(x) not in self.containers:
                self.containers[id(x)] = x
                self._bind_held(items(name, x), depth, DEEP)

    def _bind_held(self, found: list[tuple[str, Tracer]], depth: int, again: int) -> None:
        """Bind the values in a container. again: the depth of the name if it is a further one."""
        for name, x in found:
            variable = x.variable
            if type(variable) is Var and variable.name != name:
                if variable.name is None:
                    variable.name = name
                    self.depths[variable] = depth
                else:
                    self._rename(variable, name, again)

    def _rename(self, variable: Var, name: str, depth: int) -> None:
        """Give a value a further name, which becomes its first where the one it has is deeper."""
        first: Any = variable.name
        others = first.others if type(first) is Name else ()
        if variable in self.depths and self.depths[variable] > depth:
            first, name = name, first
            self.depths[variable] = depth
        elif name in others:
            return
        variable.name = first = Name(first)
        first.others = (*others, name)

    def read(self) -> None:
        """Read all names that are still to be read."""
        if self.frame is not None:
            if self.names:
                self._bind(self.frame, self.names, self.depth)
            for frame, names, depth, _ in self.callers:
                self._bind(frame, names, depth)

    def end(self) -> None:
        """Read names for the last time."""
        self.read()
        self.frame, self.names, self.callers = None, (), ()
        self.depths.clear()
        self.containers.clear()

    def state(self) -> tuple:
        """What `restore` needs after user code that is called from here has returned."""
        return (self.frame, self.names, self.callers, self.depth, self.stores, self.calls,
                self.places)

    def restore(self, state: tuple) -> None:
        self.read()
        (self.frame, self.names, self.callers, self.depth, self.stores, self.calls,
         self.places) = state


def copy_names(variables: Sequence[Var], values: Sequence[Any]) -> None:
    """Give the names of a program's variables to values that have none."""
    for v, x in zip(variables, values, strict=True):
        if v.name is not None and type(x) is Tracer:
            variable = x.variable
            if isinstance(variable, Var) and variable.name is None:
                variable.name = v.name
                x.builder.watch.depths[variable] = DEEP


def number_names(program: Program) -> None:
    """Rename the values that one name was bound to in turn to `h`, `h_1`, `h_2`; also those of
    nested programs.
    """
    if program.memo.get(_NUMBERED):
        return
    program.memo[_NUMBERED] = True
    for eqn in program.eqns:
        if eqn.op.subprograms:
            for _, inner in eqn.subprograms():
                number_names(inner)
    named: Any = [v for eqn in program.eqns for v in eqn.outvars if v.name is not None]
    count: dict[Any, int] = {**dict.fromkeys(program.arg_names, 0),
                             **dict.fromkeys([v.name for v in program.invars], 0)}
    used = {*count, *[v.name for v in named]}
    if len(used) == len(count) + len(named):
        return
    for v in named:
        base = v.name
        if base not in count:
            count[base] = 0
            continue
        number = count[base] + 1
        name = f"{base}_{number}"
        while name in used:
            number += 1
            name = f"{base}_{number}"
        count[base] = number
        if type(base) is Name:
            name = Name(name)
            name.others = base.others
        v.name = name


_NUMBERED = "numbered"
