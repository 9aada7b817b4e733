"""Keys and random bits in a generated program: JAX's keys, and the same bits."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.program import Equation
from .literals import keywords

Texts = Sequence[str]
GENERATORS = {"fry": "threefry2x32", "rbg": "rbg", "urbg": "unsafe_rbg"}
_SEEDED = {"fry": "threefry_prng_impl", "rbg": "rbg_prng_impl", "urbg": "unsafe_rbg_prng_impl"}


def generator(dtype: Any) -> str:
    """What JAX calls the generator of keys of this dtype."""
    return GENERATORS[dtype.impl]


def _counted(e: Equation, x: Texts) -> str:
    """By the primitive, or by the older way of counting, which JAX has no primitive for. Keys tell
    their generator.
    """
    told = keywords((k, v) for k, v in e.params.items() if k in ("bit_width", "shape"))
    function = f"primitives.{e.op.name}_p.bind" if e.params.get("partitionable", True) else (
        f"older_{e.op.name}")
    return f"{function}({x[0]}{told})"


def _block(e: Equation, x: Texts) -> str:
    """A helper that is told where the block begins: a start for each dimension that is split."""
    dims = e.params["dims"]
    starts = ", ".join(f"{d}: {start}" for d, start in zip(dims, x[1:], strict=True))
    told = keywords((k, v) for k, v in e.params.items() if k not in ("dims", e.op.sharding_param))
    return f"{e.op.name}({x[0]}{told}, starts={{{starts}}})"


CALLED_RANDOM: dict[str, str] = {
    "random_unwrap": "jax.random.key_data", "random_gamma_each": "random_gamma_each",
    "threefry2x32": "threefry_hash",
    **{name: f"primitives.{name}_p.bind" for name in ("random_fold_in", "random_gamma")}}
RANDOM_WRITERS: dict[str, Callable[[Equation, Texts], str]] = {
    "random_seed": lambda e, x: f"jax.extend.random.random_seed({x[0]}, impl=jax.extend.random."
                                f"{_SEEDED[e.params['impl']]})",
    "random_wrap": lambda e, x: f"jax.random.wrap_key_data({x[0]}, impl="
                                f"{GENERATORS[e.params['impl']]!r})",
    **dict.fromkeys(("random_bits", "random_split"), _counted),
    **dict.fromkeys(("random_bits_block", "random_split_block", "rng_bit_generator_block"), _block)}
