"""In which precision evaluators compute, and that they keep their promise about the result.

bfloat16, float16 and the 8-bit floats are storage: an op that does arithmetic gets them as float32
and its result is rounded once to the declared dtype. Both executors call evaluators through here.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ir.dtypes import is_narrow_float
from ..ir.keys import storage_dtype
from ..ir.op import Op
from ..ir.types import ArrayType

F32 = np.dtype(np.float32)
Function = Callable[..., Any]


def widened(x: np.ndarray) -> np.ndarray:
    """A narrow float array as float32; others as they are."""
    return x.astype(F32) if is_narrow_float(x.dtype) else x


def evaluator(op: Op, lead: int, params: dict[str, Any], operands: Sequence[ArrayType],
              results: Sequence[ArrayType], shapes: Sequence[tuple[int, ...]] | None) -> Function:
    """`op.evaluate` of arrays alone, giving arrays of exactly the declared dtypes and shapes.

    shapes: of the result arrays; a result that an evaluator leaves at size 1 along a device
    dimension is repeated. None: not checked. Gives a list if the op has multiple results.
    """
    evaluate = op.evaluate
    if evaluate is None:
        raise TypeError(f"op `{op.name}` has no evaluator")
    narrow = tuple(i for i, t in enumerate(operands)
                   if op.arithmetic and is_narrow_float(t.dtype))
    dtypes = [storage_dtype(t.dtype) for t in results]
    if op.multiple_results:
        def several(*arrays: Any) -> list[Any]:
            if narrow:
                arrays = tuple(x.astype(F32) if i in narrow else x for i, x in enumerate(arrays))
            out = list(evaluate(lead, *arrays, **params))
            return [as_declared(x, dtype, None if shapes is None else shapes[i], op)
                    for i, (x, dtype) in enumerate(zip(out, dtypes, strict=True))]
        return several
    dtype, shape = dtypes[0], None if shapes is None else shapes[0]
    if narrow:
        def one_narrow(*arrays: Any) -> Any:
            wide = [x.astype(F32) if i in narrow else x for i, x in enumerate(arrays)]
            return as_declared(evaluate(lead, *wide, **params), dtype, shape, op)
        return one_narrow
    if len(operands) == 1:
        def unary(x: Any) -> Any:
            out = evaluate(lead, x, **params)
            if out.dtype is dtype and out.shape == shape:
                return out
            return as_declared(out, dtype, shape, op)
        return unary
    if len(operands) == 2:
        def binary(x: Any, y: Any) -> Any:
            out = evaluate(lead, x, y, **params)
            if out.dtype is dtype and out.shape == shape:
                return out
            return as_declared(out, dtype, shape, op)
        return binary

    def nary(*arrays: Any) -> Any:
        out = evaluate(lead, *arrays, **params)
        if out.dtype is dtype and out.shape == shape:
            return out
        return as_declared(out, dtype, shape, op)
    return nary


def as_declared(x: Any, dtype: np.dtype, shape: tuple[int, ...] | None, op: Op) -> Any:
    """A result in its declared dtype and shape."""
    if x.dtype != dtype:
        x = x.astype(dtype)
    if shape is not None and x.shape != shape:
        if x.ndim != len(shape) or any(m not in (1, n) for m, n in
                                       zip(x.shape, shape, strict=True)):
            raise ValueError(f"the evaluator of `{op.name}` gave an array of shape {x.shape}, "
                             f"declared is {shape}")
        x = np.broadcast_to(x, shape)
    return x
