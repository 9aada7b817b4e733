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
    orders: (position, type, params) -> the orders, from the major dimension to the minor one, in
      which it reads the operand at this position, or behind those of all operands in which it
      writes its result; what lies otherwise is copied to the first one. By default any will do.
    is_packed: its operand is packed into blocks for the devices of a group, and its result is
      put together from those that they send.
    matrix_unit: its operations run at the rate of products, as those of linear algebra do.
    """
    flops: Callable[[Types, Types, dict[str, Any]], float] | None = None
    traffic: Callable[[Sizes, Sizes, Types, dict[str, Any]], tuple[Sizes, Sizes]] | None = None
    scratch: Callable[[Sizes, Sizes, Types, dict[str, Any]], int] | None = None
    orders: Callable[[int, ArrayType, dict[str, Any]], Sequence[Sequence[int]]] | None = None
    is_packed: bool = False
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
