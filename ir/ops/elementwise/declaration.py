"""Declaring elementwise ops: results whose elements depend on the operands' elements alone.

`unary` and `nary` fill in what all of them share: the rule `... -> ...`, which gives typing,
propagation, lowering and batching; the checks of dtypes and shapes, with JAX's texts; and samples.
The ops themselves are in arithmetic.py, powers.py, transcendental.py, special.py, bitwise.py,
comparison.py and complex_parts.py.

Operands have equal shapes, or size 1 where another is larger, or rank 0; ranks are equal otherwise.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from ...diagnostics.diagnostic import Remedy, fail
from ...dtypes import float0, is_extended, issubdtype, long_name
from ...op import Evaluator, Op, Sample, defop
from ...types import ArrayType, Shape

Kinds = tuple[type, ...]
FLOAT: Kinds = (np.floating,)
COMPLEX: Kinds = (np.complexfloating,)
INTEGER: Kinds = (np.integer,)
INEXACT: Kinds = FLOAT + COMPLEX
NUMBER: Kinds = INTEGER + INEXACT
BOOL_OR_INTEGER: Kinds = (*INTEGER, np.bool_)
ORDERED: Kinds = (*INTEGER, *FLOAT, np.bool_)
ANY: Kinds = (*NUMBER, np.bool_)

# The jnp functions that convert their operands, which JAX's text mentions where lax does not.
_CONVERTING = {
    "add": "add", "atan2": "arctan2", "div": "divide", "eq": "equal", "max": "maximum",
    "min": "minimum", "mul": "multiply", "ne": "not_equal", "nextafter": "nextafter",
    "pow": "float_power", "select": "where", "shift_left": "left_shift",
    "shift_right_arithmetic": "right_shift", "shift_right_logical": "right_shift",
    "sub": "subtract", "concatenate": "concatenate",
}


class _Letters(dict[Kinds, str]):
    """The letters that numpy has for dtypes of these kinds; those of ml_dtypes have none."""

    def __missing__(self, kinds: Kinds) -> str:
        letters = {np.floating: "f", np.complexfloating: "c", np.integer: "iu", np.bool_: "b"}
        found = self[kinds] = "".join([letters.get(kind, "") for kind in kinds])
        return found


_LETTERS = _Letters({FLOAT: "f", COMPLEX: "c", INTEGER: "iu", INEXACT: "fc", NUMBER: "iufc",
                     BOOL_OR_INTEGER: "iub", ORDERED: "iufb", ANY: "iufcb"})


# -- checks ---------------------------------------------------------------------------------------

def refuse_float0(name: str, place: str) -> NoReturn:
    """Raise JAX's TypeError for zeros of integers' derivatives, with which nothing is computed."""
    fail(TypeError,
         f"Called {name} with a float0 {place}. float0s do not support any operations by design, "
         "because they are not compatible with non-trivial vector spaces. No implicit dtype "
         "conversion is done. You can use np.zeros_like(arr, dtype=np.float) to cast a float0 "
         "array to a regular zeros array. \nIf you didn't expect to get a float0 you might have "
         "accidentally taken a gradient with respect to an integer argument.",
         code="dtype-not-accepted")


def check_accepted(name: str, t: ArrayType, kinds: Kinds, position: int | None = None) -> None:
    """Raise JAX's TypeError unless the operand's dtype is of one of these kinds."""
    if t.dtype.kind in _LETTERS[kinds] or any(issubdtype(t.dtype, kind) for kind in kinds):
        return
    if t.dtype == float0:
        refuse_float0(name, "array" if position is None else f"at position {position}")
    at = "" if position is None else f" at position {position}"
    accepted = ", ".join(kind.__name__ for kind in kinds)
    fail(TypeError,
         f"{name} does not accept dtype {long_name(t.dtype)}{at}. Accepted dtypes{at} are subtypes "
         f"of {accepted}.", code="dtype-not-accepted", label=f"operand is {t.str_short(True)}",
         help="convert the operand first, with `astype`")


def check_same_dtypes(name: str, types: Sequence[ArrayType]) -> None:
    """Raise JAX's TypeError unless all operands have one dtype."""
    first = types[0].dtype
    for t in types:
        if t.dtype is not first and t.dtype != first:
            break
    else:
        return
    if any(is_extended(t.dtype) for t in types):
        return
    text = (f"lax.{name} requires arguments to have the same dtypes, got "
            f"{', '.join(long_name(t.dtype) for t in types)}.")
    if name in _CONVERTING:
        text += (f" (Tip: jnp.{_CONVERTING[name]} is a similar function that does automatic type "
                 "promotion on inputs).")
    listed = ", ".join(t.str_short(True) for t in types)
    fail(TypeError, text, code="dtype-mismatch", label=f"operands are {listed}",
         help=Remedy("convert one operand with `astype`", "operand", tuple(
             ((), f"@.astype({d!r})", None) for d in sorted({t.dtype.name for t in types}))))


def broadcast_shapes(name: str, types: Sequence[ArrayType]) -> Shape:
    """The shape of an elementwise result; JAX's TypeError if the operands do not fit together."""
    first: Shape = ()
    for t in types:
        if t.shape and t.shape != first:
            if first:
                break
            first = t.shape
    else:
        return first
    shapes = [t.shape for t in types if t.shape]
    found = list(first)
    for s in shapes:
        if len(s) != len(found):
            break
        for d, n in enumerate(s):
            if n != 1:
                if found[d] == 1:
                    found[d] = n
                elif found[d] != n:
                    break
        else:
            continue
        break
    else:
        return tuple(found)
    listed = ", ".join(t.str_short(True) for t in types)
    ranks = {len(s) for s in shapes}
    if len(ranks) > 1:
        fail(TypeError, f"{name}: arrays must have the same number of dimensions, got "
             f"{{{', '.join(map(str, sorted(ranks)))}}}", code="rank-mismatch",
             label=f"operands are {listed}", help="add dimensions of size 1 with `jnp.expand_dims`")
    fail(TypeError, f"{name} got incompatible shapes for broadcasting: "
         f"{', '.join(map(str, shapes))}.", code="shape-mismatch",
         label=f"operands are {listed}",
         notes=("in each dimension, sizes must be equal or 1",),
         help="`reshape` or `jnp.broadcast_to` gives operands shapes that fit")


# -- declaring ------------------------------------------------------------------------------------

def ufunc(function: Any, chosen: Callable[..., np.ufunc | None] | None = None) -> Evaluator:
    """An evaluator that applies a function of arrays, whatever the device dimensions are.

    chosen: as `Evaluator.ufunc`; a function that is a ufunc is it for all dtypes.
    """
    def evaluate(lead: int, *arrays: np.ndarray, **params: Any) -> np.ndarray:
        return function(*arrays)
    if isinstance(function, np.ufunc):
        chosen = lambda dtype, params: function     # noqa: E731
    return Evaluator(evaluate, ufunc=chosen)


def unary(name: str, doc: str, kinds: Kinds, *,
          result: Callable[[np.dtype], np.dtype] | None = None, function: Any,
          **fields: Any) -> Op:
    """Declare an op of one operand.

    kinds: dtypes of the operand. result: operand dtype -> result dtype; the same by default.
    function: of an array. fields: others of `defop`.
    """
    return defop(
        name, doc=doc, infer=unary_infer(name, kinds, result), rule="... -> ...",
        evaluate=ufunc(function), **fields)


def unary_infer(name: str, kinds: Kinds, result: Callable[[np.dtype], np.dtype] | None = None
                ) -> Callable[..., Any]:
    """The `infer` of an elementwise op of one operand."""
    known: dict[Any, Any] = {}

    def infer(x: ArrayType, **params: Any) -> tuple[Shape, Any]:
        dtype = known.get(x.dtype)
        if dtype is None:
            check_accepted(name, x, kinds)
            dtype = known[x.dtype] = x.dtype if result is None else result(x.dtype)
        return x.shape, dtype
    return infer


def nary(name: str, doc: str, kinds: Sequence[Kinds], *,
         result: Callable[[np.dtype], np.dtype] | None = None, function: Any,
         chosen: Callable[..., np.ufunc | None] | None = None, **fields: Any) -> Op:
    """Declare an op of several operands of one dtype; `kinds` has an item per operand. function,
    chosen: as of `ufunc`.
    """
    return defop(
        name, doc=doc, infer=nary_infer(name, kinds, result), rule="... -> ...",
        evaluate=ufunc(function, chosen), **fields)


def nary_infer(name: str, kinds: Sequence[Kinds],
               result: Callable[[np.dtype], np.dtype] | None = None) -> Callable[..., Any]:
    """The `infer` of an op that takes operands of one dtype."""
    known: dict[Any, Any] = {}      # operand dtype -> result dtype

    def infer(*types: ArrayType, **params: Any) -> tuple[Shape, Any]:
        first = types[0]
        given, shape = first.dtype, first.shape
        dtype, one_shape = known.get(given), True
        for t in types:
            if t.dtype is not given:
                dtype = None
            if t.shape != shape:
                one_shape = False
        if dtype is None:
            for i, (t, accepted) in enumerate(zip(types, kinds, strict=True)):
                if t.dtype.kind not in _LETTERS[accepted]:
                    check_accepted(name, t, accepted, i)
            check_same_dtypes(name, types)
            dtype = known[given] = given if result is None else result(given)
        return shape if one_shape else broadcast_shapes(name, types), dtype
    infer.operands = len(kinds)     # type: ignore[attr-defined]  # ir/verify.py counts them
    return infer


def boolean(dtype: np.dtype) -> np.dtype:
    """Result dtype of predicates."""
    return _BOOL


_BOOL = np.dtype(bool)


# -- samples --------------------------------------------------------------------------------------

def arange(*shape: int) -> np.ndarray:
    """0, 1, 2 and so on as floats of this shape, for samples."""
    return np.arange(math.prod(shape), dtype=np.float32).reshape(shape)


def values(shape: Shape, dtype: Any, low: float, high: float, seed: int = 0) -> np.ndarray:
    """Deterministic values between low and high, all different, in no order, none of them zero."""
    dtype = np.dtype(dtype)
    count = max(1, math.prod(shape))
    steps = (np.arange(count) + 0.37) / count
    order = np.random.default_rng(seed).permutation(count)
    flat = low + (high - low) * steps[order]
    if dtype.kind == "b":
        return (order % 3 == 0).reshape(shape)
    if dtype.kind == "c":
        flat = flat + 1j * (low + (high - low) * steps[np.roll(order, 1)])
    if dtype.kind in "iu":
        flat = np.where(np.rint(flat) == 0, 1, np.rint(flat))
    return flat.astype(dtype).reshape(shape)


def sampled(count: int, low: float, high: float, dtypes: Sequence[Any] = (np.float32,),
            **params: Any) -> Callable[[], list[Sample]]:
    """Samples of an op of `count` operands with values between low and high.

    For each dtype one of shape (4, 6); for two and more operands also one with a dimension of size
    1 and one with a rank-0 operand.
    """
    shape, row = (4, 6), (1, 6)

    def make() -> list[Sample]:
        shapes = [(shape,) * count]
        if count > 1:
            shapes += [(row, *(shape,) * (count - 1)), (*(shape,) * (count - 1), ())]
        return [Sample(tuple([values(s, dtype, low, high, 7 * i + 1) for i, s in enumerate(given)]),
                       params, grad=np.dtype(dtype).kind in "fc")
                for dtype in dtypes for given in shapes]
    return make
