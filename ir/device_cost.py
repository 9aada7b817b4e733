"""What an op costs on one device beyond what its factor rule tells: `cost=` of `defop`."""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from .support.immutable import immutable
from .types import ArrayType

Types = Sequence[ArrayType]          # of one device's blocks
Sizes = list[int]                    # bytes of one device's blocks


@immutable
class DeviceCost:
    """What cost models ask of an op beyond its factor rule and its facts. None: the default.

    flops: (operands, results, params) -> floating-point operations, counted as XLA counts them. By
      default two for each index of all factors of a product, one per element of any other op.
    traffic: (read, written, operands, params) -> bytes read from memory of each operand and written
      of each result, given those of whole blocks, which are the default.
    scratch: (read, written, operands, params) -> bytes held besides while the op runs; 0.
    as_stored: (position, operand, params, order) -> whether the op reads this operand without a
      copy from a buffer of which it is a transpose: its dimension d is dimension order[d] there.
      By default any order will do.
    matrix_unit: its operations run at the rate of products, as those of linear algebra do.
    """
    flops: Callable[[Types, Types, dict[str, Any]], float] | None = None
    traffic: Callable[[Sizes, Sizes, Types, dict[str, Any]], tuple[Sizes, Sizes]] | None = None
    scratch: Callable[[Sizes, Sizes, Types, dict[str, Any]], int] | None = None
    as_stored: Callable[[int, ArrayType, dict[str, Any], Sequence[int]], bool] | None = None
    matrix_unit: bool = False


def window_traffic(read: Sizes, written: Sizes, operands: Types, params: dict[str, Any]
                   ) -> tuple[Sizes, Sizes]:
    """Of an op that takes a part of its operand: no more is read than is written."""
    return [min(n, sum(written)) for n in read], written


def of_matrices(flops: Callable[[int, int], float]) -> DeviceCost:
    """Of an op on stacks of matrices, by the rows and columns of one.

    Source: Golub, Van Loan, "Matrix Computations".
    """
    def of_stack(operands: Types, results: Types, params: dict[str, Any]) -> float:
        *batch, m, n = operands[0].shape
        return math.prod(batch) * flops(m, n)
    return DeviceCost(of_stack, matrix_unit=True)
