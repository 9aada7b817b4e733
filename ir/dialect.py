"""All ops: importing this module enters every op into `OPS`."""
from __future__ import annotations

from .op import OPS, Op
from .ops import (
    arithmetic,
    bitwise,
    call,
    collective,
    comparison,
    complex_parts,
    contraction,
    control,
    convert,
    convolution,
    creation,
    cumulative,
    custom,
    dynamic_slicing,
    exchange,
    fft,
    gather,
    identity,
    joining,
    linalg,
    manual,
    padding,
    pooling,
    powers,
    precision,
    ragged,
    random,
    random_gamma,
    reduce,
    reduction,
    reshape,
    scatter,
    select,
    shape,
    sharding,
    slicing,
    sorting,
    special,
    transcendental,
    triangular,
    tridiagonal,
)

__all__ = ["MODULES", "OPS", "Op"]

MODULES = (
    arithmetic, bitwise, call, collective, comparison, complex_parts, contraction, control,
    convert, convolution, creation, cumulative, custom, dynamic_slicing, exchange, fft, gather,
    identity, joining, linalg, manual, padding, pooling, powers, precision, ragged, random,
    random_gamma, reduce, reduction, reshape, scatter, select, shape, sharding, slicing,
    sorting, special, transcendental, triangular, tridiagonal,
)
