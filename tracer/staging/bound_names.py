"""Which names the user's code binds the values of a trace to.

A name belongs to a value, so it is read where Python keeps it: among the local variables of the
user's frame, once the instruction that asked for an op has stored what it gave. Which names those
are stands in the bytecode behind that instruction, and is worked out once for each. A `Watch`
therefore looks when the next op is asked for, and when the trace ends. What is stored in an
attribute or item is named by its path, `self.w` or `d.h`, and so are the values in a container that
a name is bound to: `grads.w`, `parts.0`.
"""
from __future__ import annotations

import ast
import dataclasses
import opcode
import re
import sys
from collections.abc import Sequence
from types import CodeType, FrameType, MemberDescriptorType
from typing import Any

from ...ir.program import Name, Program, Var
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
from ...ir.support.caches import cached, module_table
from .tracer import Tracer

_MOST_STEPS = 64         # instructions looked at behind one
_MOST_FRAMES = 32        # callers looked at

_MOST_ITEMS = 64         # of a container whose values are named

# Ours that call the user's code and trace nothing by it.
_HELPERS = frozenset(f"{PACKAGE}.{name}" for name in (
    "ir.api_boundary", "tracer.trees.tree", "tracer.trees.tree_api"))
_OURS, _HELPER, _USERS = object(), object(), object()


class _Kinds(dict[str, object]):
    """What modules are, by name, worked out once for each: every call of the user's asks."""

    def __missing__(self, name: str) -> object:
        kind = self[name] = (_HELPER if name in _HELPERS else _OURS if is_ours(name) else _USERS)
        return kind


_KINDS = _Kinds()

DEEP = 1_000_000         # the depth of what is not called from where we are

# Callers: each with names to read, its depth, and the frame that it called.
Frames = tuple[tuple[FrameType, tuple[Any, ...], int, FrameType], ...]


_OPS = opcode.opname
_STORES = frozenset(i for i, name in enumerate(_OPS) if name.startswith(
    ("STORE_FAST", "STORE_DEREF", "STORE_NAME")))
_PLACES = frozenset(opcode.opmap[name] for name in ("STORE_ATTR", "STORE_SUBSCR"))
_FORWARD, _BACKWARD = opcode.opmap["JUMP_FORWARD"], opcode.opmap["JUMP_BACKWARD"]
_ENDS = frozenset(i for i, name in enumerate(_OPS) if name.startswith(
    ("POP_JUMP", "JUMP_IF", "JUMP_BACKWARD", "RETURN", "RAISE", "RERAISE", "YIELD", "SEND")))
# In front of the jump back of a comprehension, behind whose loop its container is stored.
_ADDS = frozenset(opcode.opmap[name] for name in ("LIST_APPEND", "SET_ADD", "MAP_ADD"))
_COMPUTES = frozenset(i for i, name in enumerate(_OPS) if name.startswith(
    ("CALL", "BINARY", "UNARY", "COMPARE", "GET_ITER")))


class _Place:
    """Where a value is stored that is no variable: the variable `base`, and the steps from it, each
    an attribute (True, name), an item (False, key), or one whose key is the value of a variable
    (None, name) or unknown (None, "").
    """

    __slots__ = ("base", "steps")

    def __init__(self, base: str, steps: tuple[tuple[bool | None, Any], ...]) -> None:
        self.base, self.steps = base, steps

    @classmethod
    def of(cls, text: str) -> _Place | None:
        """The place that the text of a target means, if it begins with a variable."""
        try:
            node: Any = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return None
        steps: list[tuple[bool | None, Any]] = []
        while isinstance(node, (ast.Attribute, ast.Subscript)):
            if isinstance(node, ast.Attribute):
                steps.append((True, node.attr))
            elif isinstance(node.slice, ast.Constant):
                steps.append((False, node.slice.value))
            else:
                steps.append((None, node.slice.id if isinstance(node.slice, ast.Name) else ""))
            node = node.value
        return cls(node.id, tuple(reversed(steps))) if isinstance(node, ast.Name) else None

    @property
    def known(self) -> bool:
        """Does its last step say which one it is?"""
        return self.steps[-1][0] is not None

    def read(self, frame: FrameType) -> list[tuple[str, Any]]:
        """What lies there now, by name; all items where the last key is not known for sure."""
        variables, name, last = frame.f_locals, self.base, len(self.steps) - 1
        holder = variables.get(name, frame.f_globals.get(name))
        for i, (attribute, key) in enumerate(self.steps):
            if attribute is None:
                if i == last:
                    return _items(name, holder)
                key = variables.get(key)
            if type(key) not in _KEYS:
                return []
            holder = _attribute(holder, key) if attribute else _item(holder, key)
            name = _step(name, key)
        return [(name, holder)] if type(holder) is Tracer else []


def _attribute(holder: Any, key: Any) -> Any:
    """An attribute that an instance holds itself: no code of the user's runs."""
    try:
        own = object.__getattribute__(holder, "__dict__")
    except AttributeError:
        own = ()
    if key in own:
        return own[key]
    slot = getattr(type(holder), key, None)
    try:
        return slot.__get__(holder) if type(slot) is MemberDescriptorType else None
    except AttributeError:
        return None


def _item(holder: Any, key: Any) -> Any:
    try:
        if isinstance(holder, dict):
            return dict.get(holder, key)
        return list.__getitem__(holder, key) if isinstance(holder, list) else None
    except (TypeError, IndexError):
        return None


def _items(name: str, holder: Any) -> list[tuple[str, Tracer]]:
    """The values in a container, and in those in it, by name."""
    found: list[tuple[str, Tracer]] = []
    if isinstance(holder, dict):
        keys, values = holder, dict.values(holder)
    elif isinstance(holder, (list, tuple)):
        keys, values = getattr(holder, "_fields", None) or _NUMBERS, holder
    elif dataclasses.is_dataclass(holder):
        keys = values = getattr(holder, "__dict__", {})
        values = values.values()
    else:
        return found
    for key, x in zip(keys, values):                # noqa: B905 (numbers are more than enough)
        if type(key) not in _KEYS:
            continue
        if type(x) is Tracer:
            found.append((_step(name, key), x))
        elif x is not None and type(x) not in _PLAIN:
            found += _items(_step(name, key), x)
        if len(found) >= _MOST_ITEMS:
            break
    return found


_PLAIN = frozenset((str, int, float, bool))
_KEYS = frozenset((str, int))
_HOLDERS = (dict, list, tuple)
_NUMBERS = range(_MOST_ITEMS)


@cached(4096)
def _step(name: str, key: Any) -> str:
    """`d.h` of `d` and its item "h"."""
    if type(key) is int and key >= 0 or type(key) is str and key.isidentifier() and key.isascii():
        return f"{name}.{key}"
    return f"{name}.{re.sub(r'[^A-Za-z0-9_]+', '_', str(key)).strip('_') or '_'}"


class _Stores(dict[int, tuple[Any, ...]]):
    """Offset of an instruction of `code` -> names and places that its value may be stored in."""

    def __init__(self, code: CodeType) -> None:
        self.code, self.bytecode = code, code.co_code

    def __missing__(self, lasti: int) -> tuple[Any, ...]:
        """The names of the first stores behind it on a straight way, whatever is called between."""
        found: dict[Any, None] = {}
        bytecode, at, high, adds = self.bytecode, lasti + 2, 0, False
        for _ in range(_MOST_STEPS):
            if at >= len(bytecode):
                break
            op, arg = bytecode[at], bytecode[at + 1] | high
            at += 2
            high = arg << 8 if op == opcode.EXTENDED_ARG else 0
            if op in _STORES:
                found.update(dict.fromkeys([n for n in self._names(op, arg) if n.strip("_")]))
            elif op in _PLACES:
                place = _Place.of(Location(self.code, at - 2).text())
                if place is not None:
                    found[place] = None
            elif op == _FORWARD:
                at += 2 * arg
            elif (op in _ENDS and not (op == _BACKWARD and adds)) or (found and op in _COMPUTES):
                break
            adds = op in _ADDS or (adds and op == opcode.EXTENDED_ARG)
        stores = self[lasti] = tuple(found)
        return stores

    def _names(self, op: int, arg: int) -> tuple[str, ...]:
        """Of an instruction that stores: one name, or two where one instruction does both."""
        name, local = _OPS[op], self.code._varname_from_oparg   # type: ignore[attr-defined]
        if name == "STORE_NAME":
            return (self.code.co_names[arg],)
        if name == "STORE_FAST_STORE_FAST":
            return local(arg >> 4), local(arg & 15)
        return (local(arg >> 4 if name == "STORE_FAST_LOAD_FAST" else arg),)


# By the id of the code, which is held: its hash takes longer.
_CODES = module_table("tracer.staging.bound_names._CODES",
                      "names that instructions of the user's code store in", 4096)


def _stores(code: CodeType) -> _Stores:
    found = _CODES[id(code)] = _Stores(code)
    return found


class Watch:
    """The user's frame where the last op was asked for, and its callers, each with names to read.

    It keeps these frames, hence what is in them: `end` lets them go. depths: of the values that
    were named here, how deep in calls; a caller's name counts more than that of what it called.
    """

    __slots__ = ("calls", "callers", "containers", "depth", "depths", "frame", "names", "stores")

    def __init__(self) -> None:
        self.frame: FrameType | None = None
        self.names: tuple[Any, ...] = ()
        self.stores: Any = None              # of the frame's code
        self.callers: Frames = ()
        self.calls = NO_CALLERS              # of the frame
        self.depth = 0
        self.depths: dict[Any, int] = {}
        self.containers: dict[int, Any] = {}     # whose values were named, by id

    def place(self) -> Location:
        """Where in the user's code we are, as `location.capture`; names are read by the way."""
        frame: Any = sys._getframe(2)
        between = STANDS_BETWEEN
        while frame is not None:
            module = frame.f_globals
            if not between[module["__name__"] if "__name__" in module else ""]:
                code, lasti = frame.f_code, frame.f_lasti
                if self.frame is not frame:
                    self._enter(frame)
                    self.stores = _CODES.get(id(code)) or _stores(code)
                elif self.names:
                    self._bind(frame, self.names, self.depth)
                self.names = self.stores[lasti]
                return Location(code, lasti, SCOPES.path, self.calls)
            frame = frame.f_back
        return UNKNOWN

    def _enter(self, frame: FrameType) -> None:
        """From now on this is the frame."""
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
            names = (_CODES.get(id(code)) or _stores(code))[lasti]
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

    def _bind(self, frame: FrameType, names: tuple[Any, ...], depth: int) -> None:
        values, depths = frame.f_locals, self.depths
        for name in names:
            x = values[name] if name in values else None
            if type(x) is Tracer:
                variable = x.variable
                if type(variable) is Var and variable.name != name:
                    if variable.name is None:
                        variable.name = name
                        depths[variable] = depth
                    else:
                        self._rename(variable, name, depth)
            elif type(name) is _Place:
                self._bind_held(name.read(frame), depth, depth if name.known else DEEP)
            elif x is not None and isinstance(x, _HOLDERS) and id(x) not in self.containers:
                self.containers[id(x)] = x
                self._bind_held(_items(name, x), depth, DEEP)

    def _bind_held(self, found: list[tuple[str, Tracer]], depth: int, again: int) -> None:
        """The same of what lies in a container. again: how deep its name counts as another one."""
        for name, x in found:
            variable = x.variable
            if type(variable) is Var and variable.name != name:
                if variable.name is None:
                    variable.name = name
                    self.depths[variable] = depth
                else:
                    self._rename(variable, name, again)

    def _rename(self, variable: Var, name: str, depth: int) -> None:
        """One more name of a value: its first one, where the one it has was given deeper."""
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
        """Read all names that there are to read."""
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
        """For `restore`, behind code of the user's that is called from where we are."""
        return self.frame, self.names, self.callers, self.depth, self.stores

    def restore(self, state: tuple) -> None:
        self.read()
        self.frame, self.names, self.callers, self.depth, self.stores = state


def copy_names(variables: Sequence[Var], values: Sequence[Any]) -> None:
    """Call the values of a program's variables as these are called, where they have no name."""
    for v, x in zip(variables, values, strict=True):
        if v.name is not None and type(x) is Tracer:
            variable = x.variable
            if isinstance(variable, Var) and variable.name is None:
                variable.name = v.name
                x.builder.watch.depths[variable] = DEEP


def number_names(program: Program) -> None:
    """Call the values that one name was bound to in turn `h`, `h_1`, `h_2`, for good; in the
    programs that it holds as well."""
    if program.memo.get(_NUMBERED):
        return
    program.memo[_NUMBERED] = True
    named: list[Any] = []
    for eqn in program.eqns:
        if eqn.op.subprograms:
            for _, inner in eqn.subprograms():
                number_names(inner)
        for v in eqn.outvars:
            if v.name is not None:
                named.append(v)
    taken = {*program.arg_names, *[v.name for v in program.invars]}
    used = {*taken, *[v.name for v in named]}
    if len(used) == len(taken) + len(named):
        return
    first: dict[str | None, Any] = {v.name: v for v in reversed(named)}
    first.update(dict.fromkeys(taken))
    again = [v for v in named if first[v.name] is not v]
    count: dict[str, int] = {}
    for v in again:
        base = v.name or ""
        number = count.get(base, 0) + 1
        while f"{base}_{number}" in used:
            number += 1
        count[base] = number
        v.name = f"{base}_{number}"
        if type(base) is Name:
            v.name = Name(v.name)
            v.name.others = base.others
        used.add(v.name)


_NUMBERED = "numbered"
