"""Small exchanges that become one: of several dtypes too, where elements only move."""
from __future__ import annotations

import functools

import ml_dtypes
import numpy as np
import pytest

import shardtrace as st
from shardtrace import config, lax
from shardtrace import numpy as jnp
from shardtrace.driver.execution.programs import further
from shardtrace.ir.ops.communication.collective_kinds import each_collective
from shardtrace.ir.text.parse import parse_program
from shardtrace.ir.verify import verify
from shardtrace.partitioner.cost.prices import Objective
from shardtrace.partitioner.optimization.combine import _needs, combine, combine_as_xla
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ... import specs

MESH = st.make_mesh((8,), ("x",))
NUMBERS = np.arange(-32, 32).reshape(4, 16)


def placed(value, *spec):
    return st.device_put(value, NamedSharding(MESH, P(*spec)))


def exchanges(f, *args):
    return [(c.kind, c.received_bytes) for c in st.jit(f).lower(*args).compile().collectives()]


@pytest.fixture(autouse=True)
def device_by_device():
    with config.override(shardtrace_engine="per_device", shardtrace_objective="time"):
        yield


def whole(*values):
    return tuple([lax.with_sharding_constraint(v, NamedSharding(MESH, P())) for v in values])


@pytest.mark.parametrize("dtypes", [
    ["float32", "int32"], ["float32", "int16"], ["bfloat16", "float8_e4m3fn", "uint16"],
    ["bool", "int4", "int8"], ["complex64", "float32"]])
def test_gathers_of_all_dtypes_are_one_exchange(dtypes):
    values = [NUMBERS.astype(getattr(ml_dtypes, d, d)) for d in dtypes]
    args = [placed(v, None, "x") for v in values]
    assert [kind for kind, _ in exchanges(whole, *args)] == ["all-gather"]
    for found, value in zip(st.jit(whole)(*args), values, strict=True):
        assert found.dtype == value.dtype
        np.testing.assert_array_equal(np.asarray(found), value)


def test_layers_do_not_wait_for_the_weights_of_later_ones():
    """Together, eight weights of 2 MB are too many to wait for where products run meanwhile."""
    def layers(x, ws):
        for w in ws:
            x = jnp.tanh(x @ w)
        return x

    def kinds(f, rows):
        x = st.ShapeDtypeStruct((rows, 768), "float32", sharding=NamedSharding(MESH, P("x", None)))
        w = st.ShapeDtypeStruct((768, 768), "float32", sharding=NamedSharding(MESH, P("x", None)))
        found = st.jit(f).lower(x, [w] * 8).compile().collectives()
        assert sum(c.received_bytes for c in found) == 8 * 7 * 768 * 96 * 4
        return [c.kind for c in found]
    assert 1 < len(kinds(layers, 1 << 15)) < 8
    assert kinds(lambda x, ws: whole(*ws), 1 << 15) == ["all-gather"]   # nothing runs meanwhile


def test_gradients_of_weights_that_are_split_the_other_way_round_are_scattered_together():
    mesh = st.sharding.AbstractMesh((2, 4), ("data", "model"))

    def step(up, down, x):
        def loss(up, down):
            return jnp.mean(jnp.square(x + jnp.tanh(x @ up) @ down))
        grads = st.grad(loss, (0, 1))(up, down)
        return up - grads[0], down - grads[1]

    def of(*shape_and_spec):
        *shape, spec = shape_and_spec
        return st.ShapeDtypeStruct(shape, "float32", sharding=NamedSharding(mesh, spec))
    args = (of(512, 2048, P("data", "model")), of(2048, 512, P("model", "data")),
            of(16384, 512, P("data")))
    with config.override(shardtrace_hardware="h100"):
        found = st.jit(step).lower(*args).compile().collectives()
    assert [c.mesh_axes for c in found if c.kind == "reduce-scatter"] == [("model",), ("data",)]


def test_large_sums_are_one_where_nothing_runs_meanwhile_and_large_gathers_are_not():
    """A start takes longer than the first waits; gathered values would all be held at once."""
    x = st.ShapeDtypeStruct((8, 1 << 22), "float32", sharding=NamedSharding(MESH, P("x")))

    def kinds(f):
        found = st.jit(lambda *xs: whole(*[f(v) for v in xs])).lower(x, x).compile().collectives()
        return [c.kind for c in found]
    with config.override(shardtrace_hardware="h100"):
        assert kinds(lambda v: v.sum(0)) == ["all-reduce"]
        assert kinds(lambda v: v) == ["all-gather"] * 2


def test_the_bits_of_numbers_that_are_none_stay():
    bits = np.uint32(0x7F800001) + np.arange(64, dtype=np.uint32)
    found, _ = st.jit(whole)(placed(bits.view(np.float32), "x"), placed(np.arange(64), "x"))
    np.testing.assert_array_equal(np.asarray(found).view(np.uint32), bits)


def test_places_go_with_the_greatest_values():
    a = np.random.default_rng(0).normal(size=(4, 512)).astype(np.float32)

    def best(a):
        return lax.top_k(a, 4)
    arg = placed(a, None, "x")
    assert exchanges(best, arg) == [("all-gather", 4 * 4 * 2 * 4 * 7)]
    values, places = st.jit(best)(arg)
    np.testing.assert_array_equal(np.asarray(places), np.argsort(-a, 1)[:, :4])
    np.testing.assert_array_equal(np.asarray(values), -np.sort(-a, 1)[:, :4])


def test_the_greatest_value_and_its_place_are_gathered_together():
    a = np.random.default_rng(0).normal(size=(16, 64)).astype(np.float32)
    arg = placed(a, None, "x")
    assert exchanges(lambda a: jnp.argmax(a, 1), arg) == [("all-gather", 2 * 16 * 4 * 7)]
    np.testing.assert_array_equal(st.jit(lambda a: jnp.argmax(a, 1))(arg), a.argmax(1))


def test_gathers_of_parameters_go_together_whatever_is_summed_between_their_readers():
    mesh = st.make_mesh((2, 4), ("x", "y"))
    rng = np.random.default_rng(0)

    def layers(h, ws, brought=lambda w, *spec: w):
        for a, b in ws:
            h = jnp.tanh(h @ brought(a, None, "y")) @ brought(b, "y")
        return h

    def brought(w, *spec):
        return lax.with_sharding_constraint(w, NamedSharding(mesh, P(*spec)))
    specs = (P("x", "y"), P("y", "x")), (P("x", "y"), P("y", "x"))
    ws = st.tree.map(lambda spec: st.device_put(
        rng.normal(size=(16, 16)).astype(np.float32), NamedSharding(mesh, spec)), specs,
        is_leaf=lambda x: isinstance(x, P))
    h = st.device_put(rng.normal(size=(512, 16)).astype(np.float32), NamedSharding(mesh, P("x")))
    found = exchanges(lambda h, ws: layers(h, ws, brought), h, ws)
    assert [kind for kind, _ in found] == ["all-gather", "all-reduce", "all-reduce"], found
    want = layers(np.asarray(h), [tuple(map(np.asarray, pair)) for pair in ws])
    got = st.jit(layers, static_argnums=2)(h, ws, brought)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_no_gather_goes_where_it_waits_for_what_waits_for_it():
    """The second one waits for the sum, which waits for the first one."""
    mesh = st.make_mesh((8,), ("x",))

    def f(a, w):
        first = lax.with_sharding_constraint(a, NamedSharding(mesh, P()))
        total = (first @ w).sum(0)
        again = lax.with_sharding_constraint(total * w, NamedSharding(mesh, P()))
        return first.sum() + again.sum() + total
    rng = np.random.default_rng(0)
    a, w = (rng.normal(size=(8, 8)).astype(np.float32) for _ in range(2))
    args = placed(a, "x"), placed(w, "x")
    want = a.sum() + ((a @ w).sum(0) * w).sum() + (a @ w).sum(0)
    np.testing.assert_allclose(st.jit(f)(*args), want, rtol=1e-4)


def test_the_plan_of_xla_is_combined_by_what_it_is_judged_by():
    def masked(a):
        return jnp.tril(a @ a.T) @ a
    a = np.random.default_rng(0).normal(size=(256, 64)).astype(np.float32)
    arg = placed(a, "x")
    with config.override(shardtrace_objective="xla"):
        lowered = st.jit(masked, out_shardings=arg.sharding).lower(arg)
        assert len(exchanges(masked, arg)) == 2
    given = str(lowered.stages["traced"])
    tried = given.replace("objective xla", "objective xla_for_time")
    assert tried != given
    local = list(further(parse_program(tried)).values())[-1]
    assert [use.kind for use in each_collective(local)] == ["all-gather"]


def test_a_sum_that_is_exchanged_again_joins_one_that_waits_for_another_if_that_is_shorter():
    """The gradients of experts and of what weighs them: XLA's order of sums is tried, too."""
    mesh = st.sharding.AbstractMesh((2, 4), ("x", "y"))
    struct = functools.partial(specs.struct, mesh=mesh)

    def loss(up, w, x, down):
        g = st.nn.softmax(x @ w, -1)
        t = st.nn.relu(jnp.einsum("td,edf->tef", x, up))
        return (jnp.einsum("te,tef,efd->td", g, t, down) ** 2).mean()

    step = st.jit(st.grad(loss, (0, 1)), out_shardings=NamedSharding(mesh, P()))
    found = step.lower(struct((8, 64, 64)), struct((64, 8)), struct((512, 64), "y"),
                       struct((8, 64, 64), None, "x")).compile().collectives()
    assert [c.received_bytes for c in found if c.mesh_axes == ("y",)] == [101_376]


def test_a_sum_that_is_scattered_and_gathered_again_joins_another_of_xlas_plan():
    """It is made whole, and cut before it is gathered along the other axis."""
    mesh = st.sharding.AbstractMesh((2, 4), ("x", "y"))
    struct = functools.partial(specs.struct, mesh=mesh)

    def loss(up, down, x):
        return (jnp.cumsum((st.nn.gelu(x @ up) @ down).reshape(8, 32, 64), 1) ** 2).mean()

    up, down = struct((64, 128), None, "y"), struct((128, 64), None, ("y", "x"))
    step = st.jit(st.grad(loss, (0, 1)), out_shardings=(up.sharding, down.sharding))
    found = step.lower(up, down, struct((256, 64), "y", "x")).compile().collectives()
    assert [c.kind for c in found if c.mesh_axes == ("y",)] == ["all-gather", "all-reduce"]


def test_permutes_of_two_dtypes_are_one_exchange_and_sums_are_not():
    def passed(a, b):
        def body(a, b):
            ring = [(i, (i + 1) % 8) for i in range(8)]
            return lax.ppermute(a, "x", ring), lax.ppermute(b, "x", ring)
        return st.shard_map(body, mesh=MESH, in_specs=P("x"), out_specs=P("x"))(a, b)
    args = placed(np.arange(16, dtype=np.float32), "x"), placed(np.arange(16), "x")
    assert [kind for kind, _ in exchanges(passed, *args)] == ["collective-permute"]
    for found in st.jit(passed)(*args):
        np.testing.assert_array_equal(np.asarray(found), np.roll(np.arange(16), 2))
    kinds = [kind for kind, _ in exchanges(lambda a, b: (jnp.sum(a), jnp.sum(b)), *args)]
    assert kinds == ["all-reduce"] * 2


def test_parts_of_axes_that_overlap_are_not_confused() -> None:
    program = parse_program("""mesh (x=8 manual) of cpu
level local

program @f(
    a: f32[4]{V:x} <- f32[32@x],
    b: f32[4]{V:(x:(1)2,x:(4)2)} <- f32[16@(x:(1)2,x:(4)2)],
) -> (f32[4]{V:x:(2)4} => f32[16@x:(2)4], f32[4]{V:x:(4)2} => f32[8@x:(4)2]) {
  %a: f32[4]{V:x:(2)4} = psum_invariant[axes=('x:(1)2',)] a
  %b: f32[4]{V:x:(4)2} = psum_invariant[axes=('x:(1)2',)] b
  return %a, %b
}
""")
    prices = Objective.of("time", "h100").prices(program.mesh)
    verify(combine(program, prices))
    verify(combine_as_xla(program))


def test_exchanges_behind_a_long_sum_name_only_the_nearest_that_they_need():
    """So that joining a residual stream's takes no longer than its layers are many."""
    def stream(x, ws):
        for w in ws:
            x = x + jnp.tanh(x @ w)
        return x
    layers = 40
    x = st.ShapeDtypeStruct((16, 8), np.float32, sharding=NamedSharding(MESH, P(None, "x")))
    ws = [st.ShapeDtypeStruct((8, 8), np.float32, sharding=NamedSharding(MESH, P("x")))] * layers
    with config.override(shardtrace_objective="xla"):
        local = st.jit(stream, out_shardings=NamedSharding(MESH, P(None, "x"))).lower(
            x, ws).explain().partitioned.local
    sums = {eqn for eqn in local.eqns if eqn.op.collective is not None
            and eqn.op.collective.reduces}
    roots, below = _needs(local, sums)
    assert len(below) == layers == len(sums)
    assert [len(each) for each in (roots, *below.values())] == [1, 0, *[1] * (layers - 1)]
