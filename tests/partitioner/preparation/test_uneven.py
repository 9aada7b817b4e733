"""Arithmetic on slices that no mesh divides: done on whole rows, and right at their ends."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
from shardtrace import config, lax
from shardtrace import numpy as jnp
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ...rows import rows

ROW = 16 * 4            # bytes of a row


def grid(kind=AxisType.Auto):
    return st.make_mesh((2, 4), ("x", "y"), axis_types=(kind, kind))


def neighbours(a):
    return a[1:] - a[:-1]


# function, bytes received with 64 rows over all 8 devices
CASES = {
    "padded behind": (lambda a: jnp.pad(neighbours(a), ((0, 1), (0, 0))), ROW),
    "padded in front": (lambda a: jnp.pad(neighbours(a), ((1, 0), (0, 0))), 2 * ROW),
    "padded with a value": (lambda a: jnp.pad(neighbours(a), ((0, 1), (0, 0)),
                                              constant_values=7.0), ROW),
    "mean of squares": (lambda a: (neighbours(a) ** 2).mean(), ROW + 7),
    "maximum": (lambda a: jnp.abs(a[2:] - a[:-2]).max(), 2 * ROW + 7),
    "minimum of positive": (lambda a: (a[1:] * a[1:] + a[:-1] * a[:-1] + 1).min(), ROW + 7),
    "product": (lambda a: (neighbours(a) * 0 + 1.01).prod(), None),
    "all": (lambda a: (a[1:] != a[:-1]).all(), None),
    "any": (lambda a: (a[1:] == a[:-1]).any(), None),
    "second difference": (lambda a: (a[2:] - 2 * a[1:-1] + a[:-2]).sum(), None),
    "columns first": (lambda a: (neighbours(a) ** 2).sum(1).max(), ROW + 7),
    "in front of it": (lambda a: jnp.concatenate([jnp.zeros((1, 16), a.dtype), neighbours(a)]),
                       2 * ROW),
    "gradient": (lambda a: st.grad(lambda a: (neighbours(a) ** 2).sum())(a), 2 * ROW),
    "with a row": (lambda a: ((a[1:] - jnp.arange(16.0)) * 3 + 1).sum(), ROW + 7),
    "with positions": (lambda a: (a[1:] * lax.broadcasted_iota(np.float32, (63, 16), 0)).sum(),
                       ROW + 7),
    "selected": (lambda a: jnp.where(a[1:] > a[:-1], a[1:], -1).sum(0), None),
    "60 rows, which each axis divides": (lambda a: (jnp.tanh(a[4:]) * a[:-4]).sum(), 4 * ROW + 7),
    "quotient": (lambda a: (a[1:] / a[:-1]).sum(), ROW + 7),
    "in a loop": (lambda a: lax.scan(
        lambda c, _: (c + jnp.pad(neighbours(c), ((0, 1), (0, 0))), None), a, None, length=3)[0],
        3 * ROW),
    "columns": (lambda a: ((a[:, 1:] - a[:, :-1]) ** 2).mean(), 7),
    # what is seen outside stays as it is
    "the difference itself": (neighbours, None),
    "seen as well": (lambda a: (neighbours(a), neighbours(a).sum()), None),
    "of two sizes": (lambda a: neighbours(a)[1:].sum() + (a[2:] * 2).max(), None),
    "in reverse": (lambda a: neighbours(a)[::-1].sum(0), None),
}


@rows("name", CASES)
def test_results_are_those_of_one_device(name):
    f, received = CASES[name]
    value = np.random.default_rng(0).normal(size=(64, 16)).astype(np.float32)
    want = st.tree.leaves(st.jit(f)(value))
    for spec in (P(("x", "y")), P("y"), P("x", "y"), P()):
        x = st.device_put(value, NamedSharding(grid(), spec))
        for executor in ("simulated", "per_device"):
            with config.override(shardtrace_engine=executor):
                for got, one in zip(st.tree.leaves(st.jit(f)(x)), want, strict=True):
                    np.testing.assert_allclose(np.asarray(got), np.asarray(one), rtol=2e-4,
                                               atol=1e-4)
        if received is not None and spec == P(("x", "y")):
            compiled = st.jit(f).lower(x).compile()
            assert sum(c.total for c in compiled.collectives()) == received


def test_integers_and_nothing_but_one_slice():
    value = np.arange(64, dtype=np.int32).reshape(16, 4)
    x = st.device_put(value, NamedSharding(grid(), P("y")))
    for f in (lambda a: (a[3:] // (a[:-3] + 1)).max(), lambda a: a[1:].sum(),
              lambda a: (a[:-1] | 1).min(0)):
        np.testing.assert_array_equal(np.asarray(st.jit(f)(x)), f(value))


def test_explicit_programs_are_left_alone():
    x = st.device_put(np.ones((64, 16), np.float32), NamedSharding(grid(AxisType.Explicit), P("x")))
    lowered = st.jit(lambda a: (a[2:] - a[:-2]).sum()).lower(x)
    assert "roll" not in lowered.compile().as_text()


def test_values_that_are_padded_alike_may_lie_otherwise():
    # scores and table are both 32 x 64 with their padding, over x and y and over y alone
    def scored(table, h):
        return ((h @ table[:61].T) ** 2) @ table[:61]

    def struct(shape, *spec):
        return st.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(grid(), P(*spec)))
    compiled = st.jit(scored, out_shardings=NamedSharding(grid(), P("x"))).lower(
        struct((64, 32), "y"), struct((32, 32), "x")).compile()
    (summed,) = compiled.collectives()
    assert (summed.kind, summed.mesh_axes) == ("all-reduce", ("y",))


def test_a_few_rows_of_a_padded_dimension_are_all_that_is_exchanged():
    x = st.ShapeDtypeStruct((64, 16), np.float32, sharding=NamedSharding(grid(), P(("x", "y"))))
    for f in (lambda a: (a[:63] * 2)[0], lambda a: (a[:63] * 2)[3:5],
              lambda a: st.grad(lambda a: (jnp.tanh(a[:63])[0] ** 2).sum())(a)):
        for record in st.jit(f).lower(x).compile().collectives():
            assert record.received_bytes <= 2 * 2 * ROW


@pytest.mark.parametrize("f", [
    lambda a: (jnp.pad(a, ((1, 1), (0, 0)), mode="edge")[2:] * a[:1]).sum(0),
    lambda a: lax.dynamic_slice(a, (a.sum().astype(int), 0), (1, 512)),
], ids=["edges repeated", "a row somewhere"])
def test_one_row_is_taken_without_looking_up_rows(f):
    x = st.ShapeDtypeStruct((4096, 512), np.float32, sharding=NamedSharding(grid(), P(("x", "y"))))
    compiled = st.jit(f).lower(x).compile()
    assert compiled.collectives() and " gather[" not in compiled.as_text()


@pytest.mark.parametrize("rows, axis, step", [(128, "x", 2), (256, "y", 3)])
def test_every_second_row_of_few_less_is_taken_in_blocks(rows, axis, step):
    """126 rows are even over two devices; the 63 that are taken are not."""
    x = st.ShapeDtypeStruct((rows, 4096), np.float32, sharding=NamedSharding(grid(), P(axis)))
    compiled = st.jit(lambda a: jnp.tanh((a[:-2] * 2)[::step]).sum(0)).lower(x).compile()
    assert max([r.received_bytes for r in compiled.collectives()]) < 8 * 4096 * 4


@pytest.mark.parametrize("executor", ["simulated", "per_device"])
@pytest.mark.parametrize("reader", ["shard_map", "callback", "loop"])
def test_rows_behind_padded_ones_go_where_they_are_read(reader, executor):
    mesh = grid()

    def doubled(y):
        if reader == "shard_map":
            return st.shard_map(lambda b: 2 * b, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(y)
        if reader == "callback":
            return st.pure_callback(lambda b: 2 * np.asarray(b), st.typeof(y), y)
        return lax.fori_loop(0, 1, lambda i, b: 2 * b, y)

    value = np.arange(64 * 4, dtype=np.float32).reshape(64, 4)
    x = st.device_put(value, NamedSharding(mesh, P("x")))
    with config.override(shardtrace_engine=executor):
        found = st.jit(lambda x: doubled(jnp.pad(x[1:], ((0, 1), (0, 0)))))(x)
    np.testing.assert_array_equal(found, 2 * np.pad(value[1:], ((0, 1), (0, 0))))
