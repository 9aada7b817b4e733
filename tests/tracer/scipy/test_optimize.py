"""Minima of functions that are known for them, and what is reported of the way there."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.scipy.optimize import minimize


def rosenbrock(x):
    return jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def himmelblau(p):
    x, y = p
    return (x ** 2 + y - 11) ** 2 + (x + y ** 2 - 7) ** 2


def matyas(p):
    x, y = p
    return 0.26 * (x ** 2 + y ** 2) - 0.48 * x * y


@pytest.mark.parametrize(("f", "x0", "x", "rtol"), [
    (rosenbrock, [0.0, 0.0], [1, 1], 1e-3), (rosenbrock, [0.0] * 5, [1] * 5, 1e-3),
    (himmelblau, [0.0, 0.0], [3, 2], 1e-4), (matyas, [1.0, 1.0], [0, 0], 1e-3),
    (lambda x: jnp.sum((x - 3) ** 4), [0.0, 1.0], [3, 3], 1e-2),
])
def test_the_minimum_is_found(f, x0, x, rtol) -> None:
    found = st.jit(lambda x0: minimize(f, x0, method="BFGS"))(np.array(x0, np.float32))
    assert bool(found.success) and int(found.status) == 0
    np.testing.assert_allclose(found.x, x, rtol=rtol, atol=1e-3)
    np.testing.assert_allclose(found.fun, f(found.x), rtol=1e-6)
    assert np.abs(found.jac).max() < 1e-5 and int(found.nfev) == int(found.njev) > int(found.nit)


def test_a_quadratic_function_gives_its_inverse_curvature() -> None:
    curvature = np.array([[3.0, 1.0], [1.0, 2.0]], np.float32)
    found = minimize(lambda x, a: 0.5 * x @ a @ x - x.sum(), jnp.zeros(2), (curvature,),
                     method="bfgs", tol=1e-4)
    np.testing.assert_allclose(found.x, np.linalg.solve(curvature, [1, 1]), rtol=1e-3)
    np.testing.assert_allclose(found.hess_inv, np.linalg.inv(curvature), rtol=0.1)


def test_too_few_steps_are_reported() -> None:
    found = minimize(rosenbrock, jnp.zeros(2), method="BFGS", options={"maxiter": 2})
    assert not found.success and int(found.status) == 1 and int(found.nit) == 2


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="Method CG not recognized"):
        minimize(rosenbrock, jnp.zeros(2), method="CG")
    with pytest.raises(TypeError, match="must be a tuple"):
        minimize(rosenbrock, jnp.zeros(2), [1], method="BFGS")     # type: ignore[arg-type]


def test_a_steep_function_and_a_far_start_end_in_a_minimum():
    """The first step is as long as the slope says, and estimates that rounding spoils are left."""
    steep = minimize(lambda x: jnp.mean((1e4 * x) ** 2), jnp.ones(2), method="BFGS")
    np.testing.assert_allclose(steep.x, 0, atol=1e-6)

    def himmelblau(p):
        x, y = p
        return (x ** 2 + y - 11) ** 2 + (x + y ** 2 - 7) ** 2

    far = minimize(himmelblau, jnp.array([92, 0.001]), method="BFGS")
    assert far.success
    np.testing.assert_allclose(far.x, [3.584428, -1.848126], atol=2e-5)
