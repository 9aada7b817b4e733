"""Comparisons: the six of IEEE floats, three in a total order of all floats, and `is_finite`.

IEEE comparisons with NaN are false (`ne` is true), and -0.0 equals 0.0. The total order is that of
the bits: -NaN < -inf < ... < -0.0 < 0.0 < ... < inf < NaN.
"""
from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ...dtypes import is_extended
from ...facts import CHEAP, COMMUTES, EXACT
from ...kernels.sorting import total_order_key
from ...op import defop
from ...types import ArrayType, Shape
from .declaration import (
    ANY,
    FLOAT,
    ORDERED,
    boolean,
    broadcast_shapes,
    nary,
    nary_infer,
    sampled,
    ufunc,
    unary,
)

F32, I32, C64 = np.float32, np.int32, np.complex64


def _comparison(name: str, function: Any, doc: str, jax: str = "") -> Any:
    return nary(
        name, doc, (ORDERED, ORDERED), result=boolean,
        jvp="zero",
        function=function,
        facts=(CHEAP, EXACT),
        jax=jax,
        samples=sampled(2, -3, 3, (F32, I32)))


def _equality(name: str, function: Any, operation: Any, doc: str) -> Any:
    """Declare one. function: of numbers; operation: of random keys, too."""
    of_numbers = nary_infer(name, (ANY, ANY), boolean)

    def infer(x: ArrayType, y: ArrayType) -> tuple[Shape, Any]:
        if is_extended(x.dtype) and x.dtype is y.dtype:      # random keys can be compared
            return broadcast_shapes(name, (x, y)), boolean(x.dtype)
        return of_numbers(x, y)

    return defop(
        name, doc=doc, infer=infer, rule="... -> ...",
        jvp="zero",
        evaluate=ufunc(operation, lambda dtype, params: None if is_extended(dtype) else function),
        facts=(CHEAP, EXACT, COMMUTES),
        samples=sampled(2, -3, 3, (F32, I32, C64, bool)))


eq_p = _equality("eq", np.equal, operator.eq, "Whether x equals y.")
ne_p = _equality("ne", np.not_equal, operator.ne, "Whether x differs from y.")
lt_p = _comparison("lt", np.less, "Whether x is less than y.")
le_p = _comparison("le", np.less_equal, "Whether x is less than or equal to y.")
gt_p = _comparison("gt", np.greater, "Whether x is greater than y.")
ge_p = _comparison("ge", np.greater_equal, "Whether x is greater than or equal to y.")


def _in_total_order(function: Any) -> Any:
    def compare(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return function(total_order_key(x), total_order_key(y))
    return compare


def _equal_bits(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype.kind == "c":
        return np.logical_and(_equal_bits(np.real(x), np.real(y)),
                              _equal_bits(np.imag(x), np.imag(y)))
    return np.equal(total_order_key(x), total_order_key(y))


eq_to_p = nary(
    "eq_to", "Whether x equals y in the total order.", (ANY, ANY), result=boolean,
    jvp="zero",
    function=_equal_bits,
    jax="equal_in_order",
    samples=sampled(2, -3, 3, (F32, I32, C64)))
le_to_p = _comparison("le_to", _in_total_order(np.less_equal),
                      "Whether x is y or comes before y in the total order.", "lax.le_to_p.bind")
lt_to_p = _comparison("lt_to", _in_total_order(np.less),
                      "Whether x comes before y in the total order.", "lax.lt_to_p.bind")

is_finite_p = unary(
    "is_finite", "Whether x is neither infinite nor NaN.", FLOAT, result=boolean,
    jvp="zero",
    function=np.isfinite,
    samples=sampled(1, -3, 3))
