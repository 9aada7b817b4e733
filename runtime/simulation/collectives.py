"""Collectives of the simulated executor: mostly a change of layout.

With every axis in place, an all-gather drops an axis, an own-block slice adds one, an all-to-all
moves one to another dimension, and the array stays as it is. What remains is to bring the axis to
the right place first and, for a reduction, to sum over its dimension. A collective that none of
this covers runs the exchange that its op declares, on a stacked array.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from ...ir.facts import IDENTITY
from ...ir.kernels.key_data import storage_dtype
from ...ir.program import Equation, Var
from ...ir.support.buffer_pool import empty
from ..layout import Atoms, Layout, rearrangement
from ..numerics import as_declared, widened
from .device_sums import DEFERRABLE
from .workspace import Value, Workspace


def plan(p: Workspace, eqn: Equation, x: Value) -> None:
    """Append the calls of a collective and bind its result."""
    collective, params, (out,) = eqn.op.collective, eqn.params, eqn.outvars
    assert collective is not None
    group, kind, tiled = p.atoms.of_all(eqn.axes), collective.kind, params.get("tiled")
    if params.get("axis_index_groups") is not None:
        _exchange(p, eqn, x, group)
    elif collective.reduces in DEFERRABLE:
        x = p.summed(x, frozenset(group), collective.reduces)
        layout = x.layout._replace(summed=x.layout.summed.difference(group))
        if kind == "all-reduce":
            p.bind(out, layout, x.slot, x.uniform)
        else:
            _take_own(p, out, Value(x.aval, layout, x.slot), group, params["scatter_dimension"],
                      tiled)
    elif kind == "all-gather":
        _gather(p, out, x, group, params["all_gather_dimension"], tiled)
    elif kind == "all-to-all" and tiled and params["split_axis"] != params["concat_axis"]:
        _take_own(p, out, _gathered(p, x, group, params["concat_axis"]), group,
                  params["split_axis"], True)
    elif collective.local and x.layout.atoms.isdisjoint(group):
        _take_own(p, out, x, group, params["dimension"], True)
    elif "perm" in params:
        _permute(p, out, x, group, params["perm"])
    elif kind == "retile":
        _retile(p, eqn, x, group)
    elif IDENTITY in eqn.op.facts:
        x = _one_copy(p, x, group)
        p.bind(out, x.layout, x.slot)
    else:
        _exchange(p, eqn, x, group)


def _gathered(p: Workspace, x: Value, group: Atoms, d: int) -> Value:
    """The value with the blocks of a group joined along dimension `d`, where they are minor."""
    rest = x.layout.without(set(group))
    split = list(rest.split)
    split[d] = (*split[d], *group)
    return Value(x.aval, rest, p.view(x, rest.stack, tuple(split)))


def _gather(p: Workspace, out: Var, x: Value, group: Atoms, d: int, tiled: bool) -> None:
    """Append an all-gather. Untiled, the group becomes a dimension of its own."""
    if tiled:
        whole = _gathered(p, x, group, d)
        p.bind(out, whole.layout, whole.slot)
        return
    rest = x.layout.without(set(group))
    dims, split, at = list(rest.dims), list(rest.split), len(rest.stack) + d
    dims.insert(at, group)
    split.insert(d, ())
    p.bind(out, rest._replace(split=tuple(split)), p.rearranged(x, tuple(dims)))


def _take_own(p: Workspace, out: Var, x: Value, group: Atoms, d: int, tiled: bool) -> None:
    """Append the slice of a value, which is the same over the group, that each device keeps: the
    group is minor in `d` then. Untiled, `d` has an element a device and becomes leading dimensions.
    """
    atoms, layout = p.atoms, x.layout
    split = list(layout.split)
    split[d] = (*split[d], *group)
    if tiled:
        p.bind(out, layout._replace(split=tuple(split)), x.slot)
        return
    own, at = split.pop(d), len(layout.stack) + d
    stack, dims = atoms.sort({*layout.stack, *own}), layout.dims
    have = (*dims[:at], own, *dims[at + 1:])
    want = (*((a,) for a in stack), *dims[len(layout.stack):at], *dims[at + 1:])
    slot = p.rearranged(x, want, {a: atoms.size[a] for a in group}, have)
    p.bind(out, Layout(stack, tuple(split), layout.summed), slot)


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
    p.bind(eqn.outvars[0], Layout(rest.stack, split, layout.summed), slot)


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

    same = op.collective.invariant and params.get("axis_index_groups") is None
    stack = others if same else atoms.sort({*others, *group})
    lengths = (*atoms.sizes(others), 1 if same else count, *local)
    have = (*((a,) for a in others), () if same else group, *((d,) for d in range(len(local))))
    want = (*((a,) for a in stack), *((d,) for d in range(len(local))))
    sizes = {**{a: atoms.size[a] for a in stack}, **dict(enumerate(local))}
    function = rearrangement(have, want, tuple(sizes.items()))

    def exchange(array: Any) -> Any:
        wide = widened(array) if arithmetic else array
        array = as_declared(evaluate(wide, lead, count, **params), dtype, lengths, op)
        return array if function is None else function(array)

    slot = p.call(exchange, slot)
    p.bind(out, Layout(stack, ((),) * out.aval.ndim, x.layout.summed), slot)


def _permute(p: Workspace, out: Var, x: Value, group: Atoms, perm: Sequence[tuple[int, int]]
             ) -> None:
    """Append a permutation of blocks.

    The result differs over the axes along which the arriving blocks differ. Where blocks go from
    devices along X to devices along Y (an array dimension changes its axis), Y takes the place of X
    in the layout, and often nothing has to move.
    """
    atoms, layout = p.atoms, x.layout
    held = tuple([a for a in group if a in layout.atoms])
    differs, arriving = _arriving(group, atoms.sizes(group), held, perm)
    gone = [a for a in held if a not in differs]
    new = [a for a in differs if a not in held]
    names = dict(zip(gone, new, strict=True)) if atoms.sizes(gone) == atoms.sizes(new) else {}
    if len(names) == len(gone) == len(new):
        layout = Layout(tuple([names.get(a, a) for a in layout.stack]),
                        tuple([tuple([names.get(a, a) for a in axes]) for axes in layout.split]),
                        layout.summed)
        renamed = [names.get(a, a) for a in held]
        places = np.arange(atoms.count(held)).reshape(atoms.sizes(held))
        if np.array_equal(arriving, places.transpose([renamed.index(a) for a in differs]).ravel()):
            p.bind(out, layout, x.slot, x.uniform)
            return
    else:
        rest = layout.without(set(gone))
        layout = rest._replace(stack=atoms.sort({*rest.stack, *new}))
    flat: list[tuple[Any, ...]] = [(lab,) for dim in x.dims for lab in dim]
    k = flat.index(held) if len(held) == 1 else 0
    if len(held) != 1:
        flat = [held, *[lab for lab in flat if lab[0] not in held]]
    missing = [(*(slice(None),) * k, i) for i in np.flatnonzero(arriving < 0).tolist()]

    def take(array: Any) -> Any:
        shape = (*array.shape[:k], len(arriving), *array.shape[k + 1:])
        result = array.take(arriving, k, empty(shape, array.dtype), "clip")
        for place in missing:
            result[place] = 0
        return result

    taken = Value(x.aval, layout, p.call(take, p.rearranged(x, tuple(flat))))
    flat[k] = differs
    p.bind(out, layout, p.rearranged(taken, layout.dims, have=tuple(flat)))


def _arriving(group: Atoms, sizes: Sequence[int], held: Atoms, perm: Sequence[tuple[int, int]]
              ) -> tuple[Atoms, np.ndarray]:
    """The axes of the group along which the blocks that arrive differ, and for each place along
    these the number of the block along the axes `held` that it gets; -1 for zeros.
    """
    lengths = [n if a in held else 1 for n, a in zip(sizes, group, strict=True)]
    blocks = np.broadcast_to(np.arange(math.prod(lengths)).reshape(lengths), sizes).ravel()
    arrives = np.full(math.prod(sizes), -1)
    for source, target in perm:
        arrives[target] = blocks[source]
    arrives = arrives.reshape(sizes)
    differs = [bool((arrives != arrives.take([0], i)).any()) for i in range(len(sizes))]
    first = arrives[tuple([slice(None) if d else 0 for d in differs])]
    return tuple([a for a, d in zip(group, differs, strict=True) if d]), first.ravel()
