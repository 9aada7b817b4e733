"""`numpy.maximum` and `minimum` of an array and a number, vectorised.

numpy vectorises these for two arrays, `clip` for an array and two numbers. So the larger of an
array and a number is the array, cut to what lies between the number and the largest of all.
"""
from __future__ import annotations

from typing import Any

import numpy as np
from numpy._core.umath import clip  # type: ignore  # the ufunc of numpy.clip

FEWEST = 1 << 14                # elements from which it pays
_ENDS: dict[Any, tuple[Any, Any]] = {
    **{np.dtype(t): (t(-np.inf), t(np.inf)) for t in (np.float32, np.float64)},
    **{np.dtype(t): (t(np.iinfo(t).min), t(np.iinfo(t).max)) for t in (
        np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)}}


def _by_clip(ufunc: np.ufunc) -> Any:
    """The function that stands for `maximum` or `minimum`: `clip` where that is faster, else the
    ufunc.
    """
    def function(x: Any, y: Any, out: np.ndarray | None = None) -> Any:
        if out is not None and out.size < FEWEST:       # at once: loops call it often
            return ufunc(x, y, out=out)
        number, array = (x, y) if getattr(x, "size", 0) == 1 else (y, x)
        ends = _ENDS.get(getattr(array, "dtype", None))
        if ends is None or getattr(number, "size", 0) != 1 or array.size < FEWEST or (
                number.dtype != array.dtype):
            return ufunc(x, y, out=out)
        least, most = (number, ends[1]) if ufunc is np.maximum else (ends[0], number)
        return clip(array, least, most, out=out)
    function.__name__ = ufunc.__name__
    return function


BY_CLIP = {ufunc: _by_clip(ufunc) for ufunc in (np.maximum, np.minimum)}
