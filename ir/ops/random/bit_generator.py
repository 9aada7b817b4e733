"""`rng_bit_generator`: random bits from a state of four words, which it hands on advanced.

Philox (the default, as on XLA's CPU) or threefry. Element n of the bits is a function of the state
and of n alone, so each device makes its own block.
"""
from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...kernels.generators import philox, threefry
from ...op import OPS, LocalizeContext, Op, Sample, defop
from ...param_types import register_param_type
from ...shardings.sharding import NamedSharding
from ...types import ArrayType, Entries, Shape
from ..derivatives import move_first, slice_along, type_of
from ..rules import batch_axes, batch_dim, call, insert_axes, reject, rule_text

U32, U64 = np.dtype(np.uint32), np.dtype(np.uint64)


@register_param_type
class RandomAlgorithm(enum.IntEnum):
    """The algorithm of `rng_bit_generator`; the default is Philox."""

    RNG_DEFAULT = 0
    RNG_THREE_FRY = 1
    RNG_PHILOX = 2

    def __str__(self) -> str:
        return self.name


def _result_types(key: ArrayType, shape: Shape, dtype: Any) -> list[tuple]:
    if (key.shape, key.dtype) not in (((4,), U32), ((2,), U64)):
        reject(TypeError, [key], "rng_bit_generator takes a state of type uint32[4] or uint64[2], "
               f"got {key.str_short()}",
               help="a state is the two words of a key of `jax.random.PRNGKey`, twice")
    if np.dtype(dtype).kind != "u" or np.dtype(dtype).itemsize not in (1, 2, 4, 8):
        reject(TypeError, [key], f"rng_bit_generator: unsupported dtype {dtype}",
               help="take bits of np.uint32, and convert them")
    return [(key.shape, key.dtype, key.weak_type), (tuple(shape), np.dtype(dtype), False)]


def _rule(operands: tuple[Shape, ...], results: tuple[Shape, ...], **params: Any) -> str:
    bits = [f"s{d}" for d in range(len(results[1]))]
    return rule_text([["k"], *([] for _ in operands[1:])], [["k"], bits], ["k!:replicate"])


def _explicit(op: Op, types: Sequence[ArrayType], shapes: Sequence[Shape], params: dict[str, Any]
              ) -> list[Entries | NamedSharding]:
    wanted = params.get("out_sharding")
    return [types[0].sharding, ((),) * len(shapes[1]) if wanted is None else wanted]


def _batch(operands: Sequence[Any], dims: Sequence[int | None], size: int, *, shape: Shape,
           out_sharding: Any, **params: Any) -> tuple:
    """As in JAX: all bits come from the first state, and that alone is advanced."""
    keys = move_first(operands[0], batch_dim(dims))
    axes = batch_axes([keys], [0])
    words = type_of(keys).shape[1]
    first = call("slice", keys, **slice_along((size, words), 0, 0, 1))
    new, bits = rng_bit_generator_p.bind(
        call("squeeze", first, dimensions=(0,)), shape=(size, *shape), **params,
        out_sharding=insert_axes(
            out_sharding, 0, axes, len(shape)))
    new = call("broadcast_in_dim", new, shape=(1, words), broadcast_dimensions=(1,), sharding=None)
    rest = call("slice", keys, **slice_along((size, words), 0, 1, size))
    return [OPS["concatenate"].bind(new, rest, dimension=0), bits], [0, 0]


def _numbers(state: np.ndarray, positions: np.ndarray | None, whole: Shape, dtype: np.dtype,
             algorithm: RandomAlgorithm) -> np.ndarray:
    """The numbers at row-major positions (None: all) of an array of shape `whole`."""
    if algorithm != RandomAlgorithm.RNG_THREE_FRY:
        per = 2 if dtype.itemsize == 8 else 4
        found = (philox.leading(state, math.prod(whole), per) if positions is None
                 else philox.elements(state, positions, per))
        return found.astype(dtype)
    if positions is None:
        positions = np.arange(math.prod(whole), dtype=U64)
    counts, second_word = positions, np.zeros_like(positions, bool)
    if dtype.itemsize < 8 and whole:
        counts, second_word = _halved(positions, whole)
    numbers = state[..., 2, None].astype(U64) | state[..., 3, None].astype(U64) << np.uint64(32)
    with np.errstate(over="ignore"):
        numbers = numbers + counts
    low, high = (numbers & np.uint64(0xFFFFFFFF)).astype(U32), (numbers >> np.uint64(32)).astype(
        U32)
    first, second = threefry.threefry2x32(state[..., 0, None], state[..., 1, None], low, high)
    if dtype.itemsize == 8:
        return first.astype(U64) | second.astype(U64) << np.uint64(32)
    return np.where(second_word, second, first).astype(dtype)


def _split_dim(shape: Shape) -> int:
    """The dimension along which the two words of a threefry hash are neighbours."""
    even = [d for d, n in enumerate(shape) if n % 2 == 0]
    return even[0] if even else shape.index(max(shape))


def _halved(positions: np.ndarray, whole: Shape) -> tuple[np.ndarray, np.ndarray]:
    """The number of the hash that each element takes a word of, and whether it is the second."""
    d = _split_dim(whole)
    size, stride = np.uint64(max(whole[d], 1)), np.uint64(max(math.prod(whole[d + 1:]), 1))
    half, two = np.uint64(-(-whole[d] // 2)), np.uint64(2)
    outer, place = np.divmod(positions // stride, size)
    return ((outer * half + place // two) * stride + positions % stride, place % two == 1)


def _words(key: np.ndarray) -> np.ndarray:
    return key if key.dtype == U32 else np.ascontiguousarray(key).view(U32)


def _advanced(key: np.ndarray, shape: Shape, dtype: np.dtype, algorithm: RandomAlgorithm
              ) -> np.ndarray:
    """The state after drawing an array: its counter moves by as many hashes as that took."""
    steps = count = math.prod(shape)
    if algorithm != RandomAlgorithm.RNG_THREE_FRY:
        steps = -(-count // (2 if dtype.itemsize == 8 else 4))
    elif dtype.itemsize < 8 and count and shape:
        size = shape[_split_dim(shape)]
        steps = count // size * -(-size // 2)
    out = philox.advanced(_words(key), steps)
    return out if key.dtype == U32 else np.ascontiguousarray(out).view(U64)


def _evaluate(lead: int, key: np.ndarray, *, shape: Shape, dtype: np.dtype,
              algorithm: RandomAlgorithm, out_sharding: Any) -> list[np.ndarray]:
    bits = _numbers(_words(key), None, shape, dtype, algorithm)
    return [_advanced(key, shape, dtype, algorithm), bits.reshape(key.shape[:-1] + tuple(shape))]


def _localize(context: LocalizeContext) -> list[Any]:
    """Each device makes the bits of its block, which start at its place in the whole; the new state
    is the same on all.
    """
    params = {**context.params, "out_sharding": None}
    local = context.local_result_shapes[1]
    dims = tuple(d for d, axes in enumerate(context.result_entries[1]) if axes)
    if not dims:
        return context.emit(rng_bit_generator_p, context.operands, params)
    starts = [context.block_offset(context.result_entries[1][d], local[d]) for d in dims]
    params.pop("out_sharding")
    params["whole"] = params["shape"]
    # The state is the same on every device: it comes from a block without elements.
    state, _ = context.emit(rng_bit_generator_block_p, context.operands, {
        **params, "shape": (0,) * len(local), "dims": ()})
    _, bits = context.emit(rng_bit_generator_block_p, [*context.operands, *starts],
                           {**params, "shape": local, "dims": dims})
    return [state, bits]


rng_bit_generator_p = defop(
    "rng_bit_generator",
    doc="The state after drawing, and random bits of `dtype` in an array of `shape`.",
    infer=lambda key, *, shape, dtype, **params: _result_types(key, shape, dtype),
    multiple_results=True, rule=_rule, explicit=_explicit, sharding_param="out_sharding",
    jvp="zero", batch=_batch,
    evaluate=_evaluate, arithmetic=False, padded=lambda context: None,
    localize=_localize,
    samples=lambda: [Sample((np.asarray([1, 2, 3, 4], U32),), {
        "shape": (2, 3), "dtype": U32, "algorithm": RandomAlgorithm.RNG_PHILOX,
        "out_sharding": None}, grad=False)])


def _block_evaluate(lead: int, key: np.ndarray, *starts: np.ndarray, shape: Shape, whole: Shape,
                    dims: tuple[int, ...], dtype: np.dtype, algorithm: RandomAlgorithm
                    ) -> list[np.ndarray]:
    """The new state and a block of the bits, whose elements are hashes of their places in the
    whole.
    """
    first: list[Any] = [0] * len(shape)
    for d, start in zip(dims, starts, strict=True):
        first[d] = start
    high, low = threefry.counters(shape, whole, first)
    positions = low.astype(U64) | high.astype(U64) << np.uint64(32)
    flat = positions.reshape(*positions.shape[:positions.ndim - len(shape)], -1)
    bits = _numbers(_words(key), flat, whole, dtype, algorithm)
    return [_advanced(key, whole, dtype, algorithm),
            bits.reshape(bits.shape[:-1] + tuple(shape))]


rng_bit_generator_block_p = defop(
    "rng_bit_generator_block",
    doc="The block of shape `shape`, beginning at the given starts in the dimensions `dims`, of "
        "the bits of shape `whole`; made by lowering.",
    infer=lambda key, *starts, shape, whole, dims, dtype, algorithm: _result_types(
        key, shape, dtype),
    multiple_results=True, rule=_rule, explicit=_explicit,
    jvp="zero",
    evaluate=_block_evaluate, arithmetic=False)
