"""Random bits without keys: `rng_bit_generator`, a state in and a state out.

What `jax.random` offers is made for programs that split and pass keys; this is the level below, for
generators of the `rbg` kind.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from ....ir.ops.random.bit_generator import RandomAlgorithm, rng_bit_generator_p
from ...operands.dtype_promotion import user_dtype
from ...operands.shape_arguments import static_shape
from ...shardings.out_sharding import output_sharding

__all__ = ["RandomAlgorithm", "rng_bit_generator"]


def rng_bit_generator(key: Any, shape: Any, dtype: Any = np.uint32,
                      algorithm: RandomAlgorithm = RandomAlgorithm.RNG_DEFAULT, *,
                      out_sharding: Any = None) -> tuple[Any, Any]:
    """(the state after drawing, random bits of this shape and unsigned dtype).

    key: the state, u32[4] or u64[2]. The bits are those of XLA on CPUs, for each algorithm.
    Raises TypeError for another state or dtype. Source: `jax.lax.rng_bit_generator`.

    >>> import numpy as np
    >>> from shardtrace import lax
    >>> state, bits = lax.rng_bit_generator(np.array([1, 2, 3, 4], np.uint32), (2,))
    >>> state, bits
    (Array([1, 2, 4, 4], dtype=uint32), Array([ 512747620, 1298009047], dtype=uint32))
    """
    shape = static_shape(shape)
    dtype = user_dtype(dtype, "rng_bit_generator")
    state, bits = rng_bit_generator_p.bind(
        key, shape=shape, dtype=dtype, algorithm=RandomAlgorithm(algorithm),
        out_sharding=output_sharding(out_sharding, "rng_bit_generator", len(shape)))
    return state, bits
