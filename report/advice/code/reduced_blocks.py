"""Rewrites of the user's code that reduce what each device has before the exchange.

    NAME                   instead of                                 written
    reduce first           reducing a value computed from a gather    reducing that of a block, psum
    products first         a product along a gathered dimension       that of the blocks, then psum
    added up first         adding gathered values up by place         adding up a block's, psum
    rows to blocks         a product of few rows with a gather        that of all rows with the own
                                                              block, scattered
    sums together          adding sums over devices                   adding what they sum, one psum
    less of a sum          a product with a sum over devices, or      that of each device's part,
                           a sum of it                                then psum
    sums of rows           adding up rows of an all_to_all            each device's, psum_scatter
    summed at once         adding up what goes round all devices      one psum

What such a value is computed from is reduced likewise, where it is a reduction of what is gathered.
"""
from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial, reduce

import numpy as np

from ....ir.dtypes import issubdtype
from ....ir.meshes.mesh_axes import group_size
from ....ir.op import OPS
from ....ir.program import Atom, Equation
from ....ir.rewriting.rewrite import Match, Rewrite
from ....ir.rewriting.unread import read_by_others
from ....ir.source.location import Location
from .blocks import GATHERS, SUMS, Blocks, behind, scattered, sent_before, size_of
from .lines.expressions import (
    axes_text,
    called_in,
    expression,
    gathered_in,
    is_zeros,
    whole_name,
    without_pvary,
    written,
)
from .lines.statements import Edit, is_inside
from .on_blocks import varying_alike
from .rewrites import (
    REDUCTIONS,
    CodeChange,
    MadeOf,
    fit,
    over,
    reduction_over_devices,
)
from .varying_axes import is_invariant

_FEWER = 4              # times the bytes of rows, and of their products, that a weight has


def reduced_of_blocks(m: Match) -> Atom | None:
    """The reduction of what is computed from a gathered value: of the block, then over devices."""
    blocks = Blocks(m)
    found = blocks.reduced(m.eqn)
    if found is None or blocks.gather is None:
        return None
    part, how = found
    return fit(m, over(m, REDUCTIONS[how], part, blocks.gather.axes))


def _reduced_first_between_code(m: Match) -> str | Sequence[Edit]:
    """That as the user's expression, and of what it is computed from by blocks, which nothing else
    reads, each expression that reads a gather or is a reduction, with blocks; if nothing in them
    has a size that is another for a block.
    """
    blocks = Blocks(m)
    found, at = blocks.reduced(m.eqn), m.eqn.location
    if found is None or blocks.gather is None or blocks.exchanges or not expression(m.eqn):
        return ""
    makers = [(m.maker(v), block) for v, block in blocks.known.items()]
    between = [e for e, block in makers if block is not None and e is not None
               and e.op.name not in (*GATHERS, "pvary")]
    reductions = [e for v, now in blocks.equals.items() if now is not v
                  and (e := m.maker(v)) is not None and e.op.name in REDUCTIONS]
    every = [m.eqn, *between, *reductions]
    others = read_by_others(m.program, {*every})
    if any(e.op.resize is not None or not is_inside(e.location, at)
           and not others.isdisjoint(e.outvars) for e in between):
        return ""
    reads = [(e, v) for e in every for v in e.invars if _is_gathered(m, v)]
    places = dict.fromkeys([at, *[e.location for e, _ in reads], *[e.location for e in reductions]])
    if any(v in blocks.known and _is_gathered(m, v) and e not in every and e.op.name != "pvary"
           and any(is_inside(e.location, place) for place in places)
           for e in m.program.eqns for v in e.invars):
        return ""                       # something there reads all that is gathered, too
    axes = axes_text(blocks.gather.axes)
    texts: dict[Location, str] = {}
    for place in places:
        if any(is_inside(place, other) for other in places if other != place):
            continue
        text = _over_devices(expression(next(e for e in every if e.location == place)),
                             [r for r in reductions if is_inside(r.location, place)], axes)
        for a, d, n in blocks.cut if place == at else ():
            own = called_in(m, a, m.eqn)
            if not own or len(re.findall(whole_name(own), text)) != 1:
                return ""
            text = written(text, whole_name(own), f"lax.dynamic_slice_in_dim({own}, lax.axis_index("
                           f"{axes}) * {n}, {n}{f', {d}' if d else ''})")
        parts: dict[str, str] = {}
        for e, v in reads:
            if is_inside(e.location, place):
                gathered = gathered_in(m, v, read=e)
                if gathered is None or not gathered.gather.params["tiled"]:
                    return ""
                parts[gathered.whole] = gathered.part
        for whole, part in parts.items():
            text = written(text, whole_name(whole), part)
        if not text or place.line != place.end_line:
            return ""
        texts[place] = text
    said = reduction_over_devices(found[1], texts[at]) if m.eqn.op.name in REDUCTIONS else "psum"
    return tuple({**texts, at: f"lax.{said}({texts[at]}, {axes})"}.items()) if (
        said and reads) else ""


def _is_gathered(m: Match, v: Atom) -> bool:
    made = m.maker(without_pvary(m, v))
    return made is not None and made.op.name in GATHERS


def _over_devices(text: str, reductions: Sequence[Equation], axes: str) -> str:
    """An expression with reductions in it also over devices; "" if that cannot be told."""
    found = {expression(e): e.op.name for e in reductions}
    for one in sorted(found, key=len):
        said = reduction_over_devices(found[one], one)
        if not said or text.count(one) != 1:
            return ""
        text = text.replace(one, f"lax.{said}({one}, {axes})")
    return text


def _added_up_first(m: Match) -> Atom | None:
    """What is added up by place, of the block; the others have to add nothing else, such as what
    was there before.
    """
    if m.eqn.op.name == "scatter-add" and not is_zeros(m, m.base):
        return None
    return reduced_of_blocks(m)


def _added_up_first_code(m: Match) -> str:
    text, axes, blocks = expression(m.eqn), "", Blocks(m)
    if blocks.reduced(m.eqn) is None or blocks.exchanges:
        return ""
    for gather in (e for e in behind(m) if e.op.name in GATHERS):
        own = gathered_in(m, gather.outvars[0])
        if own is None or not gather.params["tiled"]:
            return ""
        text, axes = written(text, whole_name(own.whole), own.part), axes_text(gather.axes)
    over_devices = REDUCTIONS[m.eqn.op.name.replace("scatter-add", "reduce_sum").replace(
        "scatter-", "reduce_")]
    return f"lax.{over_devices}({text}, {axes})" if axes else ""


def _summed_together(m: Match) -> Atom | None:
    """A sum of which two terms are sums over the same devices, that nothing else reads: these are
    one sum, of what they sum.
    """
    terms, sums = _terms(m, m.eqn), dict[tuple, list[int]]()
    for i, a in enumerate(terms):
        made = _summed(m, a)
        if made is not None and _is_read_once(m, a) and _is_read_once(m, made.outvars[0]):
            sums.setdefault((made.op, *map(str, made.params.items()), made.invars[0].aval, a.aval),
                            []).append(i)
    found = next((own for own in sums.values() if len(own) > 1), None)
    if found is None:
        return None
    makers = [e for i in found if (e := _summed(m, terms[i])) is not None]
    total, add = makers[0].invars[0], partial(m.emit, m.eqn.op, **m.eqn.params)
    for e in makers[1:]:
        total = add(total, e.invars[0])
    last = makers[-1]
    total = m.emit(last.op, total, like=last, **last.params)
    if missing := terms[found[-1]].aval.manual.varying - total.aval.manual.varying:
        total = m.emit(OPS["pvary"], total, axes=tuple(sorted(missing)))
    return reduce(add, [total if i == found[-1] else a for i, a in enumerate(terms)
                        if i == found[-1] or i not in found])


def _summed(m: Match, a: Atom) -> Equation | None:
    """The equation that sums a value over devices, if one does."""
    made = m.maker(without_pvary(m, a))
    return made if made is not None and made.op.name in ("psum", "psum_invariant") else None


def _terms(m: Match, add: Equation) -> list[Atom]:
    """What an addition adds up, also by additions of which nothing else reads the result."""
    found: list[Atom] = []
    for a in add.invars:
        made = m.maker(a)
        nested = made is not None and made.op is add.op and _is_read_once(m, a)
        found += _terms(m, made) if nested and made is not None else [a]
    return found


def _is_read_once(m: Match, a: Atom) -> bool:
    return sum(a is b for e in m.program.eqns for b in e.invars) == 1 and not any(
        a is b for b in m.program.outvars)


class _Sources(MadeOf[tuple[Atom, np.ndarray]]):
    """For each value a value that it is a sum of, and how often each device (row) has the one of
    each other (column) in it, as it was moved between devices.
    """

    def made(self, eqn: Equation) -> tuple[Atom, np.ndarray] | None:
        if eqn.op.name == "ppermute":
            base, had = self.sources(eqn.invars[0])
            count = group_size(eqn.invars[0].aval.mesh, eqn.axes)
            if had is None:
                had = np.eye(count, dtype=np.int64)
            received = np.zeros_like(had)
            for source, to in eqn.params["perm"]:
                received[to] = had[source]
            return base, received
        if eqn.op.name != "add":
            return None
        (one, own), (other, others) = map(self.sources, eqn.invars)
        known = others if own is None else own
        if one is not other or known is None:
            return None
        each = np.eye(len(known), dtype=np.int64)       # of a value that was not moved
        counts = [each if c is None else c for c in (own, others)]
        return one, counts[0] + counts[1]

    def sources(self, a: Atom) -> tuple[Atom, np.ndarray | None]:
        """The same, of a value that is no such sum the value itself."""
        return self.of(a) or (a, None)


def _summed_at_once(m: Match) -> Atom | None:
    """What is added up of all devices, once each: a sum over them."""
    if "ppermute" not in m.program.op_names:
        return None
    axes = {e.axes for e in m.program.eqns if e.op.name == "ppermute"}
    found = _Sources(m).made(m.eqn) if len(axes) == 1 else None
    if found is None or not (found[1] == 1).all():
        return None
    return fit(m, over(m, "psum", found[0], *axes))


class _Summed(MadeOf[tuple[Equation, Atom, Atom | None]]):
    """For what is linear in a sum over devices: the sum, what each device adds to what is made of
    it, and what else that is added to.
    """

    def made(self, eqn: Equation) -> tuple[Equation, Atom, Atom | None] | None:
        """The same, of what an equation computes; None if it is not linear in one sum."""
        if eqn.op.name in SUMS:
            return None if len(eqn.invars) != 1 or eqn.params.get("axis_index_groups") else (
                eqn, eqn.invars[0], None)
        whole = eqn.op.name == "div" and not issubdtype(eqn.outvars[0].aval.dtype, np.inexact)
        if not eqn.op.linear or eqn.op.collective is not None or eqn.op.multiple_results or (
                whole or eqn.op.name == "convert_element_type"):
            return None
        parts = [self.of(a) for a in eqn.invars]
        own = [k for k, part in enumerate(parts) if part is not None]
        if len(own) != 1:
            return None
        (k,), m = own, self.m
        total, part, rest = parts[k]                            # type: ignore[misc]
        if eqn.op.name in ("add", "sub"):
            other, neg = eqn.invars[1 - k], partial(m.emit, OPS["neg"])
            less = eqn.op.name == "sub"
            if rest is not None:
                other = m.emit(eqn.op, *varying_alike(
                    m, [other, rest] if k else [rest, other]), **eqn.params)
            elif less and not k:
                other = neg(other)
            return total, neg(part) if less and k else part, other
        sets = eqn.op.linear_sets(len(eqn.invars), [a.aval for a in eqn.invars], eqn.params)
        if (k,) not in sets or not all(is_invariant(a, total.axes, m.program, m.maker)
                                       for j, a in enumerate(eqn.invars) if j != k):
            return None

        def of(x: Atom) -> Atom:
            return m.emit(eqn.op, *varying_alike(
                m, [x if j == k else a for j, a in enumerate(eqn.invars)]), **eqn.params)
        return total, of(part), None if rest is None else of(rest)


def _less_of_sum(m: Match) -> Atom | None:
    """What devices add to something smaller, such as a product, summed; and what else is added."""
    found = None if m.program.op_names.isdisjoint(SUMS) else _Summed(m).made(m.eqn)
    if found is None or size_of(m.eqn.outvars[0]) >= size_of(found[0].outvars[0]):
        return None
    total, part, rest = found
    value = m.emit(total.op, part, like=total, **total.params)
    return fit(m, value if rest is None else m.emit(
        OPS["add"], *varying_alike(m, [rest, value])))


def _rows_summed(m: Match) -> Atom | None:
    """What is summed along the dimension in which an `all_to_all` puts blocks together: the sums of
    each device, added up where they are read.
    """
    found = sent_before(m, ("all_to_all",))
    if found is None:
        return None
    sent, x = found
    params, cut = sent.params, sent.params["split_axis"]
    if not params["tiled"] or params["axis_index_groups"] is not None or (
            params["concat_axis"] not in m.axes or cut in m.axes):
        return None
    sums = m.emit(m.eqn.op, x, **m.eqn.params)
    return fit(m, scattered(m, sums, sent, cut - sum(a < cut for a in m.axes)))


def _rows_to_blocks(m: Match) -> Atom | None:
    """Products of each device's few rows with what is gathered: those of the rows of all devices
    with its own block, summed over devices, or their columns, for its own rows.
    """
    product, blocks = m.eqn, Blocks(m)
    k = next((k for k in (1, 0) if blocks.of(product.invars[k]) is not None), 0)
    part, x, gather = blocks.of(product.invars[k]), product.invars[1 - k], blocks.gather
    if part is None or gather is None or blocks.exchanges or gather.op.name != "all_gather" or (
            blocks.same(x)):
        return None
    rule = product.op.factor_rule(tuple([a.aval.shape for a in product.invars]),
                                  (product.outvars[0].aval.shape,), product.params)
    (own, d), (result,) = part, rule.results
    f, its = rule.operands[k][d], rule.operands[1 - k]
    row = next((r for r, g in enumerate(its) if g and g in result and g not in rule.operands[k]),
               None)
    if row is None or f in its and f in result or blocks.count * _FEWER * (
            size_of(x) + size_of(product.outvars[0])) >= size_of(product.invars[k]):
        return None
    every = m.emit(gather.op, x, like=gather, **{
        **gather.params, "all_gather_dimension": row, "tiled": True})
    if f in its:
        c = its.index(f)
        every = blocks.own(every, c, tuple([n // blocks.count if e == c else n for e, n in
                                            enumerate(every.aval.shape)]))
    made = m.emit(product.op, *varying_alike(m, [own, every] if k == 0 else [every, own]),
                  **product.params)
    to = result.index(its[row])
    return fit(m, scattered(m, made, gather, to) if f in its else m.emit(
        OPS["all_to_all"], made, like=gather, axis_index_groups=None, axis_name=gather.axes,
        axis_size=blocks.count, split_axis=to, concat_axis=result.index(f), tiled=True))


_REDUCES = ("parts are reduced where they are, and only their results exchanged",
            "reduce before the exchange instead of gathering")
REDUCED: tuple[CodeChange, ...] = (
    CodeChange(Rewrite(
        "reduce first", "out = reduce_sum|reduce_max|reduce_min value {axes}",
        reduced_of_blocks, why=_REDUCES[0]), _REDUCES[1], _reduced_first_between_code),
    CodeChange(Rewrite(
        "products first", "out = dot_general x y", reduced_of_blocks,
        why="products of blocks are summed over devices, and no block is gathered"),
        "sum the products of each device's blocks instead of gathering",
        _reduced_first_between_code),
    CodeChange(Rewrite(
        "rows to blocks", "out = dot_general x y", _rows_to_blocks,
        why="rows are fewer than what they are multiplied with"),
        "multiply the rows of all devices by each device's own block instead of gathering"),
    CodeChange(Rewrite(
        "added up first", "out = scatter-add|scatter-max|scatter-min base *others",
        _added_up_first, why="parts are added up where they are, and only the sums exchanged"),
        "add up each device's own before the exchange instead of gathering", _added_up_first_code),
    CodeChange(Rewrite(
        "sums together", "out = add x y", _summed_together,
        where=lambda m: any(_summed(m, a) is not None for a in m.eqn.invars),
        why="one sum over devices instead of several"),
        "add what is summed over devices, and sum it once"),
    CodeChange(Rewrite(
        "sums of rows", "out = reduce_sum value {axes}", _rows_summed,
        why="only sums are exchanged"),
        "sum what each device has, and scatter the sums, instead of summing behind an all_to_all"),
    CodeChange(Rewrite(
        "less of a sum, product", "out = dot_general x y", _less_of_sum,
        why="the product is smaller than what is multiplied"),
        "multiply what each device adds, and sum the products, instead of multiplying the sum"),
    CodeChange(Rewrite(
        "less of a sum", "out = reduce_sum whole", _less_of_sum,
        why="parts are summed where they are, and only their sums exchanged"),
        "reduce before the sum over devices instead of behind it"),
    CodeChange(Rewrite(
        "summed at once", "out = add x y", _summed_at_once,
        why="each part of a sum is exchanged once, rather than all of it with each device"),
        "sum over devices at once with psum instead of adding what goes round"),
)
