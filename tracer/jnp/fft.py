"""numpy.fft: Fourier transforms along dimensions, and the frequencies they belong to."""
from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ir.dtypes.kinds import to_complex_dtype
from ...ir.ops.elementwise.arithmetic import div_p, mul_p
from ...ir.values.array import Array
from .. import lax
from ..operands.dtype_promotion import (
    check_arraylike,
    convert,
    dtype_name,
    promote_dtypes_complex,
    strong,
    to_inexact,
    user_dtype,
)
from ..operands.scalars import float_default
from ..operands.shape_arguments import canonical_axes
from ..staging.constants import as_array, put_on_device
from ..staging.memoized import memoized
from .creation.ranges import arange
from .elementwise.arithmetic import real_dtype
from .elementwise.complex_numbers import conj
from .manipulation.joining import concatenate
from .manipulation.rearrange import roll
from .manipulation.shaping import moveaxis

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift",
    "ihfft", "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]


def _scale(norm: Any, lengths: Sequence[int], inverse: bool) -> float:
    """The factor that a normalisation asks for beyond what the op does."""
    n = math.prod(lengths)
    if norm in (None, "backward"):
        return 1.0
    if norm == "ortho":
        return math.sqrt(n) if inverse else 1 / math.sqrt(n)
    if norm == "forward":
        return float(n) if inverse else 1 / n
    raise ValueError(f"Invalid norm value {norm}; should be \"backward\",\"ortho\" or \"forward\".")


def _dims(name: str, axes: Sequence[Any], ndim: int) -> tuple[int, ...]:
    """The dimensions that `axes` stands for. Raises ValueError for one that comes twice."""
    axes = tuple(operator.index(d) for d in axes)
    for d in axes:
        canonical_axes(d, ndim)
    if len(set(d % max(ndim, 1) for d in axes)) < len(axes):
        raise ValueError(f"jax.numpy.fft.{name} does not support repeated axes. Got axes "
                         f"{list(axes)}.")
    return canonical_axes(axes, ndim)


def _of_length(x: Any, d: int, n: int) -> Any:
    """The array with n elements along a dimension: cut off, or followed by zeros."""
    have = x.shape[d]
    if n > have:
        config = [(0, 0, 0)] * x.ndim
        config[d] = (0, n - have, 0)
        return lax.pad(x, convert(0, x.dtype), config)
    return lax.slice_in_dim(x, 0, n, axis=d) if n < have else x


@memoized
def _transform(name: str, kind: str, a: Any, s: Any, axes: Any, norm: Any) -> Array:
    """Any of numpy's transforms along `axes`: dimensions moved last, cut or padded to `s`,
    transformed by at most three at a time, scaled as `norm` says, and moved back.
    """
    check_arraylike(f"jnp.fft.{name}", a)
    x = as_array(a)
    if s is not None:
        s = tuple(operator.index(n) for n in s)
        if any(n < 1 for n in s):
            raise ValueError(f"Shape should be positive. Got {s}")
        if axes is not None and len(s) != len(axes):
            raise ValueError("Shape and axes have different lengths.")
    if axes is None:
        axes = tuple(range(x.ndim))[-len(s):] if s is not None else tuple(range(x.ndim))
    if not len(axes):        # as in JAX, complex but where a real transform is asked for
        return strong(convert(x, to_inexact(dtype_name(x)))) if kind == "rfft" else strong(
            promote_dtypes_complex(x)[0])
    dims = _dims(name, axes, x.ndim)
    x = moveaxis(x, dims, tuple(range(x.ndim - len(dims), x.ndim)))
    x = convert(x, to_inexact(dtype_name(x))) if kind == "rfft" else promote_dtypes_complex(x)[0]
    x = strong(as_array(x))
    lead = x.ndim - len(dims)
    if s is None:
        s = list(x.shape[lead:])
        if kind == "irfft":
            s[-1] = max(0, 2 * (s[-1] - 1))
    s = tuple(s)
    wanted = (*s[:-1], s[-1] // 2 + 1) if kind == "irfft" else s
    for d, n in enumerate(wanted, lead):
        x = _of_length(x, d, n)
    if kind == "rfft" and not s[-1]:
        raise ValueError(f"Invalid number of FFT data points ({s[-1]}) specified.")
    if not all(s):                                    # a Hermitian signal of one sample, too
        half = s[-1] // 2 + 1 if kind == "rfft" else s[-1]
        dtype = {"irfft": real_dtype, "rfft": to_complex_dtype}.get(kind, np.dtype)(x.dtype)
        out = lax.full((*x.shape[:lead], *s[:-1], half), 0, dtype)
    else:
        out = _in_steps(x, kind, s)
        factor = _scale(norm, s, kind in ("ifft", "irfft"))
        if factor != 1.0:
            out = mul_p.bind(out, convert(factor, out.dtype))
    return moveaxis(out, tuple(range(out.ndim - len(dims), out.ndim)), dims)


def _in_steps(x: Array, kind: str, lengths: tuple[int, ...]) -> Array:
    """At most three dimensions in one op; more of them one group after the other."""
    if len(lengths) <= 3:
        return lax.fft(x, kind, lengths)
    complex_kind = {"rfft": "fft", "irfft": "ifft"}.get(kind, kind)
    rest, last = lengths[:-3], lengths[-3:]
    n = len(lengths)
    if kind != "irfft":
        x = lax.fft(x, kind, last)
    lead = x.ndim - n
    order = [*range(lead), *range(x.ndim - 3, x.ndim), *range(lead, x.ndim - 3)]
    moved = lax.transpose(x, order)
    moved = _in_steps(moved, complex_kind, rest)
    x = lax.transpose(moved, np.argsort(order))
    return lax.fft(x, kind, last) if kind == "irfft" else x


def _refuse_several(name: str, axis: Any) -> None:
    if isinstance(axis, (tuple, list)):
        raise ValueError(f"jax.numpy.fft.{name} does not support multiple axes. Please use "
                         f"jax.numpy.fft.{name}n. Got axis = {axis!r}.")


def _one(name: str, kind: str) -> Callable[..., Array]:
    def f(a, n=None, axis=-1, norm=None):
        _refuse_several(name, axis)
        return _transform(name, kind, a, None if n is None else (n,), (axis,), norm)

    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"The {kind} transform along a dimension, cut or filled with zeros to length n."
    return f


def _two(name: str, kind: str) -> Callable[..., Array]:
    def f(a, s=None, axes=(-2, -1), norm=None):
        if len(axes) != 2:
            raise ValueError(f"jax.numpy.fft.{name} only supports 2 axes. Got axes = {axes}.")
        return _transform(name, kind, a, s, axes, norm)

    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"The {kind} transform along two dimensions, cut or filled with zeros to sizes `s`."
    return f


def _many(name: str, kind: str) -> Callable[..., Array]:
    def f(a, s=None, axes=None, norm=None):
        return _transform(name, kind, a, s, axes, norm)

    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"The {kind} transform along several dimensions (all by default), of sizes `s`."
    return f


fft, ifft, rfft, irfft = (_one(k, k) for k in ("fft", "ifft", "rfft", "irfft"))
fft2, ifft2, rfft2, irfft2 = (_two(k + "2", k) for k in ("fft", "ifft", "rfft", "irfft"))
fftn, ifftn, rfftn, irfftn = (_many(k + "n", k) for k in ("fft", "ifft", "rfft", "irfft"))


def hfft(a, n=None, axis=-1, norm=None):
    """The transform of a signal with Hermitian symmetry, given by its first half; real."""
    check_arraylike("jnp.fft.hfft", a)
    _refuse_several("hfft", axis)
    x = conj(a)
    swapped = {None: "forward", "backward": "forward", "forward": "backward"}.get(norm, norm)
    size = 2 * (as_array(a).shape[axis] - 1) if n is None else n
    return irfft(x, size if n is not None or size > 0 else None, axis, swapped)


def ihfft(a, n=None, axis=-1, norm=None):
    """The inverse of `hfft`: the first half of a Hermitian signal."""
    check_arraylike("jnp.fft.ihfft", a)
    _refuse_several("ihfft", axis)
    swapped = {None: "forward", "backward": "forward", "forward": "backward"}.get(norm, norm)
    return conj(rfft(a, n, axis, swapped))


def fftfreq(n, d=1.0, *, dtype=None, device=None):
    """The frequencies of the results of `fft` of n samples at distance d."""
    kind = float_default() if dtype is None else user_dtype(dtype, "fftfreq")
    n = _count("fftfreq", n, d)
    half = (n - 1) // 2
    places = concatenate([arange(half + 1, dtype=kind), arange(-(n // 2), 0, dtype=kind)]) \
        if n > 1 else arange(n, dtype=kind)
    return put_on_device(div_p.bind(places, mul_p.bind(convert(d, kind), convert(n, kind))
                                    if isinstance(d, Array) else convert(d * n, kind)), device)


def rfftfreq(n, d=1.0, *, dtype=None, device=None):
    """The frequencies of the results of `rfft` of n samples at distance d."""
    kind = float_default() if dtype is None else user_dtype(dtype, "rfftfreq")
    n = _count("rfftfreq", n, d)
    places = arange(n // 2 + 1, dtype=kind)
    return put_on_device(div_p.bind(places, mul_p.bind(convert(d, kind), convert(n, kind))
                                    if isinstance(d, Array) else convert(d * n, kind)), device)


def _count(name: str, n: Any, d: Any) -> int:
    if isinstance(n, (tuple, list)):
        raise ValueError(f"The n argument of jax.numpy.fft.{name} only takes an int. Got n = "
                         f"{list(n)}.")
    if isinstance(d, (tuple, list)):
        raise ValueError(f"The d argument of jax.numpy.fft.{name} only takes a single value. Got d "
                         f"= {list(d)}.")
    n = operator.index(n)
    if n == 0:
        raise ValueError(f"The n argument of jax.numpy.fft.{name} cannot be 0")
    return n


def _shifted(name: str, x: Any, axes: Any, sign: int) -> Array:
    check_arraylike(name, x)
    x = as_array(x)
    dims = tuple(range(x.ndim)) if axes is None else canonical_axes(axes, x.ndim)
    shifts = tuple(x.shape[d] // 2 if sign > 0 else -(x.shape[d] // 2) for d in dims)
    return roll(x, shifts, dims) if dims else x


def fftshift(x, axes=None):
    """`x` with the zero frequency moved from the front to the middle, along `axes` (default all).
    """
    return _shifted("fftshift", x, axes, 1)


def ifftshift(x, axes=None):
    """`x` with the zero frequency moved from the middle to the front: the inverse of `fftshift`."""
    return _shifted("ifftshift", x, axes, -1)
