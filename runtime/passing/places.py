"""Parts of arrays that each device reads or writes at an index of its own, followed.

A part that is one row may have the dimension or not (`x[i]`, `x.at[i].add(y)`): what travels or is
summed up is the same in shapes that differ in dimensions of size 1, until it is read.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir.program import Equation, Var
from ...ir.types import ArrayType
from ..rewrites.equations import of_shape
from .travelling import ZEROS, Block, Moved, Put, Sent, Sum, Term, Zeros, number, term

if TYPE_CHECKING:
    from .followed import Follower

FURTHEST = 64           # parts that are looked through for what has been written last
_RESIZED = frozenset({Block, Moved, Sent, Sum})


def sliced(f: Follower, eqn: Equation, values: list[Any]) -> Any:
    x, *starts = values
    shape, sizes = eqn.invars[0].aval.shape, eqn.params["slice_sizes"]
    if x is ZEROS or shape == sizes:
        return x
    found = _one_place(f, shape, sizes, starts) if type(x) in (Var, Put) else None
    return None if found is None else _read(x, *found, sizes[found[0]])


def _read(x: Any, d: int, start: np.ndarray, size: int) -> Any:
    """What is there along a dimension: what was written last, or what has been there before."""
    for _ in range(FURTHEST):
        if type(x) is not Put:
            break
        if x.dim != d or x.term.aval.shape[d] != size or x.added:
            return None
        if (x.start == start).all():
            return x.term if x.term.product is not None else x.term.operands[0]
        if (abs(x.start - start) < size).any():
            return None
        x = x.before
    return x if x is ZEROS else Block(x, d, start, size) if type(x) is Var else None


def updated(f: Follower, eqn: Equation, values: list[Any]) -> Any:
    before, written, *starts = values
    part = _written(written, eqn.invars[1].aval)
    if part is None or type(before) not in (Var, Put, Zeros):
        return None
    found = _one_place(f, eqn.outvars[0].aval.shape, part.aval.shape, starts)
    return None if found is None else _put(before, part, *found)


def scattered(f: Follower, eqn: Equation, values: list[Any]) -> Any:
    """One row, or rows one after the other, written or added to those that are there."""
    before, at, written = values
    n, start = eqn.params["dimension_numbers"], number(at)
    given, t = eqn.invars[2].aval, eqn.outvars[0].aval
    if (start is None or type(before) not in (Var, Put, Zeros) or n.operand_batching_dims
            or n.update_window_dims != tuple(range(given.ndim))
            or len(n.scatter_dims_to_operand_dims) != 1):
        return None
    (d,) = n.scatter_dims_to_operand_dims
    if n.inserted_window_dims not in ((), (d,)):
        return None
    shape = given.shape
    if n.inserted_window_dims:
        shape = (*shape[:d], 1, *shape[d:])
    if any([m != k for e, (m, k) in enumerate(zip(shape, t.shape, strict=True)) if e != d]):
        return None
    size = shape[d]
    if start.min() < 0 or start.max() > t.shape[d] - size:
        return None                             # dropped, or moved inside
    start = _of_each(f, start)
    if eqn.op.name == "scatter-add":
        written = added(_read(before, d, start, size), written, given)
    if type(written) is Term and written.aval.shape != shape:
        return None
    part = _written(written, of_shape(t, shape))
    return None if part is None else _put(before, part, d, start)


def _put(before: Any, part: Term, d: int, start: np.ndarray) -> Put:
    return Put(before, part, d, start, before is ZEROS or (
        type(before) is Put and before.blank))


def _written(value: Any, aval: ArrayType) -> Term | None:
    """The value as what is put somewhere: a sum may be that as well."""
    if type(value) in (Sum, Sent):
        return Term(None, (value,), aval)
    return term(value, aval)


def resized(f: Follower, eqn: Equation, values: list[Any]) -> Any:
    """The same but for dimensions of size 1; integers keep their value in any shape."""
    x, given, t = values[0], eqn.invars[0].aval, eqn.outvars[0].aval
    if type(x) in _RESIZED:
        return x if _without_ones(given.shape) == _without_ones(t.shape) else None
    return number(x) if t.size == 1 else None


def _without_ones(shape: Sequence[int]) -> list[int]:
    return [n for n in shape if n != 1]


def _one_place(f: Follower, shape: Sequence[int], sizes: Sequence[int], starts: Sequence[Any]
               ) -> tuple[int, np.ndarray] | None:
    """The one dimension that a block is a part of, and where in it the block of each device begins.
    """
    dims = [d for d, (n, m) in enumerate(zip(shape, sizes, strict=True)) if n != m]
    if len(dims) != 1:
        return None
    (d,) = dims
    start = number(starts[d])
    if start is None:
        return None
    return d, _of_each(f, np.minimum(np.maximum(start.astype(np.int64), 0), shape[d] - sizes[d]))


def _of_each(f: Follower, start: np.ndarray) -> np.ndarray:
    start = start.astype(np.int64).reshape(-1)
    return start if len(start) == f.count else start.repeat(f.count)


def added(a: Any, b: Any, aval: ArrayType) -> Any:
    """The sum of two values of this type."""
    if a is None or b is None:
        return None
    if a is ZEROS or b is ZEROS:
        return b if a is ZEROS else a
    if type(a) is Put and type(b) is Put:
        if a.before is ZEROS:
            a, b = b, a
        return Put(a, b.term, b.dim, b.start, True, True) if (
            a.blank and b.before is ZEROS) else None
    if type(b) in (Sum, Sent) or type(a) in (Moved, Block) and type(b) is Var:
        a, b = b, a
    if type(a) is Var and type(b) is Var:
        return None
    more = term(b, aval)
    if more is None or type(a) not in (Var, Term, Moved, Block, Sum, Sent):
        return None
    return Sum(a, more)
