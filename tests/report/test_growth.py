"""An explanation takes time in proportion to the program, however many arguments are alike."""
from __future__ import annotations

import gc

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.ir.support.collector import collector_paused
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ..python_calls import python_calls

MESH = st.make_mesh((2, 4), ("data", "model"))
ROWS, SPLIT = NamedSharding(MESH, P("data")), NamedSharding(MESH, P("model"))


def added(xs):
    return sum(xs)


def turned(xs):
    return lax.fori_loop(0, 4, lambda i, xs: [*xs[1:], xs[0] * 0.5], xs)


def multiplied(ws):
    x = np.ones((8, 8), np.float32)
    for w in ws:
        x = x @ w
    return x


@pytest.mark.parametrize(("f", "shape", "sharding", "few"), [
    (added, (8,), ROWS, 100), (turned, (8,), ROWS, 100), (multiplied, (8, 8), SPLIT, 12)])
def test_of_a_list_of_arguments(f, shape, sharding, few):
    """In calls of functions, which are the same each time."""
    found = []
    for n in (4, few, 4 * few):         # the first loads modules
        ws = [np.ones(shape, np.float32)] * n
        compiled = st.jit(f, in_shardings=([sharding] * n,)).lower(ws).compile()
        found.append(python_calls(lambda c=compiled: str(c.explain()), events=("call", "c_call")))
    assert found[2] < 4.4 * found[1], found


@pytest.mark.usefixtures("only_own_objects")
def test_of_what_an_explanation_leaves_to_the_collector():
    """A program and all that was tried of it go with the last who holds a part of the explanation.
    """
    ws = [np.ones((8, 8), np.float32)] * 20
    compiled = st.jit(multiplied, in_shardings=([SPLIT] * len(ws),)).lower(ws).compile()
    str(compiled.explain())                                 # loads modules
    gc.collect()
    with collector_paused():
        text = str(compiled.explain())
        assert "change first" in text and gc.collect() == 0


def test_of_a_chain_that_is_longer_than_python_recurses():
    """Axes that values have by the strategies of the equations before are followed through all."""
    def chain(x):
        for _ in range(400):
            x = jnp.sort(x, 0) + jnp.cumsum(x, 0)
        return x
    found = st.explain(st.jit(chain, in_shardings=ROWS))(np.ones((8, 8), np.float32))
    assert "because of `x` as P('data')" in str(found)
