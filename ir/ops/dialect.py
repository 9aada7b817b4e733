"""All ops: importing the files that declare them enters them into `OPS`."""
# ruff: noqa: F401
from __future__ import annotations

from ..op import OPS, Op
from .communication import (
    collective,
    exchange_rows,
    group_exchange,
    retile,
    sharding,
    variadic,
)
from .contractions import convolution, dot_general, fft, precision, ragged
from .control import (
    call,
    callback,
    check,
    custom,
    loops_and_branches,
    manual,
    user_partitioned,
)
from .elementwise import (
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
from .indexing import gather, scatter
from .linalg import condensed, decompositions, solve, triangular, tridiagonal
from .movement import (
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
from .random import bit_generator, gamma, primitives
from .reductions import (
    cumulative,
    pooling,
    pooling_derivatives,
    positions,
    reduce,
    reduction,
    sorting,
)
