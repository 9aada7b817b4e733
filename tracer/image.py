"""Resizing of images: every resampled dimension is one product with a matrix of weights.

Row i, column j of such a matrix says how much of input pixel i is in output pixel j: the kernel at
the distance of their centres, normalised over i. When shrinking with `antialias`, the kernel is
widened, so that no pixel is skipped; "cubic-pytorch" is "cubic" then, and else repeats the border.
Names as in `jax.image`; kernels: Keys, "Cubic Convolution Interpolation for Digital Image
Processing", 1981; Duchon, "Lanczos Filtering", 1979.
"""
from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ir.values.array import Array
from . import jnp, lax
from .operands.dtype_promotion import dtype_name, promote_dtypes_inexact
from .operands.shape_arguments import static_shape
from .staging.constants import as_array


class ResizeMethod(enum.Enum):
    """How `image.resize` finds the values between pixels; its names are accepted as text too."""

    NEAREST = 0
    LINEAR = 1
    LANCZOS3 = 2
    LANCZOS5 = 3
    CUBIC = 4
    CUBIC_PYTORCH = 5
    AREA = 6

    @staticmethod
    def from_string(s: str) -> ResizeMethod:
        """The method of this name; raises ValueError for an unknown one."""
        if s not in _NAMES:
            raise ValueError(f'Unknown resize method "{s}"')
        return _NAMES[s]


_NAMES = {
    "nearest": ResizeMethod.NEAREST,
    **dict.fromkeys(("linear", "bilinear", "trilinear", "triangle"), ResizeMethod.LINEAR),
    "lanczos3": ResizeMethod.LANCZOS3, "lanczos5": ResizeMethod.LANCZOS5,
    **dict.fromkeys(("cubic", "bicubic", "tricubic"), ResizeMethod.CUBIC),
    **dict.fromkeys(("cubic-pytorch", "bicubic-pytorch"), ResizeMethod.CUBIC_PYTORCH),
    "area": ResizeMethod.AREA,
}


# -- kernels: functions of the distance, which is not negative -------------------------------------

def _triangle(x: Array) -> Array:
    return jnp.maximum(0, 1 - x)


def _cubic(a: float, x: Array) -> Any:
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return jnp.where(x >= 2, 0, jnp.where(x >= 1, far, near))


def _lanczos(radius: float, x: Array) -> Any:
    waves = radius * jnp.sin(np.pi * x) * jnp.sin(np.pi * x / radius)
    product = jnp.where(x > 1e-3, waves / jnp.where(x != 0, np.pi**2 * x * x, 1), 1)
    return jnp.where(x > radius, 0, product)


_KERNELS: dict[ResizeMethod, Callable[[Array], Any]] = {
    ResizeMethod.LINEAR: _triangle,
    ResizeMethod.CUBIC: functools.partial(_cubic, -0.5),
    ResizeMethod.CUBIC_PYTORCH: functools.partial(_cubic, -0.75),
    ResizeMethod.LANCZOS3: functools.partial(_lanczos, 3.0),
    ResizeMethod.LANCZOS5: functools.partial(_lanczos, 5.0),
}


def _weights(size: int, out_size: int, scale: Any, translation: Any, method: ResizeMethod,
             antialias: bool) -> Any:
    """The matrix (size, out_size) that resamples one dimension."""
    scale, translation = map(as_array, promote_dtypes_inexact(scale, translation))
    dtype = dtype_name(scale)
    step = 1 / scale
    pixels = jnp.arange(size, dtype=dtype)[:, None]
    places = jnp.arange(out_size, dtype=dtype)
    if method is ResizeMethod.AREA:
        left = (places - translation) * step
        overlap = jnp.minimum(left + step, pixels + 1) - jnp.maximum(left, pixels)
        weights, centres = jnp.maximum(0, overlap), left + 0.5 * step - 0.5
    else:
        centres = (places + 0.5 - translation) * step - 0.5
        width = jnp.maximum(step, 1) if antialias else 1
        weights = _KERNELS[method](jnp.abs(centres - pixels) / width)
        if method is ResizeMethod.CUBIC_PYTORCH:
            # The image goes on as its border pixels, which take the weights of what lies beyond.
            beyond = jnp.arange(1, 3, dtype=dtype)[:, None]
            before = _KERNELS[method](jnp.abs(centres + beyond)).sum(0)
            after = _KERNELS[method](jnp.abs(centres - (size - 1) - beyond)).sum(0)
            weights = weights.at[0].add(before).at[-1].add(after)
    total = jnp.sum(weights, axis=0, keepdims=True)
    weights = jnp.where(jnp.abs(total) > 1000 * float(np.finfo(np.float32).eps),
                        weights / jnp.where(total != 0, total, 1), 0)
    if method is ResizeMethod.CUBIC_PYTORCH:
        return weights
    inside = (centres >= -0.5) & (centres <= size - 0.5)
    return jnp.where(inside, weights, 0)


def _resampled(image: Array, shape: Sequence[int], dims: Sequence[int], scale: Sequence[Any],
               translation: Sequence[Any], method: ResizeMethod, antialias: bool, precision: Any
               ) -> Array:
    """The image with each of `dims` multiplied by its matrix of weights, in one einsum."""
    if antialias and method is ResizeMethod.CUBIC_PYTORCH:
        method = ResizeMethod.CUBIC
    (image,) = map(as_array, promote_dtypes_inexact(image))
    letters = [chr(ord("a") + d) for d in range(image.ndim)]
    out, terms, matrices = list(letters), ["".join(letters)], []
    for d, s, t in zip(dims, scale, translation, strict=True):
        matrices.append(_weights(image.shape[d], shape[d], s, t, method, antialias)
                        .astype(dtype_name(image)))
        out[d] = letters[d].upper()
        terms.append(letters[d] + out[d])
    if not matrices:
        return image
    return jnp.einsum(f"{','.join(terms)}->{''.join(out)}", image, *matrices,
                      precision=precision)


def _nearest(image: Array, shape: Sequence[int], dims: Sequence[int]) -> Array:
    for d in dims:
        size, out_size = image.shape[d], shape[d]
        # In float32, as JAX finds them: ties are decided by its rounding.
        places = (np.arange(out_size, dtype=np.float32) + np.float32(0.5)) * np.float32(
            size) / np.float32(out_size)
        image = jnp.take(image, np.floor(places).astype(np.int32), axis=d)
    return image


def scale_and_translate(image: Any, shape: Sequence[int], spatial_dims: Sequence[int], scale: Any,
                        translation: Any, method: str | ResizeMethod, antialias: bool = True,
                        precision: Any = lax.Precision.HIGHEST) -> Array:
    """An image of another shape: pixel x of the input is moved to scale * x + translation.

    spatial_dims: the dimensions to resample; scale, translation: arrays with an entry for each,
    in pixels. What would come from outside of the image is 0. Raises ValueError for the method
    "nearest", and where the shape does not fit.
    """
    image, shape, method = _checked(image, shape, method)
    if method is ResizeMethod.NEAREST:
        raise ValueError("Nearest neighbor resampling is not currently supported for "
                         "scale_and_translate.")
    dims = [d % image.ndim for d in spatial_dims]
    scale, translation = jnp.asarray(scale), jnp.asarray(translation)
    return _resampled(image, shape, dims, [scale[i] for i in range(len(dims))],
                      [translation[i] for i in range(len(dims))], method, antialias, precision)


def _checked(image: Any, shape: Sequence[int], method: str | ResizeMethod
             ) -> tuple[Array, tuple[int, ...], ResizeMethod]:
    """The arguments of both, converted. Raises ValueError for a shape of another length."""
    image, shape = jnp.asarray(image), static_shape(shape)
    if len(shape) != image.ndim:
        raise ValueError("shape must have length equal to the number of dimensions of x; "
                         f" {shape} vs {image.shape}")
    return image, shape, ResizeMethod.from_string(method) if isinstance(method, str) else method


def resize(image: Any, shape: Sequence[int], method: str | ResizeMethod, antialias: bool = True,
           precision: Any = lax.Precision.HIGHEST) -> Array:
    """The image in another shape; dimensions that keep their size are left alone.

    method: "nearest", "linear" (also "bilinear", "trilinear"), "cubic", "cubic-pytorch",
      "lanczos3", "lanczos5" or "area". antialias: widen the kernel when shrinking.
    Raises ValueError for other methods, and where the shape has another length.

    >>> import shardtrace as st
    >>> import shardtrace.numpy as jnp
    >>> print(st.image.resize(jnp.array([0.0, 1.0]), (4,), "linear"))
    [0.   0.25 0.75 1.  ]
    """
    image, shape, method = _checked(image, shape, method)
    dims = [d for d in range(image.ndim) if shape[d] != image.shape[d]]
    if method is ResizeMethod.NEAREST:
        return _nearest(image, shape, dims)
    (image,) = map(as_array, promote_dtypes_inexact(image))
    dtype = jnp.result_type(image, np.float32)
    scale = [np.asarray(shape[d] / image.shape[d], dtype) for d in dims]
    return _resampled(image, shape, dims, scale, [np.zeros((), dtype)] * len(dims), method,
                      antialias, precision)
