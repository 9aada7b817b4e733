"""Arithmetic on slices that no mesh divides: done on whole rows, and right at their ends."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
from shardtrace import config, lax
from shardtrace import numpy as jnp
from shardtrace.ir.passes import run_passes
from shardtrace.partitioner.cost.prices import Objective
from shardtrace.partitioner.passes import PREPARE, PartitionRequest
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ...references.interpreter import interpret
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


def spread(a):
    """Of the rows but the last."""
    rows = a[:1000]
    return ((rows - rows.mean(0)) ** 2).mean(0)


# what is computed of 1,024 rows over eight devices; the collectives without moved rows
KEPT = {
    "cut at the end": (spread, ["all-reduce"] * 2),
    "cut in front": (lambda a: jnp.argmax(a[1:], 0), ["all-gather"]),
    "gradient of what is cut": (st.grad(lambda a: a[1:].max(0).sum()), ["all-reduce"] * 2),
    "sums in front": (lambda a: jnp.pad(jnp.cumsum(a[3:-4], 0), ((3, 4), (0, 0))), ["all-gather"]),
}


@rows("name", KEPT)
def test_rows_stay_where_others_are_cut_off_if_that_takes_less_time(name):
    f, kinds = KEPT[name]
    value = np.random.default_rng(0).normal(size=(1024, 128)).astype(np.float32)
    sharding = NamedSharding(st.make_mesh((8,), ("x",)), P("x"))
    x = st.device_put(value, sharding)
    step = st.jit(f, out_shardings=sharding if f(value).shape == value.shape else None)
    with config.override(shardtrace_objective="time"):
        assert [r.kind for r in step.lower(x).compile().collectives()] == kinds
        for engine in ("simulated", "per_device"):
            with config.override(shardtrace_engine=engine):
                np.testing.assert_allclose(step(x), f(value), rtol=1e-4, atol=1e-4)
    with config.override(shardtrace_objective="xla"):
        compiled = step.lower(x).compile()
    assert "collective-permute" in [r.kind for r in compiled.collectives()]


@pytest.mark.parametrize("f", [
    lambda a: jnp.cumsum(a[:50], 0)[::-1].sum(1),
    lambda a: jnp.cumsum(a[5:60], 0).sum(1) + jnp.cumprod(a[5:60], 0).sum(1),
    lambda a: (jnp.sort(a[3:50], 0)[:40] * a[:40]).sum(0),
    lambda a: jnp.pad(a[9:50], ((3, 0), (0, 0))).max(0) + a[5:].min(0),
    lambda a: jnp.pad(a[9:50], ((2, 14), (1, 0)), constant_values=3.0).sum(0),
    lambda a: jnp.concatenate([a[:40], a[20:]]).sum(0),
    lambda a: jnp.where(a[4:].mean(0, keepdims=True) > a[4:], a[4:], a[:-4])[1:].sum(0),
    lambda a: (a[4:] - jnp.arange(60.0)[:, None]).T.reshape(-1)[7:].sum(),
    lambda a: st.grad(lambda a: (a[8:50] * a[8:50].max(0)).sum() + (a[20:] ** 3).sum())(a),
    lambda a: lax.scan(lambda c, _: (c + jnp.tanh(c[7:] - c[7:].mean(0)).max(0), c[3:]), a, None,
                       length=3),
    lambda a: (lambda b: (b / b.sum(0)).prod(0))(jnp.ones((60, 16)) * a[:60].max(0) + a[4:]),
    lambda a: a[1:-1, 2:][5:].sum(0) + jnp.flip(a[11:], 0)[:, :14].max(0),
    lambda a: jnp.roll(a[2:], 3, 0)[4:].argmax(0) + jnp.argsort(a[2:], 0)[0],
    lambda a: a[5:, None, :].repeat(2, 1).reshape(118, 16)[3:].sum(0),
    lambda a: a[6:] @ a[:, :4][:16] + (a[6:].T @ a[:-6]).sum(),
    lambda a: lax.dynamic_slice(a[6:], (a[0, 0].astype(int), 0), (9, 3)),
    lambda a: a[3:][jnp.arange(5) * 9] + a[3:].at[jnp.arange(5) * 3].add(2.0)[-5:],
])
def test_rows_that_stay_count_nowhere(f):
    """The program of a plan in which they stay, whether it is the one that is taken or not."""
    inlined = st.jit(f).lower(st.ShapeDtypeStruct(
        (64, 16), np.float32, sharding=NamedSharding(grid(), P("y")))).stages["traced"]
    results = [None] * len(inlined.outvars)
    kept, moved = [run_passes(PREPARE, inlined, PartitionRequest(
        grid().abstract_mesh, (P("y"),), tuple(results), Objective.of(name)))
        for name in ("time_kept_rows", "time")]
    value = np.random.default_rng(0).normal(size=(64, 16)).astype(np.float32)
    assert str(kept) != str(moved)
    for got, want in zip(interpret(kept, [value]), interpret(moved, [value]), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
