"""Transformed functions are weakly typed where JAX's are: recorded from JAX, under jit.

Again: ORACLE -m tests.record.weak_transforms.
"""
from __future__ import annotations

import shardtrace.numpy as jnp
from shardtrace.tracer.operands.dtype_promotion import convert

from . import weak_transforms, weak_types


def test_transformed_functions_are_weak_where_they_are_in_jax():
    library = weak_types.Library.of(
        "shardtrace", lambda x: convert(jnp.asarray(x), jnp.asarray(x).dtype, True))
    wanted = {(expression, way): found for expression, ways in weak_transforms.read().items()
              for way, found in ways.items() if found != "refused"}
    differing = [(use, found, want) for use, want in wanted.items()
                 if (found := weak_transforms.answer(library, *use)) != want]
    assert not differing
