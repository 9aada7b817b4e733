"""Floating-point operations of an equation on the blocks of one device, counted as XLA counts them.

The count follows from the factors of the equation: a contraction does two operations for each index
of all its factors (except, in a convolution, where it meets padding or the zeros between rows); any
other op does one per element. Ops that combine in several steps count those: a scatter one per
update, a window one per further element, a running sum its blocks, argmax the comparisons of values
and of positions, a sort the usual n log n. The few ops of linear algebra are cubic.
"""
from __future__ import annotations

import math

import numpy as np

from ...ir.program import Equation
from .buffers import by_types, info_of

# Operations by the sizes of a matrix (rows m, columns n); Golub, Van Loan, "Matrix Computations".
MATRIX = {
    "cholesky": lambda m, n: n ** 3 / 3, "lu": lambda m, n: 2 * m * n * n / 3,
    "qr": lambda m, n: 4 * m * n * n, "geqrf": lambda m, n: 2 * m * n * n,
    "householder_product": lambda m, n: 2 * m * n * n, "svd": lambda m, n: 12 * m * n * n,
    "eigh": lambda m, n: 9 * n ** 3, "eig": lambda m, n: 25 * n ** 3,
    "schur": lambda m, n: 25 * n ** 3, "hessenberg": lambda m, n: 10 * n ** 3 / 3,
    "tridiagonal": lambda m, n: 4 * n ** 3 / 3,
}
CUMULATIVE = frozenset(("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"))
BLOCK = 16                     # rows of a block of a running sum


@by_types
def equation_flops(eqn: Equation) -> float:
    """Operations of an equation on the blocks of one device."""
    name = eqn.op.name
    made = sum(math.prod(v.aval.shape) for v in eqn.outvars)
    if name == "convert_element_type":
        return float(made if eqn.invars[0].aval.dtype != eqn.outvars[0].aval.dtype else 0)
    if not eqn.op.arithmetic or eqn.op.subprograms or eqn.op.collective is not None:
        return 0.0
    shape: tuple[int, ...] = eqn.invars[0].aval.shape if eqn.invars else ()
    if name in MATRIX and len(shape) >= 2:
        return math.prod(shape[:-2]) * MATRIX[name](*shape[-2:])
    read = max((math.prod(a.aval.shape) for a in eqn.invars), default=0)
    if name.startswith("scatter"):              # each update is added, or put in place
        return 0.0 if name == "scatter" else float(math.prod(eqn.invars[-1].aval.shape))
    if name == "select_and_scatter_add":        # values and places are compared, then one is added
        further = math.prod(eqn.params["window_dimensions"]) - 1
        return float(math.prod(shape) * (further * (7 + len(shape)) + 1))
    if "window_dimensions" in eqn.params:
        return float(min(read, made) * max(1, math.prod(eqn.params["window_dimensions"]) - 1))
    if name == "conv_general_dilated":
        return _convolution(eqn)
    if name == "triangular_solve":
        return float(made * max(shape[-1:], default=1))
    if name == "fft":
        n = math.prod(eqn.params.get("fft_lengths", shape[-1:]))
        return 5.0 * max(read, made) * math.log2(max(n, 2))
    if name in ("sort", "top_k"):               # XLA's logarithm is of all elements
        return read * math.log2(max(read, 2))
    if name in CUMULATIVE:
        n = shape[eqn.params["axis"]] if shape else 1
        return float(read // max(n, 1) * _running(n))
    if name == "integer_pow":                   # by squaring; an inverse is one more
        y = abs(eqn.params["y"])
        return float(made * max(1, y.bit_length() + y.bit_count() - 2 + (eqn.params["y"] < 0)))
    info = info_of(eqn)
    if info.is_product:
        in_result = {f for place in info.places[info.operands:] for f, _, _ in place}
        return 2.0 * made * math.prod([
            f.size for i, f in enumerate(info.factors) if i not in in_result])
    if name in ("argmax", "argmin"):            # a value, its place, and whether it is a number
        return float((read - made) * (7 if eqn.invars[0].aval.dtype.kind in "iub" else 9))
    return float(read - made if read > made else made)


def _running(n: int) -> int:
    """Operations of running sums of n elements: within blocks, over the blocks, and of both."""
    if n <= BLOCK:
        return n * (n - 1)
    return n * BLOCK + _running(-(-n // BLOCK))


def _convolution(eqn: Equation) -> float:
    """Two for each element of a window that lies on an element of the image."""
    lhs, rhs, out = (v.aval.shape for v in (*eqn.invars[:2], eqn.outvars[0]))
    numbers, p = eqn.params["dimension_numbers"], eqn.params
    met = 1
    for i, (low, _) in enumerate(p["padding"]):
        size, window = lhs[numbers.lhs_spec[i + 2]], rhs[numbers.rhs_spec[i + 2]]
        places = (np.arange(out[numbers.out_spec[i + 2]])[:, None] * p["window_strides"][i]
                  + np.arange(window) * p["rhs_dilation"][i] - low)
        spread = p["lhs_dilation"][i]
        met *= int(((places >= 0) & (places % spread == 0) & (places < size * spread)).sum())
    batch, features = (out[numbers.out_spec[d]] for d in (0, 1))
    return 2.0 * met * batch * features * rhs[numbers.rhs_spec[1]]
