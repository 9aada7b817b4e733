"""Random keys and bits: the primitives of `jax.random` (0.10.2).

A key array has dtype `key<fry>` and its own shape; executors hold it as uint64
(ir/kernels/key_data.py), so that ops which only move elements need not know of keys. Element i of a
key's bits is a hash of (key, i): a device makes its own block of them alone, bit for bit the block
of the whole. Where new dimensions are split, lowering therefore emits the `_block` ops, which take
where the block begins.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...dtypes import KEY_DTYPES, KEY_FRY, is_extended, issubdtype, long_name
from ...facts import FRESH, GENERATED, IDENTITY
from ...kernels.generators import rbg, threefry
from ...kernels.key_data import key_words, pack_keys
from ...op import LocalizeContext, Op, Sample, defop
from ...types import ArrayType, Shape
from ..derivatives import in_place
from ..elementwise.declaration import broadcast_shapes
from ..rules import names, reject, rule_text

U32 = np.dtype(np.uint32)


def check_key(op_name: str, t: ArrayType) -> None:
    if not is_extended(t.dtype):
        reject(TypeError, [t], f"{op_name} takes key array operand, got "
               f"keys.dtype=dtype({long_name(t.dtype)!r})",
               help="make a key with `jax.random.key`, or of words with `jax.random.wrap_key_data`")


# -- seeds and words -------------------------------------------------------------------------------

def _seed_infer(seeds: ArrayType, *, impl: str) -> tuple:
    if not issubdtype(seeds.dtype, np.integer):
        reject(TypeError, [seeds], "PRNG key seed must be an integer; got "
               f"{seeds.str_short(True)}", help="give a Python int, or an array of integers")
    return seeds.shape, KEY_DTYPES[impl], False


random_seed_p = defop(
    "random_seed", doc="A key for each integer seed.", infer=_seed_infer, rule="... -> ...",
    jvp="zero",
    evaluate=lambda lead, seeds, *, impl: (
        threefry.seed(seeds) if impl == "fry" else rbg.seed(seeds, impl)),
    arithmetic=False,
    samples=lambda: [
        Sample((np.array([0, 1, 42, -1], np.int32),), {"impl": "fry"}, grad=False)])


def _wrap_infer(words: ArrayType, *, impl: str) -> tuple:
    if words.dtype != U32:
        reject(TypeError, [words], "JAX encountered invalid PRNG key data: expected key_data.dtype "
               f"= uint32; got dtype={long_name(words.dtype)}",
               help="convert the words with `astype` to uint32")
    wanted = KEY_DTYPES[impl]
    if words.ndim < 1:
        reject(TypeError, [words], "JAX encountered invalid PRNG key data: expected key_data.ndim "
               f">= 1; got ndim={words.ndim}",
               help=f"give {wanted.key_shape[0]} words for each key")
    n = len(wanted.key_shape)
    if words.shape[words.ndim - n:] != wanted.key_shape:
        reject(TypeError, [words], "JAX encountered invalid PRNG key data: expected key_data.shape "
               f"to end with {wanted.key_shape}; got shape={words.shape} for impl={impl}",
               help=f"give {wanted.key_shape[0]} words for each key")
    return words.shape[:words.ndim - n], wanted, False


def _words_rule(operands: tuple[Shape, ...], results: tuple[Shape, ...], **params: Any) -> str:
    """The factor rule between keys and their words, whichever is the operand."""
    dims = names("b", min(len(operands[0]), len(results[0])))
    words = names("w", abs(len(operands[0]) - len(results[0])))
    both = [dims, [*dims, *words]]
    left, right = both if len(operands[0]) == len(dims) else both[::-1]
    return rule_text([left], [right], [f"{w}!:replicate" for w in words])


random_wrap_p = defop(
    "random_wrap", doc="Keys of their words: u32[..., 2] -> key<fry>[...].",
    infer=_wrap_infer, rule=_words_rule, explicit="follow",
    jvp="zero",
    evaluate=lambda lead, words, *, impl: pack_keys(words, impl), arithmetic=False,
    samples=lambda: [
        Sample((np.arange(12, dtype=U32).reshape(3, 2, 2),), {"impl": "fry"}, grad=False)])


def _words_of(keys: ArrayType) -> Shape:
    return keys.dtype.key_shape       # type: ignore[union-attr]


def _unwrap_infer(keys: ArrayType) -> tuple:
    check_key("random_unwrap", keys)
    return (*keys.shape, *_words_of(keys)), U32, False


random_unwrap_p = defop(
    "random_unwrap", doc="The words of keys: key<fry>[...] -> u32[..., 2].",
    infer=_unwrap_infer, rule=_words_rule, explicit="follow",
    jvp="zero", batch=in_place("random_unwrap"),
    evaluate=lambda lead, keys: key_words(keys), arithmetic=False,
    jax="jax.random.key_data")


random_clone_p = defop(
    "random_clone", doc="The same keys, counted as new ones where reuse of keys is checked.",
    infer=lambda keys: (keys.shape, keys.dtype, False), rule="... -> ...",
    jvp="zero",
    evaluate=lambda lead, keys: keys, arithmetic=False, facts=(IDENTITY,))


# -- new keys --------------------------------------------------------------------------------------

def _fold_infer(keys: ArrayType, data: ArrayType, *, generator: str = "fry") -> tuple:
    check_key("random_fold_in", keys)
    if data.dtype != U32:
        reject(TypeError, [keys, data], "random_fold_in takes uint32 data, got "
               f"{long_name(data.dtype)}", help="convert it with `astype` to uint32")
    return broadcast_shapes("random_fold_in", [keys, data]), keys.dtype, False


def _fold_rule(operands: tuple[Shape, ...], results: tuple[Shape, ...], *, generator: str = "fry"
               ) -> str:
    if generator == "fry":
        return "... -> ..."
    dims = names("b", len(results[0]))
    lefts = [dims[len(dims) - len(s):] for s in operands]
    return rule_text(lefts, [dims], [f"{d}!:replicate" for d in dims])


random_fold_in_p = defop(
    "random_fold_in", doc="A new key of each key and uint32 number.",
    infer=_fold_infer, rule=_fold_rule,
    jvp="zero",
    evaluate=lambda lead, keys, data, *, generator="fry": (
        threefry.fold_in(keys, data) if generator == "fry"
        else rbg.fold_in(keys, lead, data, generator)),
    arithmetic=False,
    jax="primitives.random_fold_in_p.bind")


def _hash_infer(*types: ArrayType) -> list[tuple]:
    if any(t.dtype != U32 for t in types):
        reject(TypeError, types, "Arguments to threefry2x32 must have uint32 type, got "
               f"({', '.join(t.str_short() for t in types)})",
               help="convert them with `astype` to uint32")
    return [(broadcast_shapes("threefry2x32", types), U32, False)] * 2


def _hash_evaluate(lead: int, *arrays: np.ndarray) -> list[np.ndarray]:
    rank = max(x.ndim for x in arrays) - lead
    return list(threefry.threefry2x32(*(
        x.reshape(x.shape[:lead] + (1,) * (lead + rank - x.ndim) + x.shape[lead:])
        for x in arrays)))


threefry2x32_p = defop(
    "threefry2x32",
    doc="The hash of counters (last two operands) under keys (first two): two words.",
    infer=_hash_infer, multiple_results=True, rule="... -> ..., ...",
    jvp="zero",
    evaluate=_hash_evaluate, arithmetic=False,
    jax="threefry_hash",
    samples=lambda: [Sample(tuple(np.arange(6, dtype=U32).reshape(2, 3) * k for k in (1, 2, 3, 4)),
                            grad=False)])


# -- bits and splits: new dimensions for every key -------------------------------------------------
# `partitionable` is False for the older way of counting, which ties all elements to each other;
# `generator` is the tag of one that is not threefry.

Evaluator = Callable[..., np.ndarray]


def _new_dims_rule(operands: tuple[Shape, ...], results: tuple[Shape, ...], *, shape: Shape,
                   partitionable: bool = True, **params: Any) -> str:
    keys = names("b", len(operands[0]))
    new = [f"s{d}" for d in range(len(shape))]
    starts = [[] for _ in operands[1:]]
    kinds = [] if partitionable and not starts else [f"{d}!:replicate" for d in new]
    if "generator" in params:             # all numbers come from the first key
        kinds = [f"{d}!:replicate" for d in (*keys, *new)]
    return rule_text([keys, *starts], [[*keys, *new]], kinds)


def _new_dims_op(params: dict[str, Any]) -> Op:
    return random_bits_p if "bit_width" in params else random_split_p


def _new_dims_resize(params: dict[str, Any], operands: Sequence[Shape],
                     results: Sequence[Shape]) -> dict[str, Any]:
    if results[0][len(operands[0]):] != params["shape"]:
        raise ValueError("a block of random bits depends on where it lies; it needs `localize`")
    return params


def block_starts(context: LocalizeContext, first: int) -> tuple[tuple[int, ...], list[Any]]:
    """Which dimensions of the first result are split, counted from dimension `first`, and where
    the device's block begins in them."""
    entries = context.result_entries[0][first:]
    local = context.local_result_shapes[0][first:]
    dims = tuple(d for d, axes in enumerate(entries) if axes)
    return dims, [context.block_offset(entries[d], local[d]) for d in dims]


def _new_dims_localize(context: LocalizeContext) -> list[Any]:
    """Each device draws its own block, from where it begins along the new dimensions."""
    params, keys = context.params, context.operands
    op = _new_dims_op(params)
    first = context.operand_types[0].ndim
    dims, starts = block_starts(context, first)
    if not dims:
        return context.emit(op, keys, params)
    block = {**params, "shape": context.local_result_shapes[0][first:],
             "whole": params["shape"], "dims": dims}
    block.pop("partitionable", None)
    return context.emit(_BLOCKS[op], [*keys, *starts], block)


def _bits_infer(keys: ArrayType, *, bit_width: int, shape: Shape, **params: Any) -> tuple:
    check_key("random_bits", keys)
    if bit_width not in (8, 16, 32, 64):
        reject(TypeError, [keys], "requires 8-, 16-, 32- or 64-bit field width.",
               help="take 32 bits, and convert the results")
    if math.prod(shape) > 1 << 64:
        reject(NotImplementedError, [keys], "random bits array of size exceeding 2 ** 64",
               help="draw in parts, each with a key of `jax.random.split`")
    return (*keys.shape, *shape), np.dtype(f"uint{bit_width}"), False


def _bits_evaluate(lead: int, keys: np.ndarray, *, bit_width: int, shape: Shape,
                   partitionable: bool = True, generator: str = "fry") -> np.ndarray:
    if generator != "fry":
        return rbg.random_bits(keys, lead, bit_width, shape)
    make = threefry.random_bits if partitionable else threefry.original_bits
    return make(keys, bit_width, shape)


def _new_dims(name: str, doc: str, *, infer: Callable[..., Any], evaluate: Evaluator,
              facts: Sequence[str] = ()) -> Op:
    """Declare an op that makes an array of `shape` of each key."""
    return defop(
        name, doc=doc, infer=infer, rule=_new_dims_rule, explicit="follow",
        jvp="zero",
        evaluate=evaluate, arithmetic=False, facts=(FRESH, *facts), resize=_new_dims_resize,
        padded=lambda context: None,            # what is drawn depends on the whole shape
        localize=_new_dims_localize)


random_bits_p = _new_dims(
    "random_bits",
    "Random bits of `bit_width` as unsigned integers, an array of `shape` for each key.",
    infer=_bits_infer, evaluate=_bits_evaluate, facts=(GENERATED,))


def _split_infer(keys: ArrayType, *, shape: Shape, **params: Any) -> tuple:
    check_key("random_split", keys)
    return (*keys.shape, *shape), keys.dtype, False


def _split_evaluate(lead: int, keys: np.ndarray, *, shape: Shape, partitionable: bool = True,
                    generator: str = "fry") -> np.ndarray:
    if generator != "fry":
        return rbg.split(keys, lead, shape, partitionable, generator)
    return (threefry.split if partitionable else threefry.original_split)(keys, shape)


random_split_p = _new_dims(
    "random_split", "New keys, an array of `shape` for each key.",
    infer=_split_infer, evaluate=_split_evaluate)


def _block_infer(result: Callable[[dict[str, Any]], Any]) -> Callable[..., tuple]:
    def infer(keys: ArrayType, *starts: ArrayType, shape: Shape, whole: Shape,
              dims: tuple[int, ...], **params: Any) -> tuple:
        check_key("a block of random bits", keys)
        if len(starts) != len(dims) or len(shape) != len(whole):
            reject(TypeError, [keys, *starts], f"a block of shape {shape} of {whole} needs one "
                   f"start for each of the dimensions {dims}")
        return (*keys.shape, *shape), result(params), False
    return infer


def _all_starts(starts: Sequence[np.ndarray], dims: tuple[int, ...], ndim: int) -> list[Any]:
    out: list[Any] = [0] * ndim
    for d, start in zip(dims, starts, strict=True):
        out[d] = start
    return out


random_bits_block_p = defop(
    "random_bits_block",
    doc="The block of shape `shape`, beginning at the given starts in the dimensions `dims`, of "
        "the random_bits of shape `whole`; made by lowering.",
    infer=_block_infer(lambda params: np.dtype(f"uint{params['bit_width']}")), rule=_new_dims_rule,
    explicit="follow",
    jvp="zero",
    evaluate=lambda lead, keys, *starts, bit_width, shape, whole, dims: threefry.random_bits(
        keys, bit_width, shape, whole, _all_starts(starts, dims, len(shape))),
    arithmetic=False, facts=(FRESH, GENERATED))

random_split_block_p = defop(
    "random_split_block",
    doc="The block of the random_split of shape `whole`, as random_bits_block.",
    infer=_block_infer(lambda params: KEY_FRY), rule=_new_dims_rule, explicit="follow",
    jvp="zero",
    evaluate=lambda lead, keys, *starts, shape, whole, dims: threefry.split(
        keys, shape, whole, _all_starts(starts, dims, len(shape))),
    arithmetic=False)

_BLOCKS = {random_bits_p: random_bits_block_p, random_split_p: random_split_block_p}
