"""Assignments in the user's code: the names that the value of an instruction is stored under.

Which these are stands in the bytecode after the instruction, and is worked out once for each: the
variables of the first stores that follow it, and the places, such as `self.w` or `d["h"]`, whose
text is read from the source. Reading a place runs no code of the user's.
"""
from __future__ import annotations

import ast
import dataclasses
import opcode
import re
from types import CodeType, FrameType, MemberDescriptorType
from typing import Any

from ...ir.source.location import Location
from ...ir.support.caches import cached, module_table
from .tracer import Tracer

_MOST_STEPS = 64         # instructions looked at after one
_MOST_ITEMS = 64         # of a container whose values are named
_PLAIN = frozenset((str, int, float, bool))
_KEYS = frozenset((str, int))
_NUMBERS = range(_MOST_ITEMS)

_OPS = opcode.opname
_STORES = frozenset(i for i, name in enumerate(_OPS) if name.startswith(
    ("STORE_FAST", "STORE_DEREF", "STORE_NAME")))
_PLACES = frozenset(opcode.opmap[name] for name in ("STORE_ATTR", "STORE_SUBSCR"))
_FORWARD, _BACKWARD = opcode.opmap["JUMP_FORWARD"], opcode.opmap["JUMP_BACKWARD"]
_ENDS = frozenset(i for i, name in enumerate(_OPS) if name.startswith(
    ("POP_JUMP", "JUMP_IF", "JUMP_BACKWARD", "RETURN", "RAISE", "RERAISE", "YIELD", "SEND")))
# In front of the jump back of a comprehension, after whose loop its container is stored.
_ADDS = frozenset(opcode.opmap[name] for name in ("LIST_APPEND", "SET_ADD", "MAP_ADD"))
_CACHE = opcode.opmap["CACHE"]
_COMPUTES = frozenset(i for i, name in enumerate(_OPS) if name.startswith(
    ("CALL", "BINARY", "UNARY", "COMPARE", "GET_ITER")))


class Place:
    """An attribute or item that a value is stored in: the variable `base`, and the steps from it,
    each an attribute (True, name), an item (False, key), or one whose key is the value of a
    variable (None, name) or unknown (None, "").
    """

    __slots__ = ("base", "steps")

    def __init__(self, base: str, steps: tuple[tuple[bool | None, Any], ...]) -> None:
        self.base, self.steps = base, steps

    @classmethod
    def of(cls, text: str) -> Place | None:
        """The place that an assignment target names, if it begins with a variable."""
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
        """Is its last key known?"""
        return self.steps[-1][0] is not None

    def read(self, frame: FrameType) -> list[tuple[str, Any]]:
        """The values stored there now, by name; all items where the last key is unknown."""
        variables, name, last = frame.f_locals, self.base, len(self.steps) - 1
        holder = variables.get(name, frame.f_globals.get(name))
        for i, (attribute, key) in enumerate(self.steps):
            if attribute is None:
                if i == last:
                    return items(name, holder)
                key = variables.get(key)
            if type(key) not in _KEYS:
                return []
            holder = _attribute(holder, key) if attribute else _item(holder, key)
            name = _step(name, key)
        return [(name, holder)] if type(holder) is Tracer else []


def _attribute(holder: Any, key: Any) -> Any:
    """An attribute that the instance itself holds, read without running user code."""
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


def items(name: str, holder: Any) -> list[tuple[str, Tracer]]:
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
            found += items(_step(name, key), x)
        if len(found) >= _MOST_ITEMS:
            break
    return found


@cached(4096)
def _step(name: str, key: Any) -> str:
    """`d.h` of `d` and its item "h"."""
    if type(key) is int and key >= 0 or type(key) is str and key.isidentifier() and key.isascii():
        return f"{name}.{key}"
    return f"{name}.{re.sub(r'[^A-Za-z0-9_]+', '_', str(key)).strip('_') or '_'}"


class Assignments(dict[int, tuple[Any, ...]]):
    """Offset of an instruction of `code` -> names and places that its value may be stored in."""

    def __init__(self, code: CodeType) -> None:
        self.code, self.bytecode = code, code.co_code

    def __missing__(self, lasti: int) -> tuple[Any, ...]:
        """The names of the first stores that follow it in a straight line, calls included."""
        found: dict[Any, None] = {}
        bytecode, at, high, adds = self.bytecode, lasti + 2, 0, False
        for _ in range(_MOST_STEPS):
            if at >= len(bytecode):
                break
            op, arg = bytecode[at], bytecode[at + 1] | high
            at += 2
            if op == _CACHE:                # of the interpreter's own
                continue
            high = arg << 8 if op == opcode.EXTENDED_ARG else 0
            if op in _STORES:
                found.update(dict.fromkeys([n for n in self._names(op, arg) if n.strip("_")]))
            elif op in _PLACES:
                place = Place.of(Location(self.code, at - 2).text())
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
        """The names that a store instruction stores in: one, or two for a fused instruction."""
        name, local = _OPS[op], self.code._varname_from_oparg   # type: ignore[attr-defined]
        if name == "STORE_NAME":
            return (self.code.co_names[arg],)
        if name == "STORE_FAST_STORE_FAST":
            return local(arg >> 4), local(arg & 15)
        return (local(arg >> 4 if name == "STORE_FAST_LOAD_FAST" else arg),)


# By the id of the code, which is held: its hash takes longer.
ASSIGNMENTS = module_table("tracer.staging.assignments.ASSIGNMENTS",
                           "names that instructions of the user's code store in", 4096)


def assignments_of(code: CodeType) -> Assignments:
    """The assignments of a code object, entered in the table."""
    found = ASSIGNMENTS[id(code)] = Assignments(code)
    return found
