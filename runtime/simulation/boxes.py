"""Scatters whose windows lie side by side at known places: one window, which is a slice.

`x.at[1:-1, 1:-1].set(y)` writes one window. Where a dimension of it is split, partitioning makes
each of its rows a window of its own, at a place that is counted from where the device's block
begins. With the axes in place those are rows of the whole again, and together what was written.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir.ops.indexing.common import ScatterDimensionNumbers, window_dims
from ...ir.ops.indexing.scatter_derivatives import slice_sizes_of
from ...ir.program import Atom, Equation, Literal
from ...ir.support.named_tuple import NamedTuple

if TYPE_CHECKING:
    from .executor import Planner

SMALL = 64              # elements of what is put together to know where a window begins
DEEP = 16               # equations, one behind the other, that are looked at

_ELEMENTWISE: dict[str, Any] = {
    "add": np.add, "and": np.logical_and, "clamp": lambda low, x, high: np.clip(x, low, high),
    "ge": np.greater_equal, "gt": np.greater, "lt": np.less, "or": np.logical_or,
    "sub": np.subtract}


class Box(NamedTuple):
    """One window: where it begins, its sizes, and the dimensions of the updates in the order of
    the operand's, those behind that have one element."""
    starts: tuple[int, ...]
    sizes: tuple[int, ...]
    order: tuple[int, ...]

    def params(self, eqn: Equation) -> dict[str, Any]:
        """Of the scatter that changes it."""
        dims = tuple(range(len(self.sizes)))
        return {**eqn.params, "dimension_numbers": ScatterDimensionNumbers(dims, (), dims)}


def box(p: Planner, eqn: Equation, shape: Sequence[int], columns: Sequence[Atom],
        outside: Sequence[Atom]) -> Box | None:
    """The window that the windows of a scatter make up, if it is known and inside of the operand.

    shape: of the whole operand. columns: where windows begin in it, for each dimension that the
    scatter addresses. outside: masks of windows that are not inside.
    """
    _, at, updates = eqn.invars
    n, queries = eqn.params["dimension_numbers"], at.aval.shape[:-1]
    if n.operand_batching_dims or 0 in updates.aval.shape:
        return None
    sizes = list(slice_sizes_of(shape, updates.aval.shape, n))      # type: ignore[arg-type]
    starts, rows = [0] * len(shape), dict[int, int]()
    for column, d in zip(columns, n.scatter_dims_to_operand_dims, strict=True):
        places = known(p, column)
        if places is None:
            return None
        starts[d] = int(places.flat[0])
        along = [k for k, m in enumerate(places.shape[:-1]) if m > 1]
        if not along:
            continue
        (k, *more) = along
        if more or k in rows.values() or sizes[d] != 1 or (
                places.reshape(-1) != np.arange(starts[d], starts[d] + queries[k])).any():
            return None
        rows[d], sizes[d] = k, queries[k]
    masks = [known(p, a) for a in outside]
    if (any([mask is None or mask.any() for mask in masks])
            or any([m > 1 and k not in rows.values() for k, m in enumerate(queries)])
            or any([not 0 <= a <= m - size for a, size, m in zip(starts, sizes, shape,
                                                                 strict=True)])):
        return None
    windows = dict(zip(window_dims(len(shape), n.inserted_window_dims, ()),
                       n.update_window_dims, strict=True))
    asked = [i for i in range(updates.aval.ndim) if i not in n.update_window_dims]
    order = [asked[rows[d]] if d in rows else windows[d] for d in range(len(shape))
             if d in rows or d in windows]
    order += [i for i in range(updates.aval.ndim) if i not in order]
    return Box(tuple(starts), tuple(sizes), tuple(order))


def known(p: Planner, atom: Atom, deep: int = DEEP) -> np.ndarray | None:
    """The value, if the program says it by itself; of dimensions along which all is the same, and
    may be one element."""
    if isinstance(atom, Literal):
        return np.asarray(atom.val)
    eqn = p.maker(atom)
    if eqn is None or not deep or len(eqn.outvars) != 1:
        return None
    name, params, shape = eqn.op.name, eqn.params, atom.aval.shape
    if name == "iota":
        d = params["dimension"]
        return np.arange(shape[d]).reshape([m if k == d else 1 for k, m in enumerate(shape)])
    if name not in _ELEMENTWISE and name not in ("broadcast_in_dim", "concatenate", "slice"):
        return None
    given = [known(p, a, deep - 1) for a in eqn.invars]
    values = [x for x in given if x is not None]
    if len(values) < len(given):
        return None
    if name in _ELEMENTWISE:
        return _ELEMENTWISE[name](*values)
    if name == "broadcast_in_dim":
        sizes = [1] * len(shape)
        for d, m in zip(params["broadcast_dimensions"], values[0].shape, strict=True):
            sizes[d] = m
        return values[0].reshape(sizes)
    if max([a.aval.size for a in eqn.invars]) > SMALL:
        return None
    whole = [np.broadcast_to(x, a.aval.shape) for x, a in zip(values, eqn.invars, strict=True)]
    if name == "concatenate":
        return np.concatenate(whole, params["dimension"])
    return whole[0][tuple([slice(*s) for s in zip(
        params["start_indices"], params["limit_indices"], params["strides"] or [1] * len(shape),
        strict=True)])]
