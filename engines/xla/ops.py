"""Ops in a generated program: each becomes an expression of JAX functions.

Most ops have the name and the params of a JAX function, so their declaration says how to call it:

    reduce_sum[axes=(1,)] x      ->      lax.reduce_sum(x, axes=(1,))

The declaration of an op whose function has another name, that `jax.lax` offers only as a
primitive, or that JAX lacks says so (`jax=` of `defop`); helpers.py has the functions that JAX
lacks. `WRITERS` has the ops of random keys and selections, which are written with what the engine
knows of generators and primitives.
"""
from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ir.facts import IDENTITY
from ...ir.program import Equation
from .literals import keywords, tuple_of

Texts = Sequence[str]
Writer = Callable[[Equation, Texts], str]

GENERATORS = {"fry": "threefry2x32", "rbg": "rbg", "urbg": "unsafe_rbg"}      # of random keys
TYPING_PARAMS = frozenset({"input_dtype", "weak_type"})     # which no function of JAX takes


def _call(e: Equation, x: Texts, call: str = "") -> str:
    """A call of the op's function with these operands and the params that the op has. A primitive
    is given all of them, a function those that are not None.

    call: the function (`jax=` of `defop`), with its arguments where some operands are one tuple.
    """
    function, _, text = call.removesuffix(")").partition("(")
    form = text.split(", ") if text else []
    operands = x if not form else [
        tuple_of(x[k:]) if part == "*" else x[k] for k, part in enumerate(form) if "=" not in part]
    function = function or f"lax.{e.op.name.replace('-', '_')}"
    is_primitive = function.endswith(".bind")
    left_out = TYPING_PARAMS | {e.op.sharding_param}
    passed = keywords((name, value) for name, value in e.params.items()
                      if name not in left_out and (is_primitive or value is not None))
    arguments = [*operands, passed.removeprefix(", "), *[part for part in form if "=" in part]]
    return f"{function}({', '.join(filter(None, arguments))})"


def _by_selection(e: Equation, x: Texts) -> str:
    """The comparison that selects is a primitive."""
    rest = keywords((k, v) for k, v in e.params.items() if k != "select_prim")
    return (f"lax.{e.op.name}_p.bind({', '.join(x)}, select_prim=lax.{e.params['select_prim']}_p"
            f"{rest})")


def _random(e: Equation, x: Texts) -> str:
    """By the primitive, or by the older way of counting, which JAX has no primitive for. Keys tell
    their generator.
    """
    passed = keywords((k, v) for k, v in e.params.items() if k in ("bit_width", "shape"))
    function = f"primitives.{e.op.name}_p.bind" if e.params.get("partitionable", True) else (
        f"older_{e.op.name}")
    return f"{function}({x[0]}{passed})"


def _random_block(e: Equation, x: Texts) -> str:
    """A helper that is given where the block begins: a start for each dimension that is split."""
    dims = e.params["dims"]
    starts = ", ".join(f"{d}: {start}" for d, start in zip(dims, x[1:], strict=True))
    passed = keywords((k, v) for k, v in e.params.items() if k not in ("dims", e.op.sharding_param))
    return f"{e.op.name}({x[0]}{passed}, starts={{{starts}}})"


WRITERS: dict[str, Writer] = {
    **dict.fromkeys(("select_and_gather_add", "select_and_scatter_add"), _by_selection),
    "shard_alike": lambda e, x: tuple_of(x),
    "random_seed": lambda e, x: f"jax.extend.random.random_seed({x[0]}, impl=jax.extend.random."
                                f"{GENERATORS[e.params['impl']].removesuffix('2x32')}_prng_impl)",
    "random_wrap": lambda e, x: f"jax.random.wrap_key_data({x[0]}, impl="
                                f"{GENERATORS[e.params['impl']]!r})",
    **dict.fromkeys(("random_bits", "random_split"), _random),
    **dict.fromkeys(("random_bits_block", "random_split_block", "rng_bit_generator_block"),
                    _random_block)}


def expression(e: Equation, x: Texts) -> str | None:
    """The source text of an equation with these operands; None if it is not supported.

    Which functions `jax.lax` has is known where JAX is imported, as it is before a program runs.
    """
    name = e.op.name
    if name in WRITERS:
        return WRITERS[name](e, x)
    function = e.op.jax
    if function:
        return _call(e, x, function) if isinstance(function, str) else function(e, x)
    if IDENTITY in e.op.facts:
        return x[0]
    lax = sys.modules.get("jax.lax")
    if e.op.evaluate is None or (lax is not None and not hasattr(lax, name.replace("-", "_"))):
        return None
    return _call(e, x)


def generator(dtype: Any) -> str:
    """What JAX calls the generator of keys of this dtype."""
    return GENERATORS[dtype.impl]


def unsupported_dtype(e: Equation) -> np.dtype | None:
    """A dtype of the equation that XLA does not support."""
    for a in (*e.invars, *e.outvars):
        dtype = a.aval.dtype
        if isinstance(dtype, np.dtype) and dtype.name.startswith("float6_"):
            return dtype
    return None
