"""Which names the user's code binds the values of a trace to.

A name belongs to a value, so it is read where Python keeps it: among the local variables of the
user's frame, once the instruction that asked for an op has stored what it gave. Which names those
are stands in the bytecode behind that instruction, and is worked out once for each. A `Watch`
therefore looks when the next op is asked for, and when the trace ends.
"""
from __future__ import annotations

import opcode
import sys
from collections.abc import Sequence
from types import CodeType, FrameType
from typing import Any

from ...ir.caches import module_table
from ...ir.location import SCOPES, STANDS_BETWEEN, UNKNOWN, Location, is_ours
from ...ir.program import Program, Var
from .tracer import Tracer

_MOST_STEPS = 64         # instructions looked at behind one
_MOST_FRAMES = 32        # callers looked at

DEEP = 1_000_000         # the depth of what is not called from where we are

Frames = tuple[tuple[FrameType, tuple[str, ...], int], ...]


_OPS = opcode.opname
_STORES = frozenset(i for i, name in enumerate(_OPS) if name.startswith(
    ("STORE_FAST", "STORE_DEREF", "STORE_NAME")))
_FORWARD = opcode.opmap["JUMP_FORWARD"]
_ENDS = frozenset(i for i, name in enumerate(_OPS) if name.startswith(
    ("POP_JUMP", "JUMP_IF", "JUMP_BACKWARD", "RETURN", "RAISE", "RERAISE", "YIELD", "SEND")))
_COMPUTES = frozenset(i for i, name in enumerate(_OPS) if name.startswith(
    ("CALL", "BINARY", "UNARY", "COMPARE", "GET_ITER")))


class _Stores(dict[int, tuple[str, ...]]):
    """Offset of an instruction of `code` -> names that its value may be stored in."""

    def __init__(self, code: CodeType) -> None:
        self.code, self.bytecode = code, code.co_code

    def __missing__(self, lasti: int) -> tuple[str, ...]:
        """The names of the first stores behind it on a straight way, whatever is called between."""
        found: dict[str, None] = {}
        bytecode, at, high = self.bytecode, lasti + 2, 0
        for _ in range(_MOST_STEPS):
            if at >= len(bytecode):
                break
            op, arg = bytecode[at], bytecode[at + 1] | high
            at += 2
            high = arg << 8 if op == opcode.EXTENDED_ARG else 0
            if op in _STORES:
                found.update(dict.fromkeys([n for n in self._names(op, arg) if n.strip("_")]))
            elif op == _FORWARD:
                at += 2 * arg
            elif op in _ENDS or (found and op in _COMPUTES):
                break
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

    __slots__ = ("callers", "depth", "depths", "frame", "names", "stores")

    def __init__(self) -> None:
        self.frame: FrameType | None = None
        self.names: tuple[str, ...] = ()
        self.stores: Any = None              # of the frame's code
        self.callers: Frames = ()
        self.depth = 0
        self.depths: dict[Any, int] = {}

    def place(self) -> Location:
        """Where in the user's code we are, as `ir.location.capture`; names are read by the way."""
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
                return Location(code, lasti, SCOPES.path)
            frame = frame.f_back
        return UNKNOWN

    def _enter(self, frame: FrameType) -> None:
        """From now on this is the frame."""
        self.read()
        self.frame = frame
        callers = []
        outer = frame.f_back
        self.depth = 0
        for depth in range(-1, -_MOST_FRAMES, -1):
            if outer is None or is_ours(outer.f_globals.get("__name__", "")):
                break
            code = outer.f_code
            names = (_CODES.get(id(code)) or _stores(code))[outer.f_lasti]
            if names:
                callers.append((outer, names, depth))
            outer = outer.f_back
            self.depth += 1
        self.callers = tuple([(f, names, self.depth + up) for f, names, up in callers])

    def _bind(self, frame: FrameType, names: tuple[str, ...], depth: int) -> None:
        values, depths = frame.f_locals, self.depths
        for name in names:
            x = values[name] if name in values else None
            if type(x) is Tracer:
                variable = x.variable
                if type(variable) is Var and (variable.name is None or (
                        variable in depths and depths[variable] > depth)):
                    variable.name = name
                    depths[variable] = depth

    def read(self) -> None:
        """Read all names that there are to read."""
        if self.frame is not None:
            if self.names:
                self._bind(self.frame, self.names, self.depth)
            for frame, names, depth in self.callers:
                self._bind(frame, names, depth)

    def end(self) -> None:
        """Read names for the last time."""
        self.read()
        self.frame, self.names, self.callers = None, (), ()
        self.depths.clear()

    def state(self) -> tuple:
        """For `restore`, behind code of the user's that is called from where we are."""
        return self.frame, self.names, self.callers, self.depth, self.stores

    def restore(self, state: tuple) -> None:
        self.read()
        self.frame, self.names, self.callers, self.depth, self.stores = state


def name_alike(variables: Sequence[Var], values: Sequence[Any]) -> None:
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
    named = [v for eqn in program.eqns for v in eqn.outvars if v.name is not None]
    first: dict[str | None, Any] = {v.name: v for v in reversed(named)}
    first.update(dict.fromkeys([*program.arg_names, *[v.name for v in program.invars]]))
    again = [v for v in named if first[v.name] is not v]
    used = set(first)
    for eqn in program.eqns:
        for name in eqn.op.subprograms:
            value = eqn.params[name]
            for inner in value if isinstance(value, tuple) else (value,):
                if isinstance(inner, Program):
                    number_names(inner)
    count: dict[str, int] = {}
    for v in again:
        base = v.name or ""
        number = count.get(base, 0) + 1
        while f"{base}_{number}" in used:
            number += 1
        count[base] = number
        v.name = f"{base}_{number}"
        used.add(v.name)


_NUMBERED = "numbered"
