"""General rewrites of the user's code that exchange less: what each replaces, and by what.

    NAME                  instead of                              written
    one block             reading one block of a gathered value,  ppermute, or a psum, of that block
                          or the same part of one                 or part
    there and back        exchanging what is exchanged back       what is computed of it alone
                          after work on each element
    sent at once          sending on what was sent                one ppermute
"""
from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np

from ....ir.meshes.mesh_axes import group_size
from ....ir.op import OPS
from ....ir.program import Atom, Equation, Literal
from ....ir.rewriting.rewrite import Match, Rewrite
from ....ir.rewriting.unread import only_readers, read_by_others
from ....ir.rules.rule import ELEMENTWISE, FactorRule
from ....ir.types import array_type
from .lines.calls import pairs_text
from .lines.expressions import axes_text, expression, gathered_in
from .lines.statements import Edit, as_operand, call_of, in_place
from .varying_axes import by_device, is_invariant

T = TypeVar("T")
REDUCTIONS = {"reduce_sum": "psum", "reduce_max": "pmax", "reduce_min": "pmin"}
# over devices, of what an expression with such a word gives on each of them
_SAID = {"reduce_sum": {"(reduce_|ein)?sum": "psum", "mean|average": "pmean"},
         "reduce_max": {"(reduce_|a)?max": "pmax"}, "reduce_min": {"(reduce_|a)?min": "pmin"}}


@dataclass(frozen=True)
class CodeChange:
    """A rewrite as a proposed change. words: what it does; code: the user's expression after the
    change, or the edits of his lines; "" if it cannot be written so: then it is written as the
    replacement has it (lines/replacements.py).
    """
    rewrite: Rewrite
    words: str
    code: Callable[[Match], str | Sequence[Edit]] = lambda m: ""


class MadeOf(Generic[T]):
    """What values are made of, from an equation back to what a rewrite looks for: `made` says it of
    what an equation computes, None where it is made of nothing of the kind.

    known: by value, what has been found; as many values are looked at as MOST.
    """
    MOST = 32

    def __init__(self, m: Match) -> None:
        self.m = m
        self.known: dict[Atom, T | None] = {}

    def made(self, eqn: Equation) -> T | None:
        raise NotImplementedError

    def of(self, a: Atom) -> T | None:
        """What a value is made of."""
        if a not in self.known:
            self.known[a] = None             # it counts while what it is made of is looked at
            eqn = None if isinstance(a, Literal) or len(self.known) > self.MOST else self.m.maker(a)
            self.known[a] = None if eqn is None else self.made(eqn)
        return self.known[a]


def fit(m: Match, value: Atom, result: int = 0) -> Atom | None:
    """The value with the type of the result that it replaces; None if the types differ."""
    wanted, has = m.eqn.outvars[result].aval, value.aval
    missing = wanted.manual.varying - has.manual.varying
    if missing:
        value = m.emit(OPS["pvary"], value, axes=tuple(sorted(missing)))
    return value if value.aval == wanted else None


def parts_of_operands(eqn: Equation, part_of: Callable[[Atom], tuple[Any, int] | None]
           ) -> tuple[list[tuple[Any, int] | None], FactorRule | None]:
    """The parts of the operands of an equation, and its rule if it has one and some operand has
    parts. part_of: gives the parts of a value and the dimension along which they lie, or None.
    """
    op = eqn.op
    if op.collective is not None or op.effect or op.subprograms or op.rule is None:
        return [], None
    parts = [part_of(a) for a in eqn.invars]
    return parts, op.factor_rule(tuple([a.aval.shape for a in eqn.invars]),
                                 tuple([v.aval.shape for v in eqn.outvars]), eqn.params
                                 ) if any(parts) else None


def over(m: Match, name: str, x: Atom, names: Any = None) -> Atom:
    """An all-reduce of a value over the axes that are gathered."""
    op = "psum_invariant" if name == "psum" and x.aval.manual.varying else name
    groups = {} if op == "psum_invariant" else {"axis_index_groups": None}
    return m.emit(OPS[op], x, axes=tuple(m.names if names is None else names), **groups)


# -- a reduction before the exchange -------------------------------------------------------------

def reduction_over_devices(name: str, text: str) -> str:
    """The reduction over devices of what an expression with a reduction gives on each of them."""
    names = [said for words, said in _SAID[name].items() if re.search(rf"\b({words})\b", text)]
    return names[0] if len(names) == 1 else ""


# -- one block of what is gathered ----------------------------------------------------------------

def sources(m: Match, read: Equation, gather: Equation) -> tuple[tuple[int, ...], int] | None:
    """For each device, the device whose block, or part of a block, an equation takes from a
    gathered value, and where in the block that part begins.
    """
    d, names = gather.params["all_gather_dimension"], gather.axes
    if gather.params.get("axis_index_groups") is not None or len(names) != 1:
        return None
    whole, out = read.invars[0].aval.shape, read.outvars[0].aval.shape
    size = gather.invars[0].aval.shape[d] if gather.params["tiled"] else 1
    n, part = whole[d] // size, out[d]
    if part > size or out != (*whole[:d], part, *whole[d + 1:]):
        return None
    if read.op.name == "slice":
        starts = [np.full(n, s) for s in read.params["start_indices"]]
    else:
        starts = [by_device(m, a, n, names) for a in read.invars[1:]]
    if any(s is None for s in starts):
        return None
    if any(s.any() for at, s in enumerate(starts) if at != d):      # type: ignore[union-attr]
        return None
    start = np.clip(starts[d], 0, whole[d] - part)                  # type: ignore[arg-type]
    first = int(start[0]) % size
    if (start % size != first).any() or first + part > size:
        return None
    return tuple((start // size).tolist()), first


def own_part(m: Match, read: Equation, gather: Equation, first: int) -> Atom:
    """The part of its own block that a device has, if an equation takes it from another device's
    block.
    """
    x, d, out = gather.invars[0], gather.params["all_gather_dimension"], read.outvars[0].aval.shape
    if gather.params["tiled"] and out[d] < x.aval.shape[d]:
        cut = [(0, size) for size in x.aval.shape]
        cut[d] = first, first + out[d]
        x = m.emit(OPS["slice"], x, start_indices=tuple([a for a, _ in cut]),
                   limit_indices=tuple([b for _, b in cut]), strides=None)
    return x if x.aval.shape == out else m.emit(
        OPS["reshape"], x, new_sizes=out, dimensions=None, sharding=None)


def _one_block(m: Match) -> Atom | None:
    """A block sent to the device that reads it, or to all from one, instead of all blocks to all.
    """
    gather = m.maker(m.whole)
    found = None if gather is None else sources(m, m.eqn, gather)
    if found is None or gather is None:
        return None
    source, first = found
    n = len(source)
    x = own_part(m, m.eqn, gather, first)
    if set(source) == set(range(n)):
        if source != tuple(range(n)):
            x = m.emit(OPS["ppermute"], x, axis_name=tuple(m.names),
                       perm=tuple((s, d) for d, s in enumerate(source)))
    elif len(set(source)) == 1:
        x = broadcast(m, x, source[0], tuple(m.names))
    else:
        return None
    return fit(m, x)


def broadcast(m: Match, x: Atom, block: int | Atom, names: tuple[str, ...]) -> Atom:
    """The block of one device on all devices: a sum in which the others contribute zeros."""
    varies = bool(x.aval.manual.varying & {*names})
    index = m.emit(OPS["axis_index"], axis_name=names, varying=varies)
    at = varying_as(m, np.int32(block), index) if isinstance(block, int) else block
    none = m.full(varying_as(m, np.zeros((), x.aval.dtype)[()], x), x.aval.shape)
    mine = m.emit(OPS["eq"], index, at)
    return over(m, "psum", m.emit(OPS["select_n"], mine, none, x), names)


def varying_as(m: Match, number: Any, other: Atom) -> Atom:
    """A number that varies over the same axes as another value."""
    literal = Literal(number, array_type((), number.dtype))
    varying = other.aval.manual.varying
    return m.emit(OPS["pvary"], literal, axes=tuple(sorted(varying))) if varying else literal


def _one_block_code(m: Match) -> str:
    """That in the user's code: a `ppermute` or a masked sum; "" where it cannot be written."""
    own = gathered_in(m, m.whole)
    found = None if own is None else sources(m, m.eqn, own.gather)
    if found is None or own is None or not expression(m.eqn) or not m.tiled and m.d:
        return ""
    (source, first), x = found, own.part
    n, size, part = len(source), m.x.aval.shape[m.d], m.eqn.outvars[0].aval.shape[m.d]
    if m.tiled and part < size:
        rows = f"{first or ''}:{first + part if first + part < size else ''}"
        x = f"{as_operand(x)}[{':, ' * m.d}{rows}]"
    if source == tuple(range(n)):
        return in_place(m.eqn.location, x)
    if len(set(source)) == 1:
        return (f"lax.psum(jnp.where(lax.axis_index({axes_text(m.names)}) == {source[0]}, {x}, 0), "
                f"{axes_text(m.names)})")
    perm = [(s, d) for d, s in enumerate(source)]
    return f"lax.ppermute({x}, {axes_text(m.names)}, {pairs_text(perm)})"


def is_elementwise(eqn: Equation) -> bool:
    """Does it compute one value, each element of it from those at its place alone?"""
    op = eqn.op
    return op.rule == ELEMENTWISE and op.collective is None and not (
        op.effect or op.multiple_results or op.subprograms)


# -- an exchange that is undone -------------------------------------------------------------------

class Before(MadeOf[Atom]):
    """Computes of what was exchanged over some axes, as it was before, what is computed of it
    element by element. ends: is an equation the exchange that is looked for?
    """

    def __init__(self, m: Match, axes: Sequence[str], ends: Callable[[Equation], bool]) -> None:
        super().__init__(m)
        self.axes, self.ends = axes, ends

    def made(self, eqn: Equation) -> Atom | None:
        if eqn.op.collective is not None:
            return eqn.invars[0] if self.ends(eqn) else None
        if not is_elementwise(eqn):
            return None
        shape = eqn.outvars[0].aval.shape
        parts = [self.number(a) if not a.aval.shape else self.of(a) if a.aval.shape == shape
                 else None for a in eqn.invars]
        return self.m.emit(eqn.op, *[a for a in parts if a is not None], **eqn.params) if (
            all(a is not None for a in parts)) else None

    def number(self, a: Atom) -> Atom | None:
        """A number that is the same on all devices that exchange; None if it is not."""
        m = self.m
        return a if is_invariant(a, self.axes, m.program, m.maker) else None


def _undoes(back: Equation, there: Equation) -> bool:
    """Does an exchange bring everything to where it was before another one?"""
    if back.op is not there.op or back.axes != there.axes:
        return False
    one, other = there.params, back.params
    if back.op.name == "all_to_all":
        return bool(one["tiled"] and other["tiled"]) and (
            one["axis_index_groups"] is None and other["axis_index_groups"] is None) and (
                one["split_axis"], one["concat_axis"]) == (
                    other["concat_axis"], other["split_axis"])
    count = group_size(there.invars[0].aval.mesh, there.axes)
    return len(one["perm"]) == count and {(d, s) for s, d in one["perm"]} == {
        (s, d) for s, d in other["perm"]}


def _sent_at_once(m: Match) -> Atom | None:
    """What is sent on to where it goes in the end, where nothing else reads it on the way."""
    there = m.maker(m.x)
    if there is None or there.op is not m.eqn.op or there.axes != m.eqn.axes or (
            only_readers(m.program)[m.x] is None):
        return None
    source = {to: at for at, to in there.params["perm"]}
    perm = tuple([(source[at], to) for at, to in m.perm if at in source])
    return None if all(at == to for at, to in perm) else fit(
        m, m.emit(m.eqn.op, there.invars[0], **{**m.eqn.params, "perm": perm}))


def _before(m: Match) -> Before:
    """Looks for the exchange that a matched one undoes."""
    return Before(m, m.eqn.axes, partial(_undoes, m.eqn))


def _there_and_back(m: Match) -> Atom | None:
    value = _before(m).of(m.value)
    return None if value is None else fit(m, value)


def _there_and_back_code(m: Match) -> Sequence[Edit]:
    """What both calls exchange in their places; none where something else needs one of them."""
    chain = _before(m)
    chain.of(m.value)
    between = [e for v, part in chain.known.items() if part is not None and (e := m.maker(v))]
    calls = [*[e for e in between if e.op is m.eqn.op], m.eqn]
    places = [e.location.key for e in m.program.eqns if e.op is m.eqn.op]
    others = read_by_others(m.program, {m.eqn, *between})
    if len(calls) != 2 or len({places.count(e.location.key) for e in calls}) > 1 or any(
            not others.isdisjoint(e.outvars) for e in between):
        return ()
    edits: list[Edit] = []
    for e in calls:
        call = call_of(expression(e), m.eqn.op.name)
        if call is None or not call.args or e.location.line != e.location.end_line:
            return ()
        operand = ast.get_source_segment(expression(e), call.args[0]) or ""
        edits.append((e.location, in_place(e.location, operand)))
    return edits


GATHERED = ("whole = all_gather|all_gather_invariant x {all_gather_dimension=d, axis_name=names, "
             "axis_index_groups=groups, tiled}\n")
CHANGES: tuple[CodeChange, ...] = (
    CodeChange(Rewrite(
        "there and back", "out = all_to_all|ppermute value", _there_and_back,
        why="each device has what it works on, and gets the same back"),
        "leave out an exchange and the one that undoes it", _there_and_back_code),
    CodeChange(Rewrite(
        "sent at once", "out = ppermute x {perm}", _sent_at_once,
        why="each device receives once what it gets in the end"),
        "send at once, by one ppermute, what is sent on"),
    CodeChange(Rewrite(
        "one block", GATHERED + "out = dynamic_slice|slice whole *starts", _one_block,
        why="each device receives the block, or part of one, that it reads, and no other"),
        "exchange the one block that is read instead of gathering all", _one_block_code),
)
