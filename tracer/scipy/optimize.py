"""The minimum of a function of a vector, as in `jax.scipy.optimize`: the methods BFGS and L-BFGS.

Nocedal and Wright, "Numerical Optimization", 2nd edition: algorithms 6.1 and 7.5, with the line
search of algorithms 3.5 and 3.6 for the strong Wolfe conditions.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from .. import jnp, lax
from ..autodiff.grad import value_and_grad

_DESCENT, _CURVATURE = 1e-4, 0.9
_LIMITED = "l-bfgs-experimental-do-not-rely-on-this"


class OptimizeResults(NamedTuple):
    """A minimum `x`, the value `fun` and gradient `jac` there, and how it was found.

    success: the gradient is small. status: 0 then, 1 after too many steps, 3 where the line search
    failed; of L-BFGS, 2 and 3 after too many values and gradients, 4 where the value no longer
    falls, 5 where the line search failed. hess_inv: an estimate of the inverse of the second
    derivative; None of L-BFGS. nfev, njev, nit: numbers of values, gradients and steps.
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

    method: "BFGS", or "l-bfgs-experimental-do-not-rely-on-this", JAX's name of L-BFGS, which keeps
    the last steps instead of a matrix and takes complex vectors, too. tol: how small the largest
    part of the gradient is to be (1e-5). options: `gtol` for tol, `norm` for the gradient,
    `maxiter` (200 steps for each element); of BFGS `line_search_maxiter` (10); of L-BFGS `maxcor`
    (10 steps are kept), `ftol` (the least fall of the value), `maxfun`, `maxgrad`, `maxls` (20).

    >>> from shardtrace.scipy.optimize import minimize
    >>> found = minimize(lambda x: jnp.sum((x - 3.) ** 4) + 1., jnp.zeros(2), method="BFGS")
    >>> found.success, found.fun
    (Array(True, dtype=bool), Array(1., dtype=float32))
    """
    if not isinstance(args, tuple):
        raise TypeError(f"args argument to jax.scipy.optimize.minimize must be a tuple, got {args}")
    if method.lower() not in ("bfgs", _LIMITED):
        raise ValueError(f"Method {method} not recognized")
    chosen = dict(options or {})
    if tol is not None:
        chosen.setdefault("gtol", tol)
    search = _bfgs if method.lower() == "bfgs" else _limited_bfgs
    return search(lambda x: fun(x, *args), jnp.asarray(x0), **chosen)


def _bfgs(fun: Callable[[Any], Any], x0: Any, maxiter: int | None = None, norm: float = np.inf,
          gtol: float = 1e-5, line_search_maxiter: int = 10) -> OptimizeResults:
    """Minimise with a dense estimate of the inverse Hessian, updated after each line search."""
    limit = x0.size * 200 if maxiter is None else maxiter
    slope = value_and_grad(fun)
    identity = jnp.eye(x0.size, dtype=x0.dtype)
    value, grad = slope(x0)

    def small(grad: Any) -> Any:
        return jnp.linalg.norm(grad, ord=norm) < gtol

    def searching(carry: tuple[OptimizeResults, Any]) -> Any:
        state = carry[0]
        return ~state.success & (state.status == 0) & (state.nit < limit)

    def step(carry: tuple[OptimizeResults, Any]) -> tuple[OptimizeResults, Any]:
        state, before = carry
        direction = -(state.hess_inv @ state.jac)
        # Rounding may leave an estimate by which nothing leads down.
        direction = jnp.where(jnp.vdot(state.jac, direction) < 0, direction, -state.jac)
        # As far as the value would fall by what it fell by before, as scipy begins.
        first = 2.02 * (state.fun - before) / jnp.vdot(state.jac, direction)
        found = _line_search(slope, state.x, direction, state.fun, state.jac, line_search_maxiter,
                             jnp.where((first > 0) & (first < 1), first, 1))
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
            found.low.grad, hess_inv, count, count, state.nit + 1), state.fun

    one = jnp.asarray(1)
    end, _ = lax.while_loop(searching, step, (OptimizeResults(
        x0, small(grad), one * 0, value, grad, identity, one, one, one * 0),
        value + jnp.linalg.norm(grad) / 2))
    return end._replace(status=jnp.where(end.success, 0, jnp.where(end.status == 0, 1, end.status)))


class _Limited(NamedTuple):
    """L-BFGS between two steps: the result so far, and the last steps with the changes of the
    gradient along them, newest last."""

    result: OptimizeResults
    moves: Any
    turns: Any


def _limited_bfgs(fun: Callable[[Any], Any], x0: Any, maxiter: int | None = None,
                  norm: float = np.inf, maxcor: int = 10, ftol: float = 2.220446049250313e-09,
                  gtol: float = 1e-5, maxfun: float | None = None, maxgrad: float | None = None,
                  maxls: int = 20) -> OptimizeResults:
    """Minimise with the last `maxcor` steps in place of the inverse Hessian; the limits and the
    codes of `status` are scipy's.
    """
    unlimited = maxiter is None and maxfun is None and maxgrad is None
    steps = x0.size * 200 if unlimited else np.inf if maxiter is None else maxiter
    values, gradients = (np.inf if n is None else n for n in (maxfun, maxgrad))
    slope = value_and_grad(fun)
    value, grad = slope(x0)

    def small(grad: Any) -> Any:
        return jnp.linalg.norm(grad, ord=norm) < gtol

    def step(state: _Limited) -> _Limited:
        now = state.result
        direction = -_times_inverse(state, jnp.conj(now.jac))
        found = _line_search(slope, now.x, direction, now.fun, now.jac, maxls)
        point, count = found.low, now.nfev + found.count
        moved = point.t.astype(direction.dtype) * direction
        status: Any = jnp.where(now.fun - point.value < ftol, 4, 0)
        for code, reached in ((3, count >= gradients), (2, count >= values),
                              (1, now.nit + 1 >= steps), (5, ~found.done)):
            status = jnp.where(reached, code, status)
        result = OptimizeResults(now.x + moved, small(point.grad), status, point.value, point.grad,
                                 None, count, count, now.nit + 1)
        return _Limited(result, *(jnp.roll(kept, -1, axis=0).at[-1].set(new) for kept, new in (
            (state.moves, moved), (state.turns, jnp.conj(point.grad - now.jac)))))

    one, none = jnp.asarray(1), jnp.zeros((maxcor, *x0.shape), x0.dtype)
    begin = OptimizeResults(x0, small(grad), one * 0, value, grad, None, one, one, one * 0)
    end = lax.while_loop(lambda s: ~s.result.success & (s.result.status == 0), step,
                         _Limited(begin, none, none)).result
    return end._replace(status=jnp.where(end.success, 0, end.status))


def _times_inverse(state: _Limited, vector: Any) -> Any:
    """The estimated inverse of the second derivative times a vector: the loop there and back over
    the steps that are kept. Those in which the gradient did not turn up count for nothing."""
    pairs = list(zip(state.moves, state.turns, strict=True))
    shares = [_product(turn, move) for move, turn in pairs]
    usable = [share > 0 for share in shares]
    safe: list[Any] = [jnp.where(u, s, 1) for u, s in zip(usable, shares, strict=True)]
    rates: list[Any] = [jnp.where(u, 1 / s, 0) for u, s in zip(usable, safe, strict=True)]
    weights = []
    for (move, turn), rate in reversed(list(zip(pairs, rates, strict=True))):
        weights.append(rate * _product(move, vector))
        vector = vector - weights[-1].astype(vector.dtype) * turn
    newest = _product(pairs[-1][1], pairs[-1][1])
    scale: Any = jnp.where(usable[-1], shares[-1] / jnp.where(newest == 0, 1, newest), 1)
    vector = scale.astype(vector.dtype) * vector
    for (move, turn), rate, weight in zip(pairs, rates, reversed(weights), strict=True):
        vector = vector + (weight - rate * _product(turn, vector)).astype(vector.dtype) * move
    return vector


def _product(a: Any, b: Any) -> Any:
    """The inner product, of complex vectors as pairs of real ones."""
    return jnp.vdot(a, b).real


def _line_search(slope: Callable[[Any], Any], x: Any, direction: Any, value: Any, grad: Any,
                 limit: int, first: Any = 1) -> _Search:
    """How far to go: `low` of the result, where the conditions hold if it is `done`.

    first: the step that is tried first.
    """
    def at(t: Any) -> _Point:
        value, grad = slope(x + t.astype(direction.dtype) * direction)
        return _Point(t, value, _product(jnp.conj(grad), direction), grad)

    start = _Point(jnp.zeros_like(value), value, _product(jnp.conj(grad), direction), grad)

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
        start, start, jnp.full_like(value, first), no, no, jnp.asarray(0)))
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
