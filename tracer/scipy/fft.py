"""Cosine transforms, as in `jax.scipy.fft`: type 2, and its inverse.

A cosine transform of n numbers is the Fourier transform of the same n, even places first and odd
ones backwards after them, turned by a phase (Makhoul, "A fast cosine transform in one and two
dimensions", 1980).
"""
from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from .. import jnp, lax
from ..jnp import fft
from ..operands.dtype_promotion import promote_args_inexact
from ..operands.shape_arguments import canonical_axis

Axes = Sequence[int] | None


def dct(x, type=2, n=None, axis=-1, norm=None):
    """The cosine transform of type 2 along a dimension: `2 sum_k x[k] cos(pi i (2k + 1) / 2n)`.

    n: how many of x, with zeros appended where it has fewer. norm: "ortho" scales to an
    orthogonal transform.

    >>> from shardtrace.scipy.fft import dct
    >>> dct(jnp.array([1., 2., 3., 4.])).round(3)
    Array([20.   , -6.309,  0.   , -0.448], dtype=float32)
    """
    _only_type_2(type)
    return _along(_forward, "dct", x, n, axis, norm)


def idct(x, type=2, n=None, axis=-1, norm=None):
    """The inverse of `dct` along a dimension: what gives `x` under the same `norm`."""
    _only_type_2(type)
    return _along(_inverse, "idct", x, n, axis, norm)


def dctn(x, type=2, s=None, axes=None, norm=None):
    """`dct` along several dimensions, by default all. s: their sizes, as n there."""
    _only_type_2(type)
    return _along_all(_forward, "dctn", x, s, axes, norm)


def idctn(x, type=2, s=None, axes=None, norm=None):
    """The inverse of `dctn` along several dimensions, under the same `norm`."""
    _only_type_2(type)
    return _along_all(_inverse, "idctn", x, s, axes, norm)


def _only_type_2(type: int) -> None:
    if type != 2:
        raise NotImplementedError("Only DCT type 2 is implemented.")


def _along(f: Callable[[Any, Any], Any], name: str, x: Any, n: int | None, axis: int, norm: Any
           ) -> Any:
    (x,) = promote_args_inexact(name, x)
    if jnp.iscomplexobj(x):
        return lax.complex(_along(f, name, x.real, n, axis, norm),
                           _along(f, name, x.imag, n, axis, norm))
    axis = canonical_axis(axis, x.ndim)
    return jnp.moveaxis(f(_sized(jnp.moveaxis(x, axis, -1), n), norm), -1, axis)


def _along_all(f: Callable[[Any, Any], Any], name: str, x: Any, s: Axes, axes: Axes, norm: Any
               ) -> Any:
    """A transform of one dimension along each of several. s: the length of each, None for its own.
    """
    (x,) = promote_args_inexact(name, x)
    if s is not None:
        s = [operator.index(n) for n in s] if isinstance(s, Sequence) else [operator.index(s)]
        if len(s) > x.ndim:
            raise ValueError(f"s must have at most x.ndim ({x.ndim}) elements, got {len(s)}")
    if axes is None:
        axes = range(x.ndim - (x.ndim if s is None else len(s)), x.ndim)
    sizes = [None] * len(axes) if s is None else s
    if len(sizes) != len(axes):
        raise ValueError("Shape and axes must have the same length.")
    for axis, n in zip(axes, sizes, strict=True):
        x = _along(f, name, x, n, axis, norm)
    return x


def _sized(x: Any, n: int | None) -> Any:
    """The first n along the last dimension, padded with zeros where there are fewer."""
    if n is None or n == x.shape[-1]:
        return x
    return lax.pad(x, x.dtype.type(0), [(0, 0, 0)] * (x.ndim - 1) + [(0, n - x.shape[-1], 0)])


def _phase(n: int, dtype: Any) -> Any:
    return lax.exp(lax.complex(*(jnp.zeros(n, dtype),
                                 jnp.arange(n, dtype=dtype) * (-math.pi / (2 * n)))))


def _scale(n: int, dtype: Any, norm: Any) -> Any:
    """What the numbers are multiplied by under `norm`."""
    if norm not in ("ortho", "backward", None):
        raise ValueError(f"jax.scipy.fft.dct: norm={norm!r} is not implemented")
    if norm != "ortho":
        return 1
    return jnp.full(n, math.sqrt(1 / (2 * n)), dtype).at[0].set(math.sqrt(1 / (4 * n)))


def _forward(x: Any, norm: Any) -> Any:
    n = x.shape[-1]
    v = jnp.concatenate([x[..., ::2], x[..., 1::2][..., ::-1]], axis=-1)
    return 2 * (fft.fft(v) * _phase(n, x.dtype)).real * _scale(n, x.dtype, norm)


def _inverse(x: Any, norm: Any) -> Any:
    n = x.shape[-1]
    x = x / _scale(n, x.dtype, norm)
    turned = lax.complex(x, -jnp.concatenate([jnp.zeros_like(x[..., :1]), x[..., :0:-1]], axis=-1))
    v = fft.ifft(turned / _phase(n, x.dtype)).real / 2
    even = (n + 1) // 2
    out = jnp.zeros_like(x).at[..., ::2].set(v[..., :even])
    return out.at[..., 1::2].set(v[..., even:][..., ::-1])
