"""Random generators of one's own, and the functions of those that are here: `jax.extend.random`."""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.tracer.random.keys import random_seed, seed_with_impl
from shardtrace.tracer.random.user_generators import (
    define_prng_impl,
    rbg_prng_impl,
    threefry_2x32,
    threefry_prng_impl,
    unsafe_rbg_prng_impl,
)

__all__ = ["define_prng_impl", "random_seed", "rbg_prng_impl", "seed_with_impl", "threefry_2x32",
           "threefry_prng_impl", "unsafe_rbg_prng_impl"]
_bound_names(globals())
