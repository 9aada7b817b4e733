"""What a rewrite puts in place of an expression, written as the user would.

The equations of the replacement become one expression, from its operands on, which are called as
the user calls them there; what is used several times gets a name in a line before. Equations that
the same expression made of the rewritten ones (a mean is a sum that is divided) are written, too.
"""
from __future__ import annotations

import ast
import itertools
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

from .....ir.program import Atom, Equation, Literal, Program, Var
from .....ir.rewriting.unread import read_by_others
from .....ir.rules.rule import ELEMENTWISE
from .....ir.source.location import Location
from .calls import CALLS, Unwritten, along, axes_of
from .expressions import axes_text, expression, replaced_name, whole_name, written
from .statements import (
    Edit,
    as_operand,
    call_of,
    has_module,
    in_place,
    is_kept,
    statement_of,
    unused,
)

_LONGEST = 160          # characters of what is written in one line
_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "add_any": "+", "eq": "==", "ne": "!=",
          "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "and": "&", "or": "|"}
_NAMED = {"max": "jnp.maximum", "min": "jnp.minimum", "logistic": "lax.logistic",
          "rsqrt": "lax.rsqrt", "pow": "jnp.power", "rem": "lax.rem", "not": "jnp.logical_not",
          "erf": "lax.erf", **{name: f"jnp.{name}" for name in (
              "exp", "log", "tanh", "sqrt", "sin", "cos", "abs", "sign", "floor", "ceil", "expm1",
              "log1p", "square", "cbrt", "exp2", "arctan2")}}
_OVER_DEVICES = {"psum": "psum", "psum_invariant": "psum", "pmax": "pmax", "pmin": "pmin"}
_REDUCTIONS = {"reduce_sum": "sum", "reduce_max": "max", "reduce_min": "min", "argmax": "argmax",
               "argmin": "argmin"}
_LISTS = ("split", "array_split", "hsplit", "vsplit", "unstack")     # calls that give one
_OTHERS = ("neg", "integer_pow", "convert_element_type", "select_n")
_SMALL = ("axis_index", "broadcast_in_dim", "pvary")     # written again instead of named
_AS_IS = ("gather", "conv_general_dilated")     # calls that state no size of their operands


class InPlace(Protocol):
    """An equation that is replaced: a match, or what is known like one (interleaving/written.py).
    """

    @property
    def program(self) -> Program: ...

    @property
    def eqn(self) -> Equation: ...

    @property
    def emitted(self) -> Sequence[Equation]: ...

    def maker(self, atom: Atom) -> Equation | None: ...


def replaced_lines(m: InPlace, found: Sequence[tuple[InPlace, Any]]) -> tuple[Edit, ...]:
    """The edits that put replacements in place of the expression of a match; none if that cannot be
    written. found: the matches at its place, with what their results become.
    """
    try:
        return _Replacement(m, found).edits()
    except Unwritten:
        return ()


class _Replacement:
    """One expression of the user's, at a place, with some of its equations replaced.

    values: what the results of these become. new: by value, the equation that computes it in the
    replacement. names: of values that lines before compute, with these lines.
    """

    def __init__(self, m: InPlace, found: Sequence[tuple[InPlace, Any]]) -> None:
        self.m = m
        self.at: Location = m.eqn.location
        self.values: dict[Var, Atom] = {}
        self.new: dict[Atom, Equation] = {}
        self.own = self.parts()
        for match, value in found:
            if self.own.get(match.eqn.outvars[0]) is not match.eqn:
                if match.eqn.params != m.eqn.params:    # a loop in Python takes other parts
                    raise Unwritten
                continue
            results = value if isinstance(value, list | tuple) else [value]
            self.values.update(zip(match.eqn.outvars, results, strict=True))
            self.new.update((v, e) for e in match.emitted for v in e.outvars)
        self.names: dict[Atom, str]
        self.lines: list[str]
        replaced = {match.eqn for match, _ in found}
        if any(self.is_again(e) and e not in replaced for e in m.program.eqns):
            raise Unwritten

    def is_again(self, e: Equation) -> bool:
        """Is it the replaced equation when a loop in Python evaluates the expression again? There
        may be nothing between two exchanges of such a loop.
        """
        at, op = e.location, self.m.eqn.op
        return (e.op is op and at.key == self.at.key and at.transform == self.at.transform
                and e is not self.m.eqn and (op.collective is not None or not any(
                    e is own for own in self.own.values())))

    def parts(self) -> dict[Var, Equation]:
        """By result, the equations of the expression, as it is evaluated once: those of its place
        with no equation of another place in between.
        """
        eqns = self.m.program.eqns
        n = next(i for i, e in enumerate(eqns) if e is self.m.eqn)

        def is_own(e: Equation) -> bool:
            at = e.location
            return at.key == self.at.key and at.transform == self.at.transform

        after = itertools.takewhile(is_own, eqns[n:])
        return {v: e for e in (*itertools.takewhile(is_own, reversed(eqns[:n])), *after)
                for v in e.outvars}

    def edits(self) -> tuple[Edit, ...]:
        before = self.at.source_line()[:self.at.column]
        if self.at.line != self.at.end_line or not expression(self.m.eqn) or (
                before.rstrip().endswith(".")):         # a method of what is in the lines before
            raise Unwritten
        results = self.results()
        for long in (False, True):
            self.name_shared(results, long)
            texts = [self.of(v) for v in results]
            several = f"[{', '.join(texts)}]"
            if len(several) <= _LONGEST:
                break
        if any(len(t) > _LONGEST for t in (several, *self.lines)) or any(
                f"{module}." in part and not has_module(self.at, module)
                for module in ("jnp", "lax") for part in (several, *self.lines)):
            raise Unwritten
        stand, old = statement_of(self.at), expression(self.m.eqn)
        if len(texts) == 1 and not self.lines:
            return ((self.at, in_place(self.at, texts[0])),)
        if stand is None:
            if self.lines:
                raise Unwritten
            return ((self.at, several),)
        text = stand.replaced(old, texts) if len(texts) > 1 else (
            f"{stand.text[:stand.column]}{in_place(self.at, texts[0])}"
            f"{stand.text[stand.column + len(old):]}")
        return (stand.with_lines(self.lines, text),)

    def results(self) -> list[Atom]:
        """The values of the whole expression: those that others read, of one equation, or of those
        of a call that gives a list.
        """
        outside = read_by_others(self.m.program, {*self.own.values()})
        last = [e for e in dict.fromkeys(self.own.values()) if not outside.isdisjoint(e.outvars)]
        if len(last) > 1 and call_of(expression(self.m.eqn), *_LISTS) is None or not any(
                self.is_replaced(v) for e in last for v in e.outvars):
            raise Unwritten
        return [self.values.get(v, v) for e in last for v in e.outvars]

    def is_replaced(self, a: Atom) -> bool:
        """Is a value of the expression made of what is replaced?"""
        return a in self.values or not isinstance(a, Literal) and a in self.own and any(
            self.is_replaced(b) for b in self.own[a].invars)

    def maker(self, a: Atom) -> Equation | None:
        """The equation that has to be written for a value; None if the value has a text itself."""
        if isinstance(a, Literal):
            return None
        return self.new.get(a) or self.own.get(a)

    def name_shared(self, results: Sequence[Atom], long: bool) -> None:
        """Names for what is read several times, each with its line. long: and for what is
        exchanged.
        """
        self.names, self.lines = {}, []
        reads, order = Counter[Atom](), dict[int, Equation]()

        def visit(a: Atom) -> None:
            a = self.now(a)
            eqn = self.maker(a)
            reads[a] += 1
            if eqn is not None and reads[a] == 1:
                for b in eqn.invars:
                    visit(b)
                order[id(eqn)] = eqn

        for a in results:
            visit(a)
        shared = [e for e in order.values() if e.op.name not in _SMALL and (
            long and e.op.collective is not None or sum(reads[v] for v in e.outvars) > 1)]
        count = sum(len(e.outvars) for e in shared)
        names = iter(unused(self.at, *[f"part{n or ''}" for n in range(count)]))
        for e in shared:
            text = self.call(e)
            own = [next(names) if v in reads else "_" for v in e.outvars]
            self.names.update(zip(e.outvars, own, strict=True))
            self.lines.append(f"{', '.join(own)} = {text}")

    # -- values ------------------------------------------------------------------------------------

    def now(self, a: Atom) -> Atom:
        """What stands for a value."""
        return self.values.get(a, a) if isinstance(a, Var) else a

    def of(self, a: Atom) -> str:
        """A value as an expression."""
        a = self.now(a)
        if a in self.names:
            return self.names[a]
        if isinstance(a, Literal):
            if a.aval.shape:
                raise Unwritten
            return re.sub(r"\b(inf|nan)\b", r"jnp.\1", str(a.val))
        eqn = self.maker(a)
        if eqn is None:
            return self.called(a)
        one = f"[{eqn.outvars.index(a)}]" if len(eqn.outvars) > 1 else ""
        return self.call(eqn) + one

    def called(self, a: Atom) -> str:
        """A value of the program as the user calls it at the place."""
        maker = self.m.maker(a)
        if maker is not None and maker.op.name == "pvary":
            return self.of(maker.invars[0])
        for reader in self.m.program.eqns:
            if a in reader.invars and isinstance(a, Var):
                name = a.name and _name_in(a.name, expression(reader)) or _operand_name(reader, a)
                if name and is_kept(name, reader.location, self.at, reader.op.collective is not None
                                    and bool(replaced_name(self.m.program, self.m.eqn, reader))):
                    return name
        if maker is None or not self.is_whole(maker):
            raise Unwritten
        return expression(maker)

    def is_whole(self, eqn: Equation) -> bool:
        """Is what an equation computes the value of an expression, the same at the place?"""
        text, made = expression(eqn), [*eqn.outvars]
        readers = [e for e in self.m.program.eqns if e.location.key == eqn.location.key]
        for e in readers:                       # also of what is said to vary over more axes
            made += e.outvars if e.op.name == "pvary" and e.invars[0] in made else ()
        return bool(text) and is_kept(text, eqn.location, self.at) and not any(
            a in made for e in readers for a in e.invars if e.op.name != "pvary")

    def operand(self, a: Atom) -> str:
        return as_operand(self.of(a))

    def call(self, eqn: Equation) -> str:
        """What an equation computes, as an expression."""
        name, params, ins = eqn.op.name, eqn.params, eqn.invars
        if params.get("sharding") is not None or params.get("out_sharding") is not None or (
                params.get("axis_index_groups") is not None):
            raise Unwritten
        if name in ("pvary", "copy"):
            return self.of(ins[0])
        if eqn.op.rule == ELEMENTWISE and name not in _OVER_DEVICES and (
                name in _INFIX or name in _NAMED or name in _OTHERS):
            return self.elementwise(eqn)
        if name in _OVER_DEVICES:
            return f"lax.{_OVER_DEVICES[name]}({self.of(ins[0])}, {axes_text(params['axes'])})"
        if name in _REDUCTIONS:
            return self.reduction(eqn)
        if name in _AS_IS:
            return along(self, eqn) or self.as_it_was(eqn)
        if name not in CALLS:
            raise Unwritten
        return CALLS[name](self, eqn)

    def elementwise(self, eqn: Equation) -> str:
        name, shape = eqn.op.name, eqn.outvars[0].aval.shape
        spread = [self.spreads(a, shape) for a in eqn.invars]
        whole = any(a.aval.shape == shape and not s
                    for a, s in zip(eqn.invars, spread, strict=True))
        texts = [self.spread(a) if s and whole else self.of(a)
                 for a, s in zip(eqn.invars, spread, strict=True)]
        if name in _INFIX:
            if name == "div" and eqn.outvars[0].aval.dtype.kind not in "fc":
                return f"lax.div({', '.join(texts)})"
            return f" {_INFIX[name]} ".join(map(as_operand, texts))
        if name in _NAMED:
            return f"{_NAMED[name]}({', '.join(texts)})"
        if name == "neg":
            return f"-{as_operand(texts[0])}"
        if name == "integer_pow":
            return f"{as_operand(texts[0])} ** {eqn.params['y']}"
        if name == "convert_element_type":
            return f"{as_operand(texts[0])}.astype(jnp.{eqn.outvars[0].aval.dtype.name})"
        if name == "select_n" and len(texts) == 3:
            return f"jnp.where({texts[0]}, {texts[2]}, {texts[1]})"
        raise Unwritten

    def spreads(self, a: Atom, shape: tuple[int, ...]) -> bool:
        """Is a value repeated to a shape, as an operator does by itself?"""
        eqn = self.spreader(a)
        return eqn is not None and eqn.op.name == "broadcast_in_dim" and a.aval.shape == shape and (
            a not in self.names)

    def spreader(self, a: Atom) -> Equation | None:
        """The equation that computes a value, before it is said to vary over more axes."""
        eqn = self.maker(self.now(a))
        return self.spreader(eqn.invars[0]) if eqn is not None and eqn.op.name == "pvary" else eqn

    def spread(self, a: Atom) -> str:
        """What is repeated, with dimensions of 1 where the operator needs them."""
        eqn = self.spreader(a)
        assert eqn is not None
        (x,), ndim, dims = eqn.invars, len(eqn.params["shape"]), eqn.params["broadcast_dimensions"]
        if tuple(dims) == tuple(range(ndim - len(dims), ndim)):
            return self.of(x)
        first = min(dims)
        index = ", ".join([":" if d in dims else "None" for d in range(first, ndim)])
        return f"{self.operand(x)}[{index}]"

    def reduction(self, eqn: Equation) -> str:
        axes, (x,) = tuple(eqn.params["axes"]), eqn.invars
        if eqn.op.name.startswith("reduce") and {x.aval.shape[d] for d in axes} <= {1}:
            return CALLS["squeeze"](self, eqn)
        along = "" if len(axes) == x.aval.ndim else f", {axes_of(axes)}"
        return f"jnp.{_REDUCTIONS[eqn.op.name]}({self.of(x)}{along})"

    def as_it_was(self, eqn: Equation) -> str:
        """The user's expression for such an equation, with other operands; of a gather, with other
        rows.
        """
        kept = {"slice_sizes"} if eqn.op.name == "gather" else set[str]()
        for old in self.m.program.eqns:
            if old.op is not eqn.op or old.location.key != eqn.location.key or any(
                    old.params[key] != value for key, value in eqn.params.items()
                    if key not in kept) or not self.is_whole(old):
                continue
            text = expression(old)
            others = [(a, self.called_at(b, old), f"operand{i}_") for i, (a, b) in enumerate(
                zip(eqn.invars, old.invars, strict=True)) if a is not b]
            if not all(x for _, x, _ in others) or kept and eqn.invars[1:] != old.invars[1:]:
                continue
            for _, x, place in others:
                text = written(text, whole_name(x), place)
            for a, _, place in others:
                text = written(text, place, self.of(a))
            return text
        raise Unwritten

    def called_at(self, a: Atom, reader: Equation) -> str:
        """A value as the text of an equation that reads it calls it; "" if it is not said once."""
        maker = self.m.maker(a)
        names = [_name_in(a.name, expression(reader))] if isinstance(a, Var) and a.name else []
        if maker is not None and maker.location.key != reader.location.key:
            names.append(expression(maker))
        return next((n for n in names if n and expression(reader).count(n) == 1), "")


def _operand_name(reader: Equation, a: Atom) -> str:
    """The name of an operand of an operator, or of what a collective exchanges, as a step of a loop
    or a helper has one for its own parameter, or a part of what has a name; "" if it is another
    expression.
    """
    try:
        node = ast.parse(expression(reader), mode="eval").body
    except SyntaxError:
        return ""
    side = None
    if reader.op.name in (*_INFIX, "dot_general") and isinstance(node, ast.BinOp):
        side = node.left if reader.invars[0] is a else node.right
    elif reader.op.collective is not None and isinstance(node, ast.Call) and node.args:
        side = node.args[0]
    if isinstance(side, ast.Subscript) and not any(
            isinstance(n, ast.Call) for n in ast.walk(side)):
        return ast.get_source_segment(expression(reader), side) or ""
    return side.id if isinstance(side, ast.Name) else ""


def _name_in(name: str, text: str) -> str:
    """A name of the program, as a text has it: `x_1` is the second value called `x`."""
    base, _, number = name.rpartition("_")
    try:
        own = {ast.unparse(n) for n in ast.walk(ast.parse(text, mode="eval"))
               if isinstance(n, ast.Name | ast.Subscript | ast.Attribute)}
    except SyntaxError:
        return ""
    return next((n for n in (name, base if number.isdigit() else "") if n in own), "")
