"""What a call has used goes with the last who holds it: the collector has nothing to find."""
from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P


def product(a: Any) -> Any:
    return jnp.tanh(a @ a)


class Convertible:
    """An object that stands for an array."""

    def __jax_array__(self) -> Any:
        return jnp.ones(3)


CALLS: dict[str, Callable[[st.Array], Any]] = {
    "jit": lambda x: st.jit(lambda a: product(a))(x),
    "two types": lambda x: [f(np.ones((n, n), np.float32)) for f in [st.jit(lambda a: product(a))]
                            for n in (2, 3)],
    "ahead of time": lambda x: st.jit(lambda a: product(a)).lower(x).compile(),
    "gradient": lambda x: st.jit(st.grad(lambda a: product(a).sum()))(x),
    "batch": lambda x: st.vmap(lambda a: jnp.sin(a))(x),
    "loop": lambda x: st.lax.fori_loop(0, 3, lambda i, a: product(a) + i, x),
    "dictionaries": lambda x: st.jit(lambda d: {"b": product(d["a"]), "a": d["c"]})(
        {"c": x, "a": x}),
    "conversion": lambda x: jnp.sin(Convertible()),
}


@pytest.fixture
def no_collections() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    yield
    if enabled:
        gc.enable()


@pytest.mark.usefixtures("only_own_objects", "no_collections")
@pytest.mark.parametrize("name", CALLS)
def test_a_call_leaves_no_cycles(name: str, executor: str) -> None:
    mesh = st.make_mesh((2, 2), ("x", "y"))
    x = st.device_put(np.ones((4, 4), np.float32), NamedSharding(mesh, P("x", "y")))
    CALLS[name](x)                          # what is kept for all calls is made
    gc.collect()
    CALLS[name](x)
    assert gc.collect() == 0
