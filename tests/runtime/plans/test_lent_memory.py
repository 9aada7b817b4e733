"""Chains of fused calls begin in the memory of their results, where nobody else needs it."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
from shardtrace import lax
from shardtrace import numpy as jnp
from shardtrace.runtime.plans import generated

from ...executors import forget_plans

RNG = np.random.default_rng(5)
X, Y = (RNG.normal(size=(32, 32)).astype(np.float32) for _ in range(2))
pytestmark = pytest.mark.usefixtures("tiny")


def source(f, *args, monkeypatch):
    """The source of the block of a function, and that it gives what numpy does."""
    sources, original = [], generated._code
    monkeypatch.setattr(generated, "_code", lambda s: (sources.append(s), original(s))[1])
    jitted = st.jit(f)
    for _ in range(4):                              # until the plan is written out, too
        found = jitted(*args)
    for got, wanted in zip(found, f(*args), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    return next(s for s in sources if "memory" in s)


def test_a_chain_takes_no_memory_but_its_result(monkeypatch):
    text = source(lambda x: [jnp.exp(jnp.tanh(x * 2) + 1) * 3], X, monkeypatch=monkeypatch)
    assert text.count("out=o0") == 5


def test_a_chain_goes_through_the_bits_of_numbers(monkeypatch):
    def f(x):
        bits = lax.bitcast_convert_type(x, np.uint32) >> 9 | np.uint32(0x3f800000)
        return [lax.bitcast_convert_type(bits, np.float32) * 2 - 1]
    text = source(f, X, monkeypatch=monkeypatch)
    assert text.count("out=o0") == 4
    assert "out=o0.view(" in text


def test_what_is_read_later_is_not_written_over(monkeypatch):
    def f(x, y):
        a = jnp.tanh(x)
        b = a * 2
        c = jnp.exp(a) + b + y                      # y may be where the result goes
        return [c * y, (c - a) * a]
    source(f, X, Y, monkeypatch=monkeypatch)


def test_an_operand_that_gives_its_memory_is_read_before(monkeypatch):
    def f(x, y):
        z = x @ y                                   # nobody else reads it
        a = jnp.tanh(x) + 1
        return [jnp.exp(a * 2) * z + jnp.sin(z)]
    source(f, X, Y, monkeypatch=monkeypatch)
    monkeypatch.undo()
    forget_plans()
    assert np.array_equal(st.jit(f)(X, Y)[0], f(X, Y)[0])


def test_sums_and_rows_beside_a_chain(monkeypatch):
    def f(x):
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / jnp.sqrt((centred ** 2).mean(-1, keepdims=True) + 1e-5)
        return [scaled * 2 + 1, scaled - centred]
    source(f, X, monkeypatch=monkeypatch)
