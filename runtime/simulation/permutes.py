"""`ppermute` in the simulated executor: blocks move, often by a new layout alone."""
from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from ...ir.kernels.device_dimensions import empty_like
from ...ir.program import Equation
from ...ir.support.buffer_pool import empty
from ..layout import Atoms, Layout, array_shape
from .workspace import Value, Workspace


def permute(p: Workspace, eqn: Equation, x: Value, group: Atoms,
             perm: tuple[tuple[int, int], ...]) -> None:
    """Blocks change places. The result differs over the axes along which what arrives differs.

    Where a block goes from devices along X to devices along Y (a dimension that changes its axis),
    Y takes the place of X in the layout, and often nothing has to be moved.
    """
    known = eqn.instance.table(permute)
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
