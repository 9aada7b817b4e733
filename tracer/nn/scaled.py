"""Products of block-scaled operands: numbers of 4 or 8 bits, with one scale for each block.

Formats: mxfp8 (blocks of 32, scales powers of two) and nvfp4 (blocks of 16, scales in float8, and
one more for the whole). What hardware does at once is computed here as it is defined: quantize,
multiply by the scales, contract in float32. Derivatives pass the quantization straight through.

Source: `jax.nn.scaled_dot_general`; OCP Microscaling Formats (MX) Specification 1.0, 2023.
"""
from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.dtypes import finfo, parse_long
from ...ir.source.wording import warn
from ...ir.values.array import Array
from .. import lax
from ..autodiff.custom.custom_vjp import custom_vjp
from ..jnp.creation.filled import ones
from ..jnp.elementwise.arithmetic import abs
from ..jnp.elementwise.clipping import clip
from ..jnp.elementwise.logic import less_equal
from ..jnp.elementwise.two_operands import divide
from ..jnp.indexing.searching import choose_where
from ..jnp.reductions.reduce import max as maximum_of
from ..operands.dtype_promotion import dtype_name, user_dtype
from ..operands.rank_promotion import shape_of
from ..staging.constants import as_array

_F32 = np.dtype(np.float32)
_RESULTS = tuple(np.dtype(parse_long(n)) for n in ("float32", "bfloat16", "float16"))


@dataclasses.dataclass(frozen=True, eq=False)
class BlockScaleConfig:
    """How one operand is quantized.

    mode: "mxfp8" or "nvfp4". block_size: numbers that share a scale. data_type, scale_type: dtypes.
    global_scale: a scale of the whole operand (nvfp4), float32. infer_only: no derivative needed.
    """
    mode: str
    block_size: int
    data_type: Any
    scale_type: Any
    global_scale: Any = None
    infer_only: bool = False


def get_scaled_dot_general_config(mode, global_scale=None):
    """The quantization of one operand of `scaled_dot_general`: mode "nvfp4" or "mxfp8".

    global_scale: for nvfp4, a float32 array of one element (1 by default). Raises ValueError for
    other modes.

    >>> from shardtrace import nn
    >>> nn.get_scaled_dot_general_config("mxfp8").block_size
    32
    """
    if mode == "nvfp4":
        scale = ones((1,), np.float32) if global_scale is None else global_scale
        return BlockScaleConfig(mode, 16, parse_long("float4_e2m1fn"), parse_long("float8_e4m3fn"),
                                scale)
    if mode == "mxfp8":
        return BlockScaleConfig(mode, 32, parse_long("float8_e4m3fn"),
                                parse_long("float8_e8m0fnu"))
    raise ValueError(f"Unsupported mode: {mode}")


# -- quantization ----------------------------------------------------------------------------------

def _power_of_two_above(x: Array) -> Array:
    """The exponent bits of the least power of two that is not below x >= 0; uint32."""
    bits = lax.bitcast_convert_type(lax.convert_element_type(x, np.float32), np.uint32)
    exponent = lax.shift_right_logical(bits, np.uint32(23))
    mantissa = bits & np.uint32(0x7FFFFF)
    tiny = (exponent == 0) & (mantissa <= np.uint32(0x400000))
    up = (mantissa > 0) & (exponent != np.uint32(0xFE)) & ~tiny
    return choose_where(up, exponent + np.uint32(1), exponent)


def _quantized(x: Array, config: BlockScaleConfig) -> tuple[Array, Array]:
    """(numbers, scales): [B, M, K] -> [B, M, K] of data_type, [B, M, K / block] of scale_type."""
    *outer, k = x.shape
    size = config.block_size
    if k % size:
        raise ValueError(f"{config.mode} quantizes blocks of {size} along the contracted "
                         f"dimension, whose size is {k}")
    blocks = lax.reshape(x, (*outer, k // size, size))
    dtype = dtype_name(x)
    most = dtype.type(finfo(config.data_type).max)
    if config.global_scale is not None:
        blocks = divide(blocks, lax.convert_element_type(config.global_scale, dtype))
    largest = divide(maximum_of(abs(blocks), axis=-1, keepdims=True), most)
    if config.mode == "mxfp8":
        exponent = _power_of_two_above(largest)
        scales = lax.bitcast_convert_type(lax.convert_element_type(exponent, np.uint8),
                                          config.scale_type)
        wide = lax.bitcast_convert_type(lax.shift_left(exponent, np.uint32(23)), np.float32)
        least = np.float32(2.0 ** -15 if dtype == np.float16 else 2.0 ** -127)
        wide = choose_where(wide == 0, least, wide)
    else:
        limit = dtype.type(finfo(config.scale_type).max)
        scales = lax.convert_element_type(clip(largest, 0, limit), config.scale_type)
        wide = lax.convert_element_type(scales, np.float32)
    scaled = clip(divide(blocks, lax.convert_element_type(wide, dtype)), -most, most)
    numbers = lax.reshape(lax.convert_element_type(scaled, config.data_type), x.shape)
    return numbers, lax.reshape(scales, scales.shape[:-1])


def _spread(scales: Array, size: int) -> Array:
    """A scale for each number, float32."""
    shape = shape_of(scales)
    wide = lax.broadcast_in_dim(lax.convert_element_type(scales, np.float32), (*shape, size),
                                tuple(range(len(shape))))
    return lax.reshape(wide, (*shape[:-1], shape[-1] * size))


def scaled_matmul(lhs, rhs, lhs_scales, rhs_scales, preferred_element_type: Any = np.float32):
    """Products of block-scaled matrices: [B, M, K] and [B, N, K] -> [B, M, N].

    lhs_scales [B, M, K / block] and rhs_scales [B, N, K / block]: one scale for each block along K.
    Raises ValueError where shapes do not fit. Source: `jax.nn.scaled_matmul`.

    >>> import shardtrace.numpy as jnp
    >>> from shardtrace import nn
    >>> one = jnp.ones((1, 1, 4))
    >>> nn.scaled_matmul(one, one, jnp.full((1, 1, 2), 0.5), jnp.ones((1, 1, 2)))
    Array([[[2.]]], dtype=float32)
    """
    shapes = [shape_of(x) for x in (lhs, rhs, lhs_scales, rhs_scales)]
    if any(len(s) != 3 for s in shapes):
        raise ValueError("scaled_matmul requires all inputs to be 3-dimensional arrays")
    a, b, scales_a, scales_b = shapes
    if a[2] != b[2] or a[0] != b[0]:
        raise ValueError("scaled_matmul requires inputs a and b to have matching batch (B) and "
                         f"contract (K) dimensions, but got shapes {a} and {b}")
    if scales_a[2] != scales_b[2] or scales_a[0] != scales_b[0]:
        raise ValueError("scaled_matmul requires scales to have matching batch (B) and contract "
                         f"(K) dimensions, but got shapes {scales_a} and {scales_b}")
    if scales_a[1] != a[1] or scales_b[1] != b[1]:
        raise ValueError("scaled_matmul requires scales to match non-contract dimensions of inputs,"
                         f" but got shapes a: {a}, b: {b}, a_scales: {scales_a}, b_scales: "
                         f"{scales_b}")
    if not scales_a[2] or a[2] % scales_a[2]:
        raise ValueError(f"scaled_matmul: {scales_a[2]} scales do not divide K, which is {a[2]}")
    size = a[2] // scales_a[2]
    sides = [lax.convert_element_type(x, np.float32) * _spread(as_array(s), size)
             for x, s in ((lhs, lhs_scales), (rhs, rhs_scales))]
    out = lax.dot_general(sides[0], sides[1], (((2,), (2,)), ((0,), (0,))),
                          preferred_element_type=_F32)
    return lax.convert_element_type(out, user_dtype(preferred_element_type, "scaled_matmul"))


# -- dot_general -----------------------------------------------------------------------------------

def _product(x: Array, y: Array, configs: Sequence[BlockScaleConfig], dtype: Any) -> Array:
    """[B, M, K] and [B, N, K], quantized -> [B, M, N]."""
    (a, scales_a), (b, scales_b) = (_quantized(v, c) for v, c in zip((x, y), configs, strict=True))
    four = configs[0].mode == "nvfp4"
    out = scaled_matmul(a, b, scales_a, scales_b, _F32 if four else dtype)
    if four:
        out = out * (configs[0].global_scale * configs[1].global_scale)
    return lax.convert_element_type(out, dtype)


def _scaled_product(configs: Sequence[BlockScaleConfig], dtype: Any) -> Any:
    """The product with its derivatives: cotangents are quantized as well, but for nvfp4."""
    @custom_vjp
    def product(x: Array, y: Array) -> Array:
        return _product(x, y, configs[:2], dtype)

    def forward(x: Array, y: Array) -> tuple[Array, Any]:
        return product(x, y), (x, y)

    def backward(saved: Any, ct: Array) -> tuple[Array, Array]:
        x, y = saved
        turned = [lax.transpose(v, (0, 2, 1)) for v in (ct, x, y)]
        if configs[2].mode != "nvfp4":
            return (_product(ct, turned[2], (configs[2], configs[1]), dtype_name(x)),
                    _product(turned[0], turned[1], (configs[2], configs[0]), dtype_name(y)))
        numbers = (((2,), (1,)), ((0,), (0,)))
        cts = (lax.dot_general(ct, y, numbers, preferred_element_type=dtype_name(x)),
               lax.dot_general(turned[0], x, numbers, preferred_element_type=dtype_name(y)))
        return tuple(_unless_clipped(c, v, config)              # type: ignore[return-value]
                     for c, v, config in zip(cts, saved, configs, strict=False))

    product.defvjp(forward, backward)
    return product


def _unless_clipped(ct: Array, x: Array, config: BlockScaleConfig) -> Array:
    """The cotangent where the number was not cut to the range of its format, else 0."""
    dtype = dtype_name(x)
    most = dtype.type(finfo(config.data_type).max) * dtype.type(finfo(config.scale_type).max)
    limit = lax.convert_element_type(config.global_scale, dtype) * most
    return choose_where(less_equal(abs(x), limit), ct, lax.full_like(ct, 0))


def _as_matrices(x: Array, contracting: Sequence[int], batch: Sequence[int]) -> tuple[Array, list]:
    """x as [B, M, K], and the sizes of the dimensions that M stands for."""
    rest = [d for d in range(x.ndim) if d not in contracting and d not in batch]
    order = (*batch, *rest, *contracting)
    sizes = [[x.shape[d] for d in dims] for dims in (batch, rest, contracting)]
    return lax.reshape(lax.transpose(x, order), tuple(map(math.prod, sizes))), sizes[1]


def scaled_dot_general(lhs, rhs, dimension_numbers, preferred_element_type=np.float32,
                       configs=None, implementation=None):
    """`lax.dot_general` of operands that are quantized first, as `configs` say.

    configs: three, for lhs, rhs and cotangents, of `get_scaled_dot_general_config`; without them it
    is `dot_general`. The contracted sizes must be multiples of the block size (ValueError).
    Source: `jax.nn.scaled_dot_general`.

    >>> import shardtrace.numpy as jnp
    >>> from shardtrace import nn
    >>> x = jnp.full((2, 32), 0.3)
    >>> config = nn.get_scaled_dot_general_config("mxfp8")
    >>> nn.scaled_dot_general(x, x, (((1,), (1,)), ((), ())), configs=[config] * 3).round(3)[0]
    Array([3.125, 3.125], dtype=float32)
    """
    if implementation is not None:
        warn("Backend selector, now ignored. The system chooses the backend "
             "automatically.", DeprecationWarning)
    if configs is None:
        return lax.dot_general(lhs, rhs, dimension_numbers,
                               preferred_element_type=preferred_element_type)
    dtype = np.dtype(preferred_element_type)
    if dtype not in _RESULTS:
        raise TypeError("Only support preferred_element_type in (f32, bf16, f16), but got "
                        f"{preferred_element_type}")
    lhs, rhs = as_array(lhs), as_array(rhs)
    (left, right), (left_batch, right_batch) = dimension_numbers
    x, left_rest = _as_matrices(lhs, tuple(left), tuple(left_batch))
    y, right_rest = _as_matrices(rhs, tuple(right), tuple(right_batch))
    out = _scaled_product(tuple(configs), dtype)(x, y)
    batch = [lhs.shape[d] for d in left_batch]
    return lax.reshape(out, (*batch, *left_rest, *right_rest))
