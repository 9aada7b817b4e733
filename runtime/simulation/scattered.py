"""Scatters into split dimensions, where every device writes what it owns: one, into the whole.

Per device, indices count from where its block begins, and those of others are made -1, which a
scatter drops. With the axes in place they are indices into the whole array again.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir.op_instance import OpInstance
from ...ir.ops.indexing.common import GatherScatterMode
from ...ir.program import Atom, Equation, Literal
from ...ir.support.named_tuple import NamedTuple
from ..axes import collective_atoms
from ..layout import Atoms, Layout
from ..rewrites.equations import of_shape, repeated
from .boxes import box
from .decisions import decide
from .workspace import Value

if TYPE_CHECKING:
    from .executor import Planner


class Indices(NamedTuple):
    """Of all windows: for each column the indices into the whole, those outside of it (masks), and
    the axes of the dimensions that are split."""
    columns: list[Atom]
    outside: list[Atom]
    axes: dict[int, Atoms]


# How the whole is scattered into: indices and updates, and of what the indices are computed.
_Given = tuple[OpInstance, Value, Value, Sequence[Atom]]


def plan_scatter(p: Planner, eqn: Equation) -> bool:
    """Bind the result, if each device writes the part of the windows that it owns."""
    if p.mask is not None or (p.folds and p.folds.get(eqn.outvars[0])):
        return False
    x, _, updates = eqn.invars
    found = _whole_indices(p, eqn)
    if found is None:
        return False
    base, rows = p.value_of(x), p.value_of(updates)
    at = [p.value_of(a) for a in (*found.columns, *found.outside)]
    group = {a for axes in found.axes.values() for a in axes}
    layout = base.layout
    if (any([v.layout.atoms or v.layout.folded for v in at]) or layout.folded or rows.layout.folded
            or not group.isdisjoint(rows.layout.atoms)
            or any([layout.split[d] != axes and (layout.split[d] or not base.uniform[d])
                    for d, axes in found.axes.items()])
            or not group.isdisjoint(layout.stack)):
        return False
    held = tuple([found.axes.get(d, axes) for d, axes in enumerate(layout.split)])
    if len({a for axes in held for a in axes}) < sum(map(len, held)):
        return False
    shape = tuple([n * p.atoms.count(found.axes.get(d, ())) for d, n in enumerate(x.aval.shape)])
    split = tuple([() if d in found.axes else axes for d, axes in enumerate(layout.split)])
    whole = Value(of_shape(x.aval, shape), Layout(layout.stack, split),
                  p.view(base, layout.stack, held))
    instance, index, written, read = (_as_box(p, eqn, found, shape, rows)
                                 or _as_rows(p, eqn, found, rows))
    operands = [whole, index, written]
    decision = decide(instance, operands, [whole.aval], p.atoms, {}, frozenset())
    ((result, _, _),) = decision.results
    if any([result.split[d] for d in found.axes]):
        p.plan.without(index.slot)
        return False
    slots = [v.slot for v in operands]
    if decision.operands is not None:
        slots = [p.view(v, f.stack, f.split, f.lead, f.pad)
                 for v, f in zip(operands, decision.operands, strict=True)]
    p.all_unread(eqn, (x, updates, *read))
    split = tuple([found.axes.get(d, axes) for d, axes in enumerate(result.split)])
    p.bind(eqn.outvars[0], Layout(result.stack, split),
           p.plan.call(decision.function, slots, eqn, decision.kernel))
    return True


def _as_rows(p: Planner, eqn: Equation, found: Indices, rows: Value) -> _Given:
    """Indices into the whole, of windows as they are."""
    count = len(found.columns)

    def indices(*arrays: Any) -> Any:
        columns, outside = arrays[:count], arrays[count:]
        out = columns[0] if count == 1 else np.concatenate(columns, -1)
        for off in outside:
            out = np.where(off, -1, out).astype(out.dtype, copy=False)
        return out

    own = eqn.invars[1].aval
    slot = p.plan.call(indices, [p.value_of(a).slot for a in (*found.columns, *found.outside)],
                       eqn)
    return eqn.instance, Value(own, Layout((), ((),) * len(own.shape)), slot), rows, (
        *found.columns, *found.outside)


def _as_box(p: Planner, eqn: Equation, found: Indices, shape: tuple[int, ...], rows: Value
            ) -> _Given | None:
    """The index of the one window that all windows are together, if that is so."""
    one = box(p, eqn, shape, found.columns, found.outside)
    if one is None:
        return None
    if one.order != tuple(range(len(one.order))) or one.sizes != rows.aval.shape:
        if rows.layout.atoms:
            return None
        slot = p.plan.call(lambda x: x.transpose(one.order).reshape(one.sizes), (rows.slot,), eqn)
        rows = Value(of_shape(rows.aval, one.sizes), Layout((), ((),) * len(one.sizes)), slot)
    at = eqn.invars[1].aval
    index = p.plan.constant(np.asarray(one.starts, at.dtype))
    instance = Equation(eqn.op, eqn.invars, eqn.outvars, one.params(eqn)).instance
    return instance, Value(of_shape(at, (len(shape),)), Layout((), ((),)), index), rows, ()


def _whole_indices(p: Planner, eqn: Equation) -> Indices | None:
    """The indices of which those are taken that lie in the device's block, if it is so."""
    x, at, _ = eqn.invars
    n = eqn.params["dimension_numbers"]
    chosen = _made(p, at, "select_n")
    if (chosen is None or len(chosen.invars) != 3 or _bound(p, chosen.invars[1]) != -1
            or eqn.params["mode"] != GatherScatterMode.FILL_OR_DROP):
        return None
    which, _, local = chosen.invars
    last = len(local.aval.shape) - 1
    mine = repeated(which, p.maker, range(last))
    squeezed = None if mine is None else _made(p, mine, "squeeze")
    if squeezed is None or squeezed.params["dimensions"] != (last,):
        return None
    dims = n.scatter_dims_to_operand_dims
    columns = [local]
    if len(dims) > 1:
        joined = _made(p, local, "concatenate")
        if joined is None or joined.params["dimension"] != last or len(joined.invars) != len(dims):
            return None
        columns = list(joined.invars)
    wanted: set[tuple[Atom, str, int]] = set()
    axes: dict[int, Atoms] = {}
    whole: list[Atom] = []
    for column, d in zip(columns, dims, strict=True):
        moved = _made(p, column, "sub")
        offset = None if moved is None else repeated(moved.invars[1], p.maker, ())
        group = None if offset is None else _starts_of(p, offset, x.aval.shape[d])
        if moved is None or group is None:
            whole.append(column)
            continue
        axes[d] = group
        whole.append(moved.invars[0])
        wanted |= {(column, "ge", 0), (column, "lt", x.aval.shape[d])}
    outside = _outside(p, squeezed.invars[0], wanted)
    return None if outside is None or not axes else Indices(whole, outside, axes)


def _outside(p: Planner, mask: Atom, wanted: set[tuple[Atom, str, int]]) -> list[Atom] | None:
    """The masks of which none holds where `mask` does, which besides says all comparisons that are
    wanted, and nothing else; None if it is another one."""
    outside: list[Atom] = []
    said: set[tuple[Atom, str, int]] = set()
    left = [mask]
    while left:
        eqn = p.maker(left.pop())
        if eqn is None:
            return None
        if eqn.op.name == "and":
            left += eqn.invars
        elif eqn.op.name == "not":
            outside.append(eqn.invars[0])
        elif eqn.op.name in ("ge", "lt"):
            number = _bound(p, eqn.invars[1])
            if number is None or (eqn.invars[0], eqn.op.name, number) not in wanted:
                return None
            said.add((eqn.invars[0], eqn.op.name, number))
        else:
            return None
    return outside if said == wanted else None


def _made(p: Planner, atom: Atom, name: str) -> Equation | None:
    """The equation of this op that computes a value."""
    found = p.maker(atom)
    return found if found is not None and found.op.name == name else None


def _number(atom: Atom | None) -> int | None:
    """The integer that an atom is."""
    return int(atom.val) if (isinstance(atom, Literal) and not atom.aval.shape
                             and atom.aval.dtype.kind in "iu") else None


def _starts_of(p: Planner, atom: Atom, size: int) -> Atoms | None:
    """The axes along which the value is where the device's block of this size begins."""
    offset = _made(p, atom, "mul")
    if offset is None or _bound(p, offset.invars[1]) != size:
        return None
    one = _scalar(p, offset.invars[0])
    index = None if one is None else _made(p, one, "axis_index")
    return None if index is None else collective_atoms(index, p.atoms)


def _bound(p: Planner, atom: Atom) -> int | None:
    """The integer that a value is, or that it repeats."""
    return _number(_scalar(p, atom))


def _scalar(p: Planner, atom: Atom) -> Atom | None:
    """The scalar that a value is, or that it repeats."""
    one = repeated(atom, p.maker, ()) if atom.aval.shape else atom
    while one is not None and (same := _made(p, one, "pvary")) is not None:
        (one,) = same.invars
    return one


def _scatter(p: Planner, eqn: Equation) -> None:
    if not plan_scatter(p, eqn):
        p.local(eqn)


STRATEGIES = dict.fromkeys(("scatter", "scatter-add", "scatter-sub", "scatter-mul", "scatter-min",
                            "scatter-max"), _scatter)
