"""Collectives of weakly typed operands are weakly typed where JAX's are, as recorded from JAX.

Again: ORACLE -m tests.record.weak_collectives.
"""
from __future__ import annotations

import pytest

import shardtrace.numpy as jnp
from shardtrace.tracer.operands.dtype_promotion import convert

from ..operands import weak_types
from . import weak_collectives


@pytest.mark.parametrize("way", weak_collectives.WAYS)
def test_collectives_are_weak_where_they_are_in_jax(way):
    library = weak_types.Library.of(
        "shardtrace", lambda x: convert(jnp.asarray(x), jnp.asarray(x).dtype, True))
    wanted = {name: found for (w, name), found in weak_collectives.read().items()
              if w == way and found != "refused"}
    assert {name: weak_collectives.answer(library, way, name) for name in wanted} == wanted
