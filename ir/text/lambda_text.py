"""Programs in JAX's notation: `{ lambda ; a:f32[2]. let b:f32[2] = sin a in (b,) }`.

For reading beside JAX's own output. The text that can be read back is that of print.py. Functions
that are called more than once, and long ones, stand in front: `let f = {...} in`. Layout is that of
Wadler ("A prettier printer"): what is put in a group stands on one line if that fits.
"""
from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..fingerprint import fingerprint
from ..ops.control.call import jit_p
from ..program import Atom, Equation, Literal, Program, Var

WIDTH = 80
_LONG = 10                       # equations of a function that stands in front, called once or not
# params that are the user's rules for derivatives, and what they are called
_RULES = {"jvp_jaxpr_fun": "jvp", "fwd_jaxpr_thunk": "fwd", "bwd": "bwd"}


def lambda_text(program: Program, *, print_shapes: bool = True, source_info: bool = False) -> str:
    """The program in JAX's notation.

    print_shapes: with the types of variables. source_info: with the source line of each equation.
    """
    return _Printer(print_shapes, source_info).text(program)


# -- documents: text, Break, Nest, Group, or a list of documents -----------------------------------

class _Break(str):
    """A line break; in a group that fits, the text itself."""


class _Nest(list):
    """What is inside is moved to the right by two where lines break."""


class _Group(list):
    """What is inside breaks everywhere or nowhere."""


_SPACE, _NOTHING = _Break(" "), _Break("")


def _separated(separator: Any, docs: Sequence[Any]) -> list[Any]:
    out: list[Any] = []
    for i, doc in enumerate(docs):
        out += [separator, doc] if i else [doc]
    return out


def _flat_width(doc: Any, limit: int) -> int:
    """The width of a document on one line, or a number above `limit`."""
    width, todo = 0, [doc]
    while todo and width <= limit:
        part = todo.pop()
        if isinstance(part, str):
            width += len(part) if "\n" not in part else limit + 1
        else:
            todo.extend(reversed(part))
    return width


def _rendered(doc: Any, width: int) -> str:
    """A document as lines of at most `width` columns: a group is broken at its breaks only if it
    does not fit on the rest of its line.
    """
    out: list[str] = []
    column = 0
    todo: list[tuple[int, bool, Any]] = [(0, True, doc)]
    while todo:
        indent, broken, part = todo.pop()
        if isinstance(part, _Break) and broken:
            out.append("\n" + " " * indent)
            column = indent
        elif isinstance(part, str):
            out.append(part)
            column = len(part) - part.rfind("\n") - 1 + (0 if "\n" in part else column)
        else:
            if isinstance(part, _Group):
                broken = broken and _flat_width(list(part), width - column) > width - column
            inner = indent + 2 if isinstance(part, _Nest) else indent
            todo.extend((inner, broken, p) for p in reversed(part))
    return "\n".join(line.rstrip() if not line.strip() else line
                     for line in "".join(out).split("\n"))


# -- programs --------------------------------------------------------------------------------------

class _Printer:
    """Writes one program and those that it holds; variables are named a, b, ... in the order in
    which they are bound.
    """

    def __init__(self, print_shapes: bool, source_info: bool) -> None:
        self.print_shapes, self.source_info = print_shapes, source_info
        self.names: dict[Var, str] = {}
        self.count = 0
        self.in_front: dict[int, str] = {}      # id of a program -> what it is called

    def text(self, program: Program) -> str:
        shared = self._shared(program)
        docs = []
        for inner in shared:
            docs += [f"let {self.in_front[id(inner)]} = ", self.program(inner), " in\n"]
        return _rendered([*docs, self.program(program)], WIDTH)

    def _shared(self, program: Program) -> list[Program]:
        """Functions that are written in front, callers first; they are given their names."""
        same: dict[Any, list[Program]] = {}      # those that do the same, each once
        todo, seen = [program], set()
        while todo:
            outer = todo.pop(0)
            if id(outer) in seen:
                continue
            seen.add(id(outer))
            for eqn, _, inner in outer.subprograms():
                todo.append(inner)
                if eqn.op is jit_p:
                    same.setdefault((inner.name, fingerprint(inner) or id(inner)), []).append(inner)
        found = [ps for ps in same.values() if len(ps) > 1 or len(ps[0].eqns) > _LONG]
        taken: dict[str, int] = {}
        for ps in found:
            name = re.sub(r"\W", "", ps[0].name) or "f"
            number = taken[name] = taken.get(name, -1) + 1
            self.in_front.update(dict.fromkeys(map(id, ps), f"{name}{number}" if number else name))
        return [ps[0] for ps in found]

    def program(self, program: Program) -> Any:
        params = " ".join([self.bound(v) for v in program.constvars])
        head = f"{{ lambda {params}; {' '.join([self.bound(v) for v in program.invars])}. let"
        eqns = [self.equation(eqn) for eqn in program.eqns]
        results = ", ".join([self.atom(v) for v in program.outvars])
        comma = "," if len(program.outvars) == 1 else ""
        return _Group([_Nest([head, _Nest([_SPACE, *_separated(_Break("; "), eqns)]), _SPACE,
                              f"in ({results}{comma})"]), " }"])

    def equation(self, eqn: Equation) -> Any:
        """The document of an equation. Variables of a called function take their names from the
        call, unless the function stands in front.
        """
        inner = eqn.params.get("jaxpr")
        if eqn.op is jit_p and isinstance(inner, Program) and id(inner) not in self.in_front:
            bound = [self.bound(v) for v in eqn.outvars]
            self._call_like(eqn, inner)
        else:
            bound = [self.bound(v) for v in eqn.outvars]
        params = [_Group([f"{name}=", self.value(value)]) for name, value in _shown(eqn)]
        doc: list[Any] = [" ".join(bound), " = " if bound else "", eqn.op.name]
        if params:
            doc.append(_Group([_Nest(["[", _NOTHING, *_separated(_SPACE, params)]), _NOTHING, "]"]))
        if eqn.invars:
            operands = [self.atom(a) for a in eqn.invars]
            doc += [" ", _Nest([_Group(_separated(_SPACE, operands))])]
        if self.source_info and str(eqn.location):
            doc.append(f" # {eqn.location}")
        return doc

    def _call_like(self, eqn: Equation, inner: Program) -> None:
        """Name the variables of a function that is printed once as at its call: parameters as
        operands, results as results.
        """
        given: set[str] = set()
        for v, a in zip(inner.invars, eqn.invars, strict=True):
            name = None if isinstance(a, Literal) else self.names.get(a)
            if name is not None and name not in given:
                given.add(name)
                self.names[v] = name
        for v, out in zip(inner.outvars, eqn.outvars, strict=True):
            if isinstance(v, Var) and v not in self.names and v not in inner.invars:
                self.names[v] = self.names[out]

    def bound(self, var: Var) -> str:
        name = self.names.get(var)
        if name is None:
            while name is None or name in self.in_front.values():
                name = _letters(self.count)
                self.count += 1
            self.names[var] = name
        return f"{name}:{var.aval.str_short(True)}" if self.print_shapes else name

    def atom(self, atom: Atom) -> str:
        if isinstance(atom, Literal):
            value = np.asarray(atom.val)[()]
            return f"{value}:{atom.aval.str_short(True)}" if self.print_shapes else str(value)
        if atom not in self.names:
            self.bound(atom)
        return self.names[atom]

    def value(self, value: Any) -> Any:
        if isinstance(value, Program):
            return self.in_front.get(id(value)) or self.program(value)
        if isinstance(value, tuple) and any(isinstance(v, Program) for v in value):
            items = _separated(_SPACE, [self.value(v) for v in value])
            return _Group([_Nest(["(", _NOTHING, *items]), _NOTHING, ")"])
        return str(value)


def _shown(eqn: Equation) -> list[tuple[str, Any]]:
    """The params that are shown, by name: as in JAX, those of common ops that say something."""
    params = eqn.params
    if eqn.op is jit_p:
        return [("name", params["name"]), ("jaxpr", params["jaxpr"])]
    if eqn.op.name == "cond":
        return [("branches", params["branches"])]
    pairs = sorted(params.items())
    if eqn.op.name == "dot_general":
        contracting, batch = params["dimension_numbers"]
        numbers = tuple([tuple(map(list, pair)) for pair in (contracting, batch)])
        return [(k, numbers if k == "dimension_numbers" else v) for k, v in pairs if v is not None]
    if eqn.op.name == "broadcast_in_dim":
        return [(k, v) for k, v in pairs if k == "broadcast_dimensions" and v]
    if eqn.op.name == "convert_element_type":
        return [(k, v) for k, v in pairs if v is not None]
    if not _RULES.keys().isdisjoint(params):
        called = [("name", params["call_jaxpr"].name)] if "call_jaxpr" in params else []
        return called + sorted([(_RULES.get(k, k), getattr(v, "__name__", v) if k in _RULES else v)
                                for k, v in pairs if k != "num_consts"], key=lambda pair: pair[0])
    return pairs


def _letters(n: int) -> str:
    text = ""
    while n or not text:
        n, digit = divmod(n, 26)
        text = chr(ord("a") + digit) + text
    return text
