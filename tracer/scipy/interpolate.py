"""Interpolation on grids: `jax.scipy.interpolate`, and coordinates of `jax.scipy.ndimage`."""
from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import jnp, lax
from ..jnp.indexing.searching import choose_where as where
from ..operands.dtype_promotion import check_arraylike, promote_dtypes_inexact


class RegularGridInterpolator:
    """A function of points in d dimensions that is known on a grid.

    points: for each dimension the ascending coordinates of the grid. values: of shape
    (len(points[0]), ..., len(points[d - 1]), ...). method: "linear" or "nearest". fill_value: of
    points outside, or None to go on with the outermost cells. bounds_error: is not supported, since
    values are not known while tracing.

    >>> from shardtrace.scipy.interpolate import RegularGridInterpolator
    >>> f = RegularGridInterpolator((jnp.array([0., 1.]), jnp.array([0., 2.])),
    ...                             jnp.array([[0., 2.], [10., 12.]]))
    >>> f(jnp.array([[0.5, 1.0]]))
    Array([6.], dtype=float32)
    """

    def __init__(self, points, values, method="linear", bounds_error=False, fill_value=np.nan):
        if method not in ("linear", "nearest"):
            raise ValueError(f"method {method!r} is not defined; 'linear' and 'nearest' are")
        if bounds_error:
            raise NotImplementedError("bounds_error=True: coordinates are not known while tracing; "
                                      "points outside get fill_value")
        check_arraylike("RegularGridInterpolator", values, *points)
        values = jnp.asarray(values)
        if len(points) > values.ndim:
            raise ValueError(f"there are {len(points)} point arrays, but values has {values.ndim} "
                             "dimensions")
        (self.values,) = promote_dtypes_inexact(values)
        self.grid = tuple(map(jnp.asarray, points))
        for i, p in enumerate(self.grid):
            if p.ndim != 1:
                raise ValueError(f"the points in dimension {i} must be 1-dimensional")
            if values.shape[i] != p.shape[0]:
                raise ValueError(f"there are {p.shape[0]} points and {values.shape[i]} values in "
                                 f"dimension {i}")
        self.method, self.bounds_error, self.fill_value = method, bounds_error, fill_value

    def __call__(self, xi, method=None):
        """The values at points: coordinates are in the last dimension of xi, or a tuple of them."""
        method = self.method if method is None else method
        if method not in ("linear", "nearest"):
            raise ValueError(f"method {method!r} is not defined; 'linear' and 'nearest' are")
        d = len(self.grid)
        x = jnp.stack(jnp.broadcast_arrays(*xi), -1) if isinstance(xi, tuple) else jnp.asarray(xi)
        if d == 1 and x.ndim < 2:
            x = x[..., None]
        if x.shape[-1] != d:
            raise ValueError("the requested sample points xi have dimension "
                             f"{x.shape[-1]}, but this RegularGridInterpolator has dimension {d}")
        lead, flat = x.shape[:-1], x.reshape(-1, d)
        cells, places, outside = [], [], jnp.zeros(flat.shape[0], bool)
        for i, p in enumerate(self.grid):
            at = flat[:, i]
            cell = jnp.clip(jnp.searchsorted(p, at) - 1, 0, p.shape[0] - 2)
            cells.append(cell)
            places.append((at - p[cell]) / (p[cell + 1] - p[cell]))
            outside = outside | (at < p[0]) | (at > p[-1])
        rest = self.values.shape[d:]
        wide = (-1,) + (1,) * len(rest)
        if method == "nearest":
            out = self.values[tuple(where(y <= 0.5, c, c + 1) for c, y in zip(
                cells, places, strict=True))]
        else:
            out = jnp.zeros((flat.shape[0], *rest), self.values.dtype)
            for corner in itertools.product((0, 1), repeat=d):
                weight = functools.reduce(operator.mul, [
                    y if c else 1 - y for c, y in zip(corner, places, strict=True)])
                out = out + weight.reshape(wide) * self.values[tuple(
                    i + c for i, c in zip(cells, corner, strict=True))]
        if self.fill_value is not None:
            out = where(outside.reshape(wide), self.fill_value, out)
        missing = jnp.isnan(flat).any(-1).reshape(wide)
        return where(missing, jnp.nan, out).reshape(*lead, *rest)


def map_coordinates(input, coordinates, order, mode="constant", cval=0.0):
    """The values of an array at coordinates between its elements.

    coordinates: for each dimension an array, all of one shape, which is that of the result. order:
    0 takes the nearest element, 1 is linear. mode: what is outside: "constant" (cval), "nearest",
    "wrap", "mirror" or "reflect".

    >>> from shardtrace.scipy.ndimage import map_coordinates
    >>> map_coordinates(jnp.array([0., 10., 20.]), [jnp.array([0.5, 1.25])], order=1)
    Array([ 5. , 12.5], dtype=float32)
    """
    x = jnp.asarray(input)
    places = [jnp.asarray(c) for c in coordinates]
    if len(places) != x.ndim:
        raise ValueError("coordinates must be a sequence of length input.ndim, but "
                         f"{len(places)} != {x.ndim}")
    if mode not in _OUTSIDE:
        raise NotImplementedError(f"jax.scipy.ndimage.map_coordinates does not yet support mode "
                                  f"{mode}. Currently supported modes are {sorted(_OUTSIDE)}.")
    if order not in (0, 1):
        raise NotImplementedError("jax.scipy.ndimage.map_coordinates currently requires order<=1")
    fill = jnp.asarray(cval, x.dtype)
    inside = _OUTSIDE[mode]
    # For each dimension the elements next to a place, and their weights.
    beside = []
    for c in places:
        if order == 0:
            beside.append([(lax.round(c.astype(jnp.result_type(c, float))).astype(int), 1)])
        else:
            low = jnp.floor(c)
            part = c - low
            low = low.astype(int)
            beside.append([(low, 1 - part), (low + 1, part)])
    total: Any = None
    for choice in itertools.product(*beside):
        index = tuple(inside(i, n) for (i, _), n in zip(choice, x.shape, strict=True))
        value = x[index]
        if mode == "constant":
            valid = functools.reduce(operator.and_, [
                (i >= 0) & (i < n) for (i, _), n in zip(choice, x.shape, strict=True)])
            value = where(valid, value, fill)
        weight = math.prod([w for _, w in choice]) if order == 0 else functools.reduce(
            operator.mul, [w for _, w in choice])
        term = value * weight
        total = term if total is None else total + term
    if jnp.issubdtype(x.dtype, np.integer) and jnp.issubdtype(total.dtype, np.inexact):
        total = lax.round(total)
    return total.astype(x.dtype)


def _mirrored(i: Any, n: int) -> Any:
    """With the elements at the ends as mirrors: 2 1 | 0 1 2 | 1 0."""
    period = max(2 * n - 2, 1)
    i = jnp.abs(i) % period
    return where(i >= n, period - i, i)


_OUTSIDE: dict[str, Callable[[Any, int], Any]] = {
    "constant": lambda i, n: jnp.clip(i, 0, n - 1),
    "nearest": lambda i, n: jnp.clip(i, 0, n - 1),
    "wrap": lambda i, n: i % n,
    "mirror": _mirrored,
    "reflect": lambda i, n: jnp.floor_divide(_mirrored(2 * i + 1, 2 * n + 1), 2),
}
