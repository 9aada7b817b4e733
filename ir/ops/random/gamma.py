"""Gamma numbers: the primitive `random_gamma` of `jax.random`, and its derivative.

Element i of a key's gamma numbers is drawn from the i-th key that it splits into, so a block needs
only its own keys (`random_split_block`), each for one element (`random_gamma_each`).
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...facts import BY_PLACE
from ...kernels.generators import rbg, threefry
from ...kernels.generators.gamma import gamma_numbers
from ...kernels.key_data import generator_of
from ...op import OPS, LocalizeContext, Op, defop
from ...support.lazy import lazy_import
from ...types import ArrayType, Entries, Shape
from ..derivatives import const, exp, move_first, mul, type_of
from ..elementwise.declaration import FLOAT, nary
from ..elementwise.special import igamma_grad_a_p
from ..emitting import literal
from ..rules import call, reject, rule_text
from .primitives import block_starts, check_key, random_split_block_p, random_split_p

scipy_special = lazy_import("scipy.special")


def _gamma_infer(keys: ArrayType, a: ArrayType, *, log_space: bool) -> tuple:
    check_key("random_gamma", keys)
    if a.shape[:keys.ndim] != keys.shape:
        reject(TypeError, [keys, a], "random_gamma takes one key, or one for each leading "
               f"element of `a`, got {keys.str_short(True)} and {a.str_short(True)}",
               help="`jax.random.split` makes as many keys as `a` has elements")
    return a.shape, a.dtype, False


def _gamma_rule(operands: tuple[Shape, ...], results: tuple[Shape, ...], **params: Any) -> str:
    every = [f"d{d}" for d in range(len(operands[1]))]
    return rule_text([every[:len(operands[0])], every], [every])


def _gamma_explicit(op: Op, types: Sequence[ArrayType], shapes: Sequence[Shape],
                    params: dict[str, Any]) -> list[Entries]:
    return [types[1].entries]


def _gamma_jvp_a(g: Any, out: Any, keys: Any, a: Any, *, log_space: bool) -> Any:
    if log_space:
        # A sample that underflows still has a logarithm.
        sample = call("max", exp(out), const(np.finfo(np.float32).tiny, out))
        grad = call("div", random_gamma_grad_p.bind(a, sample), sample)
    else:
        grad = random_gamma_grad_p.bind(a, out)
    return mul(g, grad)


def _gamma_batch(operands: Sequence[Any], dims: Sequence[int | None], size: int, *,
                 log_space: bool) -> tuple[list[Any], list[int]]:
    keys, a = (_batched_first(x, d, size) for x, d in zip(operands, dims, strict=True))
    return [random_gamma_p.bind(keys, a, log_space=log_space)], [0]


def _batched_first(x: Any, dim: int | None, size: int) -> Any:
    if dim is not None:
        return move_first(x, dim)
    shape = type_of(x).shape
    return call("broadcast_in_dim", x, shape=(size, *shape), sharding=None,
                broadcast_dimensions=tuple(range(1, len(shape) + 1)))


def _gamma_evaluate(lead: int, keys: np.ndarray, a: np.ndarray, *, log_space: bool) -> np.ndarray:
    shape = a.shape[keys.ndim:]
    if generator_of(keys) == "fry":
        each = threefry.split(keys, shape)
    else:
        each = rbg.each_split(keys, math.prod(shape)).reshape(keys.shape + shape)
    return gamma_numbers(each, a, log_space)


def _gamma_localize(context: LocalizeContext) -> list[Any]:
    """Each device splits the keys of its own elements and draws from these. Keys of generators that
    split all at once are split whole, and each device takes its own.
    """
    keys, a = context.operands
    first = context.operand_types[0].ndim
    dims, starts = block_starts(context, first)
    if not dims:
        return context.emit(random_gamma_p, [keys, a], context.params)
    generator = context.operand_types[0].dtype.impl       # type: ignore[union-attr]
    if generator != "fry":                # keys are drawn together; each device takes its own
        whole = context.result_types[0].shape[first:]
        every = context.emit(random_split_p, [keys], {"shape": whole, "generator": generator})
        at = dict(zip(dims, starts, strict=True))
        zero = literal(0, np.dtype(np.int32))
        place = [*(zero for _ in range(first)), *(at.get(d, zero) for d in range(len(whole)))]
        each = context.emit(OPS["dynamic_slice"], [*every, *place], {
            "slice_sizes": context.local_result_shapes[0]})
        return context.emit(random_gamma_each_p, [*each, a], context.params)
    each = context.emit(random_split_block_p, [keys, *starts], {
        "shape": context.local_result_shapes[0][first:],
        "whole": context.result_types[0].shape[first:], "dims": dims})
    return context.emit(random_gamma_each_p, [*each, a], context.params)


random_gamma_p = defop(
    "random_gamma",
    doc="Gamma numbers of shape parameters `a` (their logarithms if `log_space`): one key for all, "
        "or one for each index of the leading dimensions.",
    infer=_gamma_infer, rule=_gamma_rule, explicit=_gamma_explicit,
    jvp=(None, _gamma_jvp_a), batch=_gamma_batch,
    evaluate=_gamma_evaluate, arithmetic=False, facts=(BY_PLACE,),
    padded=lambda context: None, localize=_gamma_localize,
    jax="primitives.random_gamma_p.bind")


def _gamma_each_evaluate(lead: int, keys: np.ndarray, a: np.ndarray, *, log_space: bool
                         ) -> np.ndarray:
    return gamma_numbers(keys, a, log_space)


random_gamma_each_p = defop(
    "random_gamma_each",
    doc="Gamma numbers with a key for each element, not split further; made by lowering.",
    infer=lambda keys, a, *, log_space: (a.shape, a.dtype, False), rule="... -> ...",
    evaluate=_gamma_each_evaluate, arithmetic=False,
    jax="random_gamma_each")


def _gamma_grad(a: np.ndarray, sample: np.ndarray) -> np.ndarray:
    # The inverse function theorem on P(a, x) = u: dx/da = -(dP/da) / (dP/dx).
    a, x = np.asarray(a, np.float64), np.asarray(sample, np.float64)
    density = np.exp((a - 1) * np.log(x) - x - scipy_special.gammaln(a))
    return (-igamma_grad_a_p.evaluate(0, a, x) / density).astype(sample.dtype)


random_gamma_grad_p = nary(
    "random_gamma_grad", "Derivative with respect to `a` of a gamma number that was drawn with it.",
    (FLOAT, FLOAT),
    function=_gamma_grad)
