"""Convolutions of lax, any number of spatial dimensions, and the meaning of their layouts.

One op, `conv_general_dilated`; the other functions choose its layout and padding.
"""
from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.ops.contractions.conv_typing import ConvDimensionNumbers
from ...ir.ops.contractions.convolution import conv_general_dilated_p
from ..operands.rank_promotion import shape_of
from ..shardings.out_sharding import output_sharding
from ..staging.memoized import memoized
from .contraction import canonicalize_precision, dot_general, element_type
from .shape import rev, transpose

__all__ = [
    "ConvDimensionNumbers", "ConvGeneralDilatedDimensionNumbers", "conv", "conv_dimension_numbers",
    "conv_general_dilated", "conv_general_dilated_local", "conv_general_dilated_patches",
    "conv_general_permutations", "conv_general_shape_tuple", "conv_shape_tuple", "conv_transpose",
    "conv_transpose_shape_tuple", "conv_with_general_padding", "padtype_to_pads",
]
Pads = tuple[tuple[int, int], ...]
ConvGeneralDilatedDimensionNumbers = Any    # None, ConvDimensionNumbers, or three strings


def padtype_to_pads(in_shape, window_shape, window_strides, padding):
    """The (low, high) padding of each dimension for "SAME", "SAME_LOWER" or "VALID".

    SAME gives ceil(n / stride) results, the extra element at the end, or for SAME_LOWER at the
    start.
    """
    name = padding.upper() if isinstance(padding, str) else getattr(padding, "name", padding)
    if name == "VALID":
        return [(0, 0)] * len(in_shape)
    if name not in ("SAME", "SAME_LOWER"):
        raise RuntimeError(f"Unrecognized padding type: expected 'VALID', 'SAME' or 'SAME_LOWER', "
                           f"got {padding}.")
    out = []
    for n, w, s in zip(in_shape, window_shape, window_strides, strict=True):
        total = max(0, (-(-n // s) - 1) * s + w - n)
        half = total // 2
        out.append((half, total - half) if name == "SAME" else (total - half, half))
    return out


def conv_dimension_numbers(lhs_shape, rhs_shape, dimension_numbers):
    """The roles of dimensions from what a user writes: None for (N C spatial, O I spatial, N C
    spatial), or three texts such as ("NHWC", "HWIO", "NHWC").

    Raises TypeError or ValueError where the texts do not fit each other.
    """
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        return dimension_numbers
    if len(lhs_shape) != len(rhs_shape):
        raise TypeError("convolution requires lhs and rhs ndim to be equal, got "
                        f"{len(lhs_shape)} and {len(rhs_shape)}.")
    n = len(lhs_shape)
    if dimension_numbers is None:
        order = tuple(range(n))
        return ConvDimensionNumbers(order, order, order)
    if not isinstance(dimension_numbers, (list, tuple)):
        raise TypeError("convolution dimension_numbers must be tuple/list or None, got "
                        f"{type(dimension_numbers)}.")
    if len(dimension_numbers) != 3:
        raise TypeError("convolution dimension_numbers list/tuple must be of length 3, got "
                        f"{len(dimension_numbers)}.")
    if not all(isinstance(e, str) for e in dimension_numbers):
        raise TypeError("convolution dimension_numbers elements must be strings, got "
                        f"{tuple(map(type, dimension_numbers))}.")
    for e in dimension_numbers:
        if len(e) != n or len(set(e)) != n:
            raise ValueError(f"convolution dimension_numbers must have {n} different letters, got "
                             f"{dimension_numbers}")
    lhs, rhs, out = dimension_numbers
    spatial = [c for c in rhs if c not in "OI"]
    specs = []
    for text, (first, second) in ((lhs, "NC"), (rhs, "OI"), (out, "NC")):
        if first not in text or second not in text or sorted(
                c for c in text if c not in (first, second)) != sorted(spatial):
            raise ValueError("convolution dimension_numbers elements must name the same spatial "
                             f"dimensions, and {first} and {second} in {text!r}; got "
                             f"{dimension_numbers}")
        specs.append((text.index(first), text.index(second), *(text.index(c) for c in spatial)))
    return ConvDimensionNumbers(*specs)


def conv_general_permutations(dimension_numbers):
    """The orders that bring lhs, rhs and result to the default layout."""
    lhs, rhs, out = dimension_numbers
    n = len(lhs)
    numbers = conv_dimension_numbers((1,) * n, (1,) * n, (lhs, rhs, out))
    return list(numbers.lhs_spec), list(numbers.rhs_spec), list(numbers.out_spec)


def _ints(values: Any, n: int, default: int, name: str) -> tuple[int, ...]:
    if values is None:
        return (default,) * n
    if isinstance(values, int):
        return (values,) * n
    out = tuple(operator.index(v) for v in values)
    if len(out) != n:
        raise TypeError(f"conv_general_dilated {name} must have {n} elements, got {out}")
    return out


def _pads(padding: Any, spatial: Sequence[int], window: Sequence[int], strides: Sequence[int]
          ) -> Pads:
    if isinstance(padding, str):
        return tuple(padtype_to_pads(spatial, window, strides, padding))
    try:
        return tuple((int(lo), int(hi)) for lo, hi in padding)
    except (TypeError, ValueError) as error:
        raise ValueError("padding argument to conv_general_dilated should be a string or a "
                         f"sequence of (low, high) pairs, got {padding}") from error


@memoized
def conv_general_dilated(lhs, rhs, window_strides, padding, lhs_dilation=None, rhs_dilation=None,
                         dimension_numbers=None, feature_group_count=1, batch_group_count=1,
                         precision=None, preferred_element_type=None, out_sharding=None):
    """The convolution of `lhs` (batch, in, spatial...) with kernels `rhs` (out, in, spatial...).

    window_strides: one a spatial dimension. padding: "SAME", "VALID", or (low, high) for each.
    lhs_dilation, rhs_dilation: distances between elements, with holes between. dimension_numbers:
    another order of dimensions, such as ("NHWC", "HWIO", "NHWC"). feature_group_count: the features
    are divided into so many groups, each with kernels of its own. Raises ValueError and TypeError
    where shapes do not fit.

    Sharding
      Auto: batch and features may be split; along a spatial dimension devices exchange the rows
        that their windows share; contracted features leave partial sums, which are added.
      Explicit: batch and spatial dimensions stay split. Where kernels or features are split,
        `out_sharding` must say how the result is, else ShardingTypeError.
      Manual: convolves each device's block; rows of neighbours are not seen.

    >>> x, kernel = jnp.ones((1, 1, 5)), jnp.ones((1, 1, 3))
    >>> st.lax.conv_general_dilated(x, kernel, window_strides=(1,), padding="SAME")
    Array([[[2., 3., 3., 3., 2.]]], dtype=float32)
    """
    a, b = shape_of(lhs), shape_of(rhs)
    numbers = conv_dimension_numbers(a, b, dimension_numbers)
    n = len(a) - 2
    strides = _ints(window_strides, n, 1, "window_strides")
    holes = _ints(lhs_dilation, n, 1, "lhs_dilation")
    spread = _ints(rhs_dilation, n, 1, "rhs_dilation")
    spatial = [0 if a[d] == 0 else (a[d] - 1) * h + 1
               for d, h in zip(numbers.lhs_spec[2:], holes, strict=True)]
    window = [0 if b[d] == 0 else (b[d] - 1) * s + 1
              for d, s in zip(numbers.rhs_spec[2:], spread, strict=True)]
    if isinstance(padding, str) and any(h != 1 for h in holes):
        raise ValueError("String padding is not implemented for transposed convolution using this "
                         "op. Please either exactly specify the required padding or use "
                         "conv_transpose.")
    return conv_general_dilated_p.bind(
        lhs, rhs, window_strides=strides, padding=_pads(padding, spatial, window, strides),
        lhs_dilation=holes, rhs_dilation=spread, dimension_numbers=numbers,
        feature_group_count=int(feature_group_count), batch_group_count=int(batch_group_count),
        precision=canonicalize_precision(precision),
        preferred_element_type=element_type(preferred_element_type),
        out_sharding=output_sharding(out_sharding, "conv_general_dilated", len(a)))


def conv(lhs, rhs, window_strides, padding, precision=None, preferred_element_type=None):
    """The convolution of `lhs` (N, C, spatial...) with kernels `rhs` (O, I, spatial...)."""
    return conv_general_dilated(lhs, rhs, window_strides, padding, precision=precision,
                                preferred_element_type=preferred_element_type)


def conv_with_general_padding(lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation,
                              precision=None, preferred_element_type=None):
    """The convolution of `lhs` (N, C, spatial...) with kernels (O, I, spatial...), with dilations.
    """
    return conv_general_dilated(lhs, rhs, window_strides, padding, lhs_dilation=lhs_dilation,
                                rhs_dilation=rhs_dilation, precision=precision,
                                preferred_element_type=preferred_element_type)


def _transpose_pads(k: int, s: int, padding: str | tuple[int, int]) -> tuple[int, int]:
    """The padding with which a convolution of dilated input undoes one with this padding."""
    if padding == "SAME":
        total = k + s - 2
        low = k - 1 if s > k - 1 else -(-total // 2)
    elif padding == "VALID":
        total = k + s - 2 + max(k - s, 0)
        low = k - 1
    else:
        raise ValueError(f"Invalid padding mode: {padding!r}")
    return low, total - low


def conv_transpose(lhs, rhs, strides, padding, rhs_dilation=None, dimension_numbers=None,
                   transpose_kernel=False, precision=None, preferred_element_type=None,
                   use_consistent_padding=False):
    """The transposed convolution: strides between the elements of lhs, not between results.

    transpose_kernel: rhs is mirrored and its features swapped, which makes this the gradient of a
    convolution. The default layout is channels last.
    """
    ndim = len(shape_of(lhs))
    n = ndim - 2
    if dimension_numbers is None:
        if ndim > 5:
            raise ValueError("No 4+ dimensional dimension_number defaults.")
        if ndim < 2:
            raise ValueError(f"conv_transpose needs at least two dimensions, got {ndim}")
        letters = {0: "", 1: "H", 2: "HW", 3: "HWD"}[n]
        dimension_numbers = (f"N{letters}C", f"{letters}IO", f"N{letters}C")
    numbers = conv_dimension_numbers(shape_of(lhs), shape_of(rhs), dimension_numbers)
    spread = _ints(rhs_dilation, n, 1, "rhs_dilation")
    kernel = [shape_of(rhs)[d] for d in numbers.rhs_spec[2:]]
    window = [(k - 1) * r + 1 for k, r in zip(kernel, spread, strict=True)]
    if isinstance(padding, str):
        pads: Any = [_transpose_pads(k, s, padding) for k, s in zip(window, strides, strict=True)]
    elif use_consistent_padding:
        # Padding is meant as that of the convolution which this one undoes.
        pads = [(k - 1 - lo, k - 1 - hi) for k, (lo, hi) in zip(window, padding, strict=True)]
    else:
        pads = padding
    if transpose_kernel:
        rhs = rev(rhs, numbers.rhs_spec[2:])
        order = list(range(ndim))
        i, o = numbers.rhs_spec[1], numbers.rhs_spec[0]
        order[i], order[o] = order[o], order[i]
        rhs = transpose(rhs, order)
    return conv_general_dilated(lhs, rhs, (1,) * n, pads, strides, spread, numbers,
                                precision=precision, preferred_element_type=preferred_element_type)


def conv_shape_tuple(lhs_shape, rhs_shape, strides, pads, batch_group_count=1):
    """The shape of the result of a convolution in the default layout (N, C, spatial...)."""
    if isinstance(pads, str):
        pads = padtype_to_pads(lhs_shape[2:], rhs_shape[2:], strides, pads)
    if len(pads) != len(lhs_shape) - 2:
        raise TypeError(f"Wrong number of explicit pads for convolution: expected "
                        f"{len(lhs_shape) - 2}, got {len(pads)}.")
    spatial = tuple(0 if n + lo + hi < w else (n + lo + hi - w) // s + 1
                    for n, w, s, (lo, hi) in zip(lhs_shape[2:], rhs_shape[2:], strides, pads,
                                                 strict=True))
    return (lhs_shape[0] // batch_group_count, rhs_shape[0], *spatial)


def conv_general_shape_tuple(lhs_shape, rhs_shape, window_strides, padding, dimension_numbers):
    """The shape of the result of a convolution whose layout `dimension_numbers` gives."""
    numbers = conv_dimension_numbers(lhs_shape, rhs_shape, dimension_numbers)
    default = conv_shape_tuple([lhs_shape[d] for d in numbers.lhs_spec],
                               [rhs_shape[d] for d in numbers.rhs_spec], window_strides, padding)
    return tuple(default[d] for d in np.argsort(numbers.out_spec))


def conv_transpose_shape_tuple(lhs_shape, rhs_shape, window_strides, padding, dimension_numbers):
    """The shape of the result of a transposed convolution whose layout `dimension_numbers` gives.
    """
    numbers = conv_dimension_numbers(lhs_shape, rhs_shape, dimension_numbers)
    a = [lhs_shape[d] for d in numbers.lhs_spec]
    b = [rhs_shape[d] for d in numbers.rhs_spec]
    if isinstance(padding, str):
        padding = [_transpose_pads(k, s, padding)
                   for k, s in zip(b[2:], window_strides, strict=True)]
    sizes = [max(0, (n - 1) * s + 1 + lo + hi - k + 1)
             for n, s, k, (lo, hi) in zip(a[2:], window_strides, b[2:], padding, strict=True)]
    default = (a[0], b[0], *sizes)
    return tuple(default[d] for d in np.argsort(numbers.out_spec))


def conv_general_dilated_patches(lhs, filter_shape, window_strides, padding, lhs_dilation=None,
                                 rhs_dilation=None, dimension_numbers=None, precision=None,
                                 preferred_element_type=None):
    """The patches that a convolution sees, laid out along the feature dimension."""
    filter_shape = tuple(filter_shape)
    numbers = conv_dimension_numbers(shape_of(lhs), (1, 1, *filter_shape), dimension_numbers)
    channels = shape_of(lhs)[numbers.lhs_spec[1]]
    size = math.prod(filter_shape)
    # One-hot kernels, one for each place in the window, for each channel alone.
    eye = np.eye(size, dtype=np.float32).reshape(size, 1, *filter_shape)
    kernel = np.tile(eye, (channels,) + (1,) * (len(filter_shape) + 1))
    order = np.argsort(numbers.rhs_spec)
    kernel = np.transpose(kernel, order).astype(getattr(lhs, "dtype", np.float32))
    return conv_general_dilated(lhs, kernel, window_strides, padding, lhs_dilation, rhs_dilation,
                                numbers, channels, precision=precision,
                                preferred_element_type=preferred_element_type)


def conv_general_dilated_local(lhs, rhs, window_strides, padding, filter_shape, lhs_dilation=None,
                               rhs_dilation=None, dimension_numbers=None, precision=None):
    """A convolution with a kernel of its own at each place of the result.

    rhs: features out, features in times the places in the window, then the places of the result
    (in the order that the layout gives these).
    """
    patches = conv_general_dilated_patches(lhs, filter_shape, window_strides, padding, lhs_dilation,
                                           rhs_dilation, dimension_numbers, precision)
    numbers = conv_dimension_numbers(shape_of(lhs), (1, 1, *filter_shape), dimension_numbers)
    (out_batch, out_feature, *places), (_, inputs, *own) = numbers.out_spec, numbers.rhs_spec
    pairs = sorted(zip(places, own, strict=True))
    batch = tuple(p for p, _ in pairs), tuple(o for _, o in pairs)
    out = dot_general(patches, rhs, (((out_feature,), (inputs,)), batch), precision)
    # The places came first, then batch and features: back to the layout of the result.
    order = [0] * len(numbers.out_spec)
    for i, p in enumerate(batch[0]):
        order[p] = i
    order[out_batch], order[out_feature] = len(places), len(places) + 1
    return transpose(out, order)
