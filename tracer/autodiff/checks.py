"""What may be differentiated: JAX's checks of dtypes, shapes and types, with its texts."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.dtypes import float0, is_extended, issubdtype
from ...ir.ops.derivatives import cotangent_type, has_tangent
from ...ir.support.caches import cached
from ...ir.types import ArrayType, same_type
from ...ir.values.typeof import typeof


def check_callable(f: Any) -> None:
    if not callable(f):
        raise TypeError(f"Expected a callable value, got {f}")


def check_scalar(x: Any) -> None:
    """The result of a function given to `grad` is a number."""
    text = "Gradient only defined for scalar-output functions. Output "
    try:
        aval = typeof(x)
    except TypeError as e:
        raise TypeError(f"{text}was {x}.") from e
    if aval.shape != ():
        raise TypeError(f"{text}had shape: {aval.shape}.")


@cached(256, "which dtypes are real")
def _is_real(dtype: Any) -> bool:
    return not is_extended(dtype) and issubdtype(dtype, np.floating)


def check_reverse_input(name: str, holomorphic: bool, allow_int: bool, x: Any) -> None:
    """Refuse an argument of a dtype that `name` (`grad`, ...) does not differentiate."""
    dtype = typeof(x).dtype
    if not holomorphic and _is_real(dtype):
        return
    if holomorphic and not issubdtype(dtype, np.complexfloating):
        raise TypeError(f"{name} with holomorphic=True requires inputs with complex dtype, but got "
                        f"{dtype.name}.")
    if is_extended(dtype) or issubdtype(dtype, np.integer) or issubdtype(dtype, np.bool_):
        if not allow_int:
            raise TypeError(f"{name} requires real- or complex-valued inputs (input dtype that is "
                            f"a sub-dtype of np.inexact), but got {dtype.name}. If you want to use "
                            "Boolean- or integer-valued inputs, use vjp or set allow_int to True.")
    elif not issubdtype(dtype, np.inexact):
        raise TypeError(f"{name} requires numerical-valued inputs (input dtype that is a sub-dtype "
                        f"of np.bool_ or np.number), but got {dtype.name}.")


def check_reverse_output(name: str, holomorphic: bool, x: Any) -> None:
    """Refuse a result of a dtype that `name` (`grad`, ...) does not differentiate."""
    dtype = typeof(x).dtype
    if not holomorphic and _is_real(dtype):
        return
    if is_extended(dtype):
        raise TypeError(f"{name} with output element type {dtype.name}")
    if holomorphic:
        if not issubdtype(dtype, np.complexfloating):
            raise TypeError(f"{name} with holomorphic=True requires outputs with complex dtype, "
                            f"but got {dtype.name}.")
        return
    start = (f"{name} requires real-valued outputs (output dtype that is a sub-dtype of "
             f"np.floating), but got {dtype.name}. ")
    if issubdtype(dtype, np.complexfloating):
        raise TypeError(start + "For holomorphic differentiation, pass holomorphic=True. For "
                        "differentiation of non-holomorphic functions involving complex outputs, "
                        "use jax.vjp directly.")
    if not issubdtype(dtype, np.floating):
        raise TypeError(start + "For differentiation of functions with integer outputs, use "
                        "jax.vjp directly.")


def check_forward_input(holomorphic: bool, x: Any) -> None:
    """Refuse an argument of a dtype that `jacfwd` does not differentiate."""
    dtype = typeof(x).dtype
    if is_extended(dtype):
        raise TypeError(f"jacfwd with input element type {dtype.name}")
    if holomorphic:
        if not issubdtype(dtype, np.complexfloating):
            raise TypeError("jacfwd with holomorphic=True requires inputs with complex dtype, but "
                            f"got {dtype.name}.")
    elif not issubdtype(dtype, np.floating):
        raise TypeError("jacfwd requires real-valued inputs (input dtype that is a sub-dtype of "
                        f"np.floating), but got {dtype.name}. For holomorphic differentiation, "
                        "pass holomorphic=True. For differentiation of non-holomorphic functions "
                        "involving complex inputs or integer inputs, use jax.jvp directly.")


def check_forward_output(holomorphic: bool, x: Any) -> None:
    dtype = typeof(x).dtype
    if holomorphic and not issubdtype(dtype, np.complexfloating):
        raise TypeError("jacfwd with holomorphic=True requires outputs with complex dtype, but got "
                        f"{dtype.name}.")


def check_tangents(primals: Sequence[Any], tangents: Sequence[Any]) -> None:
    """Tangents given to `jvp` have the dtypes (float0 for integers) and shapes of the primals."""
    for p, t in zip(primals, tangents, strict=True):
        p, t = typeof(p), typeof(t)
        want = p.dtype if has_tangent(p.dtype) else float0
        if want != t.dtype:
            raise TypeError(
                "primal and tangent arguments to jax.jvp do not match; dtypes must be equal, or in "
                "case of int/bool primal dtype the tangent dtype must be float0.Got primal dtype "
                f"{p.dtype} and so expected tangent dtype {np.dtype(want)}, but got tangent dtype "
                f"{t.dtype} instead.")
        if p.shape != t.shape:
            raise ValueError("jvp called with different primal and tangent shapes;Got primal shape "
                             f"{p.shape} and tangent shape as {t.shape}")


def tangent_type(t: ArrayType) -> ArrayType:
    return t if has_tangent(t.dtype) else t.update(dtype=np.dtype(float0), weak_type=False)


def check_linear_tangents(types: Sequence[ArrayType], tangents: Sequence[Any]) -> None:
    """Tangents given to a linearized function have the types of the primals."""
    for p, x in zip(types, tangents, strict=True):
        want, t = tangent_type(p), typeof(x)
        if t.dtype == want.dtype == float0 and t.shape == want.shape:
            continue
        if not same_type(want, t):
            raise ValueError(
                "linearized function called on tangent values inconsistent with the original "
                f"primal values:\nGot tangent aval {t} for primal aval {p} but expected {want}."
                + _casts(p, t))


def _casts(p: ArrayType, t: ArrayType) -> str:
    """How a primal and a tangent that vary over different axes could be brought together."""
    fixes = []
    for missing, what in (
            (t.varying - p.varying, "the primal value passed to `jax.linearize`"),
            (p.varying - t.varying, "the tangent value passed to the callable `f_jvp` returned by "
             "`jax.linearize`")):
        if missing:
            fixes.append(f"applying `jax.lax.pcast(..., {tuple(sorted(missing))}, to='varying')` "
                         f"to {what}")
    return "".join([" \nThis might be fixed by:", *(f"\n  * {x};" for x in fixes)] if fixes else "")


def check_cotangents(types: Sequence[ArrayType], cts: Sequence[Any]) -> None:
    """Cotangents have the types of the results, with unreduced and reduced swapped. Those of
    results without a tangent, such as integers, count for nothing, whatever their dtype."""
    for p, x in zip(types, cts, strict=True):
        want, ct = tangent_type(cotangent_type(p)), typeof(x)
        if want.dtype == float0 and ct.shape == want.shape:
            continue
        if not same_type(want, ct):
            raise ValueError(
                "unexpected JAX type (e.g. shape/dtype) for argument to VJP function: got "
                f"{ct.str_short()}, but expected {want.str_short()} because the corresponding "
                f"output of the differentiated function had JAX type {p.str_short()}")
