"""Collectives of the simulated executor: mostly a change of description.

With every axis in place, an all-gather forgets an axis, "take my own block" introduces one, an
all-to-all hands it from one dimension to another: the array stays as it is. What has to be done is
getting the axis to the right place first, and a reduction is a sum over its dimension. Collectives
without a strategy here go through the exchange that the op declares, on a stacked array.
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir.keys import storage_dtype
from ..ir.ops.lead import empty_like
from ..ir.ops.rows_exchange import SLAB, slabs
from ..ir.pool import empty
from ..ir.program import Equation
from .axes import collective_atoms
from .folding import EXTREMES, GATHERS, SCATTERS, SUMS
from .layout import Layout, array_shape, rearrangement
from .numerics import as_declared, widened
from .permuted import Moves, Permuted
from .workspace import Value, Workspace

Atoms = tuple[str, ...]
BLOCK, INNER = ("block",), ("inner",)       # labels of dimensions that are neither axes nor whole


def plan(p: Workspace, eqn: Equation, x: Value) -> None:
    """Append the calls of a collective and bind its result."""
    group = collective_atoms(eqn, p.atoms)
    name, params = eqn.op.name, eqn.params
    if params.get("axis_index_groups") is not None:
        _exchange(p, eqn, x, group)
    elif name in SUMS or name in EXTREMES:
        combined = p.folded(x, frozenset(group), EXTREMES.get(name, "sum"))
        layout = combined.layout
        p.bind(eqn.outvars[0], layout._replace(folded=layout.folded - frozenset(group)),
               combined.slot, combined.uniform)
    elif name in GATHERS:
        d = params["all_gather_dimension"]
        (_gather_tiled if params["tiled"] else _gather_stacked)(p, eqn, x, group, d)
    elif name in SCATTERS:
        combined = p.folded(x, frozenset(group))
        layout = combined.layout
        whole = Value(x.aval, layout._replace(folded=layout.folded - frozenset(group)),
                      combined.slot)
        _own_block(p, eqn, whole, group, params["scatter_dimension"], params["tiled"])
    elif name == "all_slice":
        _own_block(p, eqn, x, group, params["dimension"], True)
    elif name == "all_to_all":
        exchange = _all_to_all_tiled if params["tiled"] else _all_to_all_stacked
        exchange(p, eqn, x, group, params["split_axis"], params["concat_axis"])
    elif name == "ppermute":
        _permute(p, eqn, x, group, params["perm"])
    elif name == "retile":
        _retile(p, eqn, x, group)
    elif name == "exchange_rows":
        _rows(p, eqn, x, group)
    else:
        _exchange(p, eqn, x, group)


def moved(x: Value, group: Atoms, d: int) -> tuple[Atoms, tuple[Atoms, ...]]:
    """Stack and split of `x` with `group` as the minor axes of dimension `d`."""
    rest = x.layout.without(set(group))
    split = list(rest.split)
    split[d] = (*split[d], *group)
    return rest.stack, tuple(split)


def _gather_tiled(p: Workspace, eqn: Equation, x: Value, group: Atoms, d: int) -> None:
    """With the group in place as the minor axes of the dimension, there is nothing to do."""
    stack, split = moved(x, group, d)
    slot = p.view(x, stack, split)
    p.bind(eqn.outvars[0], Layout(stack, split, x.layout.folded).without(set(group)), slot)


def _gather_stacked(p: Workspace, eqn: Equation, x: Value, group: Atoms, d: int) -> None:
    """The group becomes a dimension of its own."""
    rest = x.layout.without(set(group))
    dims = list(rest.dims)
    dims.insert(len(rest.stack) + d, group)
    slot = p.rearranged(x, tuple(dims))
    split = list(rest.split)
    split.insert(d, ())
    p.bind(eqn.outvars[0], Layout(rest.stack, tuple(split), rest.folded), slot)


def _own_block(p: Workspace, eqn: Equation, x: Value, group: Atoms, d: int, tiled: bool) -> None:
    """Each device's block of a dimension: the group becomes the minor axes in place there."""
    (out,) = eqn.outvars
    differing = [a for a in group if a in x.layout.atoms]
    layout, slot = x.layout, x.slot
    if differing:
        x = _diagonal(p, x, group, d)
        layout, slot = x.layout, x.slot
    if tiled:
        split = list(layout.split)
        split[d] = (*split[d], *group)
        p.bind(out, Layout(layout.stack, tuple(split), layout.folded), slot)
        return
    # The dimension has one element a device: it turns into leading dimensions.
    atoms = p.atoms
    stack = atoms.sort({*layout.stack, *layout.split[d], *group})
    dims = list(layout.dims)
    at = len(layout.stack) + d
    dims[at] = (*layout.split[d], *group)
    split = layout.split[:d] + layout.split[d + 1:]
    want = (*((a,) for a in stack), *dims[len(layout.stack):at], *dims[at + 1:])
    sizes = {**dict(p.sizes(x, dims)), **{a: atoms.size[a] for a in group}}
    function = rearrangement(tuple(dims), want, tuple(sizes.items()))
    slot = slot if function is None else p.call(function, slot)
    p.bind(out, Layout(stack, split, layout.folded), slot)


def _diagonal(p: Workspace, x: Value, group: Atoms, d: int) -> Value:
    """Of a value that differs over axes of the group: each device's own block, read whole.

    The result does not differ over the group any more; it is laid out as if all blocks of the
    dimension were there, block i being that of device i.
    """
    atoms = p.atoms
    rest = x.layout.without(set(group))
    differing = tuple(a for a in group if a in x.layout.atoms)
    n = x.aval.shape[d] // atoms.count(group)
    more: dict[Any, int] = {("block", a): atoms.size[a] for a in group}
    more[INNER] = n
    base = list(rest.dims)
    at = len(rest.stack) + d
    blocks = tuple(("block", a) for a in group)
    base[at] = (*rest.split[d], *blocks, INNER)
    # First the differing axes in front, all labels as dimensions of their own.
    have = tuple(tuple(y for lab in dim for y in ((*blocks, INNER) if lab == d else (lab,)))
                 for dim in x.dims)
    flat = [lab for dim in base for lab in dim]
    want = (*((a,) for a in differing), *((lab,) for lab in flat))
    sizes = {**dict(p.sizes(x, x.dims)), **more}
    function = rearrangement(have, want, tuple(sizes.items()))
    slot = x.slot if function is None else p.call(function, x.slot)
    pairs = [(0, len(differing) - i + flat.index(("block", a)) - _before(flat, differing[:i], a))
             for i, a in enumerate(differing)]

    def diagonals(array: Any) -> Any:
        for first, second in pairs:
            array = np.diagonal(array, axis1=first, axis2=second)   # its dimension comes last
        return array

    slot = p.call(diagonals, slot)
    left = [lab for lab in flat if lab not in {("block", a) for a in differing}]
    now = (*((lab,) for lab in left), *((("block", a),) for a in differing))
    function = rearrangement(now, tuple(base), tuple(sizes.items()))
    slot = slot if function is None else p.call(function, slot)
    return Value(x.aval, rest, slot)


def _before(flat: list[Any], done: Atoms, a: str) -> int:
    """How many block dimensions in front of that of `a` were consumed already."""
    place = flat.index(("block", a))
    return sum(flat.index(("block", b)) < place for b in done)


def _all_to_all_tiled(p: Workspace, eqn: Equation, x: Value, group: Atoms, i: int, j: int) -> None:
    """The group moves from the minor axes of dimension j to those of dimension i."""
    (out,) = eqn.outvars
    if i != j:
        stack, split = moved(x, group, j)
        slot = p.view(x, stack, split)
        layout = Layout(stack, split, x.layout.folded).without(set(group))
    else:
        layout = x.layout.without(set(group))
        n = x.aval.shape[i] // p.atoms.count(group)
        more = {BLOCK: p.atoms.count(group), INNER: n}
        have = tuple(tuple(y for lab in dim for y in ((BLOCK, INNER) if lab == i else (lab,)))
                     for dim in x.dims)
        want = list(layout.dims)
        want[len(layout.stack) + i] = (*layout.split[i], BLOCK, *group, INNER)
        slot = p.rearranged(x, tuple(want), more, have)
    split = list(layout.split)
    split[i] = (*split[i], *group)
    p.bind(out, Layout(layout.stack, tuple(split), layout.folded), slot)


def _all_to_all_stacked(p: Workspace, eqn: Equation, x: Value, group: Atoms, i: int, j: int
                        ) -> None:
    """Dimension i (one element a device) becomes the group; the group becomes dimension j."""
    atoms = p.atoms
    rest = x.layout.without(set(group))
    targets = {a: ("to", a) for a in group}
    more = {label: atoms.size[a] for a, label in targets.items()}
    have = tuple(tuple(y for lab in dim for y in (tuple(targets.values()) if lab == i else (lab,)))
                 for dim in x.dims)
    stack = atoms.sort({*rest.stack, *rest.split[i], *group})
    body = [dim for d, dim in enumerate(rest.dims[len(rest.stack):]) if d != i]
    body.insert(j, group)
    want = (*((targets.get(a, a),) for a in stack), *body)
    slot = p.rearranged(x, want, more, have)
    split = [axes for d, axes in enumerate(rest.split) if d != i]
    split.insert(j, ())
    p.bind(eqn.outvars[0], Layout(stack, tuple(split), rest.folded), slot)


def _retile(p: Workspace, eqn: Equation, x: Value, group: Atoms) -> None:
    """With the source in place the array is the whole value, to be cut as the target says."""
    atoms, layout = p.atoms, x.layout
    source, target = ([atoms.of_all(axes) for axes in eqn.params[which]]
                      for which in ("source", "target"))
    used = {a for axes in source for a in axes}
    copies = [a for a in group if a in layout.atoms and a not in used]
    slot = x.slot
    if copies:                                  # all the same, by type: the first is taken
        alone = layout.without(set(copies))
        dims = (*((a,) for a in copies), *alone.dims)
        first = (0,) * len(copies)
        slot = p.call(lambda array: array[first], p.rearranged(x, dims))
        x = Value(x.aval, alone, slot)
    rest = layout.without(set(group))
    split = tuple((*have, *axes) for have, axes in zip(rest.split, source, strict=True))
    slot = p.view(x, rest.stack, split)
    split = tuple((*have, *axes) for have, axes in zip(rest.split, target, strict=True))
    p.bind(eqn.outvars[0], Layout(rest.stack, split, layout.folded), slot)


def _rows(p: Workspace, eqn: Equation, x: Value, group: Atoms) -> None:
    """Rows are copied from where they are to where they belong, the group in place there."""
    atoms, params = p.atoms, eqn.params
    (out,) = eqn.outvars
    d, size = params["dimension"], atoms.count(group)
    found = slabs(size, params["parts"], params["wanted"])
    if len(found) > max(64, math.prod(x.aval.shape) * size // SLAB):
        _exchange(p, eqn, x, group)
        return
    held = tuple(a for a in group if a in x.layout.atoms)
    layout = Layout(*moved(x, group, d), x.layout.folded)
    shape = array_shape(layout, out.aval.shape, atoms.size)
    read, source_order = _axes_first(p, x, x.layout, held)
    write, target_order = _axes_first(p, Value(out.aval, layout, x.slot), layout, group)
    front = (slice(None),) * (len(read) - len(held) - x.aval.ndim + d)
    place = {a: i for i, a in enumerate(group)}
    moves = []
    for member, begin, end, owner, start in found:
        to, source = (tuple(map(int, np.unravel_index(i, atoms.sizes(group))))
                      for i in (member, owner))
        moves.append(((*to, *front, slice(begin, end)),
                      (*(source[place[a]] for a in held), *front,
                       slice(start, start + end - begin))))
    complete = sum(end - begin for _, begin, end, _, _ in found) == size * out.aval.shape[d]

    def exchange(array: Any) -> Any:
        result = empty(shape, array.dtype)
        if not complete:
            result[...] = np.zeros((), array.dtype)
        source = array.reshape(read).transpose(source_order)
        target = result.reshape(write).transpose(target_order)
        for to, there in moves:
            target[to] = source[there]
        return result

    p.bind(out, layout, p.call(exchange, x.slot))


def _permute(p: Workspace, eqn: Equation, x: Value, group: Atoms,
             perm: tuple[tuple[int, int], ...]) -> None:
    """Blocks change places. The result differs over the axes along which what arrives differs.

    Where a block goes from devices along X to devices along Y (a dimension that changes its axis),
    Y takes the place of X in the layout, and often nothing has to be moved.
    """
    known = eqn.use.table(_permute)
    key = p.atoms.owner, x.kind, group
    found = known.get(key)
    if found is None:
        found = known[key] = _moves(p, x, group, perm)
    layout, function = found
    (out,) = eqn.outvars
    if function is None:
        p.bind(out, layout, x.slot, x.uniform)
    else:
        p.bind(out, layout, p.call(function, x.slot))


def _moves(p: Workspace, x: Value, group: Atoms, perm: tuple[tuple[int, int], ...]
           ) -> tuple[Layout, Callable[[Any], Any] | None]:
    """The layout of the result, and the function that gives its array if it is another one."""
    atoms = p.atoms
    own, sizes = x.layout.atoms, atoms.sizes(group)
    held = tuple([a for a in group if a in own])
    members = list(itertools.product(*map(range, sizes)))
    blocks = [tuple([i for i, a in zip(member, group, strict=True) if a in own])
              for member in members]
    arrives: list[tuple[int, ...] | None] = [None] * len(members)   # None: zeros
    for source, target in perm:
        arrives[target] = blocks[source]
    places = []
    step = len(members)
    for d, n in enumerate(sizes):       # differs what arrives from where the place is 0?
        step //= n
        if any([block != arrives[i - member[d] * step]
                for i, (member, block) in enumerate(zip(members, arrives, strict=True))]):
            places.append(d)
    differs = tuple([group[d] for d in places])
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
    pairs = []
    for member, block in zip(members, arrives, strict=True):
        target = tuple([member[d] for d in places])
        if block is not None and sum(target) == sum(member):        # other places are 0
            pairs.append((block, target))
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

    def permute(array: Any) -> Any:
        result = (empty_like(array, shape) if array.ndim == len(shape) else
                  empty(shape, array.dtype))
        if not complete:
            result[...] = 0
        source = array.reshape(read).transpose(source_order)
        target = result.reshape(write).transpose(target_order)
        for s, d in moves:
            target[d] = source[s]
        return result

    if (complete and len(held) == len(differs) == 1 and read == write
            and source_order == target_order and not source_order[0]):
        runs = tuple([(s.start, d.start, d.stop - d.start) for s, d in moves])
        return layout, Permuted(permute, Moves(read[0], runs))
    return layout, permute


def _axes_first(p: Workspace, x: Value, layout: Layout, axes: Atoms
                ) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """All labels of a layout as dimensions: their sizes, and the order with `axes` in front.

    Labels that follow the axes are in an order that does not depend on where the axes are.
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


def _exchange(p: Workspace, eqn: Equation, x: Value, group: Atoms) -> None:
    """Through the exchange that the op declares: everything stacked, the group last."""
    op, atoms = eqn.op, p.atoms
    assert op.collective is not None
    (out,) = eqn.outvars
    others = atoms.sort(x.layout.atoms - set(group))
    count = atoms.count(group)
    inner = tuple((d,) for d in range(len(x.aval.shape)))
    slot = p.rearranged(x, (*((a,) for a in others), group, *inner))
    params, lead = eqn.params, len(others) + 1
    evaluate: Callable[..., Any] = op.collective.evaluate
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
