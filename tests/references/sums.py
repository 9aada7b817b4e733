"""What reductions, products and exchanges mean, in plain numpy; see ops.py."""
from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .elements import MAXIMUM, MINIMUM, Array, Reference, wide, wrapped

# -- reductions ---------------------------------------------------------------------------

def folded(step: Reference, start: Reference) -> Reference:
    """The elements along `axes`, one after the other; in double where they are floats."""
    def reduce(x: Array, *, axes: Sequence[int], **params: Any) -> Array:
        kept = [n for d, n in enumerate(x.shape) if d not in axes]
        gone = math.prod(x.shape[d] for d in axes)
        rows = np.moveaxis(wide(x), axes, range(len(axes))).reshape((gone, *kept))
        out = np.full(kept, start(x.dtype), rows.dtype)
        for row in rows:
            out = step(out, row)
        return out
    return reduce


def lowest(dtype: np.dtype) -> Any:
    return -np.inf if dtype.kind in "fc" else False if dtype.kind == "b" else np.iinfo(dtype).min


def highest(dtype: np.dtype) -> Any:
    return np.inf if dtype.kind in "fc" else True if dtype.kind == "b" else np.iinfo(dtype).max


FOLDS: dict[str, tuple[Reference, Reference]] = {
    "sum": (np.add, lambda t: 0), "prod": (np.multiply, lambda t: 1), "max": (MAXIMUM, lowest),
    "min": (MINIMUM, highest), "xor": (np.bitwise_xor, lambda t: 0),
    "and": (np.bitwise_and, lambda t: True if t.kind == "b" else wrapped(-1, t)),
    "or": (np.bitwise_or, lambda t: 0), "logsumexp": (np.logaddexp, lowest)}


def accumulated(kind: str) -> Reference:
    step, _ = FOLDS[kind]

    def cumulate(x: Array, *, axis: int, reverse: bool) -> Array:
        rows = np.moveaxis(wide(x), axis, 0)[::-1 if reverse else 1]
        out = list(itertools.accumulate(rows, step))
        stacked = np.stack(out) if out else np.zeros_like(rows)
        return np.moveaxis(stacked[::-1 if reverse else 1], 0, axis)
    return cumulate


def first_extreme(better: Reference) -> Reference:
    def position(x: Array, *, axes: Sequence[int], index_dtype: np.dtype) -> Array:
        (axis,) = axes
        rows = np.moveaxis(x, axis, 0)
        out, best = np.zeros(rows.shape[1:], int), rows[0] if len(rows) else rows
        for i, row in enumerate(rows):
            take = ~np.isnan(best) & (np.isnan(row) | better(row, best))
            out, best = np.where(take, i, out), np.where(take, row, best)
        return out.astype(index_dtype)
    return position


def general_reduce(*operands: Array, jaxpr: Any, dimensions: Sequence[int]) -> list[Array]:
    """Of the programs of this op's samples: the maximum; and (sum of a * c + a + c, product)."""
    count = len(operands) // 2
    xs = [folded_rows(x, dimensions) for x in operands[:count]]
    out = [np.broadcast_to(x, xs[0].shape[1:]) for x in operands[count:]]
    for rows in zip(*xs, strict=True):
        out = ([MAXIMUM(out[0], rows[0])] if count == 1 else
               [out[0] * rows[0] + out[0] + rows[0], out[1] * rows[1]])
    return out


def folded_rows(x: Array, axes: Sequence[int]) -> Array:
    kept = [n for d, n in enumerate(x.shape) if d not in axes]
    return np.moveaxis(x, axes, range(len(axes))).reshape((-1 if x.size else 0, *kept))


REDUCTIONS: dict[str, Reference] = {
    **{f"reduce_{k}": folded(*FOLDS[k]) for k in ("sum", "prod", "max", "min", "xor", "and", "or")},
    **{f"cum{k}": accumulated(k) for k in ("sum", "prod", "max", "min", "logsumexp")},
    "argmax": first_extreme(np.greater), "argmin": first_extreme(np.less),
    "reduce": general_reduce}


# -- products ---------------------------------------------------------------------------

def dot_general(x: Array, y: Array, *, dimension_numbers: Any,
                preferred_element_type: Any = None, **params: Any) -> Array:
    """Integers that are asked for of operands of unlike dtypes: both are converted first."""
    wanted = preferred_element_type and np.dtype(preferred_element_type)
    if wanted and wanted.kind in "iu" and x.dtype != y.dtype:
        x, y = x.astype(wanted), y.astype(wanted)
    (left, right), (left_batch, right_batch) = dimension_numbers
    x = np.moveaxis(x, (*left_batch, *left), (*range(len(left_batch)), *range(-len(left), 0)))
    y = np.moveaxis(y, (*right_batch, *right), (*range(len(left_batch)), *range(-len(right), 0)))
    batch, summed = x.shape[:len(left_batch)], x.shape[x.ndim - len(left):]
    rows, columns = x.shape[len(batch):x.ndim - len(left)], y.shape[len(batch):y.ndim - len(left)]
    count = math.prod(summed)
    a = wide(x).reshape((*batch, math.prod(rows), 1, count))
    b = wide(y).reshape((*batch, 1, math.prod(columns), count))
    out = np.zeros(np.broadcast_shapes(a.shape, b.shape)[:-1], np.result_type(a, b))
    for k in range(count):
        out = out + a[..., k] * b[..., k]
    return out.reshape((*batch, *rows, *columns))


def rows(x: Array, axis: int, index: Any) -> Array:
    return x[(slice(None),) * axis + (index,)]


def ragged_dot_general(x: Array, y: Array, sizes: Array, *, ragged_dot_dimension_numbers: Any,
                       **params: Any) -> Array:
    """One product for each group, of the rows (or summed columns) of x that belong to it."""
    numbers = ragged_dot_dimension_numbers
    (contracting, batch) = numbers.dot_dimension_numbers
    (ragged,) = numbers.lhs_ragged_dimensions
    if batch[0]:            # group sizes may differ from one example to the next
        (left, *_), (right, *_) = batch
        inside = [tuple(tuple(d - (d > b[0]) for d in dims[first:])
                        for dims, b in zip(of, batch, strict=True))
                  for of, first in ((contracting, 0), (batch, 1))]
        fewer = numbers._replace(
            dot_dimension_numbers=tuple(inside),
            lhs_ragged_dimensions=(ragged - (ragged > left),),
            rhs_group_dimensions=tuple(d - (d > right) for d in numbers.rhs_group_dimensions))
        count = x.shape[left]
        if not count:           # the shape is that of one example
            x, y, sizes = (np.zeros([1 if d == at else n for d, n in enumerate(v.shape)], v.dtype)
                           for v, at in ((x, left), (y, right), (sizes, 0)))
        out = [ragged_dot_general(rows(x, left, i), rows(y, right, i), sizes[i],
                                  ragged_dot_dimension_numbers=fewer)
               for i in range(max(1, count))]
        if ragged in contracting[0]:            # groups come first
            return np.stack(out, 1)[:, :count]
        return np.stack(out)[:count]
    groups = list(itertools.pairwise([0, *np.cumsum(sizes).tolist()]))
    if ragged in contracting[0]:
        other = contracting[1][contracting[0].index(ragged)]
        return np.stack([dot_general(
            rows(x, ragged, slice(*g)), rows(y, other, slice(*g)),
            dimension_numbers=(contracting, batch)) for g in groups or [(0, 0)]])[:len(groups)]
    (group_dim,) = numbers.rhs_group_dimensions
    inner = (contracting[0], tuple(d - (d > group_dim) for d in contracting[1]))
    whole = dot_general(x, np.zeros([n for d, n in enumerate(y.shape) if d != group_dim]),
                        dimension_numbers=(inner, batch))
    out = np.zeros_like(whole)
    place = [d for d in range(x.ndim) if d not in contracting[0]].index(ragged)
    for i, g in enumerate(groups):
        rows(out, place, slice(*g))[...] = dot_general(
            rows(x, ragged, slice(*g)), rows(y, group_dim, i), dimension_numbers=(inner, batch))
    return out


def span(n: int, dilation: int) -> int:
    return (n - 1) * dilation + 1 if n else 0


def conv_general_dilated(x: Array, kernel: Array, *, window_strides: Any, padding: Any,
                         lhs_dilation: Any, rhs_dilation: Any, dimension_numbers: Any,
                         feature_group_count: int, batch_group_count: int,
                         **params: Any) -> Array:
    """Element by element; what lies outside of the operand adds nothing."""
    x = wide(x).transpose(dimension_numbers.lhs_spec)
    kernel = wide(kernel).transpose(dimension_numbers.rhs_spec)
    features, per_group = kernel.shape[:2]
    space = [max(0, (span(n, up) + low + high - span(k, apart) + s) // s)
             for n, up, (low, high), k, apart, s in
             zip(x.shape[2:], lhs_dilation, padding, kernel.shape[2:], rhs_dilation,
                 window_strides, strict=True)]
    out = np.zeros((x.shape[0] // batch_group_count, features, *space), x.dtype)
    for place in np.ndindex(*out.shape):
        n, f, *at = place
        n += f * batch_group_count // features * out.shape[0]
        first = f * feature_group_count // features * per_group
        for offset in np.ndindex(*kernel.shape[2:]):
            where = [divmod(a * s - low + o * apart, up) for a, s, (low, _), o, apart, up in
                     zip(at, window_strides, padding, offset, rhs_dilation, lhs_dilation,
                         strict=True)]
            if all(not rest and 0 <= q < size for (q, rest), size in
                   zip(where, x.shape[2:], strict=True)):
                q = tuple(q for q, _ in where)
                for c in range(per_group):
                    out[place] += x[(n, first + c, *q)] * kernel[(f, c, *offset)]
    return out.transpose(np.argsort(dimension_numbers.out_spec))


def fourier(x: Array, *, fft_type: Any, fft_lengths: Sequence[int]) -> Array:
    """The sums of the definition, one dimension after the other."""
    kind, rank = fft_type.name, len(fft_lengths)
    inverse = kind in ("IFFT", "IRFFT")
    out = wide(x).astype(np.complex128)
    if kind == "IRFFT":     # the other half is known: a real signal has conjugates there
        n = fft_lengths[-1]
        for axis in range(-rank, -1):
            out = along(out, axis, fft_lengths[axis], True)
        missing = max(0, n // 2 + 1 - out.shape[-1])
        out = np.concatenate([out, np.zeros((*out.shape[:-1], missing))], -1)
        ends = np.concatenate([out[..., :n // 2 + 1], out[..., 1:(n + 1) // 2][..., ::-1].conj()],
                              -1)
        ends[..., 0] = ends[..., 0].real
        if n % 2 == 0:
            ends[..., n // 2] = ends[..., n // 2].real
        return along(ends, -1, n, True).real
    for axis in range(-rank, 0):
        out = along(out, axis, fft_lengths[axis], inverse)
    return out[..., :fft_lengths[-1] // 2 + 1] if kind == "RFFT" else out


def along(x: Array, axis: int, n: int, inverse: bool) -> Array:
    x = np.moveaxis(x, axis, -1)
    turns = np.outer(np.arange(n), np.arange(n)) % max(n, 1) / max(n, 1)
    waves = np.exp((2j if inverse else -2j) * np.pi * turns)
    out = sum((x[..., k, None] * waves[k] for k in range(n)), np.zeros_like(x))
    return np.moveaxis(out / n if inverse else out, -1, axis)


def triangular_solve(a: Array, b: Array, *, left_side: bool, lower: bool, transpose_a: bool,
                     conjugate_a: bool, unit_diagonal: bool) -> Array:
    """By substitution, row by row."""
    a, b = wide(a.conj() if conjugate_a else a), wide(b)
    if transpose_a:
        a, lower = a.swapaxes(-1, -2), not lower
    if not left_side:       # x a = b is a^T x^T = b^T
        a, b, lower = a.swapaxes(-1, -2), b.swapaxes(-1, -2), not lower
    n, x = a.shape[-1], np.array(b)
    order = range(n) if lower else range(n - 1, -1, -1)
    for i in order:
        for j in (range(i) if lower else range(i + 1, n)):
            x[..., i, :] -= a[..., i, j, None] * x[..., j, :]
        if not unit_diagonal:
            x[..., i, :] /= a[..., i, i, None]
    return x if left_side else x.swapaxes(-1, -2)


def solve(a: Array, b: Array) -> Array:
    packed, _, order = lu(a)
    x = np.take_along_axis(wide(b), order[..., None], -2)
    for lower in (True, False):
        x = triangular_solve(packed, x, left_side=True, lower=lower, transpose_a=False,
                             conjugate_a=False, unit_diagonal=lower)
    return x


def tridiagonal_solve(low: Array, mid: Array, high: Array, b: Array, **params: Any) -> Array:
    n = mid.shape[-1]
    out = np.zeros(b.shape)
    for i in np.ndindex(*mid.shape[:-1]):
        a = np.diag(wide(mid[i]))
        for k in range(n - 1):
            a[k, k + 1], a[k + 1, k] = high[i][k], low[i][k + 1]
        out[i] = np.linalg.solve(a, wide(b[i]))
    return out


def cholesky(a: Array) -> Array:
    a = wide(a)
    n, out = a.shape[-1], np.zeros_like(a)
    for j in range(n):
        for i in range(j, n):
            rest = a[..., i, j] - (out[..., i, :j] * out[..., j, :j].conj()).sum(-1)
            out[..., i, j] = np.sqrt(rest) if i == j else rest / out[..., j, j]
    return np.where(np.isnan(out).any((-1, -2), keepdims=True), np.nan, out)


def lu(a: Array) -> list[Array]:
    """With exchanges of rows, so that the largest number stands on the diagonal."""
    a = wide(a).copy()
    m, n = a.shape[-2:]
    k = min(m, n)
    pivots = np.zeros((*a.shape[:-2], k), np.int32)
    order = np.broadcast_to(np.arange(m, dtype=np.int32), a.shape[:-1]).copy()
    for i in np.ndindex(*a.shape[:-2]):
        for c in range(k):
            p = c + int(np.argmax(np.abs(a[i][c:, c])))
            pivots[i][c] = p
            a[i][[c, p]], order[i][[c, p]] = a[i][[p, c]], order[i][[p, c]]
            for r in range(c + 1, m):
                a[i][r, c] /= a[i][c, c]
                a[i][r, c + 1:] -= a[i][r, c] * a[i][c, c + 1:]
    return [a, pivots, order]


def pivots_to_permutation(pivots: Array, *, permutation_size: int) -> Array:
    shape = (*pivots.shape[:-1], permutation_size)
    out = np.broadcast_to(np.arange(permutation_size, dtype=np.int32), shape).copy()
    for i in np.ndindex(*pivots.shape[:-1]):
        for c, p in enumerate(pivots[i]):
            out[i][[c, p]] = out[i][[p, c]]
    return out


PRODUCTS: dict[str, Reference] = {
    "dot_general": dot_general, "ragged_dot_general": ragged_dot_general,
    "conv_general_dilated": conv_general_dilated, "fft": fourier,
    "solve": solve, "triangular_solve": triangular_solve,
    "tridiagonal_solve": tridiagonal_solve,
    "cholesky": cholesky, "lu": lu, "lu_pivots_to_permutation": pivots_to_permutation}


# -- exchanges: the blocks of a group's members, stacked, before and after -------------------------

def to_all(kind: str) -> Reference:
    step, _ = FOLDS[kind]

    def combine(blocks: Array, **params: Any) -> list[Array]:
        return [functools.reduce(step, wide(blocks))] * len(blocks)
    return combine


def all_gather(blocks: Array, *, all_gather_dimension: int, tiled: bool, **params: Any
               ) -> list[Array]:
    join = np.concatenate if tiled else np.stack
    return [join(list(blocks), all_gather_dimension)] * len(blocks)


def scattered(kind: str) -> Reference:
    step, _ = FOLDS[kind]

    def combine(blocks: Array, *, scatter_dimension: int, tiled: bool, **params: Any
                ) -> list[Array]:
        own = own_blocks(functools.reduce(step, wide(blocks)), scatter_dimension, len(blocks))
        return own if tiled else [x.squeeze(scatter_dimension) for x in own]
    return combine


def own_blocks(x: Array, dimension: int, count: int) -> list[Array]:
    size = x.shape[dimension] // count
    return [rows(x, dimension, slice(i * size, (i + 1) * size)) for i in range(count)]


def all_to_all(blocks: Array, *, split_axis: int, concat_axis: int, tiled: bool, **params: Any
               ) -> list[Array]:
    sent = [own_blocks(x, split_axis, len(blocks)) for x in blocks]
    if tiled:
        return [np.concatenate(list(got), concat_axis) for got in zip(*sent, strict=True)]
    return [np.stack([x.squeeze(split_axis) for x in got], concat_axis)
            for got in zip(*sent, strict=True)]


def ppermute(blocks: Array, *, perm: Sequence[tuple[int, int]], **params: Any) -> list[Array]:
    source = {d: s for s, d in perm}
    return [blocks[source[i]] if i in source else np.zeros_like(blocks[0])
            for i in range(len(blocks))]


COLLECTIVES: dict[str, Reference] = {
    **{name: to_all("sum") for name in ("psum", "psum_invariant", "unreduced_psum")},
    **{f"p{k}": to_all(k) for k in ("max", "min", "prod", "and", "or", "xor")},
    **{name: all_gather for name in ("all_gather", "all_gather_invariant", "all_gather_reduced")},
    **{name: scattered("sum") for name in ("reduce_scatter", "unreduced_reduce_scatter")},
    **{f"p{k}_scatter": scattered(k) for k in ("max", "min", "prod", "and", "or", "xor")},
    "all_to_all": all_to_all, "ppermute": ppermute,
    "all_slice": lambda blocks, *, dimension, **params: [
        own_blocks(x, dimension, len(blocks))[i] for i, x in enumerate(blocks)]}
