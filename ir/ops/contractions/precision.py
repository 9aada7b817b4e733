"""The `precision` param of contractions: how exactly float32 products are computed.

Hardware multipliers are narrower than float32; a precision asks for more passes, an algorithm names
them one by one. Executors on a CPU compute exactly whatever it says; cost models read it.
"""
from __future__ import annotations

import enum
from typing import Any

from ...param_types import register_param_type
from ...support.named_tuple import NamedTuple


class _Named(enum.Enum):
    """Members are shown by name."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __str__(self) -> str:
        return self.name


@register_param_type
class Precision(_Named):
    """Passes of a float32 product: one (bfloat16), three, or six (exact to float32)."""

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2


@register_param_type
class DotAlgorithmPreset(_Named):
    """An algorithm by name: types of both factors, type of the sum, number of products if not one.

    X3, X6, X9: float32 factors are split into three bfloat16 ones (or two TF32 ones), and so many
    of the products between the parts are added.
    """

    DEFAULT = 0
    ANY_F8_ANY_F8_F32 = 1
    ANY_F8_ANY_F8_F32_FAST_ACCUM = 2
    ANY_F8_ANY_F8_ANY = 3
    ANY_F8_ANY_F8_ANY_FAST_ACCUM = 4
    F16_F16_F16 = 5
    F16_F16_F32 = 6
    BF16_BF16_BF16 = 7
    BF16_BF16_F32 = 8
    BF16_BF16_F32_X3 = 9
    BF16_BF16_F32_X6 = 10
    BF16_BF16_F32_X9 = 11
    TF32_TF32_F32 = 12
    TF32_TF32_F32_X3 = 13
    F32_F32_F32 = 14
    F64_F64_F64 = 15


@register_param_type
class DotAlgorithm(NamedTuple):
    """An algorithm for a contraction, by the types and the number of products it is made of."""

    lhs_precision_type: Any
    rhs_precision_type: Any
    accumulation_type: Any
    lhs_component_count: int = 1
    rhs_component_count: int = 1
    num_primitive_operations: int = 1
    allow_imprecise_accumulation: bool = False
