"""Differential equations against solutions in closed form, and derivatives of those."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.experimental.ode import odeint
from tests.executors import agree

TS = np.array([0.0, 0.5, 1.0, 2.5], np.float32)


def test_a_pendulum_of_two_numbers():
    def slope(state, t, w):
        return {"x": state["v"], "v": -w ** 2 * state["x"]}

    found = odeint(slope, {"x": jnp.float32(1), "v": jnp.float32(0)}, jnp.asarray(TS), 2.0)
    np.testing.assert_allclose(found["x"], np.cos(2 * TS), atol=1e-5)
    np.testing.assert_allclose(found["v"], -2 * np.sin(2 * TS), atol=1e-5)


def test_derivatives_by_start_times_and_arguments():
    """y = y0 exp(-a (t² - t0²) / 2)."""
    def total(y0, ts, a):
        return odeint(lambda y, t, a: -a * y * t, y0, ts, a)[-1].sum()

    y0, a = jnp.array([1.0, -2.0]), jnp.float32(0.7)
    by_y0, by_ts, by_a = st.grad(total, argnums=(0, 1, 2))(y0, jnp.asarray(TS), a)
    last = np.exp(-0.7 * TS[-1] ** 2 / 2)
    np.testing.assert_allclose(by_y0, [last, last], rtol=1e-4)
    np.testing.assert_allclose(by_a, -last * (-1.0) * TS[-1] ** 2 / 2, rtol=1e-3)
    np.testing.assert_allclose(by_ts, [0, 0, 0, 0.7 * TS[-1] * last], atol=1e-4)


def test_it_maps_and_runs_on_devices():
    def f(y0):
        return st.vmap(lambda y: odeint(lambda y, t: -y + t, y, jnp.asarray(TS)))(y0)

    y0 = np.arange(4, dtype=np.float32)
    exact = TS - 1 + (y0[:, None] + 1) * np.exp(-TS)
    np.testing.assert_allclose(agree(f, y0, rtol=1e-5, atol=1e-6), exact, atol=1e-5)


def test_limits_of_steps_and_mistakes():
    cut = odeint(lambda y, t: -y, jnp.float32(1), jnp.asarray(TS), mxstep=1)
    assert not np.allclose(cut[-1], np.exp(-2.5), atol=1e-3)
    np.testing.assert_allclose(
        odeint(lambda y, t: -y, jnp.float32(1), jnp.asarray(TS), hmax=0.1), np.exp(-TS), atol=1e-5)
    with pytest.raises(TypeError, match="t must be an array of floats"):
        odeint(lambda y, t: y, 1.0, jnp.arange(3))
    with pytest.raises(TypeError, match="must be arrays or scalars"):
        odeint(lambda y, t, a: y, 1.0, jnp.asarray(TS), "a")
