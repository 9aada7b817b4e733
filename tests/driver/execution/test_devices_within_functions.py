"""Devices that functions name inside: device_put under derivatives, constraints to one device."""
from __future__ import annotations

import re

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.sharding import AxisType, Mesh, NamedSharding, SingleDeviceSharding
from shardtrace.sharding import PartitionSpec as P

DEVICES = st.devices()
ROWS = np.arange(8, dtype=np.float32)


def halves() -> tuple[Mesh, Mesh]:
    return (Mesh(DEVICES[:4], ("x",), axis_types=(AxisType.Auto,)),
            Mesh(DEVICES[4:], ("x",), axis_types=(AxisType.Auto,)))


def test_a_gradient_comes_back_to_where_its_argument_is():
    x = st.device_put(2.0, DEVICES[3])
    y, slope = st.value_and_grad(lambda x: st.device_put(x * x, DEVICES[1]) * 3)(x)
    assert (float(y), float(slope)) == (12.0, 12.0)
    assert y.committed and y.devices() == {DEVICES[1]}
    assert slope.committed and slope.devices() == {DEVICES[3]}
    twice = st.grad(st.grad(lambda x: st.device_put(x, DEVICES[1]) ** 3))(x)
    assert float(twice) == 12.0 and twice.devices() == {DEVICES[3]}


def test_stages_on_meshes_of_their_own_are_differentiated():
    first, second = halves()
    stage1, stage2 = st.jit(lambda x: x ** 2), st.jit(lambda x: x * 3)
    x = st.device_put(ROWS, NamedSharding(first, P("x")))
    for target in (NamedSharding(second, P("x")), NamedSharding(second, P()), DEVICES[6]):
        def loss(x, target=target):
            return jnp.sum(stage2(st.device_put(stage1(x), target)))

        value, slopes = st.value_and_grad(loss)(x)
        assert value.devices() == ({DEVICES[6]} if target is DEVICES[6] else set(DEVICES[4:]))
        np.testing.assert_array_equal(slopes, 6 * ROWS)
        assert slopes.sharding == x.sharding
        np.testing.assert_array_equal(st.grad(loss)(ROWS), 6 * ROWS)    # on no device
        primal, tangent = st.jvp(lambda x, t=target: st.device_put(x * 2, t), (x,), (x,))
        assert primal.devices() == tangent.devices() == value.devices()


def test_a_pullback_goes_back_over_the_devices_as_often_as_it_is_called():
    first, second = halves()
    x = st.device_put(ROWS, NamedSharding(first, P("x")))
    y, back = st.vjp(lambda x: st.device_put(x, NamedSharding(second, P())) * x.shape[0], x)
    for _ in range(2):
        (slopes,) = back(jnp.ones_like(y))
        assert slopes.sharding == x.sharding
        np.testing.assert_array_equal(slopes, 8 * np.ones(8))


def test_a_mapped_value_goes_to_another_device():
    out = st.vmap(lambda x: st.device_put(x, DEVICES[2]) * 2)(jnp.arange(4.0))
    assert out.devices() == {DEVICES[2]}
    first, second = halves()
    x = st.device_put(np.ones((3, 8)), NamedSharding(first, P(None, "x")))
    out = st.vmap(lambda x: st.device_put(x, NamedSharding(second, P("x"))))(x)
    assert out.sharding.is_equivalent_to(NamedSharding(second, P(None, "x")), 2)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_constants_of_a_derivative_lie_where_the_values_are(kind):
    first, second = (m.update(axis_types=(kind,)) for m in halves())
    for mesh in (first, second) if kind is AxisType.Auto else (first,):
        for target in (P(), P("x")):
            to = NamedSharding(mesh, target)
            ones, columns = np.ones((4, 8), np.float32), NamedSharding(first, P(None, "x"))
            for x in (ones, st.device_put(ones, columns)):
                moved = lambda v, to=to: (st.device_put(v, to) ** 2).sum()  # noqa: E731
                slopes = st.grad(lambda v, moved=moved: moved(v.sum(0)))(x)
                np.testing.assert_array_equal(slopes, 8 * np.ones((4, 8)))
                each = st.vmap(st.grad(moved))(x)
                np.testing.assert_array_equal(each, 2 * np.ones((4, 8)))
            out = st.vmap(lambda v, to=to: st.device_put(v, to) + 1)(np.ones((4, 8)))
            assert out.sharding.is_equivalent_to(to.update(spec=P(None, *target)), 2)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_constants_of_a_derivative_beside_one_device_and_a_mesh(kind):
    mesh = halves()[0].update(axis_types=(kind,))
    for x in (st.device_put(ROWS, NamedSharding(mesh, P("x"))), st.device_put(ROWS, DEVICES[1])):
        def f(v):
            return (st.device_put(v * 2, DEVICES[6]) ** 2).sum()

        slopes = st.grad(f)(x)
        np.testing.assert_array_equal(slopes, 8 * ROWS)
        assert slopes.sharding == x.sharding
        if kind is AxisType.Auto:
            np.testing.assert_array_equal(np.diag(st.hessian(f)(x)), 8 * np.ones(8))
        np.testing.assert_array_equal(st.grad(lambda v: f(v) + v.max() * 0)(
            st.device_put(ROWS, DEVICES[6])), 8 * ROWS)


def test_in_jit_a_value_stays_on_the_devices_of_the_computation():
    first, second = halves()
    x = st.device_put(ROWS, NamedSharding(first, P("x")))
    with pytest.raises(ValueError, match="Received incompatible devices for jitted computation"):
        st.grad(st.jit(lambda x: st.device_put(x, NamedSharding(second, P("x"))).sum()))(x)


# -- constraints to one device ---------------------------------------------------------------------

SINGLE_THREAD = SingleDeviceSharding(DEVICES[2])


@pytest.mark.parametrize("around", [lambda f: f, st.jit, st.vmap],
                         ids=["at once", "nested", "mapped"])
def test_a_constraint_to_a_device_says_where_a_computation_runs(around):
    inner = around(lambda x: lax.with_sharding_constraint(x * 2, SINGLE_THREAD) + 1)
    for x in (ROWS, jnp.asarray(ROWS), st.device_put(ROWS, DEVICES[2])):
        out = st.jit(lambda x: inner(x))(x)
        assert out.committed and out.sharding == SINGLE_THREAD
        np.testing.assert_array_equal(out, 2 * ROWS + 1)


def test_a_constraint_to_another_device_than_that_of_an_argument_is_refused():
    f = st.jit(lambda x: lax.with_sharding_constraint(x, SINGLE_THREAD))
    for x, ids in ((st.device_put(ROWS, DEVICES[0]), "[0]"),
                   (st.device_put(ROWS, NamedSharding(halves()[0], P("x"))), "[0, 1, 2, 3]")):
        with pytest.raises(ValueError, match="Received incompatible devices.*" + re.escape(ids)
                           + r".*sharding_constraint inside jit with device ids \[2\]"):
            f(x)


def test_a_device_alone_cannot_hold_what_vmap_splits():
    f = st.vmap(lambda x: lax.with_sharding_constraint(x, SINGLE_THREAD), spmd_axis_name="x")
    with pytest.raises(ValueError, match="If you are using spmd_axis_name.*SingleDeviceSharding"):
        st.jit(f)(ROWS)


def test_a_constraint_on_an_abstract_mesh_needs_an_array():
    rows = NamedSharding(halves()[0].abstract_mesh, P("x"))
    with pytest.raises(ValueError, match="requires the input passed should be a `st.Array`"):
        lax.with_sharding_constraint(ROWS, rows)
    with pytest.raises(TypeError, match="The sharding on the input must be a `NamedSharding`"):
        lax.with_sharding_constraint(jnp.asarray(ROWS), rows)
