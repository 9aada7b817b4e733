"""The lines that `run` prints for results: each value, and how far two executors differ from each
other, next to the tolerance.
"""
from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from ..driver.analysis.equivalence import TOLERANCE
from ..ir.program import Program
from ..ir.types import ArrayType
from ..partitioner.cost.work import bodies, equation_flops

_RESULTS = 60            # that are summed up
_FIRST = 3               # values in a summary


def most_operations(local: Program) -> int:
    """The most operations for one element of a result of an equation: about as many numbers are
    added in one sum."""
    most = 1.0
    for eqn in local.walk():
        if not bodies(eqn) and eqn.op.collective is None:
            elements = max([math.prod(v.aval.shape) for v in eqn.outvars], default=1)
            most = max(most, equation_flops(eqn) / max(1, elements))
    return round(most)


def tolerance(dtype: np.dtype, terms: int) -> float:
    """By how much the executors may differ in a result, as a part of its largest value: they add in
    other orders, so by the rounding of its dtype and the root of the terms of its sums."""
    if dtype.kind not in "fcV":
        return 0.0
    size = dtype.itemsize // (2 if dtype.kind == "c" else 1)
    return TOLERANCE.get(size, 10 * TOLERANCE[2]) * max(1.0, math.sqrt(terms) / 64)


def difference(a: np.ndarray, b: np.ndarray) -> float:
    """The largest difference of two results, relative to the largest value."""
    if not a.size:
        return 0.0
    if a.dtype.kind not in "fcV" and a.dtype.kind in "biu":
        return float(np.any(a != b))
    x, y = (np.asarray(v, np.complex128 if a.dtype.kind == "c" else np.float64) for v in (a, b))
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    with np.errstate(all="ignore"):
        apart = np.where(same, 0.0, np.abs(x - y))
        scale = max(float(np.nanmax(np.abs(np.where(np.isfinite(x), x, 0.0)))), 1e-30)
    worst = float(np.max(apart))
    return math.inf if math.isnan(worst) else worst / scale


def summaries(names: Sequence[str], types: Sequence[ArrayType], results: Sequence[np.ndarray]
              ) -> Iterator[str]:
    """A line for each result: its name, type, range and first values, and whether it is finite."""
    for i, (name, aval, value) in enumerate(zip(names, types, results, strict=True)):
        if i == _RESULTS:
            yield f"... {len(results) - i} more results; --values prints all"
            return
        yield f"result{name}: {aval}{summary(value)}"


def summary(value: np.ndarray) -> str:
    """`, mean 0.5, from 0 to 1, all finite: 0, 1, 0, ...`"""
    if not value.size:
        return ", no values"
    kind = value.dtype.kind
    wide = np.asarray(value, np.complex128 if kind == "c" else np.float64).ravel()
    first = ", ".join(f"{x:.4g}" for x in wide[:_FIRST]) + (", ..." if wide.size > _FIRST else "")
    if kind == "b":
        return f", {np.count_nonzero(value):,} of {value.size:,} true"
    finite = wide[np.isfinite(wide)]
    said = ("all finite" if finite.size == wide.size
            else f"{wide.size - finite.size:,} of {wide.size:,} not finite")
    if value.size == 1 or not finite.size:
        return f", {said}: {first}"
    real = np.abs(finite) if kind == "c" else finite
    of = "absolute " if kind == "c" else ""
    return (f", {of}mean {real.mean():.4g}, from {real.min():.4g} to {real.max():.4g}, "
            f"{said}: {first}")


def worst_result(differences: list[float], allowed: list[float]) -> int | None:
    """The index of the result that exceeds its tolerance most; None if all are within it."""
    return max(range(len(differences)), default=None, key=lambda i: (
        differences[i] > allowed[i], differences[i] / (allowed[i] or 1.0)))
