"""The minimum of a function of a vector, as in `jax.scipy.optimize`: the method BFGS.

Nocedal and Wright, "Numerical Optimization", 2nd edition: algorithm 6.1, with the line search of
algorithms 3.5 and 3.6 for the strong Wolfe conditions.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from .. import jnp, lax
from ..autodiff.grad import value_and_grad

_DESCENT, _CURVATURE = 1e-4, 0.9


class OptimizeResults(NamedTuple):
    """A minimum `x`, the value `fun` and gradient `jac` there, and how it was found.

    success: the gradient is small. status: 0 then, 1 after too many steps, 3 where the line search
    failed. hess_inv: an estimate of the inverse of the second derivative. nfev, njev, nit: numbers
    of values, gradients and steps.
    """

    x: Any
    success: Any
    status: Any
    fun: Any
    jac: Any
    hess_inv: Any
    nfev: Any
    njev: Any
    nit: Any


class _Point(NamedTuple):
    """A place along a line: how far, the value, the slope, and the gradient there."""

    t: Any
    value: Any
    slope: Any
    grad: Any


class _Search(NamedTuple):
    """A line search: the points that enclose a step (from `low` on), and whether they do yet."""

    low: _Point
    high: _Point
    step: Any
    enclosed: Any
    done: Any
    count: Any


def minimize(fun: Callable[..., Any], x0: Any, args: tuple[Any, ...] = (), *, method: str,
             tol: float | None = None, options: Mapping[str, Any] | None = None
             ) -> OptimizeResults:
    """A minimum of `fun(x, *args)`, a scalar function of a vector, begun at `x0`.

    method: "BFGS". tol: how small the largest part of the gradient is to be (1e-5). options:
    `gtol` for tol, `norm` for the gradient, `maxiter` (200 steps for each element),
    `line_search_maxiter` (10).

    >>> from shardtrace.scipy.optimize import minimize
    >>> found = minimize(lambda x: jnp.sum((x - 3.) ** 4) + 1., jnp.zeros(2), method="BFGS")
    >>> found.success, found.fun
    (Array(True, dtype=bool), Array(1., dtype=float32))
    """
    if not isinstance(args, tuple):
        raise TypeError(f"args argument to jax.scipy.optimize.minimize must be a tuple, got {args}")
    if method.lower() != "bfgs":
        raise ValueError(f"Method {method} not recognized")
    chosen = dict(options or {})
    if tol is not None:
        chosen.setdefault("gtol", tol)
    return _bfgs(lambda x: fun(x, *args), jnp.asarray(x0), **chosen)


def _bfgs(fun: Callable[[Any], Any], x0: Any, maxiter: int | None = None, norm: float = np.inf,
          gtol: float = 1e-5, line_search_maxiter: int = 10) -> OptimizeResults:
    limit = x0.size * 200 if maxiter is None else maxiter
    slope = value_and_grad(fun)
    identity = jnp.eye(x0.size, dtype=x0.dtype)
    value, grad = slope(x0)

    def small(grad: Any) -> Any:
        return jnp.linalg.norm(grad, ord=norm) < gtol

    def searching(state: OptimizeResults) -> Any:
        return ~state.success & (state.status == 0) & (state.nit < limit)

    def step(state: OptimizeResults) -> OptimizeResults:
        direction = -(state.hess_inv @ state.jac)
        found = _line_search(slope, state.x, direction, state.fun, state.jac, line_search_maxiter)
        moved, turned = found.low.t * direction, found.low.grad - state.jac
        curvature = jnp.vdot(turned, moved)
        safe: Any = jnp.where(curvature == 0, 1, curvature)
        scale = jnp.where(curvature == 0, 0, 1 / safe)
        left = identity - scale * jnp.outer(moved, turned)
        hess_inv = jnp.where(curvature > 0, left @ state.hess_inv @ left.T
                             + scale * jnp.outer(moved, moved), state.hess_inv)
        count = state.nfev + found.count
        return OptimizeResults(
            state.x + moved, small(found.low.grad), jnp.where(found.done, 0, 3), found.low.value,
            found.low.grad, hess_inv, count, count, state.nit + 1)

    one = jnp.asarray(1)
    end = lax.while_loop(searching, step, OptimizeResults(
        x0, small(grad), one * 0, value, grad, identity, one, one, one * 0))
    return end._replace(status=jnp.where(end.success, 0, jnp.where(end.status == 0, 1, end.status)))


def _line_search(slope: Callable[[Any], Any], x: Any, direction: Any, value: Any, grad: Any,
                 limit: int) -> _Search:
    """How far to go: `low` of the result, where the conditions hold if it is `done`."""
    def at(t: Any) -> _Point:
        value, grad = slope(x + t * direction)
        return _Point(t, value, jnp.vdot(grad, direction), grad)

    start = _Point(jnp.zeros_like(value), value, jnp.vdot(grad, direction), grad)

    def chosen(which: Any, a: _Point, b: _Point) -> _Point:
        return _Point(*(jnp.where(which, p, q) for p, q in zip(a, b, strict=True)))

    def advance(s: _Search) -> _Search:
        new = at(s.step)
        high = (new.value > start.value + _DESCENT * new.t * start.slope) | (
            (new.value >= s.low.value) & (s.enclosed | (s.count > 0)))
        done = ~high & (jnp.abs(new.slope) <= -_CURVATURE * start.slope)
        # The far end becomes the new point, or the old near one where the slope points back at it.
        back = ~high & jnp.where(s.enclosed, new.slope * (s.high.t - s.low.t) >= 0, new.slope >= 0)
        enclosed = s.enclosed | high | back
        low = chosen(high, s.low, new)
        far = chosen(high, new, chosen(back, s.low, s.high))
        step = jnp.where(enclosed, _between(low, far), 2 * new.t)
        return _Search(low, far, step, enclosed, done, s.count + 1)

    def searching(s: _Search) -> Any:
        return ~s.done & (s.count < 2 * limit)

    no = jnp.asarray(False)
    found = lax.while_loop(searching, advance, _Search(
        start, start, jnp.ones_like(value), no, no, jnp.asarray(0)))
    # Without the second condition a step that goes down is still one.
    return found._replace(done=found.done | (found.low.t > 0))


def _between(low: _Point, high: _Point) -> Any:
    """Where the cubic through two points with their slopes is least; the middle where that is no
    place well between them."""
    width = high.t - low.t
    safe = jnp.where(width == 0, 1, width)
    a = low.slope + high.slope - 3 * (high.value - low.value) / safe
    root = jnp.sqrt(jnp.maximum(a * a - low.slope * high.slope, 0))
    root = jnp.where(width < 0, -root, root)
    below = high.slope - low.slope + 2 * root
    part = 1 - (high.slope + root - a) / jnp.where(below == 0, 1, below)
    usable = (part > 0.1) & (part < 0.9) & (below != 0) & jnp.isfinite(part)
    return low.t + jnp.where(usable, part, 0.5) * width
