"""What `vjp` returns: a function of cotangents, and a pytree of the residuals that it needs."""
import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.tracer.autodiff.pullback import NotNeeded

F32 = np.float32
V = np.array([0.5, -1.0, 2.0], F32)

def residuals(f, *args):
    pull = st.vjp(f, *args)[1]
    needed = [not isinstance(r, NotNeeded) for r in st.tree.leaves(
        pull.args_res, is_leaf=lambda r: isinstance(r, NotNeeded))]
    return needed, len(pull.opaque_residuals)


@pytest.mark.parametrize(("f", "args", "found"), [
    (lambda a, b: a * b, (V, 2 * V), ([True, True], 0)), (lambda a: a * a, (V,), ([True], 0)),
    (jnp.sin, (V,), ([False], 1)), (lambda a, b: a + b, (V, V), ([False, False], 0)),
    (st.jit(lambda a, b: a * b), (V, 2 * V), ([True, True], 0)),
    (lambda p, a: jnp.tanh(a @ p["w"]) + p["b"],
     ({"w": np.ones((V.shape[-1], 2), F32), "b": np.zeros(2, F32)}, V), ([False, True, True], 1))])
def test_residuals_that_are_arguments_stand_apart(f, args, found):
    assert residuals(f, *st.tree.map(jnp.asarray, args)) == found


def test_residuals_that_are_arguments_can_be_replaced():
    a, b = jnp.asarray(V), jnp.asarray(2 * V)
    pull = st.vjp(lambda a, b: a * b, a, b)[1]
    assert pull.args_res[0] is a and pull.args_res[1] is b
    pull.args_res[0] = jnp.zeros_like(a)
    to_a, to_b = pull(jnp.ones_like(a))
    np.testing.assert_array_equal(to_a, b)
    np.testing.assert_array_equal(to_b, 0 * V)


def test_a_vjp_is_a_pytree_of_its_residuals():
    pull = st.jit(lambda a: st.vjp(lambda a, b: jnp.sin(a) * b, a, 2 * a)[1])(jnp.asarray(V))
    assert len(st.tree.leaves(pull)) == 3
    doubled = st.tree.map(lambda r: 2 * r, pull)
    for g, h in zip(pull(jnp.ones_like(V)), doubled(jnp.ones_like(V)), strict=True):
        assert not np.array_equal(g, h)


@pytest.mark.parametrize("f", [lambda x: (x * 2, x.astype(int)), lambda x: (x * 2, x > 0),
                               st.jit(lambda x: (x * 2, jnp.argsort(x)))])
def test_cotangents_of_integers_count_for_nothing_whatever_their_dtype(f):
    out, pull = st.vjp(f, jnp.asarray(V))
    ones = jnp.ones_like(V)
    for ct in (jnp.ones_like(out[1]), np.ones(3, np.int8), 5 * ones, np.zeros(3, st.dtypes.float0)):
        np.testing.assert_array_equal(pull((ones, ct))[0], 2 * ones)
    np.testing.assert_array_equal(st.jit(pull)((ones, jnp.ones_like(out[1])))[0], 2 * ones)
    with pytest.raises(ValueError, match="for argument to VJP function"):
        pull((ones, jnp.ones(2, int)))
    with pytest.raises(ValueError, match=r"got float0\[3\], but expected float32\[3\]"):
        pull((np.zeros(3, st.dtypes.float0), out[1]))
