"""Ordinary differential equations, as in `jax.experimental.ode`: y' = f(y, t) from y(t0) on.

Steps are those of Dormand and Prince's method of order 5, whose sizes follow from the estimated
error ("A family of embedded Runge-Kutta formulae", 1980); between the ends of a step, y is the
polynomial of degree 4 through both, their slopes and the middle (Shampine, 1986). The first step
is chosen as in Hairer, Norsett and Wanner, "Solving Ordinary Differential Equations I", II.4. The
derivative solves the adjoint equation backwards from one time to the one before.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..ir.dtypes import issubdtype
from ..ir.values.typeof import typeof
from . import jnp, lax
from .autodiff.custom.closures import closure_convert
from .autodiff.custom.custom_vjp import custom_vjp
from .autodiff.grad import vjp
from .batching.vmap import vmap
from .flatten_util import ravel_pytree
from .trees import tree

# The method's coefficients: where in the step each slope is taken, and from which slopes.
_PLACES = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
_SLOPES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84))
_RESULT = (*_SLOPES[-1], 0.0)
_LOWER_ORDER = (1951 / 21600, 0.0, 22642 / 50085, 451 / 720, -12231 / 42400, 649 / 6300, 1 / 60)
_ERROR = tuple(a - b for a, b in zip(_RESULT, _LOWER_ORDER, strict=True))
_MIDDLE = tuple(x / 2 for x in (
    6025192743 / 30085553152, 0.0, 51252292925 / 65400821598, -2691868925 / 45128329728,
    187940372067 / 1594534317056, -1776094331 / 19743644256, 11237099 / 235043384))
_SAFETY, _SHRINK, _GROW, _ORDER = 0.9, 0.2, 10.0, 5.0


class _Settings(NamedTuple):
    rtol: float
    atol: float
    mxstep: float
    hmax: float


class _State(NamedTuple):
    """Behind a step: y and its slope at t, the size of the next step, and the last one's start and
    polynomial."""
    y: Any
    slope: Any
    t: Any
    size: Any
    start: Any
    polynomial: Any


def odeint(func, y0, t, *args, rtol=1.4e-8, atol=1.4e-8, mxstep=jnp.inf, hmax=jnp.inf):
    """The solution of `y' = func(y, t, *args)` with y = y0 at t[0], at each of the times t.

    y0: a pytree of arrays; the result has a dimension more in front, for the times. t: increasing
    floats. args: pytrees of arrays. rtol, atol: the error that a step may have, relative to y and
    absolute. mxstep: the most steps from one time to the next. hmax: the longest step. Derivatives
    are taken in reverse mode, by y0, t and args. Raises TypeError for other args and times.

    >>> from shardtrace.experimental.ode import odeint
    >>> odeint(lambda y, t: -y, jnp.float32(1.0), jnp.array([0.0, 1.0, 2.0])).round(4)
    Array([1.    , 0.3679, 0.1353], dtype=float32)
    """
    for x in tree.leaves(args):
        try:
            typeof(x)
        except TypeError:
            raise TypeError("The contents of odeint *args must be arrays or scalars, but got "
                            f"{x}.") from None
    if not issubdtype(t.dtype, np.floating):
        raise TypeError(f"t must be an array of floats, but got {t}.")
    converted, closed = closure_convert(func, y0, t[0], *args)
    flat, unravel = ravel_pytree(y0)

    def on_vectors(y: Any, t: Any, *more: Any) -> Any:
        return ravel_pytree(converted(unravel(y), t, *more))[0]

    ys = _solution(on_vectors, _Settings(rtol, atol, mxstep, hmax), flat, t, *args, *closed)
    return vmap(unravel)(ys)


@functools.partial(custom_vjp, nondiff_argnums=(0, 1))
def _solution(f: Callable[..., Any], settings: _Settings, y0: Any, ts: Any, *args: Any) -> Any:
    """The vectors y at the times ts, as rows."""
    rtol, atol, mxstep, hmax = settings

    def slope(y: Any, t: Any) -> Any:
        return f(y, t, *args)

    def step(counted: Any) -> Any:
        count, now = counted
        end, last, error, slopes = _step(slope, now)
        ratio = _error_ratio(error, now.y, end, rtol, atol)
        size = jnp.clip(_next_size(now.size, ratio), 0.0, hmax)
        new = _State(end, last, now.t + now.size, size, now.t,
                     _polynomial(now.y, end, slopes, now.size))
        accepted = ratio <= 1.0
        return count + 1, tree.map(lambda a, b: jnp.where(accepted, a, b), new,
                                   now._replace(size=size))

    def until(now: Any, target: Any) -> Any:
        def going(counted: Any) -> Any:
            count, state = counted
            return (state.t < target) & (count < mxstep) & (state.size > 0)

        _, now = lax.while_loop(going, step, (0, now))
        part = ((target - now.start) / (now.t - now.start)).astype(now.polynomial.dtype)
        return now, jnp.polyval(now.polynomial, part)

    first = slope(y0, ts[0])
    size = jnp.clip(_first_size(slope, ts[0], y0, first, rtol, atol), 0.0, hmax)
    begin = _State(y0, first, ts[0], size, ts[0], jnp.stack([y0] * 5))
    _, ys = lax.scan(until, begin, ts[1:])
    return jnp.concatenate([y0[None], ys])


def _step(slope: Callable[[Any, Any], Any], now: _State) -> tuple[Any, Any, Any, Any]:
    """(y at the end, the slope there, an estimate of the error, all slopes)."""
    h = now.size.astype(now.slope.dtype)
    slopes = [now.slope]
    for place, weights in zip(_PLACES, _SLOPES, strict=True):
        y = now.y + h * _weighted(weights, slopes)
        slopes.append(slope(y, now.t + now.size * place).astype(now.slope.dtype))
    return (h * _weighted(_RESULT, slopes) + now.y, slopes[-1], h * _weighted(_ERROR, slopes),
            slopes)


def _weighted(weights: Any, slopes: Any) -> Any:
    return sum(k * w for w, k in zip(weights, slopes, strict=True) if w)


def _polynomial(y0: Any, y1: Any, slopes: Any, size: Any) -> Any:
    """Coefficients, highest first, of y in the step as a function of the part of it."""
    h = size.astype(y0.dtype)
    middle = y0 + h * _weighted(_MIDDLE, slopes)
    d0, d1 = h * slopes[0], h * slopes[-1]
    return jnp.stack([-2 * d0 + 2 * d1 - 8 * y0 - 8 * y1 + 16 * middle,
                      5 * d0 - 3 * d1 + 18 * y0 + 14 * y1 - 32 * middle,
                      -4 * d0 + d1 - 11 * y0 - 5 * y1 + 16 * middle, d0, y0])


def _error_ratio(error: Any, y0: Any, y1: Any, rtol: float, atol: float) -> Any:
    """The error of a step in units of the allowed one."""
    allowed = atol + rtol * jnp.maximum(jnp.abs(y0), jnp.abs(y1))
    part = jnp.abs(error / allowed.astype(error.dtype))
    return jnp.sqrt(jnp.mean(part * part))


def _next_size(size: Any, ratio: Any) -> Any:
    least = jnp.where(ratio < 1, 1.0, _SHRINK)
    factor = jnp.minimum(_GROW, jnp.maximum(_SAFETY * ratio ** (-1 / _ORDER), least))
    return (size * jnp.where(ratio == 0, _GROW, factor)).astype(size.dtype)


def _first_size(slope: Callable[[Any, Any], Any], t0: Any, y0: Any, f0: Any, rtol: float,
                atol: float) -> Any:
    """The first step: as long as the error of Euler's method stays within the tolerance."""
    scale = (atol + jnp.abs(y0) * rtol).astype(y0.dtype)
    far, steep = jnp.linalg.norm(y0 / scale), jnp.linalg.norm(f0 / scale)
    h0: Any = jnp.where((far < 1e-5) | (steep < 1e-5), 1e-6, 0.01 * far / steep)
    bend = jnp.linalg.norm((slope(y0 + h0.astype(y0.dtype) * f0, (t0 + h0).astype(t0.dtype)) - f0)
                           / scale) / h0
    h1: Any = jnp.where((steep <= 1e-15) & (bend <= 1e-15), jnp.maximum(1e-6, h0 * 1e-3),
                        (0.01 / jnp.maximum(steep, bend)) ** (1 / _ORDER))
    return jnp.minimum(100.0 * h0, h1).astype(t0.dtype)


# -- the derivative --------------------------------------------------------------------------------

def _forward(f: Callable[..., Any], settings: _Settings, y0: Any, ts: Any, *args: Any) -> Any:
    ys = _solution(f, settings, y0, ts, *args)
    return ys, (ys, ts, args)


def _backward(f: Callable[..., Any], settings: _Settings, kept: Any, ct: Any) -> Any:
    """Cotangents of y0, ts and args: from each time to the one before, y and its cotangent are
    solved for backwards, and those of time and args summed up along the way."""
    ys, ts, args = kept
    ys, ts, ct = map(jnp.asarray, (ys, ts, ct))

    def reversed_slopes(state: Any, t: Any, *args: Any) -> Any:
        y, y_ct, *_ = state
        slope, pull = vjp(f, y, -t, *args)
        y_dot, t_dot, *args_dot = pull(y_ct)
        return -slope, y_dot, t_dot, tuple(args_dot)

    def before(carry: Any, i: Any) -> Any:
        y_ct, t0_ct, args_ct = carry
        t_ct = jnp.dot(f(ys[i], ts[i], *args), ct[i]).real.astype(ts.dtype)
        _, y_ct, t0_ct, args_ct = tree.map(lambda x: x[1], odeint(
            reversed_slopes, (ys[i], y_ct, t0_ct - t_ct, args_ct),
            jnp.stack([-ts[i], -ts[i - 1]]), *args, rtol=settings.rtol, atol=settings.atol,
            mxstep=settings.mxstep, hmax=settings.hmax))
        return (y_ct + ct[i - 1], t0_ct, args_ct), t_ct

    begin = (ct[-1], jnp.zeros((), ts.dtype), tree.map(jnp.zeros_like, args))
    (y_ct, t0_ct, args_ct), rest = lax.scan(before, begin, jnp.arange(len(ts) - 1, 0, -1))
    return (y_ct, jnp.concatenate([t0_ct[None], rest[::-1]]), *args_ct)


_solution.defvjp(_forward, _backward)
