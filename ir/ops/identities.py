"""Identity elements of reductions, and the value that sorts last."""
from __future__ import annotations

from typing import Any

import numpy as np

from ..dtypes import iinfo, issubdtype


def extremum(dtype: np.dtype, largest: bool) -> Any:
    """The largest or smallest number of a dtype, infinite for floats."""
    if dtype == np.bool_:
        return largest
    if issubdtype(dtype, np.inexact):
        return np.inf if largest else -np.inf
    info = iinfo(dtype)
    return info.max if largest else info.min


def identity(operator: str, dtype: np.dtype) -> Any:
    """What changes no result of a reduction or scan, as a number of the dtype; None where there is
    none. operator: of a factor (ir/rules/factor.py)."""
    if operator in ("max", "argmax", "logsumexp"):
        value = extremum(dtype, False)
    elif operator in ("min", "argmin"):
        value = extremum(dtype, True)
    elif operator in ("sum", "or", "xor"):
        value = 0
    elif operator == "prod":
        value = 1
    elif operator == "and":
        value = True if dtype == np.bool_ else -1
    else:
        return None
    return np.asarray(value).astype(dtype)[()]


def last_in_order(dtype: np.dtype) -> Any:
    """The last number in the order of `sort`: NaN, or the largest; None where the dtype has
    neither.
    """
    if not issubdtype(dtype, np.inexact):
        return np.asarray(extremum(dtype, True)).astype(dtype)[()]
    value = np.asarray(np.nan).astype(dtype)
    return value[()] if np.isnan(value.astype(np.complex128)) else None


def last_of_largest(dtype: np.dtype) -> Any:
    """The last number in the order of `top_k`, the total order of floats."""
    if not issubdtype(dtype, np.floating):
        return np.asarray(extremum(dtype, False)).astype(dtype)[()]
    ones = np.array([-1], f"i{dtype.itemsize}").view(dtype)
    return ones[0] if np.isnan(ones.astype(np.float64))[0] else None
