"""Says of a program of the fuzzer whether its derivatives are what differences of its values say.

The sum of all results, each with a weight, is a function of the arguments that are float32. Its
slope along a random direction is read off differences of its values, in float64 and by
tests/references alone. The programs of jvp and grad, read in the same way, must give that slope.
"""
from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.ir.program import Program

from ..references.interpreter import COARSE, TRUSTED, NoReference, interpret
from .judge import (
    RIGHT,
    UNJUDGED,
    Outcome,
    TooSlow,
    Wrong,
    foreign,
    function_of,
    of_error,
    ops_of,
    placed,
)
from .text import Case

STEP = 1e-5
CUT = ("stop_gradient", "return_residual")      # where derivatives are meant to end
# Their values have steps of their own, or are known to float32 only.
ROUGH = {"reduce_precision", "nextafter", "bitcast_convert_type", *COARSE, *TRUSTED}


def judge_slopes(case: Case) -> Outcome:
    """The outcome; UNJUDGED where the values have a kink or no derivative is defined."""
    chosen = tuple(k for k, a in enumerate(case.args) if a.dtype == "float32" and np.prod(a.shape))
    unknown = Outcome(UNJUDGED, "no slope")
    if not chosen or any(cut in case.source() for cut in CUT):
        return unknown
    f = function_of(case)
    rng = np.random.default_rng(case.seed)
    arrays = [rng.standard_normal(x.shape).astype(x.dtype) if k in chosen else x
              for k, x in enumerate(case.arrays())]
    direction = [rng.standard_normal(arrays[k].shape) for k in chosen]

    def weighted(*xs: Any) -> Any:
        out: Any = jnp.float32(0)
        for i, y in enumerate(f(*xs)):
            if y.dtype == np.float32:
                out = out + jnp.sum(y * weights(i, y.shape))
        return out

    try:
        with placed(case) as xs:
            program = st.jit(weighted).trace(*xs).jaxpr
            if rough(program):
                return unknown

            def value(t: float) -> float:
                moved = list(arrays)
                for k, d in zip(chosen, direction, strict=True):
                    moved[k] = arrays[k].astype(np.float64) + t * d
                return float(interpret(program, moved, wide=True)[0])

            before, here, after = value(-STEP), value(0), value(STEP)
            slope = (after - before) / (2 * STEP)
            bend = abs(after - 2 * here + before) / STEP
            size = abs(slope) + 1e-3 * abs(here) + 1e-3
            if not np.isfinite(slope) or bend > 1e-2 * size or max(abs(here), abs(slope)) > 1e5:
                return unknown
            found = [slope_by(way, weighted, xs, arrays, chosen, direction)
                     for way in (pushed, pulled)]
    except (Exception, TooSlow) as error:
        outcome = of_error(error, "slopes")
        return unknown if outcome.kind == "refused late" else outcome
    known = [x for x in found if x is not None and np.isfinite(x)]
    for got in known:
        if not abs(got - slope) <= 1e-3 * size + bend:
            return of_error(Wrong(f"slopes {found} by jvp and grad instead of {slope}"), "slopes")
    return Outcome(RIGHT) if known else unknown


def weights(i: int, shape: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng(zlib.crc32(repr((i, shape)).encode()))
    return rng.integers(-8, 9, shape).astype(np.float32) / 8


def rough(program: Program) -> bool:
    """Does the program round to few digits on its way?"""
    return any(name in ROUGH for name in ops_of(program)) or any(
        d in str(program) for d in ("bf16[", "f16[", "f8_"))


def pushed(f: Callable[..., Any], xs: list[Any], chosen: tuple[int, ...]) -> Any:
    def slope(xs: list[Any], ts: list[Any]) -> Any:
        def of(*floats: Any) -> Any:
            given = list(xs)
            for k, x in zip(chosen, floats, strict=True):
                given[k] = x
            return f(*given)
        return st.jvp(of, tuple(xs[k] for k in chosen), tuple(ts))[1]
    return st.jit(slope).trace(xs, [xs[k] for k in chosen])


def pulled(f: Callable[..., Any], xs: list[Any], chosen: tuple[int, ...]) -> Any:
    return st.jit(st.grad(f, argnums=chosen)).trace(*xs)


def slope_by(way: Callable[..., Any], f: Callable[..., Any], xs: list[Any],
             arrays: list[np.ndarray], chosen: tuple[int, ...], direction: list[np.ndarray]
             ) -> float | None:
    """The slope that a derivative of the program gives. None where there is no such derivative."""
    try:
        program = way(f, xs, chosen).jaxpr
    except Exception as error:
        if foreign(error):
            raise
        return None
    if rough(program):
        return None
    try:
        if way is pushed:
            return float(interpret(program, [*arrays, *direction], wide=True)[0])
        slopes = interpret(program, arrays, wide=True)
    except NoReference:
        return None
    return float(sum(np.sum(g * d) for g, d in zip(slopes, direction, strict=True)))
