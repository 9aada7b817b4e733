"""Keys and random bits in a generated program: JAX's keys, and the same bits."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.program import Equation
from .literals import dtype_text, plain

Texts = Sequence[str]
GENERATORS = {"fry": "threefry2x32", "rbg": "rbg", "urbg": "unsafe_rbg"}
_SEEDED = {"fry": "threefry_prng_impl", "rbg": "rbg_prng_impl", "urbg": "unsafe_rbg_prng_impl"}


def key_tag(dtype: Any) -> str:
    """The tag of the generator of keys of this dtype."""
    return dtype.impl


def generator(dtype: Any) -> str:
    """What JAX calls the generator of keys of this dtype."""
    return GENERATORS[key_tag(dtype)]


def _starts(e: Equation, x: Texts) -> str:
    dims = e.params["dims"]
    return "{" + ", ".join(f"{d}: {start}" for d, start in zip(dims, x[1:], strict=True)) + "}"


def random_expression(e: Equation, x: Texts) -> str | None:
    """The source text of an equation that makes keys or bits; None for other equations."""
    p, name = e.params, e.op.name
    if name == "random_seed":
        return f"jax.extend.random.random_seed({x[0]}, impl=jax.extend.random.{_SEEDED[p['impl']]})"
    if name == "random_wrap":
        return f"jax.random.wrap_key_data({x[0]}, impl={GENERATORS[p['impl']]!r})"
    if name == "random_unwrap":
        return f"jax.random.key_data({x[0]})"
    if name == "random_fold_in":
        return f"primitives.random_fold_in_p.bind({x[0]}, {x[1]})"
    if name == "random_bits":
        if not p.get("partitionable", True):
            return f"older_random_bits({x[0]}, {p['bit_width']}, {plain(p['shape'])})"
        return (f"primitives.random_bits_p.bind({x[0]}, bit_width={p['bit_width']}, "
                f"shape={plain(p['shape'])})")
    if name == "random_split":
        if not p.get("partitionable", True):
            return f"older_random_split({x[0]}, {plain(p['shape'])})"
        return f"primitives.random_split_p.bind({x[0]}, shape={plain(p['shape'])})"
    if name == "random_bits_block":
        return (f"random_bits_block({x[0]}, {p['bit_width']}, {plain(p['shape'])}, "
                f"{plain(p['whole'])}, {_starts(e, x)})")
    if name == "random_split_block":
        return (f"random_split_block({x[0]}, {plain(p['shape'])}, {plain(p['whole'])}, "
                f"{_starts(e, x)})")
    if name == "random_gamma":
        return f"primitives.random_gamma_p.bind({x[0]}, {x[1]}, log_space={p['log_space']})"
    if name == "random_gamma_each":
        return f"random_gamma_each({x[0]}, {x[1]}, {p['log_space']})"
    if name == "threefry2x32":
        return f"threefry_hash({', '.join(x)})"
    if name == "rng_bit_generator":
        return (f"lax.rng_bit_generator({x[0]}, {plain(p['shape'])}, {dtype_text(p['dtype'])}, "
                f"lax.RandomAlgorithm.{p['algorithm'].name})")
    if name == "rng_bit_generator_block":
        return (f"generator_block({x[0]}, {plain(p['shape'])}, {plain(p['whole'])}, "
                f"{_starts(e, x)}, {dtype_text(p['dtype'])}, "
                f"lax.RandomAlgorithm.{p['algorithm'].name})")
    return None
