"""Collectives of the simulated executor: mostly a change of layout.

With every axis in place, an all-gather drops an axis, an own-block slice adds one, an all-to-all
moves one to another dimension, and the array stays as it is. What remains is to bring the axis to
the right place first and, for a reduction, to sum over its dimension. A collective that none of
this covers runs the exchange that its op declares, on a stacked array.
"""
from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from ...ir.kernels.device_dimensions import empty_like
from ...ir.kernels.key_data import storage_dtype
from ...ir.program import Equation
from ...ir.support.buffer_pool import empty
from ...ir.support.named_tuple import NamedTuple
from ..axes import collective_atoms, group_of
from ..layout import Atoms, Layout, array_shape, rearrangement
from ..numerics import as_declared, widened
from .device_sums import FOLDED
from .workspace import Kind, Value, Workspace, kind_of


class _LayoutChange(NamedTuple):
    """A collective that is a change of layout.

    operator: the value is combined by it first. form: the stack and split needed first, if not
    those of the operand. function: moves blocks then, if any move. The others describe the result.
    """
    operator: str | None
    form: tuple[Atoms, tuple[Atoms, ...]] | None
    function: Callable[[Any], Any] | None
    layout: Layout
    uniform: tuple[bool, ...]
    kind: Kind


def plan(p: Workspace, eqn: Equation, x: Value) -> None:
    """Append the calls of a collective and bind its result."""
    (out,) = eqn.outvars
    known, key = eqn.instance.table(plan), (p.atoms.owner, x.kind, out.aval)
    if key not in known:
        known[key] = _layout_change(p, eqn, x)
    found = known[key]
    if found is None:
        _plan_exchange(p, eqn, x)
        return
    operator, form, function, layout, uniform, kind = found
    if operator is not None:
        x = p.folded(x, group_of(eqn, p.atoms), operator)
    slot = x.slot if form is None else p.view(x, form[0], form[1])
    if function is not None:
        slot = p.call(function, slot)
    p.at[out] = Value(out.aval, layout, slot, uniform, kind)


def _layout_change(p: Workspace, eqn: Equation, x: Value) -> _LayoutChange | None:
    """The collective as a change of layout of `x`, combined or not; None if it is more."""
    name, params, aval = eqn.op.name, eqn.params, eqn.outvars[0].aval
    kind, reduces = _kind(eqn)
    group = collective_atoms(eqn, p.atoms)
    if params.get("axis_index_groups") is not None:
        return None
    operator: str | None = None
    form: tuple[Atoms, tuple[Atoms, ...]] | None = None
    uniform: tuple[bool, ...] = (False,) * aval.ndim
    function: Callable[[Any], Any] | None = None
    layout = x.layout
    if reduces in FOLDED and (kind == "all-reduce" or params["tiled"]):
        operator = reduces
        combined = p.folded(x, frozenset(group), operator)
        layout = combined.layout._replace(folded=combined.layout.folded.difference(group))
        if kind == "reduce-scatter":
            layout = _in_place(layout, group, params["scatter_dimension"])
        else:
            uniform = combined.uniform
    elif kind == "all-gather" and params["tiled"]:
        form = moved(x, group, params["all_gather_dimension"])
        layout = Layout(form[0], form[1], layout.folded).without(set(group))
    elif name == "all_slice" and layout.atoms.isdisjoint(group):
        layout = _in_place(layout, group, params["dimension"])
    elif name == "all_to_all" and params["tiled"] and (
            params["split_axis"] != params["concat_axis"]):
        form = moved(x, group, params["concat_axis"])
        layout = Layout(form[0], form[1], layout.folded).without(set(group))
        layout = _in_place(layout, group, params["split_axis"])
    elif name == "ppermute":
        layout, function = _permuted(p, x, group, params["perm"])
        uniform = x.uniform if function is None else uniform
    else:
        return None
    return _LayoutChange(operator, form, function, layout, uniform, kind_of(aval, layout, uniform))


def _kind(eqn: Equation) -> tuple[str, str]:
    """(kind of the collective, operator by which it combines blocks)."""
    assert eqn.op.collective is not None
    return eqn.op.collective.kind, eqn.op.collective.reduces


def _in_place(layout: Layout, group: Atoms, d: int) -> Layout:
    """The layout with a group over which the value is the same as minor axes of `d`."""
    split = list(layout.split)
    split[d] = (*split[d], *group)
    return layout._replace(split=tuple(split))


def _plan_exchange(p: Workspace, eqn: Equation, x: Value) -> None:
    """`plan` for collectives that are more than a change of layout."""
    group = collective_atoms(eqn, p.atoms)
    name, params, (kind, reduces) = eqn.op.name, eqn.params, _kind(eqn)
    if params.get("axis_index_groups") is not None:
        _exchange(p, eqn, x, group)
    elif kind == "all-gather":
        _gather_stacked(p, eqn, x, group, params["all_gather_dimension"])
    elif kind == "reduce-scatter" and reduces in FOLDED:
        combined = p.folded(x, frozenset(group), reduces)
        layout = combined.layout
        whole = Value(x.aval, layout._replace(folded=layout.folded - frozenset(group)),
                      combined.slot)
        _own_element(p, eqn, whole, group, params["scatter_dimension"])
    elif name == "assume_invarying":
        one = _one_copy(p, x, group)
        p.bind(eqn.outvars[0], one.layout, one.slot)
    elif name == "retile":
        _retile(p, eqn, x, group)
    else:
        _exchange(p, eqn, x, group)


def moved(x: Value, group: Atoms, d: int) -> tuple[Atoms, tuple[Atoms, ...]]:
    """Stack and split of `x` with `group` in place as the minor axes of dimension `d`."""
    rest = x.layout.without(set(group))
    split = list(rest.split)
    split[d] = (*split[d], *group)
    return rest.stack, tuple(split)


def _gather_stacked(p: Workspace, eqn: Equation, x: Value, group: Atoms, d: int) -> None:
    """Append an untiled all-gather: the group becomes a dimension of its own."""
    rest = x.layout.without(set(group))
    dims = list(rest.dims)
    dims.insert(len(rest.stack) + d, group)
    slot = p.rearranged(x, tuple(dims))
    split = list(rest.split)
    split.insert(d, ())
    p.bind(eqn.outvars[0], Layout(rest.stack, tuple(split), rest.folded), slot)


def _own_element(p: Workspace, eqn: Equation, x: Value, group: Atoms, d: int) -> None:
    """Append an untiled slice: dimension `d`, an element a device, becomes leading ones."""
    atoms, layout = p.atoms, x.layout
    stack = atoms.sort({*layout.stack, *layout.split[d], *group})
    dims = list(layout.dims)
    at = len(layout.stack) + d
    dims[at] = (*layout.split[d], *group)
    split = layout.split[:d] + layout.split[d + 1:]
    want = (*((a,) for a in stack), *dims[len(layout.stack):at], *dims[at + 1:])
    slot = p.rearranged(x, want, {a: atoms.size[a] for a in group}, tuple(dims))
    p.bind(eqn.outvars[0], Layout(stack, split, layout.folded), slot)


def _one_copy(p: Workspace, x: Value, group: Sequence[str]) -> Value:
    """The value on the first device of the group; by its type the others have the same."""
    copies = [a for a in group if a in x.layout.atoms]
    if not copies:
        return x
    one_copy = x.layout.without(set(copies))
    slot = p.rearranged(x, (*((a,) for a in copies), *one_copy.dims))
    return Value(x.aval, one_copy, p.call(itemgetter((0,) * len(copies)), slot))


def _retile(p: Workspace, eqn: Equation, x: Value, group: Atoms) -> None:
    """Append a retile: with its source axes in place, the array is split by the target."""
    atoms, layout = p.atoms, x.layout
    source, target = ([atoms.of_all(axes) for axes in eqn.params[which]]
                      for which in ("source", "target"))
    used = {a for axes in source for a in axes}
    x = _one_copy(p, x, [a for a in group if a not in used])
    rest = layout.without(set(group))
    split = tuple((*have, *axes) for have, axes in zip(rest.split, source, strict=True))
    slot = p.view(x, rest.stack, split)
    split = tuple((*have, *axes) for have, axes in zip(rest.split, target, strict=True))
    p.bind(eqn.outvars[0], Layout(rest.stack, split, layout.folded), slot)


def _exchange(p: Workspace, eqn: Equation, x: Value, group: Atoms) -> None:
    """Append the exchange that the op declares, with all axes stacked, the group last."""
    op, atoms = eqn.op, p.atoms
    assert op.collective is not None
    (out,) = eqn.outvars
    others = atoms.sort(x.layout.atoms - set(group))
    count = atoms.count(group)
    block_dims = tuple((d,) for d in range(len(x.aval.shape)))
    slot = p.rearranged(x, (*((a,) for a in others), group, *block_dims))
    params, lead = eqn.params, len(others) + 1
    evaluate = op.collective.evaluate
    assert evaluate is not None, f"{op.name} has a strategy of its own"
    dtype, arithmetic = storage_dtype(out.aval.dtype), op.arithmetic
    local = out.aval.shape

    def exchange(array: Any) -> Any:
        wide = widened(array) if arithmetic else array
        return evaluate(wide, lead, count, **params)

    slot = p.call(exchange, slot)
    same = op.collective.invariant and params.get("axis_index_groups") is None
    stack = others if same else atoms.sort({*others, *group})
    lengths = (*atoms.sizes(others), 1 if same else count, *local)
    have = (*((a,) for a in others), () if same else group, *((d,) for d in range(len(local))))
    want = (*((a,) for a in stack), *((d,) for d in range(len(local))))
    sizes = {**{a: atoms.size[a] for a in stack}, **dict(enumerate(local))}
    function = rearrangement(have, want, tuple(sizes.items()))

    def settle(array: Any) -> Any:
        array = as_declared(array, dtype, lengths, op)
        return array if function is None else function(array)

    slot = p.call(settle, slot)
    p.bind(out, Layout(stack, ((),) * out.aval.ndim, x.layout.folded), slot)


# -- `ppermute`: blocks move, often by a new layout alone ------------------------------------------

def _permuted(p: Workspace, x: Value, group: Atoms, perm: tuple[tuple[int, int], ...]
           ) -> tuple[Layout, Callable[[Any], Any] | None]:
    """The layout of a permutation's result, and the function that moves blocks, if any move.

    The result differs over the axes along which the arriving blocks differ. Where blocks go from
    devices along X to devices along Y (an array dimension changes its axis), Y takes the place of X
    in the layout, and often nothing has to move.
    """
    atoms = p.atoms
    held = tuple([a for a in group if a in x.layout.atoms])
    differs, pairs = _arriving(group, atoms.sizes(group), held, perm)
    gone = [a for a in held if a not in differs]
    new = [a for a in differs if a not in held]
    layout = x.layout
    if atoms.sizes(gone) == atoms.sizes(new):
        names = dict(zip(gone, new, strict=True))
        layout = Layout(tuple(names.get(a, a) for a in layout.stack),
                        tuple(tuple(names.get(a, a) for a in axes) for axes in layout.split),
                        layout.folded)
    else:
        names = {}
        rest = layout.without(set(gone))
        layout = rest._replace(stack=atoms.sort({*rest.stack, *new}))
    complete = len(pairs) == atoms.count(differs)
    same = len(gone) == len(new) and complete and all(
        {names.get(a, a): i for a, i in zip(held, source, strict=True)}
        == dict(zip(differs, target, strict=True)) for source, target in pairs)
    if same:
        return layout, None
    shape = array_shape(layout, x.aval.shape, atoms.size)
    read, source_order = _axes_first(p, x, x.layout, held)
    write, target_order = _axes_first(p, x, layout, differs)
    moves = _runs(pairs)

    def copied(array: Any) -> Any:
        result = (empty_like(array, shape) if array.ndim == len(shape) else
                  empty(shape, array.dtype))
        if not complete:
            result[...] = 0
        source = array.reshape(read).transpose(source_order)
        target = result.reshape(write).transpose(target_order)
        for s, d in moves:
            target[d] = source[s]
        return result

    return layout, copied


def _arriving(group: Atoms, sizes: Sequence[int], held: Atoms, perm: tuple[tuple[int, int], ...]
              ) -> tuple[Atoms, list[tuple[tuple[int, ...], tuple[int, ...]]]]:
    """The axes of the group along which the blocks that arrive differ, and for each place along
    these, if a block comes there, (place along the axes `held` that it comes from, place).
    """
    members = list(itertools.product(*map(range, sizes)))
    blocks = [tuple([i for i, a in zip(member, group, strict=True) if a in held])
              for member in members]
    arrives: list[tuple[int, ...] | None] = [None] * len(members)   # None: zeros
    for source, target in perm:
        arrives[target] = blocks[source]
    places = []
    step = len(members)
    for d, n in enumerate(sizes):       # does what arrives vary along this axis?
        step //= n
        if any([block != arrives[i - member[d] * step]
                for i, (member, block) in enumerate(zip(members, arrives, strict=True))]):
            places.append(d)
    pairs = []
    for member, block in zip(members, arrives, strict=True):
        to = tuple([member[d] for d in places])
        if block is not None and sum(to) == sum(member):        # the other coordinates are 0
            pairs.append((block, to))
    return tuple([group[d] for d in places]), pairs


def _axes_first(p: Workspace, x: Value, layout: Layout, axes: Atoms
                ) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes of a layout's labels as single dimensions, and what permutes `axes` to the front.

    The other labels follow in an order that does not depend on where the axes are.
    """
    flat = [lab for dim in layout.dims for lab in dim]
    size = dict(p.sizes(x, layout.dims))
    rest = sorted((lab for lab in flat if lab not in axes), key=lambda lab: (
        isinstance(lab, int), lab if isinstance(lab, int) else p.atoms.order.index(lab)))
    return (tuple(size[lab] for lab in flat),
            tuple(flat.index(lab) for lab in (*axes, *rest)))


def _runs(pairs: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> list[tuple[Any, Any]]:
    """(source index, target index) pairs; neighbours that stay neighbours move as one slice."""
    if any(len(s) != 1 or len(d) != 1 for s, d in pairs):
        return pairs
    runs: list[list[int]] = []
    for (s,), (d,) in sorted(pairs):
        if runs and runs[-1][0] + runs[-1][2] == s and runs[-1][1] + runs[-1][2] == d:
            runs[-1][2] += 1
        else:
            runs.append([s, d, 1])
    return [(slice(s, s + n), slice(d, d + n)) for s, d, n in runs]
