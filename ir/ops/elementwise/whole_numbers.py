"""`floor_div` and `trunc`: single numpy functions that programs express as several ops.

The executor rewrites those ops to these (runtime/rewrites/peepholes.py); tracing never emits them.
"""
from __future__ import annotations

import numpy as np

from .declaration import FLOAT, INTEGER, nary, sampled, unary

floor_div_p = nary(
    "floor_div", "x / y rounded down, of integers, with y other than 0.", (INTEGER, INTEGER),
    jvp="zero",
    function=np.floor_divide,
    jax="jnp.floor_divide",
    samples=sampled(2, -9, 9, (np.int32,)))

trunc_p = unary(
    "trunc", "The nearest integer in the direction of 0.", FLOAT,
    jvp="zero",
    function=np.trunc,
    jax="jnp.trunc",
    samples=sampled(1, -3.2, 3.1))
