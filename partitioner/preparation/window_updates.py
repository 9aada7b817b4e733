"""Static windows as masks over the whole array, where one is written, and where one is reduced.

`u.at[1:-1, 1:-1].set(new)` is a scatter of one window. If a dimension of the window is split, each
of its rows would become a window of its own, and every device would need all of them. Padded to the
size of the whole, the update is split as the whole is, and each device selects between its own
elements of both:

    inside = (rows from 1 to n - 2) and (columns from 1 to m - 2)
    out = select_n inside u pad(new, 1)

The slices from which the update is computed are then padded too, so that they are split in the same
way (uneven.py).

`(x[3:61] ** 2).sum(0)` would move every row by three to add it. Where at least three quarters of
the rows remain, those left out count as nothing instead, where they lie:

    squares = integer_pow x 2
    out = reduce_sum (place squares 0 {start=3, limit=61, low=3})

Once it is known that a dimension is not split after all, it is sliced again.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from ...ir.meshes.manual_state import NOT_MANUAL
from ...ir.op import OPS, Op
from ...ir.ops.elementwise.bitwise import and_p
from ...ir.ops.elementwise.comparison import ge_p, lt_p
from ...ir.ops.elementwise.select import select_n_p
from ...ir.ops.identities import identity
from ...ir.ops.indexing.common import window_dims
from ...ir.ops.indexing.scatter_derivatives import slice_sizes_of
from ...ir.ops.movement.creation import iota_p
from ...ir.ops.movement.joining import concatenate_p
from ...ir.ops.movement.padding import pad_p
from ...ir.ops.movement.placing import place_p
from ...ir.ops.movement.shape import broadcast_in_dim_p
from ...ir.ops.movement.slicing import slice_p
from ...ir.program import Atom, Equation, Literal, Program
from ...ir.rewriting.rewrite import Match, Rewrite, Rewrites
from ...ir.rewriting.unread import drop_dead
from ...ir.rules.rule import ELEMENTWISE
from ...ir.types import Shape, array_type
from ..propagation.divisibility import may_be_split, splitting_sizes

INT32 = np.dtype(np.int32)
_MOST = 64                      # equations that are computed on other rows
# How an update meets old elements: the op that combines both, or None to replace them.
BOXES = {"scatter": None, "scatter-add": "add", "scatter-sub": "sub", "scatter-mul": "mul",
         "scatter-min": "min", "scatter-max": "max"}


def known_starts(m: Match, indices: Atom) -> list[int] | None:
    """The start of a window, from an index vector made of constants."""
    number, eqn = m.constant_of(indices), m.maker(indices)
    if number is not None:
        return [int(number.val)] * indices.aval.size
    if eqn is None or eqn.op is not concatenate_p:
        return None
    parts = [known_starts(m, a) for a in eqn.invars]
    return None if None in parts else [n for part in parts for n in part]    # type: ignore


def _is_plain(m: Match) -> bool:
    """Is it one window that covers most of an array which Auto axes may split?"""
    base, updates, numbers = m.base.aval, m.updates.aval, m.numbers
    return (may_be_split(m) and not m.mesh.explicit_axes and m.indices.aval.ndim == 1
            and not numbers.operand_batching_dims and 2 * updates.size >= base.size > updates.size
            and base.weak_type == m.eqn.outvars[0].aval.weak_type and base.dtype == updates.dtype
            and isinstance(base.dtype, np.dtype) and base.manual is updates.manual is NOT_MANUAL
            and not base.sharding.spec.unreduced and not updates.sharding.spec.unreduced)


def _selected(m: Match) -> Atom | None:
    """The update of a static window as a select between the array and the padded update; None if
    the window's place is not known, or is not wholly inside the array.
    """
    shape, n = m.base.aval.shape, m.numbers
    sizes = slice_sizes_of(shape, m.updates.aval.shape, n)
    found = known_starts(m, m.indices)
    windows = window_dims(len(shape), n.inserted_window_dims, ())
    if found is None or n.update_window_dims != tuple(range(len(windows))):
        return None
    starts = [0] * len(shape)
    for d, start in zip(n.scatter_dims_to_operand_dims, found, strict=True):
        starts[d] = start
    if not all([0 <= a <= k - size for a, size, k in zip(starts, sizes, shape, strict=True)]):
        return None
    update = m.updates
    if update.aval.shape != tuple(sizes):
        update = m.emit(broadcast_in_dim_p, update, shape=tuple(sizes), broadcast_dimensions=tuple(
            windows), sharding=None)
    t = m.base.aval
    zero = Literal(t.dtype.type(0), array_type((), t.dtype, update.aval.weak_type))
    padded = m.emit(pad_p, update, zero, padding_config=tuple(
        [(a, k - size - a, 0) for a, size, k in zip(starts, sizes, shape, strict=True)]))
    op = BOXES[m.eqn.op.name]
    new = padded if op is None else m.emit(OPS[op], m.base, padded)
    mask: Atom | None = None
    for d, (a, size, k) in enumerate(zip(starts, sizes, shape, strict=True)):
        if size < k:
            here = m.emit(broadcast_in_dim_p, _between(m, k, a, a + size), shape=shape,
                          broadcast_dimensions=(d,), sharding=None)
            mask = here if mask is None else m.emit(and_p, mask, here)
    assert mask is not None, "the window is the whole"
    return m.emit(select_n_p, mask, m.base, new)


def _between(m: Match, count: int, first: int, end: int) -> Atom:
    """A mask of `count` positions: those from `first` up to `end`."""
    place = m.emit(iota_p, dtype=INT32, shape=(count,), dimension=0, sharding=None)

    def compared(op: Op, bound: int) -> Atom:
        limit = Literal(INT32.type(bound), array_type((), INT32))
        return m.emit(op, place, m.full(limit, (count,)))
    return m.emit(and_p, compared(ge_p, first), compared(lt_p, end))


CHOOSE_BOX = Rewrite(
    "box-at-a-known-place",
    f"out = {'|'.join(BOXES)} base indices updates {{dimension_numbers=numbers}}", _selected,
    where=_is_plain, why="the update is split as the array is, and no index is looked at")


def _reduced_in_place(m: Match) -> Atom | None:
    """The reduction of a slice as one of the whole, with an identity in the rows left out."""
    t, computed = m.rows.aval, _computed_for(m, m.rows)
    if (computed is None or m.mesh.explicit_axes or not isinstance(t.dtype, np.dtype)
            or t.manual is not NOT_MANUAL or t.sharding.spec.unreduced):
        return None
    eqns, begins = computed
    inside = Counter([a for e in eqns for a in e.invars] or begins)
    cuts = [m.maker(a) if m.reads(a) == inside[a] else None for a in begins]
    windows = [(e.invars[0].aval.shape, e.params["start_indices"], e.params["limit_indices"])
               for e in cuts if e is not None and e.op is slice_p and all(
                   [s == 1 for s in e.params["strides"] or ()])]
    if not windows or len(windows) < len(cuts) or len({*windows}) > 1:
        return None
    shape, starts, limits = windows[0][0], list(windows[0][1]), list(windows[0][2])
    masked = [d for d in m.axes if 3 * shape[d] <= 4 * (limits[d] - starts[d]) < 4 * shape[d]
              and any([shape[d] % k == 0 for k in splitting_sizes(m.mesh)])]
    if not masked:
        return None
    x = _on_other_rows(m, eqns, {
        a: e.invars[0] for a, e in zip(begins, cuts, strict=True) if e is not None}, shape)[m.rows]
    number = Literal(identity(_operator(m.eqn), t.dtype),
                     array_type((), t.dtype, t.weak_type, memory_space=t.memory_space))
    base = m.full(number, shape)
    for d in masked:
        x = m.emit(place_p, x, base, dimension=d, start=starts[d], limit=limits[d], low=starts[d])
        starts[d], limits[d] = 0, shape[d]
    return m.emit(m.eqn.op, _window(m, x, starts, limits), **m.eqn.params)


def _window(m: Match, x: Atom, starts: Sequence[int], limits: Sequence[int]) -> Atom:
    """The rows of x from starts to limits; a row that equations repeat is all rows."""
    repeated = [n == 1 for n in x.aval.shape]
    starts = [0 if one else start for one, start in zip(repeated, starts, strict=True)]
    limits = [1 if one else limit for one, limit in zip(repeated, limits, strict=True)]
    if not any(starts) and tuple(limits) == x.aval.shape:
        return x
    return m.emit(slice_p, x, start_indices=tuple(starts), limit_indices=tuple(limits),
                  strides=None)


def _computed_for(m: Match, atom: Atom) -> tuple[list[Equation], list[Atom]] | None:
    """What is computed element by element for a value alone, the last equation first, and the
    arrays that it begins with; None if that is much.
    """
    eqns: list[Equation] = []
    begins: list[Atom] = []
    waiting = [(atom, 1)]
    while waiting:
        a, times = waiting.pop()
        eqn = m.maker(a) if m.reads(a) == times else None
        if eqn is not None and eqn.op.rule == ELEMENTWISE and not eqn.op.multiple_results:
            eqns.append(eqn)
            waiting += [(b, eqn.invars.count(b)) for b in dict.fromkeys(eqn.invars)
                        if b.aval.shape]
        elif eqn is not None and eqn.op is broadcast_in_dim_p and not eqn.invars[0].aval.shape:
            eqns.append(eqn)
        else:
            begins.append(a)
        if len(eqns) > _MOST:
            return None
    return eqns, begins


def _on_other_rows(m: Match, eqns: Sequence[Equation], begins: dict[Atom, Atom], shape: Shape
                   ) -> dict[Atom, Atom]:
    """What `_computed_for` found, computed on arrays of another shape. begins: from the arrays that
    it begins with to these. Returns the same of all values.
    """
    now = dict(begins)
    for eqn in reversed(eqns):
        params = eqn.params if eqn.op is not broadcast_in_dim_p else {**eqn.params, "shape": shape}
        now[eqn.outvars[0]] = m.emit(eqn.op, *[now.get(a, a) for a in eqn.invars], like=eqn,
                                     **params)
    return now


def _reduced_of_slice(m: Match) -> Atom | None:
    """The reduction of the rows that were placed, if nothing else adds to it. A mask of padding
    stays: a kernel that reads rows twice has all of them.
    """
    x, starts, limits = m.placed, [0] * m.placed.aval.ndim, list(m.placed.aval.shape)
    while (eqn := m.maker(x)) is not None and eqn.op is place_p:
        source, base = eqn.invars
        d, start, limit = (eqn.params[k] for k in ("dimension", "start", "limit"))
        is_padding = not start and x.aval.shape[d] - limit < m.mesh.size
        if (is_padding or d not in m.axes or limits[d] - starts[d] < x.aval.shape[d]
                or source.aval.shape != x.aval.shape or not _changes_nothing(m, base)):
            break
        x, starts[d], limits[d] = source, start, limit
    if x is m.placed:
        return None
    eqns, begins = _computed_for(m, x) or ([], [x])
    rows = _on_other_rows(m, eqns, {a: _window(m, a, starts, limits) for a in begins},
                          tuple([b - a for a, b in zip(starts, limits, strict=True)]))
    return m.emit(m.eqn.op, rows[x], **m.eqn.params)


def _changes_nothing(m: Match, base: Atom) -> bool:
    """Is every element of it the identity of the reduction?"""
    number = m.constant_of(base)
    return number is not None and number.val == identity(_operator(m.eqn), base.aval.dtype)


def _operator(eqn: Equation) -> str:
    """How a reduction combines elements, by its factor rule: "sum", "max" and so on."""
    return next(f.operator for f in eqn.instance.rule(*eqn.types).factors if f.operator)


_REDUCTION = "out = reduce_sum|reduce_prod|reduce_max|reduce_min|reduce_and|reduce_or|reduce_xor"

REDUCE_IN_PLACE = Rewrites(Rewrite(
    "reduction-of-slice", f"{_REDUCTION} rows {{axes}}", _reduced_in_place, where=may_be_split,
    single_use=("rows",), why="rows that are left out need not be moved out"))


def reduce_in_place(program: Program) -> Program:
    """The program with reductions of slices as reductions of the whole."""
    slices = {e.outvars[0] for e in program.eqns if e.op is slice_p}
    computed = slices and any(
        [e.op.arithmetic for e in program.eqns for a in e.invars if a in slices])
    return drop_dead(REDUCE_IN_PLACE(program)) if computed else program


REDUCE_SLICES = Rewrites(Rewrite(
    "reduction-of-placed", f"placed = place x base\n{_REDUCTION} placed {{axes}}",
    _reduced_of_slice, single_use=("placed",),
    why="rows of a dimension that is not split are left out by slicing"),
    also_drops=(broadcast_in_dim_p,))
