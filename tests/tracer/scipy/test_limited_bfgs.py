"""L-BFGS: minima of known functions, real and complex, jitted, and why it stops."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.scipy.optimize import minimize

METHOD = "l-bfgs-experimental-do-not-rely-on-this"


def rosenbrock(x):
    return jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def himmelblau(x):
    return (x[0] ** 2 + x[1] - 11) ** 2 + (x[0] + x[1] ** 2 - 7) ** 2


@pytest.mark.parametrize("f, start, minimum", [
    (rosenbrock, np.zeros(5), np.ones(5)), (himmelblau, np.zeros(2), [3.0, 2.0]),
    (lambda x: jnp.sum((x - 3.0) ** 2 * jnp.arange(1.0, 21.0)), np.zeros(20), np.full(20, 3.0))])
def test_it_finds_the_minimum(f, start, minimum):
    found = st.jit(lambda x: minimize(f, x, method=METHOD, options={"gtol": 1e-4}))(
        start.astype(np.float32))
    np.testing.assert_allclose(found.x, minimum, atol=2e-3)
    assert found.fun < 1e-5
    assert found.hess_inv is None


def test_minimize_finds_complex_vectors():
    target = jnp.array([1.0, 2.0 - 3.0j, 4.0, -5.0j])

    def f(z):
        return jnp.real(jnp.vdot(z - target, (z - target) * jnp.arange(1.0, 5.0)))

    found = minimize(f, jnp.zeros_like(target), method=METHOD)
    np.testing.assert_allclose(found.x, target, atol=1e-4)
    assert found.success and found.status == 0


def test_it_says_why_it_stopped():
    start = jnp.zeros(5)
    assert minimize(rosenbrock, start, method=METHOD, options={"maxiter": 2}).status == 1
    assert minimize(rosenbrock, start, method=METHOD, options={"maxfun": 3}).status == 2
    assert minimize(rosenbrock, start, method=METHOD, options={"maxgrad": 3}).status == 3
    assert minimize(rosenbrock, start, method=METHOD, options={"ftol": 10.0}).status == 4
    with pytest.raises(ValueError, match="not recognized"):
        minimize(rosenbrock, start, method="newton")
