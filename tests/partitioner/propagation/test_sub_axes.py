"""Reshapes that cut a dimension where its mesh axis does not fit: the axis is cut as well."""
from __future__ import annotations

import math

import numpy as np
import pytest

import shardtrace as st
from shardtrace import config, lax
from shardtrace import numpy as jnp
from shardtrace.ir.text.parse import parse_program
from shardtrace.ir.text.print import print_program
from shardtrace.ir.verify import verify
from shardtrace.runtime import measure
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ...rows import rows


def mesh(sizes):
    return st.make_mesh(tuple(sizes.values()), tuple(sizes))


def both(f, shape, spec, out=None, sizes=None):
    """`f` on integers, by both executors as without a mesh; the compiled program."""
    grid = mesh(sizes or {"x": 8})
    value = np.random.default_rng(0).integers(-4, 5, shape).astype(np.float32)
    want = st.jit(f)(value)
    x = st.device_put(value, NamedSharding(grid, spec))
    options = {} if out is None else {"out_shardings": NamedSharding(grid, out)}
    for executor in ("simulated", "per_device"):
        with config.override(shardtrace_engine=executor):
            got = st.jit(f, **options)(x)
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-5, atol=1e-4)
    compiled = st.jit(f, **options).lower(x).compile()
    assert [m.busiest for m in measure(compiled, x)] == [c.total for c in compiled.collectives()]
    for program in compiled.stages.values():
        text = print_program(program)
        again = parse_program(text)
        verify(again)
        assert print_program(again) == text
    return compiled


def moved(compiled):
    return sum(c.total for c in compiled.collectives())


@pytest.mark.parametrize("shape, middle, spec, sizes", [
    ((64, 64), (4, 16, 64), P("x"), {"x": 8}),
    ((64, 4), (2, 4, 8, 4), P("x"), {"x": 8}),
    ((4, 36), (4, 3, 12), P(None, "x"), {"x": 6}),
    ((64, 16), (2, 32, 2, 8), P("x", "y"), {"x": 4, "y": 2}),
    ((64, 16), (4, 16, 16), P(("y", "x")), {"x": 4, "y": 2}),
])
def test_a_reshape_and_its_inverse_move_nothing(shape, middle, spec, sizes):
    compiled = both(lambda a: (jnp.sin(a.reshape(middle)) + 1).reshape(shape), shape, spec,
                    sizes=sizes)
    assert compiled.collectives() == []
    assert compiled.output_shardings.spec == spec


def test_a_result_that_nobody_asked_for_has_whole_axes():
    compiled = both(lambda a: a.reshape(4, 16, 64), (64, 64), P("x"))
    assert compiled.output_shardings.spec == P()
    assert moved(compiled) == 7 * 8 * 64 * 4


def test_a_result_elsewhere_is_one_exchange():
    compiled = both(lambda a: a.reshape(4, 16, 64), (64, 64), P("x"), P(None, "x"))
    (record,) = compiled.collectives()
    assert record.received_bytes == record.operand_bytes == 8 * 64 * 4


def test_a_sum_over_one_part_is_a_collective_over_that_part():
    compiled = both(lambda a: (a.reshape(4, 16, 64) * 2).sum(0).reshape(16 * 64).sum(), (64, 64),
                    P("x"))
    assert {c.kind for c in compiled.collectives()} == {"all-reduce"}
    assert moved(compiled) <= 7 * 2
    compiled = both(lambda a: (a.reshape(4, 16, 64) * 2).max(0), (64, 64), P("x"), P())
    assert moved(compiled) <= 2 * 3 * 2048 // 4 + 2048


def test_arrays_over_parts_of_an_axis_go_with_arrays_over_the_axis():
    grid = mesh({"x": 8})
    value = np.arange(4 * 16 * 16, dtype=np.float32).reshape(4, 16, 16)
    parts = st.device_put(value, NamedSharding(grid, P("x:(1)4", "x:(4)2")))
    whole = st.device_put(value, NamedSharding(grid, P(None, "x")))
    assert (parts * 2).sharding.spec == P("x:(1)4", "x:(4)2")
    assert parts.reshape(64, 16).sharding.spec == P("x")
    for f in (lambda a, b: a + b, lambda a, b: (a * 2).reshape(64, 16) @ b.reshape(64, 16).T,
              lambda a, b: a.sum(0) + b.max(1).sum(0)):
        for executor in ("simulated", "per_device"):
            with config.override(shardtrace_engine=executor):
                for a, b in ((parts, whole), (whole, parts)):
                    np.testing.assert_allclose(np.asarray(st.jit(f)(a, b)), f(value, value),
                                               rtol=1e-5)


def repeated(a):
    return lax.scan(lambda c, _: ((c.reshape(4, 16, 8) * 2 - 1).reshape(64, 8), c.sum()), a,
                    None, length=3)[0]


def until(a):
    return lax.while_loop(lambda c: c[0] < 3,
                          lambda c: (c[0] + 1, (c[1].reshape(4, 16, 8) + 1).reshape(64, 8)),
                          (0, a))[1]


def chosen(a):
    return lax.cond(a[0, 0] > 0, lambda a: a.reshape(4, 16, 8) + 1, lambda a: a.reshape(4, 16, 8),
                    a).reshape(64, 8)


def product(a):
    heads = a.reshape(4, 16, 8)
    return jnp.einsum("hid,hjd->hij", heads, heads)


def gradient(a):
    return st.grad(lambda a: (product(a) ** 2).sum() / 64)(a)


def attention(a):
    heads = a.reshape(4, 16, 8)
    return (st.nn.softmax(product(a) / 8, -1) @ heads).reshape(64, 8)


def moved_rows(a):
    return jnp.concatenate([jnp.cumsum(a.reshape(4, 16, 8), 1)[:, 1:], jnp.ones((4, 1, 8))],
                           1).reshape(64, 8)


def sorted_rows(a):
    return jnp.sort(a.reshape(4, 16, 8), 1)[:, ::-1].reshape(64, 8)


@rows("out", [None, P("x"), P()])
@rows("f", [repeated, until, chosen, product, gradient, attention, moved_rows,
            sorted_rows])
def test_parts_of_axes_in_all_sorts_of_programs(f, out):
    if f is product and out == P("x"):
        out = P(None, "x")
    both(f, (64, 8), P("x"), out)


@pytest.mark.parametrize("rows, middle", [(24, (6, 4)), (24, (4, 6)), (48, (6, 8)), (16, (2, 8)),
                                          (40, (5, 8)), (72, (9, 8))])
@pytest.mark.parametrize("out", [None, P("x")])
def test_sizes_that_share_few_divisors(rows, middle, out):
    compiled = both(lambda a: (a.reshape(*middle, 8) * 2).reshape(rows, 8), (rows, 8), P("x"), out)
    assert moved(compiled) <= 7 * math.prod((rows, 8)) * 4 // 8


def test_loops_that_reshape_move_nothing():
    assert both(until, (64, 8), P("x"), P("x")).collectives() == []


def test_an_axis_and_a_part_of_it_that_are_both_asked_for():
    """Nothing is left open, so nothing is propagated; the axis is cut all the same."""
    grid = mesh({"x": 8})

    def at(value, *spec):
        return lax.with_sharding_constraint(value, NamedSharding(grid, P(*spec)))

    def f(a):
        return at(at(jnp.sin(a), None, "x:(4)2") + at(jnp.cos(a), "x", None), "x", None)

    both(f, (64, 8), P("x", None), P("x", None))
