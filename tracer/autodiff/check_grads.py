"""Derivatives checked against finite differences, for tests."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..operands.dtype_promotion import dtype_name
from ..trees import tree
from .grad import jvp, vjp

__all__ = ["check_grads", "check_jvp", "check_vjp"]
_STEP = {np.dtype("float16"): 1e-1, np.dtype("float32"): 1e-3, np.dtype("float64"): 1e-6}
_TOLERANCE = {np.dtype("float16"): 1e-1, np.dtype("float32"): 2e-2, np.dtype("float64"): 1e-5}


def _directions(values: Any, generator: np.random.Generator) -> Any:
    """A random tangent of every leaf, of elements that are not small."""
    def one(x: Any) -> np.ndarray:
        signs = generator.choice([-1.0, 1.0], np.shape(x))
        return (signs * generator.uniform(0.5, 1.5, np.shape(x))).astype(dtype_name(x))

    return tree.map(one, values)


def _dtype(values: Any) -> np.dtype:
    """The narrowest dtype of the leaves, of those that there are steps for."""
    found = {dtype_name(x) for x in tree.leaves(values)} & _STEP.keys()
    return max(found or {np.dtype("float32")}, key=_STEP.__getitem__)


def _difference(f: Callable[..., Any], args: Sequence[Any], tangents: Any, eps: float) -> Any:
    """The derivative along `tangents`, from two values of f."""
    def at(step: float) -> list[Any]:
        return tree.leaves(f(*tree.map(lambda x, t: _as_before(x + step * t, x), tuple(args),
                                       tangents)))

    high, low = at(eps / 2), at(-eps / 2)
    return [(np.asarray(b) - np.asarray(a)) / eps for b, a in zip(high, low, strict=True)]


def _as_before(moved: Any, x: Any) -> Any:
    return moved if not hasattr(x, "dtype") or moved.dtype == x.dtype else moved.astype(x.dtype)


def _close(found: Sequence[Any], expected: Sequence[Any], dtype: np.dtype, atol: Any, rtol: Any,
           message: str) -> None:
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), atol=_tolerance(atol, dtype),
                                   rtol=_tolerance(rtol, dtype), err_msg=message)


def _tolerance(given: Any, dtype: np.dtype) -> float:
    """A tolerance for a dtype: given as a number, by dtype, or not at all."""
    if isinstance(given, Mapping):
        given = {np.dtype(d): x for d, x in given.items()}.get(dtype)
    return _TOLERANCE[dtype] if given is None else given


def check_jvp(f: Callable[..., Any], f_jvp: Callable[..., Any], args: Sequence[Any],
              atol: float | None = None, rtol: float | None = None, eps: float | None = None,
              err_msg: str = "") -> None:
    """Check `f_jvp(args, tangents)` against differences of f along random tangents."""
    dtype = _dtype(args)
    tangents = _directions(tuple(args), np.random.default_rng(0))
    out, moved = f_jvp(tuple(args), tangents)
    _close(tree.leaves(out), tree.leaves(f(*args)), dtype, atol, rtol, f"{err_msg} JVP primal")
    _close(tree.leaves(moved), _difference(f, args, tangents, eps or _STEP[dtype]), dtype, atol,
           rtol, f"{err_msg} JVP tangent")


def check_vjp(f: Callable[..., Any], f_vjp: Callable[..., Any], args: Sequence[Any],
              atol: float | None = None, rtol: float | None = None, eps: float | None = None,
              err_msg: str = "") -> None:
    """Check `f_vjp(*args)`, a result and a function of cotangents, against differences of f."""
    dtype, generator = _dtype(args), np.random.default_rng(0)
    out, pull = f_vjp(*args)
    _close(tree.leaves(out), tree.leaves(f(*args)), dtype, atol, rtol, f"{err_msg} VJP primal")
    tangents, cotangents = _directions(tuple(args), generator), _directions(out, generator)
    moved = _difference(f, args, tangents, eps or _STEP[dtype])

    def product(a: Any, b: Any) -> float:
        pairs = zip(tree.leaves(a), tree.leaves(b), strict=True)
        return sum(float(np.vdot(x, y).real) for x, y in pairs)

    _close([product(pull(cotangents), tangents)], [product(cotangents, moved)], dtype, atol, rtol,
           f"{err_msg} VJP cotangent")


def check_grads(f: Callable[..., Any], args: Sequence[Any], order: int,
                modes: Sequence[str] = ("fwd", "rev"), atol: float | None = None,
                rtol: float | None = None, eps: float | None = None) -> None:
    """Check derivatives of f, up to an order, against differences; AssertionError if they differ.

    modes: "fwd", "rev", or both, in which case those of higher order mix them.
    """
    def check(f: Callable[..., Any], args: Sequence[Any], order: int, message: str) -> None:
        if "fwd" in modes:
            check_jvp(f, lambda primals, tangents: jvp(f, primals, tangents), args, atol, rtol,
                      eps, f"{message} {f}")
        if "rev" in modes:
            check_vjp(f, lambda *primals: vjp(f, *primals), args, atol, rtol, eps, message)
        if order <= 1:
            return
        if "fwd" in modes:
            tangents = _directions(tuple(args), np.random.default_rng(1))
            check(lambda *primals: jvp(f, primals, tangents)[1], args, order - 1,
                  f"{message}jvp of ")
        if "rev" in modes:
            cotangents = _directions(f(*args), np.random.default_rng(2))
            check(lambda *primals: vjp(f, *primals)[1](cotangents), args, order - 1,
                  f"{message}vjp of ")

    check(f, tuple(args), order, "")
