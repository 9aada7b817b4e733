"""All ops: importing the files that declare them enters them into `OPS`."""
# ruff: noqa: F401
from __future__ import annotations

from .op import OPS, Op
from .ops.communication import (
    collective,
    exchange_rows,
    group_exchange,
    retile,
    sharding,
    variadic,
)
from .ops.contractions import convolution, dot_general, fft, precision, ragged
from .ops.control import (
    call,
    callback,
    check,
    custom,
    loops_and_branches,
    manual,
    user_partitioned,
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
from .ops.linalg import condensed, decompositions, triangular, tridiagonal
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
from .ops.random import bit_generator, gamma, primitives
from .ops.reductions import (
    cumulative,
    pooling,
    pooling_derivatives,
    positions,
    reduce,
    reduction,
    sorting,
)
