"""All ops: importing this module registers every op in `OPS`."""
from __future__ import annotations

from .op import OPS, Op
from .ops.communication import (
    collective,
    retile,
    sharding,
    variadic,
)
from .ops.communication import (
    exchange_rows as rows_exchange,
)
from .ops.communication import (
    group_exchange as exchange,
)
from .ops.contractions import convolution, fft, precision, ragged
from .ops.contractions import dot_general as contraction
from .ops.control import (
    call,
    callback,
    check,
    custom,
    manual,
    user_partitioned,
)
from .ops.control import (
    loops_and_branches as control,
)
from .ops.elementwise import (
    arithmetic,
    bitwise,
    comparison,
    complex_parts,
    convert,
    identity,
    powers,
    select,
    special,
    transcendental,
    whole_numbers,
)
from .ops.indexing import gather, scatter
from .ops.linalg import condensed, triangular, tridiagonal
from .ops.linalg import decompositions as linalg
from .ops.movement import (
    creation,
    dynamic_slicing,
    dynamic_update_slicing,
    joining,
    padding,
    placing,
    reshape,
    shape,
    slicing,
)
from .ops.random import bit_generator
from .ops.random import gamma as random_gamma
from .ops.random import primitives as random
from .ops.reductions import (
    cumulative,
    pooling,
    pooling_derivatives,
    positions,
    reduce,
    reduction,
    sorting,
)

__all__ = ["MODULES", "OPS", "Op"]

MODULES = (
    arithmetic, bit_generator, bitwise, call, callback, check, collective, comparison,
    complex_parts, condensed, contraction, control, convert, convolution, creation, cumulative,
    custom, dynamic_slicing, dynamic_update_slicing, exchange, fft, gather, identity, joining,
    linalg,
    manual, padding, placing, pooling, pooling_derivatives, positions, powers, precision,
    ragged, random, random_gamma, reduce, reduction, reshape, retile, rows_exchange, scatter,
    select, shape, sharding, slicing, sorting, special, transcendental, triangular, tridiagonal,
    user_partitioned, variadic, whole_numbers,
)
