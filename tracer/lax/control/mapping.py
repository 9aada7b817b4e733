"""map and associative_scan: functions over the items of arrays, without a carry.

`map` is a scan that carries nothing. `associative_scan` needs no loop: pairs are combined, their
running results found by recursion, and the results between filled in, in log2(n) rounds.
Source: Blelloch, "Prefix sums and their applications" (1990), as arranged in JAX.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....ir.diagnostics.diagnostic import fail
from ....ir.shardings.sharding import NamedSharding, named_sharding_abstract
from ....ir.spec import spec_from_entries
from ....ir.types import ArrayType
from ....ir.values.typeof import typeof
from ... import sharding_notes
from ...operands.dtype_promotion import dtype_name
from ...operands.rank_promotion import shape_of
from ...operands.shape_arguments import canonical_axis
from ...trees import tree
from .. import elementwise
from ..shape import concatenate, pad, reshape, rev
from ..slicing import slice_in_dim
from .loops import scan

__all__ = ["associative_scan", "map"]
VMAP: list[Callable[..., Any]] = []      # set where batching is defined: f -> f on a batch of items


def map(f, xs, *, batch_size=None):
    """`f` of each item of `xs` along dimension 0, one after the other; the results are stacked.

    It is a `scan` without a carry; `vmap` computes all items at once. xs: a pytree of arrays.
    batch_size: items taken together in one step; a rest that is no full batch is a step of its own.

    Sharding
      Auto: dimension 0 may be split; the items are gathered for the loop.
      Explicit: dimension 0 must be whole, else ValueError; f sees the other dimensions split.
      Manual: loops over each device's block.

    >>> st.lax.map(lambda x: x * x, jnp.array([1, 2, 3]))
    Array([1, 4, 9], dtype=int32)
    """
    if batch_size is None:
        return _each(f, xs)
    together = VMAP[0](f) if VMAP else (lambda batch: _each(f, batch))
    leaves, treedef = tree.flatten(xs)
    if not leaves:
        return _each(f, xs)
    for x in leaves:
        t = typeof(x)
        if t.shape and t.entries[0]:
            fail(ValueError, "0th dimension of leaf passed to `jax.lax.map` should be replicated. "
                 f"Got {t.str_short(True, True)}", code="sharded-scan",
                 help=f"gather it over {', '.join(t.entries[0])} first, with `reshard`")
    size, total = int(batch_size), shape_of(leaves[0])[0]
    if size < 0:
        raise ValueError(f"lax.map: batch_size must not be negative, got {size}.")
    count = total // size if size else 0
    if not count:
        return together(xs)
    full = count * size
    batches = tree.unflatten(treedef, [
        _reshaped(x if full == total else slice_in_dim(x, 0, full), (count, size, *x.shape[1:]))
        for x in leaves])
    ys = tree.map(lambda y: _reshaped(y, (full, *y.shape[2:])), _each(together, batches))
    if full == total:
        return ys
    rest = together(tree.unflatten(treedef, [slice_in_dim(x, full, total) for x in leaves]))
    return tree.map(lambda y, r: concatenate([y, r], 0), ys, rest)


def _each(f: Callable[..., Any], xs: Any) -> Any:
    def item(_: Any, x: Any) -> Any:
        return (), f(x)

    return scan(item, (), xs)[1]


def _reshaped(x: Any, shape: tuple[int, ...]) -> Any:
    """`x` with its whole first dimension cut in two, or its two first ones made one."""
    t = typeof(x)
    if not any(t.entries):
        return reshape(x, shape)
    return reshape(x, shape, out_sharding=_with_rank(t, len(shape)))


def _with_rank(t: ArrayType, rank: int) -> NamedSharding:
    """The spec of `t` moved to fit a rank with more or fewer whole leading dimensions."""
    entries = t.entries
    more = rank - len(entries)
    entries = ((),) * more + entries if more > 0 else entries[-more:]
    return named_sharding_abstract(t.mesh, spec_from_entries(
        entries, t.spec.unreduced, t.spec.reduced))


# -- associative scan ------------------------------------------------------------------------------

@sharding_notes.moved
def associative_scan(fn, elems, reverse=False, axis=0):
    """The running results of an associative function along a dimension, in log2(n) rounds.

    fn: (a, b) -> the two combined; it gets pytrees like `elems` in which each item along `axis`
    is one operand, and combines them all at once. elems: an array, or a pytree of arrays of equal
    size along `axis`. reverse: results run from the end.

    >>> st.lax.associative_scan(jnp.add, jnp.array([1, 2, 3, 4]))
    Array([ 1,  3,  6, 10], dtype=int32)
    """
    if not callable(fn):
        raise TypeError("lax.associative_scan: fn argument should be callable.")
    leaves, treedef = tree.flatten(elems)
    axis = canonical_axis(axis, len(shape_of(leaves[0])))
    if reverse:
        leaves = [rev(x, (axis,)) for x in leaves]
    if len({shape_of(x)[axis] for x in leaves}) > 1:
        raise ValueError("Array inputs to associative_scan must have the same first dimension. "
                         f"(saw: {[tuple(shape_of(x)) for x in leaves]})")

    def combined(a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
        return tree.flatten(fn(tree.unflatten(treedef, a), tree.unflatten(treedef, b)))[0]

    def part(xs: Sequence[Any], start: int, end: int | None, step: int = 1) -> list[Any]:
        return [slice_in_dim(x, start, end, step, axis) for x in xs]

    def running(xs: list[Any]) -> list[Any]:
        n = shape_of(xs[0])[axis]
        if n < 2:
            return xs
        odd = running(combined(part(xs, 0, -1, 2), part(xs, 1, None, 2)))
        before = part(odd, 0, -1) if n % 2 == 0 else odd
        later = combined(before, part(xs, 2, None, 2))
        even = [concatenate([first, x], axis)
                for first, x in zip(part(xs, 0, 1), later, strict=True)]
        return [_alternating(a, b, axis) for a, b in zip(even, odd, strict=True)]

    results = running(leaves)
    if reverse:
        results = [rev(x, (axis,)) for x in results]
    return tree.unflatten(treedef, results)


def _alternating(a: Any, b: Any, axis: int) -> Any:
    """Items of a and b in turn; a has as many as b, or one more."""
    shape = shape_of(a)
    equal = shape[axis] == shape_of(b)[axis]
    spread_a, spread_b = ([(0, 0, 0)] * len(shape) for _ in range(2))
    spread_a[axis] = (0, int(equal), 1)
    spread_b[axis] = (1, int(not equal), 1)
    dtype = dtype_name(a)
    zero = np.zeros((), dtype)[()]
    join = elementwise.bitwise_or if dtype == np.bool_ else elementwise.add
    return join(pad(a, zero, spread_a), pad(b, zero, spread_b))
