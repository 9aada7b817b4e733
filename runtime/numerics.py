"""The precision in which evaluators compute, and checks of what they return.

bfloat16, float16 and the 8-bit floats are storage formats: an op that does arithmetic gets them as
float32, and its result is rounded once to the declared dtype, in both executors.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ir.dtypes import is_narrow_float
from ..ir.op import Op
from ..ir.support.caches import cached
from ..ir.types import Shape

F32 = np.dtype(np.float32)
SIGNS = frozenset({np.negative, np.absolute})       # give the same in any precision
# Give numbers of a format that their operands are numbers of.
EXACT = SIGNS | {np.maximum, np.minimum, np.fmax, np.fmin, np.copysign, np.floor, np.ceil, np.rint}
Function = Callable[..., Any]


@np.errstate(all="ignore")
def silently(f: Callable[[Any], Any], x: Any) -> Any:
    """`f(x)`, in which no ufunc warns or raises."""
    return f(x)


def widened(x: np.ndarray) -> np.ndarray:
    """A narrow float array as float32; others unchanged."""
    return x.astype(F32) if is_narrow_float(x.dtype) else x


def evaluator(op: Op, lead: int, params: dict[str, Any], operands: Sequence[np.dtype],
              results: Sequence[np.dtype], shapes: Sequence[Shape],
              given: Sequence[Shape]) -> Function:
    """`op.evaluate` of arrays alone, giving arrays of exactly the declared dtypes and shapes.

    operands, results: dtypes of the arrays. shapes: of the result arrays; a result that an
    evaluator leaves at size 1 along a device dimension is repeated. given: shapes of the operand
    arrays. Gives a list if the op has multiple results. Where the op is a numpy ufunc that keeps
    the promise by itself, it is that ufunc; where the evaluator can decide things once from the
    shapes (`Evaluator.prepare`), it does. Where it can write over its first operand
    (`Evaluator.write_over`), the function has an attribute `over` for it.
    """
    by = op.evaluator
    if by is None:
        raise TypeError(f"op `{op.name}` has no evaluator")
    evaluate = by.function
    narrow: Sequence[int] = ()
    ufunc = None if by.ufunc is None else by.ufunc(operands[0], params)
    if op.arithmetic and ufunc not in SIGNS:
        narrow = [i for i, t in enumerate(operands) if t.itemsize <= 2 and is_narrow_float(t)]
    if op.multiple_results:
        def several(*arrays: Any) -> list[Any]:
            if narrow:
                arrays = tuple(x.astype(F32) if i in narrow else x for i, x in enumerate(arrays))
            out = list(evaluate(lead, *arrays, **params))
            return [None if x is None else as_declared(x, dtype, shape, op)
                    for x, dtype, shape in zip(out, results, shapes, strict=True)]
        return several
    dtype, shape = results[0], shapes[0]
    if not narrow:
        if ufunc is not None and _keeps(ufunc, operands, dtype, shape, given):
            return ufunc
        function = None if by.prepare is None else by.prepare(lead, given, operands, params)
        if function is not None:
            return function

    def evaluated(*arrays: Any) -> Any:
        if narrow:
            arrays = tuple(x.astype(F32) if i in narrow else x for i, x in enumerate(arrays))
        out = evaluate(lead, *arrays, **params)
        if out.dtype is dtype and out.shape == shape:
            return out
        return as_declared(out, dtype, shape, op)

    if by.write_over is not None and not narrow and given[0] == shape:
        evaluated.over = functools.partial(by.write_over, lead, **params)  # type: ignore[attr-defined]
    return evaluated


def _keeps(ufunc: np.ufunc, operands: Sequence[np.dtype], dtype: np.dtype, shape: Shape,
           given: Sequence[Shape]) -> bool:
    """Does the ufunc, on operands of these dtypes and shapes, return the declared ones?"""
    if shape not in given:
        return False
    rank = len(shape)
    for s in given:
        if s and len(s) != rank:
            return False
    return _result_dtype(ufunc, *operands) == dtype


@cached(4096, "dtypes in which ops compute")
def _result_dtype(ufunc: np.ufunc, *dtypes: np.dtype) -> np.dtype | None:
    if ufunc.nout != 1 or ufunc.nin != len(dtypes):
        return None
    try:
        return ufunc.resolve_dtypes((*dtypes, None))[-1]
    except TypeError:
        return None


def as_declared(x: Any, dtype: np.dtype, shape: Shape, op: Op) -> Any:
    """A result converted to its declared dtype and shape."""
    if x.dtype != dtype:
        x = x.astype(dtype)
    if x.shape != shape:
        if x.ndim != len(shape) or any(m not in (1, n) for m, n in
                                       zip(x.shape, shape, strict=True)):
            raise ValueError(f"the evaluator of `{op.name}` gave an array of shape {x.shape}, "
                             f"declared is {shape}")
        x = np.broadcast_to(x, shape)
    return x
