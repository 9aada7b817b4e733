"""Rows of a split array that only their owners find, where only the sum over devices is seen.

A device looks up the rows that it has, and zeros stand for those of the others; the sum over the
devices puts them together. Here the owner of each row is found first, and each row is looked up
once, in the whole array: so the price does not grow with the number of devices.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ir.ops.indexing import GatherScatterMode
from ..ir.program import Atom, Equation
from .axes import MeshAtoms
from .equations import is_zeros
from .layout import Layout, array_shape
from .workspace import Value, Workspace

Maker = Callable[[Atom], Equation | None]


def lookup(eqn: Equation, maker: Maker) -> tuple[Equation, Atom] | None:
    """Of a `select_n` between zeros and what a gather found: the gather, and for each of its
    queries whether its result is taken. maker: what computes a value, if that is known."""
    which, zeros, found = eqn.invars
    gather, test = maker(found), maker(which)
    if gather is None or gather.op.name != "gather" or gather.invars[0].aval.ndim == 0:
        return None
    if not is_zeros(zeros, maker):
        return None
    numbers, params = gather.params["dimension_numbers"], gather.params
    queries = tuple(d for d in range(found.aval.ndim) if d not in numbers.offset_dims)
    mine = which
    if len(queries) < found.aval.ndim:
        if test is None or test.op.name != "broadcast_in_dim" or (
                test.params["broadcast_dimensions"] != queries):
            return None
        mine = test.invars[0]
    plain = (params["mode"] is GatherScatterMode.CLIP and not numbers.operand_batching_dims
             and all(params["slice_sizes"][d] == 1 for d in numbers.start_index_map)
             and set(numbers.start_index_map) == set(numbers.collapsed_slice_dims))
    same = mine.aval.shape == tuple([found.aval.shape[d] for d in queries])
    return (gather, mine) if plain and same else None


def plan_lookup(p: Workspace, eqn: Equation, gather: Equation, values: Sequence[Value],
                sums: frozenset[str]) -> bool:
    """Bind the sum over devices of what `lookup` describes, if the array is split as it must be.

    values: of the array, the positions and the test. sums: the axes over which a sum may be taken.
    """
    x, indices, mine = values
    numbers = gather.params["dimension_numbers"]
    split = [d for d in numbers.start_index_map if x.layout.split[d]]
    held = mine.layout.atoms | indices.layout.atoms
    done = x.layout.folded
    if (len(split) != 1 or x.layout.stack or not done <= sums or indices.layout.folded
            or mine.layout.folded):
        return False
    (d,) = split
    axes = x.layout.split[d]
    if not held <= set(axes) <= sums or mine.layout.atoms != set(axes):
        return False
    (out,) = eqn.outvars
    place = [None] * out.aval.ndim
    windows = [i for i in range(x.aval.ndim) if i not in numbers.collapsed_slice_dims]
    ends = tuple([x.layout.split[windows[numbers.offset_dims.index(i)]]
                  if i in numbers.offset_dims else () for i in range(len(place))])
    layout = Layout((), ends, done.union(axes))
    tests = p.view(mine, axes, ((),) * mine.aval.ndim)
    positions = p.view(indices, tuple([a for a in axes if a in indices.layout.atoms]),
                       ((),) * indices.aval.ndim, axes)
    function = _function(gather, x, d, axes, p.atoms, array_shape(layout, out.aval.shape,
                                                                  p.atoms.size))
    p.bind(out, layout, p.plan.call(function, (x.slot, positions, tests), eqn))
    return True


def _function(gather: Equation, x: Value, d: int, axes: tuple[str, ...], atoms: MeshAtoms,
              shape: tuple[int, ...]) -> Callable[..., Any]:
    evaluate: Any = gather.op.evaluate
    params = dict(gather.params)
    numbers = params["dimension_numbers"]
    count, block = atoms.count(axes), x.aval.shape[d]
    column = numbers.start_index_map.index(d)
    whole = array_shape(x.layout, x.aval.shape, atoms.size)
    params["slice_sizes"] = tuple([1 if m == 1 and i in numbers.collapsed_slice_dims else n
                                   for i, (m, n) in enumerate(
                                       zip(params["slice_sizes"], whole, strict=True))])
    queries = tuple([i for i in range(len(shape)) if i not in numbers.offset_dims])

    def find(array: Any, positions: Any, tests: Any) -> Any:
        owned = tests.reshape(count, -1)
        positions = np.broadcast_to(
            positions, (*tests.shape, positions.shape[-1])).reshape(*owned.shape, -1)
        total = None
        while True:                     # once, where each row has one owner
            owner = owned.argmax(0)
            own = np.arange(owner.size)
            place = positions[owner, own].astype(np.int64)
            place[:, column] = owner * block + np.clip(place[:, column], 0, block - 1)
            found = evaluate(0, array, place.reshape(*tests.shape[len(axes):], -1), **params)
            has = owned[owner, own]
            if not has.all():
                missing = ~has.reshape([n if i in queries else 1 for i, n in enumerate(shape)])
                np.copyto(found, np.zeros((), found.dtype), where=missing)
            total = found if total is None else np.add(total, found, out=total)
            if np.count_nonzero(owned) == np.count_nonzero(has):
                return total
            owned = owned.copy()
            owned[owner, own] = False
    return find
