"""What one loop stacks for another one stays in the layout in which it was made.

A scan over layers stacks what its gradient reads. A sum that ends in rows of their own (sequence
parallelism) makes these rows split; to gather them for the stack would cost an exchange per value
and layer, and hold them whole for all layers.
"""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.ir.settings.context import config
from shardtrace.partitioner.resharding import carry_layouts
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

WEIGHTS = P(None, None, "y"), P(None, "y")


@pytest.fixture
def mesh():
    return st.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)


def norm(x):
    return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def layer(x, w):
    return norm(x + jnp.tanh(norm(x) @ w[0]) @ w[1]), None


def loss(weights, x):
    return (lax.scan(layer, x, weights)[0] ** 3).mean()


def root_layer(x, w):
    return x + jnp.tanh(x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) @ w[0]) @ w[1], None


def root_loss(weights, x):
    return (lax.scan(root_layer, x, weights)[0] ** 2).mean()


def arguments(mesh, layers, rows, width):
    """Shapes of the weights of a column and a row parallel product, and of rows over x."""
    shapes = ((layers, width, 8 * width), (layers, 8 * width, width)), (rows, 64, width)
    specs = WEIGHTS, P("x")
    return st.tree.map(lambda shape, spec: st.ShapeDtypeStruct(
        shape, "float32", sharding=NamedSharding(mesh, spec)), shapes, specs,
        is_leaf=lambda x: isinstance(x[0], int))


def test_rows_are_split_between_the_products_of_a_layer_and_its_gradient(mesh) -> None:
    with config.override(shardtrace_objective="time"):
        compiled = st.jit(st.grad(loss)).lower(*arguments(mesh, 3, 256, 2048)).compile()
    rows = 256 // 2 * 64 * 2048 * 4                         # bytes of what is whole over y
    moved = [(r.kind, r.received_bytes, r.count) for r in compiled.collectives()
             if r.mesh_axes == ("y",)]
    one = rows * 3 // 4
    assert sorted(moved) == sorted([
        ("all-gather", one, 3), ("reduce-scatter", one, 3),
        ("all-gather", one, 3), ("reduce-scatter", one, 3)])
    # What is stacked whole is what the gathers in front of the products gave.
    stacked = [v.aval.shape for eqn in compiled.stages["local"].eqns if eqn.op.name == "scan"
               for v in eqn.outvars if v.aval.shape[-1:] == (2048,)]
    assert stacked.count((3, 128, 64, 2048)) == 1, stacked


def test_rows_that_are_carried_and_stacked_stay_split(mesh) -> None:
    """What a layer begins with is read by its gradient: neither is gathered for each layer."""
    with config.override(shardtrace_objective="time", shardtrace_hardware="h100"):
        compiled = st.jit(st.grad(root_loss)).lower(*arguments(mesh, 4, 128, 1024)).compile()
    carried = next(e for e in compiled.stages["local"].eqns if e.op.name == "scan")
    assert carried.outvars[0].aval.shape == (16, 64, 1024)
    assert carried.outvars[1].aval.shape == (4, 16, 64, 1024)


@pytest.mark.parametrize("objective", ["memory", "time", "bytes"])
@pytest.mark.parametrize("loss", [loss, root_loss])
def test_gradients_are_those_of_one_device(loss, objective, mesh) -> None:
    """In double precision, so that the order of additions, which processors differ in, is none of
    what is compared.
    """
    shapes = arguments(mesh, 3, 4, 16)
    rng = np.random.default_rng(0)
    with st.enable_x64():
        values = st.tree.map(lambda s: rng.normal(size=s.shape), shapes)
        placed = st.tree.map(lambda v, s: st.device_put(v, s.sharding), values, shapes)
        want = st.grad(loss)(*values)
        for executor in ("simulated", "per_device"):
            with config.override(shardtrace_engine=executor, shardtrace_objective=objective):
                got = st.jit(st.grad(loss))(*placed)
            for a, b in zip(st.tree.leaves(got), st.tree.leaves(want), strict=True):
                assert a.dtype == np.float64
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_what_others_read_too_is_as_typed(mesh) -> None:
    """Here the second loop, and the result of the program."""
    def both(weights, x):
        def kept(x, w):
            y, _ = layer(x, w)
            return y, y
        last, every = lax.scan(kept, x, weights)
        again, _ = lax.scan(lambda c, y: (c + y, None), last, every)
        return again, every
    compiled = st.jit(both).lower(*arguments(mesh, 3, 256, 2048)).compile()
    loop = next(e for e in compiled.stages["resharded"].eqns if e.op.name == "scan")
    was = next(e for e in compiled.stages["resolved"].eqns if e.op.name == "scan")
    assert [v.aval for v in loop.outvars] == [v.aval for v in was.outvars]


def test_bodies_are_looked_through_once_however_many_values_they_stack(mesh, monkeypatch) -> None:
    looked, around = [], carry_layouts._Around

    def noted(*given):
        looked.append(given)
        return around(*given)
    monkeypatch.setattr(carry_layouts, "_Around", noted)

    def chain(x, n):
        def body(x, _):
            for _ in range(n):
                x = jnp.sin(x) * x
            return x, None
        return lax.scan(body, x, None, length=3)[0].sum()
    x = st.ShapeDtypeStruct((8, 8), "float32", sharding=NamedSharding(mesh, P("x")))
    times = []
    for n in (4, 16):
        looked.clear()
        st.jit(st.value_and_grad(lambda x, n=n: chain(x, n))).lower(x)
        times.append(len(looked))
    assert times[0] == times[1] > 0


def test_a_loop_that_never_runs_carries_a_sum(mesh):
    """Its body may still be planned: what ends the sum is done once, not once in no iteration."""
    x = st.device_put(np.ones((8, 16), np.float32), NamedSharding(mesh, P("x", "y")))
    total, rows = st.jit(lambda x: lax.scan(
        lambda c, row: (c + row.sum(), row), 1.0, x[:0]))(x)
    assert float(total) == 1 and rows.shape == (0, 16)
