"""Every primitive that JAX's public functions emit on CPU: imported, it gives JAX's values."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import shardtrace as st
from shardtrace import interop

from ..executors import EXECUTORS
from ..real_jax import real_jax
from .jax_calls import calls
from .programs import agree

jax = real_jax()
CALLS = calls(jax)

# Tokens order effects, which are ordered here by themselves; `rng_uniform` gives other numbers at
# each run; `select_and_scatter`, `stage`, `dce_sink` come from no public function; `le_to` and
# `eq_to` order what is sorted when it is lowered.
UNSEEN = {"after_all", "create_token", "rng_uniform", "select_and_scatter", "stage", "dce_sink",
          "le_to", "eq_to"}


@pytest.mark.parametrize("name", CALLS)
def test_an_imported_function_gives_the_values_of_jax(name: str) -> None:
    f, args = CALLS[name]
    wanted = jax.tree.leaves(jax.jit(f)(*args))
    for executor in EXECUTORS:
        with st.config.override(shardtrace_engine=executor):
            found = jax.tree.leaves(interop.from_jax(f, *args)(*args))
        for a, b in zip(found, wanted, strict=True):
            agree(np.asarray(a), np.asarray(b))


def test_the_calls_have_all_primitives_of_lax() -> None:
    seen = {name for f, args in CALLS.values()
            for name in _primitives(jax.make_jaxpr(f)(*args).jaxpr)}
    primitive = jax.extend.core.Primitive
    wanted = {x.name for module in (jax.lax, jax.lax.linalg) for x in vars(module).values()
              if isinstance(x, primitive)}
    assert wanted - seen - UNSEEN == {"ragged_all_to_all"}     # XLA has none on CPU


def _primitives(jaxpr: Any) -> Iterator[str]:
    core = jax.extend.core
    for eqn in jaxpr.eqns:
        yield eqn.primitive.name
        for value in jax.tree.leaves(list(eqn.params.values())):
            if isinstance(value, core.ClosedJaxpr):
                value = value.jaxpr
            if isinstance(value, core.Jaxpr):
                yield from _primitives(value)
