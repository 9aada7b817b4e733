"""Convolutions of dilated images, which have zeros between their elements, one phase at a time.

The gradient of a convolution with strides is one, and so is a transposed convolution. The results
whose windows see elements at the same places of the window form a phase; they are a convolution of
the image without its zeros by that part of the kernel (ir/kernels/windows.py). No zeros are
multiplied: a quarter of the work for strides (2, 2).
"""
from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...kernels.device_dimensions import lead_sizes
from ...kernels.windows import output_size, phases, write_runs
from .dot_general import compute_dtype

FEWEST = 1 << 24                # multiply-adds, of zeros as well, from which it pays


def by_phases(evaluate: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """The evaluator of convolutions, from one that multiplies zeros as well."""
    @functools.wraps(evaluate)
    def evaluate_all(lead: int, lhs: np.ndarray, rhs: np.ndarray, **params: Any) -> np.ndarray:
        spread, preferred = params["lhs_dilation"], params["preferred_element_type"]
        if max(spread, default=1) == 1:
            return evaluate(lead, lhs, rhs, **params)
        of_image, of_kernel, of_result = params["dimension_numbers"]
        image, kernel = ([x.shape[lead + d] for d in spec[2:]]
                         for x, spec in ((lhs, of_image), (rhs, of_kernel)))
        how = (params["window_strides"], params["padding"], spread, params["rhs_dilation"])
        results, devices = [*map(output_size, image, kernel, *how)], lead_sizes(lead, (lhs, rhs))
        batch = lhs.shape[lead + of_image[0]] // params["batch_group_count"]
        if math.prod((*devices, batch, *results, *rhs.shape[lead:])) < FEWEST:
            return evaluate(lead, lhs, rhs, **params)
        shape = [*devices, *rhs.shape[lead:]]
        for d, n in zip(of_result, (batch, rhs.shape[lead + of_kernel[0]], *results), strict=True):
            shape[lead + d] = n
        out = np.zeros(shape, compute_dtype(lhs.dtype, rhs.dtype, None) if preferred is None
                       else preferred)
        for phase in phases(image, results, kernel, *how):
            write_runs(out[_at(phase.results, lead, of_result)], evaluate(
                lead, lhs, rhs[_at(phase.window, lead, of_kernel)], **{
                    **params, "window_strides": phase.strides, "padding": phase.padding,
                    "lhs_dilation": (1,) * len(spread), "rhs_dilation": phase.dilation}))
        return out
    return evaluate_all


def _at(parts: Sequence[slice], lead: int, spec: Sequence[int]) -> tuple[slice, ...]:
    """The index of parts of the spatial dimensions."""
    index = [slice(None)] * (lead + len(spec))
    for d, part in zip(spec[2:], parts, strict=True):
        index[lead + d] = part
    return tuple(index)
