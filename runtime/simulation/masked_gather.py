"""Gathers by masked lookup, where only the sum over devices is seen.

Each device looks up the rows of a split array that it holds, zeros stand for the others, and the
results are summed: as `embedding[tokens]` is partitioned over the vocabulary. Replaced by one
gather from the whole array, so that time and memory do not grow with the number of devices.
"""
from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ...ir.ops.indexing.common import GatherDimensionNumbers, GatherScatterMode
from ...ir.ops.indexing.gather import fill_constant
from ...ir.program import Atom, Equation, Var
from ..axes import MeshAtoms
from ..layout import Atoms, Layout, Shape, array_shape
from ..rewrites.equations import is_zeros, repeated
from .workspace import Value, Workspace

Maker = Callable[[Atom], Equation | None]


def _select(p: Any, eqn: Equation) -> None:
    """Plan a `select_n`, if it is a masked lookup of which only the sum over devices is seen."""
    sums = p.folds.get(eqn.outvars[0], {}).get("sum") if p.folds else None
    found = None
    if sums and p.mask is None and len(eqn.invars) == 3 and eqn.invars[0].aval.shape:
        found = _lookup(eqn, p.maker)
    if found is not None:
        gather, mine = found
        values = [p.value_of(a) for a in (*gather.invars, mine)]
        if _plan_lookup(p, eqn, gather, values, sums):          # type: ignore[arg-type]
            p.plan.has_unread = True        # what this was computed from
            return
    p.local(eqn)


def _lookup(eqn: Equation, maker: Maker) -> tuple[Equation, Atom] | None:
    """Of a `select_n` between zeros and what a gather found: the gather, and for each of its
    queries whether its result is taken. maker: what computes a value, if that is known."""
    which, zeros, found = eqn.invars
    gather = maker(found)
    if gather is None or gather.op.name != "gather" or gather.invars[0].aval.ndim == 0:
        return None
    if not is_zeros(zeros, maker):
        return None
    numbers, params = gather.params["dimension_numbers"], gather.params
    queries = tuple(d for d in range(found.aval.ndim) if d not in numbers.offset_dims)
    mine = which
    if len(queries) < found.aval.ndim:
        source = repeated(which, maker, queries)
        if source is None:
            return None
        mine = source
    plain = (params["mode"] is not GatherScatterMode.ONE_HOT and not numbers.operand_batching_dims
             and all(params["slice_sizes"][d] == 1 for d in numbers.start_index_map)
             and set(numbers.start_index_map) == set(numbers.collapsed_slice_dims))
    same = mine.aval.shape == tuple([found.aval.shape[d] for d in queries])
    return (gather, mine) if plain and same else None


def _plan_lookup(p: Workspace, eqn: Equation, gather: Equation, values: Sequence[Value],
                sums: frozenset[str]) -> bool:
    """Bind the sum over devices of what `_lookup` describes, if the array is split as it must be.

    values: of the array, the positions and the test. sums: the axes over which a sum may be taken.
    """
    x, indices, mine = values
    numbers = gather.params["dimension_numbers"]
    split = [d for d in numbers.start_index_map if x.layout.split[d]]
    held = mine.layout.atoms | indices.layout.atoms
    done = x.layout.folded
    if len(split) != 1 or x.layout.stack or not done <= sums:
        return False
    (d,) = split
    axes = x.layout.split[d]
    if not held.issuperset(axes) or not sums.issuperset(axes):
        return False
    others = _in_place((mine, indices), mine.aval.ndim, axes)
    if others is None or not mine.layout.atoms.issuperset(axes) or not x.layout.atoms.isdisjoint(
            held.difference(axes)):
        return False
    (out,) = eqn.outvars
    layout = Layout((), _ends(numbers, x, out, iter(others)), done.union(axes))
    tests = p.view(mine, axes, others)
    positions = p.view(indices, tuple([a for a in axes if a in indices.layout.atoms]),
                       (*others, ()), axes)
    function = _function(gather, x, d, axes, p.atoms, array_shape(layout, out.aval.shape,
                                                                  p.atoms.size))
    p.bind(out, layout, p.plan.call(function, (x.slot, positions, tests), eqn))
    return True


def _ends(numbers: GatherDimensionNumbers, x: Value, out: Var, along: Iterator[Atoms]
          ) -> tuple[Atoms, ...]:
    """The axes in place in what is found. along: those of the queries."""
    windows = [i for i in range(x.aval.ndim) if i not in numbers.collapsed_slice_dims]
    return tuple([x.layout.split[windows[numbers.offset_dims.index(i)]]
                  if i in numbers.offset_dims else next(along) for i in range(out.aval.ndim)])


def _in_place(values: Sequence[Value], queries: int, axes: Atoms
             ) -> tuple[Atoms, ...] | None:
    """What axes but these are in place in the first `queries` dimensions, alike for all values that
    have any; None if there are such axes anywhere else, or values differ otherwise."""
    found: tuple[Atoms, ...] = ((),) * queries
    for x in values:
        layout, mine = x.layout, x.layout.split[:queries]
        if any(mine):
            if any(found) and mine != found:
                return None
            found = mine
        if not set(axes).issuperset(layout.stack) or layout.folded:
            return None
    return None if any([not set(axes).isdisjoint(dim) for dim in found]) else found


def _function(gather: Equation, x: Value, d: int, axes: tuple[str, ...], atoms: MeshAtoms,
              shape: tuple[int, ...]) -> Callable[..., Any]:
    numbers, params = gather.params["dimension_numbers"], gather.params
    count, block = atoms.count(axes), x.aval.shape[d]
    column = numbers.start_index_map.index(d)
    queries = tuple([i for i in range(len(shape)) if i not in numbers.offset_dims])
    fill = None
    if params["mode"] is GatherScatterMode.FILL_OR_DROP:
        fill = fill_constant(x.aval.dtype, params["fill_value"])
    look_up, places = _look_up(gather, x, atoms, shape)

    size = math.prod(places[:-1])
    own = np.arange(size)

    def everywhere(chosen: Any) -> Any:
        """By query, as it is among the dimensions of the result."""
        return chosen.reshape([n if i in queries else 1 for i, n in enumerate(shape)])

    def find(array: Any, positions: Any, tests: Any) -> Any:
        owned = tests.reshape(count, size)
        if positions.shape[:-1] != tests.shape:
            positions = np.broadcast_to(positions, (*tests.shape, positions.shape[-1]))
        positions = positions.reshape(count * size, positions.shape[-1])
        total = None
        while True:                     # once, where each row has one owner
            chosen = np.flatnonzero(owned)[::-1]
            device, query = np.divmod(chosen, size)
            owner = np.full(size, -1)
            owner[query] = device       # the first of several
            place = positions.take(owner * size + own, 0).astype(np.int64)
            at = place[:, column]
            inside = np.minimum(np.maximum(at, 0), block - 1)
            outside = None if fill is None else inside != at
            at[...] = np.maximum(owner, 0) * block + inside
            found = look_up(array, place.reshape(places))
            if outside is not None and outside.any():
                np.copyto(found, np.asarray(fill, found.dtype), where=everywhere(outside))
            has = owner >= 0
            many = np.count_nonzero(has)
            if many < size:
                np.copyto(found, np.zeros((), found.dtype), where=everywhere(~has))
            total = found if total is None else np.add(total, found, out=total)
            if len(chosen) == many:
                return total
            owned = owned.copy()
            owned[owner[has], own[has]] = False
    return find


def _look_up(gather: Equation, x: Value, atoms: MeshAtoms, shape: Shape
             ) -> tuple[Callable[..., Any], Shape]:
    """The gather of whole arrays that has a result of this shape, and the shape of its indices."""
    evaluate: Any = gather.op.evaluate
    params = dict(gather.params)
    numbers = params["dimension_numbers"]
    whole = array_shape(x.layout, x.aval.shape, atoms.size)
    params["slice_sizes"] = tuple([1 if m == 1 and i in numbers.collapsed_slice_dims else n
                                   for i, (m, n) in enumerate(
                                       zip(params["slice_sizes"], whole, strict=True))])
    places = (*[n for i, n in enumerate(shape) if i not in numbers.offset_dims],
              gather.invars[1].aval.shape[-1])
    look_up = evaluate.prepared(0, (whole, places), (x.aval.dtype, np.dtype(np.int64)), params)
    return look_up or functools.partial(evaluate, 0, **params), places


STRATEGIES = {"select_n": _select}
