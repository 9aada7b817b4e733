"""Rows that are added to zeros by the devices that own them.

In the gradient of a split table each device adds, for every query, to a row of its own: what came
back, or zeros if the row is another device's. Here those are found that belong to a device, and
added to the whole table once: so the price does not grow with the number of devices.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir.dtypes import is_narrow_float
from ...ir.ops.indexing import GatherScatterMode, ScatterDimensionNumbers
from ...ir.pool import empty
from ...ir.program import Atom, Equation
from ..layout import Layout
from ..rewrites.equations import is_zeros, repeated
from .owned import in_place
from .scattered import plan_scatter
from .workspace import Value

if TYPE_CHECKING:
    from .executor import Planner


def _scatter(p: Planner, eqn: Equation) -> None:
    if (p.mask is not None or not _plan(p, eqn)) and not plan_scatter(p, eqn):
        p.local(eqn)


def _plan(p: Planner, eqn: Equation) -> bool:
    """Bind the result, if rows are added to zeros at indices that differ between devices."""
    x, at, updates = eqn.invars
    params, (out,) = eqn.params, eqn.outvars
    queries = at.aval.ndim - 1
    if (not _are_rows(params["dimension_numbers"], queries, updates.aval.ndim)
            or params["mode"] in (GatherScatterMode.CLIP, GatherScatterMode.ONE_HOT)
            or updates.aval.shape[queries:] != x.aval.shape[1:]
            or is_narrow_float(out.aval.dtype) or at.aval.dtype.kind != "i"):
        return False
    indices = p.value_of(at)
    axes = indices.layout.stack
    if not axes or 0 in updates.aval.shape or not is_zeros(x, p.maker):
        return False
    let, rows = _let_through(p, updates, queries)
    mine = indices if let is None else p.value_of(let)
    added = p.value_of(rows)
    others = in_place((mine, added, indices), queries, axes)
    windows = added.layout.split[queries:]
    held = {a for dim in windows for a in dim}
    if others is None or added.layout.stack or not held.isdisjoint(
            indices.layout.atoms | mine.layout.atoms):
        return False
    summed = frozenset([a for dim in others for a in dim])
    allowed = p.folds.get(out, {}).get("sum", frozenset()) if p.folds else frozenset()
    if not summed <= allowed:
        return False
    slots = [p.view(indices, axes, (*others, ())), p.view(added, (), (*others, *windows))]
    if let is not None:
        own = mine.layout.stack
        slots.append(p.view(mine, own, others, axes))
    if updates is not rows:
        p.unread(updates)
    layout = Layout((), (axes, *windows), summed)
    p.bind(out, layout, p.plan.call(_function(p, eqn, indices, x), slots, eqn))
    return True


def _are_rows(n: ScatterDimensionNumbers, queries: int, rank: int) -> bool:
    """Does each index tell a place along the first dimension, of which all is written?"""
    return (n.scatter_dims_to_operand_dims == n.inserted_window_dims == (0,)
            and not n.operand_batching_dims
            and n.update_window_dims == tuple(range(queries, rank)))


def _let_through(p: Planner, updates: Atom, queries: int) -> tuple[Atom | None, Atom]:
    """Which updates are not taken for zeros, and the updates; None for all."""
    made = p.maker(updates)
    if made is not None and made.op.name == "select_n" and len(made.invars) == 3 and is_zeros(
            made.invars[1], p.maker):
        let = made.invars[0]
        if updates.aval.ndim > queries:
            let = repeated(let, p.maker, range(queries))
        if let is not None and let.aval.shape == updates.aval.shape[:queries]:
            return let, made.invars[2]
    return None, updates


def _function(p: Planner, eqn: Equation, indices: Value, x: Atom) -> Callable[..., Any]:
    (out,) = eqn.outvars
    block, *width = x.aval.shape
    count = p.atoms.count(indices.layout.stack)
    add: Any = eqn.op.evaluate
    params = {**eqn.params, "mode": GatherScatterMode.PROMISE_IN_BOUNDS,
              "indices_are_sorted": False, "unique_indices": False,
              "dimension_numbers": ScatterDimensionNumbers(
                  tuple(range(1, len(width) + 1)), (0,), (0,))}

    def scatter(at: Any, rows: Any, let: Any = None) -> Any:
        at = at[..., 0]
        own = (at >= 0) & (at < block)
        if let is not None:
            own &= let
        own = own.reshape(count, -1)
        chosen = np.flatnonzero(own)
        device, query = np.divmod(chosen, own.shape[1])
        there = device * block + at.reshape(-1)[chosen]
        whole = rows.shape[rows.ndim - len(width):]
        result = empty((count * block, *whole), rows.dtype)
        result[...] = 0
        if not len(chosen):
            return result
        return add.over(0, result, there[:, None], rows.reshape(own.shape[1], *whole)[query],
                        **params)
    return scatter


STRATEGIES: dict[str, Callable[[Planner, Equation], None]] = {"scatter-add": _scatter}
