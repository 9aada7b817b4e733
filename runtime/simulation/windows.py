"""Rows that the devices that own them write along a split dimension, written to the whole array.

Per device, what is written is looked up row by row, and chosen where a row is the device's own: in
a window of the block (`dynamic_update_slice`), or in all of it (`place`). With the axes in place it
is an assignment to a slice of the whole array.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...ir.named_tuple import NamedTuple
from ...ir.op import Op
from ...ir.ops.dynamic_slicing import dynamic_update_slice_p
from ...ir.ops.placing import place_p
from ...ir.program import Atom, Equation, Literal
from ..axes import collective_atoms
from ..calls.recording import Kernel
from ..layout import Atoms, Layout, array_shape, split_shape
from ..numerics import evaluator
from ..rewrites.equations import repeated
from .workspace import Value

if TYPE_CHECKING:
    from .executor import Planner


DEEP = 6                # equations, one behind the other, that are compared


class Rows(NamedTuple):
    """Rows of `source` along dimension `dim`, at `places` + `first`, moved to be at most `last`."""
    source: Atom
    dim: int
    places: Atom
    first: int
    last: int


def plan_update(p: Planner, eqn: Equation) -> bool:
    """Bind the result of a `dynamic_update_slice` of a window of each block, if what it writes are
    those of the rows of a part of the whole that the device owns, and else what was there."""
    x, written, *starts = eqn.invars
    chosen = made(p, written, "select_n")
    if chosen is None or len(chosen.invars) != 3:
        return False
    there, rows = made(p, chosen.invars[1], "dynamic_slice"), _rows(p, chosen.invars[2])
    if there is None or rows is None or there.invars != (x, *starts) or rows.first:
        return False
    d, block = rows.dim, x.aval.shape[rows.dim]
    count = rows.source.aval.shape[d]
    width = written.aval.shape[d]
    if rows.last != count - 1 or not _are_inside(p, chosen.invars[0], rows, count):
        return False
    local = starts[d]
    moved, clamp = made(p, rows.places, "sub"), made(p, local, "clamp")
    if moved is None or clamp is None or not _counts(p, moved.invars[0]):
        return False
    by = repeated(moved.invars[1], p.maker, ())
    back = None if by is None else made(p, by, "sub")
    if back is None or back.invars != (clamp.invars[1], local) or [
            _number(a) for a in (clamp.invars[0], clamp.invars[2])] != [0, block - width]:
        return False
    first = made(p, clamp.invars[1], "sub")
    group = None if first is None else starts_of(p, first.invars[1], block)
    if first is None or group is None or not _is_in(first.invars[0], p, 0, block * p.atoms.count(
            group) - count):
        return False
    starts[d] = first.invars[0]
    return _write(p, eqn, dynamic_update_slice_p, {}, (x, rows.source, *starts), 0, d, group)


def plan_choice(p: Planner, eqn: Equation) -> bool:
    """Bind the result of a `select_n` in each block, if it is one of the rows of a part of the
    whole that the device owns, and else of another array."""
    which, base, written = eqn.invars
    rows = _rows(p, written)
    if rows is None:
        return False
    count = rows.last - rows.first + 1
    moved = made(p, rows.places, "sub")
    low = None if moved is None else _number(repeated(moved.invars[1], p.maker, ()))
    whole = None if moved is None else made(p, moved.invars[0], "add")
    if (low is None or whole is None or not _counts(p, whole.invars[0])
            or not _are_inside(p, which, rows, count)):
        return False
    offset = repeated(whole.invars[1], p.maker, ())
    d = rows.dim
    group = None if offset is None else starts_of(p, offset, base.aval.shape[d])
    if group is None or not 0 <= low <= base.aval.shape[d] * p.atoms.count(group) - count:
        return False
    params = {"dimension": d, "start": rows.first, "limit": rows.last + 1, "low": low}
    return _write(p, eqn, place_p, params, (rows.source, base), 1, d, group)


def _write(p: Planner, eqn: Equation, op: Op, params: dict[str, Any], operands: Sequence[Atom],
           base: int, d: int, group: Atoms) -> bool:
    """Plan an op that writes rows of one operand along dimension `d` of the one numbered `base`,
    whose blocks lie one after the other along `group` there; the others do not differ over it."""
    values = [p.value_of(a) for a in operands]
    layout = values[base].layout
    split = tuple([() if k == d else axes for k, axes in enumerate(layout.split)])
    shape = operands[base].aval.shape
    if layout.split[d] != group or layout.stack:
        return False
    forms: list[tuple[Atoms, ...]] = []
    for i, x in enumerate(values):
        mine: tuple[Atoms, ...] = ()
        if i == base:
            mine = layout.split
        elif x.aval.shape:
            if any([axes and (n != m) for axes, n, m in
                    zip(split, x.aval.shape, shape, strict=True)]):
                return False
            mine = split
        if x.layout.folded or x.layout.stack or not _can_be(x, mine, group):
            return False
        forms.append(mine)
    size = p.atoms.size
    slots = [p.view(x, (), mine) for x, mine in zip(values, forms, strict=True)]
    given = [split_shape(mine, x.aval.shape, size) for x, mine in zip(values, forms, strict=True)]
    whole = array_shape(layout, shape, size)
    dtypes = [x.kind.dtype for x in values]
    function = evaluator(op, 0, params, dtypes, [dtypes[base]], [whole], given)
    p.all_unread(eqn, operands)
    slot = p.plan.call(function, slots, eqn, Kernel(function, (*given, whole),
                                                    (*dtypes, dtypes[base])))
    p.bind(eqn.outvars[0], Layout((), layout.split), slot)
    return True


def _can_be(x: Value, split: tuple[Atoms, ...], group: Atoms) -> bool:
    """Has the value these axes in place, or is it longer for nothing, and the same over others?"""
    if not x.aval.shape:
        return not x.layout.atoms
    return all([have == want or (not have and same) for have, want, same in
                zip(x.layout.split, split, x.uniform, strict=True)])


def made(p: Planner, atom: Atom, name: str) -> Equation | None:
    """The equation of this op that computes a value."""
    found = p.maker(atom)
    return found if found is not None and found.op.name == name else None


def _are_same(p: Planner, a: Atom, b: Atom, deep: int = DEEP) -> bool:
    """Are two values the same, or computed alike? (rewrites/lean.py has some computed twice.)"""
    if a is b:
        return True
    if isinstance(a, Literal) or isinstance(b, Literal):
        return a.aval is b.aval and _number(a) is not None and _number(a) == _number(b)
    x, y = p.maker(a), p.maker(b)
    return (x is not None and y is not None and x.use is y.use and deep > 0
            and len(x.outvars) == 1 and len(x.invars) == len(y.invars) and all(
                [_are_same(p, v, w, deep - 1) for v, w in zip(x.invars, y.invars, strict=True)]))


def _number(atom: Atom | None) -> int | None:
    """The integer that an atom is."""
    return int(atom.val) if (isinstance(atom, Literal) and not atom.aval.shape
                             and atom.aval.dtype.kind in "iu") else None


def _is_in(atom: Atom, p: Planner, low: int, high: int) -> bool:
    """Is the number moved to lie within these bounds?"""
    clamp = made(p, atom, "clamp")
    return clamp is not None and [
        _number(a) for a in (clamp.invars[0], clamp.invars[2])] == [low, high]


def _counts(p: Planner, atom: Atom) -> bool:
    """Is the value 0, 1, 2 and so on?"""
    iota = made(p, atom, "iota")
    return iota is not None and len(iota.outvars[0].aval.shape) == 1


def starts_of(p: Planner, atom: Atom, size: int) -> Atoms | None:
    """The axes along which the value is where the device's block of this size begins."""
    offset = made(p, atom, "mul")
    if offset is None or bound(p, offset.invars[1]) != size:
        return None
    one = scalar(p, offset.invars[0])
    index = None if one is None else made(p, one, "axis_index")
    return None if index is None else collective_atoms(index, p.atoms)


def _rows(p: Planner, atom: Atom) -> Rows | None:
    """The rows that a value consists of, if they are looked up at places along one dimension."""
    gather = made(p, atom, "gather")
    if gather is None:
        return None
    source, indices = gather.invars
    n, shape = gather.params["dimension_numbers"], source.aval.shape
    if len(n.start_index_map) != 1 or n.operand_batching_dims:
        return None
    (d,) = n.start_index_map
    others = tuple([k for k in range(len(shape)) if k != d])
    if (n.collapsed_slice_dims != (d,) or n.offset_dims != others
            or gather.params["slice_sizes"] != tuple([1 if k == d else m for k, m in
                                                      enumerate(shape)])):
        return None
    places = repeated(indices, p.maker, (0,))
    clamp = None if places is None else made(p, places, "clamp")
    if clamp is None:
        return None
    _, at, _ = clamp.invars
    first, last = bound(p, clamp.invars[0]), bound(p, clamp.invars[2])
    if first is None or last is None or not 0 <= first <= last < shape[d]:
        return None
    added = made(p, at, "add")
    if added is None:
        return Rows(source, d, at, 0, last) if not first else None
    if bound(p, added.invars[1]) != first:
        return None
    return Rows(source, d, added.invars[0], first, last)


def bound(p: Planner, atom: Atom) -> int | None:
    """The integer that a value is, or that it repeats."""
    return _number(scalar(p, atom))


def scalar(p: Planner, atom: Atom) -> Atom | None:
    """The scalar that a value is, or that it repeats."""
    one = repeated(atom, p.maker, ()) if atom.aval.shape else atom
    while one is not None and (same := made(p, one, "pvary")) is not None:
        (one,) = same.invars
    return one


def _are_inside(p: Planner, mask: Atom, rows: Rows, count: int) -> bool:
    """Does the mask say along the dimension of the rows which places are in 0 .. count?"""
    if len(mask.aval.shape) > 1:
        found = repeated(mask, p.maker, (rows.dim,))
        if found is None:
            return False
        mask = found
    both = made(p, mask, "and")
    if both is None:
        return False
    low, high = made(p, both.invars[0], "ge"), made(p, both.invars[1], "lt")
    return (low is not None and high is not None
            and all([_are_same(p, m.invars[0], rows.places) for m in (low, high)])
            and bound(p, low.invars[1]) == 0 and bound(p, high.invars[1]) == count)
