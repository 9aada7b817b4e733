"""Contractions of numpy arrays by as few matrix products as possible.

Dimensions carry labels, as in an einsum. A label of both operands and the result is a batch
dimension; a label of both operands alone is contracting; a label of one operand is free. A device
dimension that only one operand has is free like any other, so the products of all devices with a
common operand are one product. Operands are copied only if no order of their dimensions makes the
groups (batch, free, contracting) mergeable.
"""
from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np

from ...support.buffer_pool import SMALLEST, empty
from ...support.caches import cached
from ...support.named_tuple import NamedTuple
from ...support.threads import in_parallel
from ..device_dimensions import mergeable
from . import small_matrices
from .blas_threads import SINGLE_THREAD, VECTOR, for_work, shares, single_threaded

Labels = Sequence[Hashable]
Shape = tuple[int, ...]
MOST_STRIDES = 16       # of operands of one product, to remember what is done with such


def contract(a: np.ndarray, a_labels: Labels, b: np.ndarray, b_labels: Labels,
             out_labels: Labels, dtype: np.dtype) -> np.ndarray:
    """The product of `a` and `b` in `dtype`, summed over the labels that the result does not have.

    Equal labels have equal sizes. A label that one operand alone has and the result lacks is summed
    there first. Products are taken and summed in `dtype`; those of 8 and 16 bit integers in floats,
    in which they are exact, since only floats have a fast matrix product: in float32 some hundred
    products of 8 bits at a time, else in float64.
    """
    exact = dtype.kind in "iu" and all(x.dtype.kind in "iu" and x.itemsize <= 2 for x in (a, b))
    few = 0                                 # how many products float32 sums exactly
    if exact and a.itemsize == b.itemsize == 1 and _are_shared(a_labels, b_labels, out_labels):
        few = (1 << 24) // (_largest(a.dtype) * _largest(b.dtype))
    kind = np.dtype(np.float32 if few else np.float64) if exact else dtype
    a, b = a.astype(kind, copy=False), b.astype(kind, copy=False)
    a, a_labels = _sum_private(a, a_labels, b_labels, out_labels)
    b, b_labels = _sum_private(b, b_labels, a_labels, out_labels)
    plan = _plan(tuple(a_labels), tuple(b_labels), tuple(out_labels))
    if plan.factors is not None:
        out = _element_products(a, b, *plan.factors, kind)
        return out.astype(np.int64).astype(dtype) if exact else out
    left = _matrices(a, *plan.a_orders, plan.batch)
    right = _matrices(b, *plan.b_orders, plan.batch)
    if few:
        whole = np.dtype(f"i{max(4, dtype.itemsize)}")
        out, *others = [_product_of(left[..., i:i + few], right[..., i:i + few, :], kind
                                    ).astype(whole) for i in range(0, left.shape[-1] or 1, few)]
        for part in others:
            out += part
        out = out.astype(dtype, copy=False)
    else:
        out = _product_of(left, right, kind)
        if exact:
            out = out.astype(np.int64).astype(dtype)
    out = out.reshape([(a if of_a else b).shape[d] for of_a, d in plan.sizes])
    return out.transpose(plan.permutation) if plan.permutation else out


def _are_shared(a_labels: Labels, b_labels: Labels, out_labels: Labels) -> bool:
    """Is each label that is summed one of both operands?"""
    return {*a_labels} ^ {*b_labels} <= {*out_labels}


def _largest(dtype: np.dtype) -> int:
    info = np.iinfo(dtype)
    return max(-info.min, info.max)


def _product_of(left: np.ndarray, right: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """left @ right, where both have the same batch dimensions."""
    shape = (*left.shape[:-1], right.shape[-1])
    multiply = _multiply(np.matmul, left.shape, shape)
    if left.ndim > 2 and left.shape[-1] <= small_matrices.FACTOR and (
            small_matrices.are_factors(left.shape, right.shape, dtype)):
        multiply = small_matrices.product
    if _product(shape) * dtype.itemsize < SMALLEST:
        return multiply(left, right)
    return multiply(left, right, empty(shape, dtype))


def prepared(a_shape: Shape, a_labels: Labels, b_shape: Shape, b_labels: Labels,
             out_labels: Labels, dtype: np.dtype) -> Callable[..., np.ndarray] | None:
    """`contract` of arrays of these shapes and this dtype, decided once; None if it sums first.

    What row-major operands need to be matrices is known from their shapes; of others it is found
    once for each way in which they lie.
    The arrays may have dimensions of size 1 more. Attributes of the function, where it has them:
    `fresh`: its result is never a view; `permuted(order)` gives the function whose result has its
    dimensions in that order.
    """
    if any(x not in b_labels and x not in out_labels for x in a_labels) or any(
            x not in a_labels and x not in out_labels for x in b_labels) or dtype.kind in "iub":
        return None
    plan = _plan(tuple(a_labels), tuple(b_labels), tuple(out_labels))
    if plan.factors is not None:
        of_a, of_b = plan.factors

        def outer(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            return _element_products(a.reshape(a_shape), b.reshape(b_shape), of_a, of_b, dtype)
        outer.permuted = lambda order: prepared(  # type: ignore[attr-defined]
            a_shape, a_labels, b_shape, b_labels, tuple(out_labels[d] for d in order), dtype)
        return outer
    if plan.permutation and not _plan(  # with the operands exchanged nothing is permuted
            tuple(b_labels), tuple(a_labels), tuple(out_labels)).permutation:
        swapped = prepared(b_shape, b_labels, a_shape, a_labels, out_labels, dtype)
        assert swapped is not None

        def flipped(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            return swapped(b, a)
        if hasattr(swapped, "fresh"):
            flipped.fresh = True  # type: ignore[attr-defined]
        return flipped
    product = _matrix_product(plan, a_shape, b_shape, dtype)
    if not plan.permutation:
        product.fresh = True  # type: ignore[attr-defined]

    def permuted(order: tuple[int, ...]) -> Callable[..., np.ndarray] | None:
        """The function that gives the dimensions in another order, where that costs nothing."""
        out = tuple(out_labels[d] for d in order)
        if all(_plan(tuple(x), tuple(y), out).permutation
               for x, y in ((a_labels, b_labels), (b_labels, a_labels))):
            return None
        return prepared(a_shape, a_labels, b_shape, b_labels, out, dtype)
    product.permuted = permuted  # type: ignore[attr-defined]
    return product


def _matrix_product(plan: _Plan, a_shape: Shape, b_shape: Shape, dtype: np.dtype
                    ) -> Callable[..., np.ndarray]:
    """The product of arrays of these shapes as one of matrices."""
    left = _row_major(a_shape, *plan.a_orders, plan.batch)
    right = _row_major(b_shape, *plan.b_orders, plan.batch)
    shape = tuple((a_shape if of_a else b_shape)[d] for of_a, d in plan.sizes)
    whole = _merged(shape, plan.batch, plan.batch + plan.a_orders[2])
    pooled, permutation = _product(whole) * dtype.itemsize >= SMALLEST, plan.permutation
    apart = _strided_product(plan, a_shape, b_shape, shape, dtype)
    if left is None or right is None:
        return apart
    # numpy.dot scales by an operand of one number, and BLAS then takes 0 times infinity as 0.
    is_scalar = _product(a_shape) == 1 or _product(b_shape) == 1
    if not plan.batch and not is_scalar and not (
            plan.a_orders[2] and plan.b_orders[2]) and 0 not in (*a_shape, *b_shape):
        return _with_vector(left, right, not plan.b_orders[2], shape, dtype, apart)
    (left_shape, left_flip), (right_shape, right_flip) = left, right
    multiply = _multiply(np.matmul if plan.batch or is_scalar else np.dot, left_shape, whole)
    if plan.batch and small_matrices.are_factors(left_shape, right_shape, dtype):
        multiply = small_matrices.product

    def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if a.shape == left_shape and b.shape == right_shape and not plan.batch:
            if left_flip:                   # however they lie, BLAS or numpy sees to it
                a = a.T
            if right_flip:
                b = b.T
        else:
            if not (a.flags.c_contiguous and b.flags.c_contiguous):
                return apart(a, b)
            a, b = a.reshape(left_shape), b.reshape(right_shape)
            if left_flip:
                a = a.swapaxes(-1, -2)
            if right_flip:
                b = b.swapaxes(-1, -2)
        out = multiply(a, b, empty(whole, dtype)) if pooled else multiply(a, b)
        if shape != whole:
            out = out.reshape(shape)
        return out.transpose(permutation) if permutation else out
    return product


def _strided_product(plan: _Plan, a_shape: Shape, b_shape: Shape, shape: Shape, dtype: np.dtype
                     ) -> Callable[..., np.ndarray]:
    """The product of arrays that need not be row-major; how they become matrices is found once for
    each pair of strides."""
    known: dict[tuple, tuple[_MatrixView, _MatrixView]] = {}
    permutation = plan.permutation

    def apart(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        a, b = a.reshape(a_shape), b.reshape(b_shape)
        key = a.strides, b.strides
        views = known.get(key)
        if views is None:
            if len(known) >= MOST_STRIDES:
                known.clear()
            views = known[key] = (_matrix_view(a, *plan.a_orders, plan.batch),
                                 _matrix_view(b, *plan.b_orders, plan.batch))
        left, right = _as_matrix(a, views[0]), _as_matrix(b, views[1])
        out = _product_of(left, right, dtype).reshape(shape)
        return out.transpose(permutation) if permutation else out
    return apart


def _multiply(function: Callable[..., np.ndarray], left: Shape, whole: Shape
              ) -> Callable[..., np.ndarray]:
    """numpy's product of matrices of these shapes, on as many threads as pay.

    Threads take parts of a stack, or of the longer dimension of a result. They have no need to
    wait for each other, as those of BLAS do.
    """
    *batch, rows, columns = whole
    each = left[-2] * left[-1] * columns            # the left one may be to be transposed
    threads = 1 if each < SINGLE_THREAD else shares(each, each * _product(batch))
    if threads == 1:
        return for_work(function, each)
    d = next((d for d, n in enumerate(batch) if n > 1), len(batch) + (columns > rows))
    step = -(-whole[d] // threads)
    multiply = single_threaded(np.matmul)

    def product(a: np.ndarray, b: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        if d >= len(batch) and np.may_share_memory(a, b):       # BLAS does half of x @ x.T
            return multiply(a, b, out)
        if out is None:
            out = np.empty(whole, a.dtype)
        starts = iter(range(0, whole[d], step))

        def some() -> None:
            for start in starts:
                part = (*(slice(None),) * d, slice(start, start + step))
                multiply(a[part] if d <= len(batch) else a, b if d == len(batch) else b[part],
                         out[part])
        in_parallel([some] * threads)
        return out
    return product


def _with_vector(left: tuple[Shape, bool], right: tuple[Shape, bool], second: bool, shape: Shape,
                 dtype: np.dtype, apart: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """A product with a vector, an operand of summed dimensions alone: numpy's routine for that is
    the fastest.

    left, right: see `_row_major`. second: whether the vector is the second operand.
    """
    (matrix, flip), (vector, _) = (left, right) if second else (right, left)
    length = _product(vector)
    count = _product(matrix) // length
    if not shape:
        matrix = (length,)                          # two vectors
    a_shape, b_shape = (matrix, (length,)) if second else ((length,), matrix)
    pooled, other = count * dtype.itemsize >= SMALLEST, shape not in ((), (count,))
    multiply = for_work(np.dot, count * length, VECTOR)

    def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if a.shape != a_shape or b.shape != b_shape:
            if not (a.flags.c_contiguous and b.flags.c_contiguous):
                return apart(a, b)
            a, b = a.reshape(a_shape), b.reshape(b_shape)
        if flip:                        # the matrix lies the other way round
            a, b = b, a
        out = multiply(a, b, empty((count,), dtype)) if pooled else multiply(a, b)
        return out.reshape(shape) if other else out
    return product


def _row_major(shape: Shape, first: tuple, second: tuple, free: int, summed: int, right: bool,
               batch: int) -> tuple[Shape, bool] | None:
    """What `_matrices` does to a row-major array: its shape as matrices, and whether to flip them.
    """
    orders = ((second, summed), (first, free))
    if not right:
        orders = ((first, free), (second, summed))
    for flip, (order, major) in enumerate(orders):
        if order == tuple(range(len(shape))):
            split = batch + major
            return ((*shape[:batch], _product(shape[batch:split]), _product(shape[split:])),
                    bool(flip))
    return None


class _Plan:
    """How two label lists become stacks of matrices; see `_plan`."""

    __slots__ = ("a_orders", "b_orders", "batch", "factors", "permutation", "sizes")


@cached(4096, "how to compute a product with one GEMM")
def _plan(a: tuple, b: tuple, out: tuple) -> _Plan:
    """How to contract operands with labels a and b to a result with labels out: what is batch, row,
    column and summed, and the orders of dimensions in which these can be merged.
    """
    in_a, in_b, in_out = set(a), set(b), set(out)
    batch = [x for x in out if x in in_a and x in in_b]
    rows = [x for x in out if x in in_a and x not in in_b]
    columns = [x for x in out if x in in_b and x not in in_a]
    summed = [x for x in a if x in in_b and x not in in_out]
    plan = _Plan()
    plan.batch = len(batch)
    plan.factors = None if summed else (_aligned(a, out), _aligned(b, out))
    plan.a_orders = _orders(a, batch, rows, summed, False)
    plan.b_orders = _orders(b, batch, columns, summed, True)
    order = (*batch, *rows, *columns)
    plan.sizes = [(True, a.index(x)) if x in in_a else (False, b.index(x)) for x in order]
    permutation = tuple(order.index(x) for x in out)
    plan.permutation = None if permutation == tuple(range(len(out))) else permutation
    return plan


def _aligned(labels: tuple, out: tuple) -> tuple:
    """The permutation and the index that bring an operand beside a result with labels `out`."""
    own = [x for x in out if x in labels]
    return (tuple(labels.index(x) for x in own),
            tuple(slice(None) if x in labels else None for x in out))


def _element_products(a: np.ndarray, b: np.ndarray, of_a: tuple, of_b: tuple, dtype: np.dtype
                      ) -> np.ndarray:
    """The products where nothing is summed, which need no matrices."""
    a, b = a.transpose(of_a[0])[of_a[1]], b.transpose(of_b[0])[of_b[1]]
    return np.multiply(a, b, out=empty(np.broadcast_shapes(a.shape, b.shape), dtype))


def _orders(labels: tuple, batch: list, free: list, summed: list, right: bool) -> tuple:
    """Permutations to (batch, free, summed) and (batch, summed, free), with the group sizes.

    The last item says whether the second order is the one that the product wants.
    """
    place = {x: i for i, x in enumerate(labels)}
    first = tuple(place[x] for x in (*batch, *free, *summed))
    second = tuple(place[x] for x in (*batch, *summed, *free))
    return first, second, len(free), len(summed), right


def _matrices(x: np.ndarray, first: tuple, second: tuple, free: int, summed: int, right: bool,
              batch: int) -> np.ndarray:
    """`x` as [batch..., free, summed] (or [batch..., summed, free] if `right`), best as a view."""
    return _as_matrix(x, _matrix_view(x, first, second, free, summed, right, batch))


class _MatrixView(NamedTuple):
    """How arrays of one shape and strides become matrices: the order of dimensions, the shape, and
    whether to exchange the last two at the end. copies: no order makes them adjacent."""
    order: tuple[int, ...]
    shape: Shape
    flip: bool
    copies: bool


def _matrix_view(x: np.ndarray, first: tuple, second: tuple, free: int, summed: int, right: bool,
                 batch: int) -> _MatrixView:
    """How to see an operand as a stack of matrices: an order in which its groups of dimensions
    merge without a copy, or else the first order, copied.
    """
    orders = ((second, summed), (first, free))
    if not right:
        orders = orders[::-1]
    for flip, (order, major) in enumerate(orders):
        t = x.transpose(order)
        split = batch + major
        if mergeable(t, batch, split) and mergeable(t, split, t.ndim) and _unit(t, split):
            return _MatrixView(order, _merged(t.shape, batch, split), bool(flip), False)
    order, major = orders[0]
    shape = _merged([x.shape[d] for d in order], batch, batch + major)
    return _MatrixView(order, shape, False, True)


def _as_matrix(x: np.ndarray, view: _MatrixView) -> np.ndarray:
    order, shape, flip, copies = view
    t = x.transpose(order)
    t = (np.ascontiguousarray(t) if copies else t).reshape(shape)
    return t.swapaxes(-1, -2) if flip else t


def _merged(shape: Sequence[int], batch: int, split: int) -> Shape:
    return (*shape[:batch], _product(shape[batch:split]), _product(shape[split:]))


def _product(sizes: Sequence[int]) -> int:
    n = 1
    for s in sizes:
        n *= s
    return n


def _unit(t: np.ndarray, split: int) -> bool:
    """Are the last dimension's elements adjacent, as the matrix product of BLAS wants it?"""
    for d in range(t.ndim - 1, split - 1, -1):
        if t.shape[d] != 1:
            if t.strides[d] != t.itemsize:
                return False
            break
    # A broadcast (stride 0) row dimension cannot be handed to BLAS as a matrix.
    return all(n == 1 or s > 0 for n, s in zip(t.shape, t.strides, strict=True))


def _sum_private(x: np.ndarray, labels: Labels, other: Labels, out: Labels
                 ) -> tuple[np.ndarray, Labels]:
    gone = tuple(i for i, name in enumerate(labels) if name not in other and name not in out)
    if not gone:
        return x, labels
    dtype = x.dtype
    return (np.add.reduce(x, axis=gone, dtype=dtype),
            tuple(name for i, name in enumerate(labels) if i not in gone))
