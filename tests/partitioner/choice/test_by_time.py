"""Plans that are judged by time on a device, which is what is chosen unless bytes are asked for."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.ir.settings.context import config
from shardtrace.ir.text.parse import parse_program
from shardtrace.partitioner.cost.hardware import hardware
from shardtrace.partitioner.cost.links import collective_seconds
from shardtrace.partitioner.cost.prices import SECOND, Objective
from shardtrace.partitioner.cost.topology import Topology
from shardtrace.partitioner.pipeline import partition
from shardtrace.sharding import AbstractMesh, AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

M24 = AbstractMesh((2, 4), ("dp", "tp"))
TYPED = AbstractMesh((2, 4), ("dp", "tp"), axis_types=(AxisType.Explicit,) * 2)


@pytest.fixture(autouse=True)
def by_time():
    with config.override(shardtrace_objective="time"):
        yield


def struct(mesh, shape, *spec, dtype=jnp.bfloat16):
    return st.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))


def kinds(found):
    return [c.kind for c in found.collectives]


def seconds(found):
    """As plans are judged: the geometric mean of a step with and without overlap."""
    return found.times.mean


@pytest.mark.parametrize("n", [64, 512, 4096, 32768, 131072])
def test_a_row_parallel_product_is_one_all_reduce(n):
    rows = NamedSharding(TYPED, P("dp", None))
    found = st.explain(lambda x, w: jnp.matmul(x, w, out_sharding=rows))(
        struct(TYPED, (n, n), "dp", "tp"), struct(TYPED, (n, n), "tp"))
    assert kinds(found) == ["all-reduce"]
    assert found.flops == 2 * n ** 3 / 8


@pytest.mark.parametrize("n", [64, 512, 4096, 32768, 131072])
def test_a_column_parallel_product_moves_nothing(n):
    found = st.explain(lambda x, w: x @ w)(
        struct(TYPED, (n, n), "dp"), struct(TYPED, (n, n), None, "tp"))
    assert kinds(found) == []
    assert found.flops == 2 * n ** 3 / 8


@pytest.mark.parametrize("device", ["v5p", "v5e", "h100"])
def test_tensor_parallelism_of_sixteen_is_as_fast_as_written_by_hand(device):
    mesh = AbstractMesh((16,), ("tp",))
    b, d, f = 65536, 8192, 32768
    x, w1, w2 = (struct(mesh, (b, d)), struct(mesh, (d, f), None, "tp"),
                 struct(mesh, (f, d), "tp"))

    def layer(x, w1, w2):
        return lax.with_sharding_constraint(
            jnp.maximum(x @ w1, 0) @ w2, NamedSharding(mesh, P()))

    by_hand = st.shard_map(
        lambda x, w1, w2: lax.psum(jnp.maximum(x @ w1, 0) @ w2, "tp"), mesh=mesh,
        in_specs=(P(), P(None, "tp"), P("tp")), out_specs=P())
    chosen = st.explain(layer, device)(x, w1, w2)
    assert seconds(chosen) <= 1.001 * seconds(st.explain(by_hand, device)(x, w1, w2))
    assert chosen.flops <= 1.001 * 4 * b * d * f / 16


def narrow(device):
    """A product whose operands are small beside its result, all of it summed over tp."""
    def product(x, w):
        return lax.with_sharding_constraint(x @ w, NamedSharding(M24, P("dp")))

    return st.explain(product, device)(struct(M24, (4096, 512), "dp", "tp"),
                                       struct(M24, (512, 4096), "tp"))


def test_computation_is_repeated_only_where_that_takes_a_fifth_less_time():
    once = 2 * 4096 * 512 * 4096 / 8
    slow = narrow(hardware("v5p").replace(key="planned", link=1e9))
    assert kinds(slow) == ["all-gather", "all-gather"] and slow.flops == 4 * once
    fast = narrow(hardware("v5p").replace(key="wired", link=1e12))
    assert fast.flops == once and "all-to-all" in kinds(fast)


def test_prices_are_those_that_explain_prints():
    for device in ("v5p", "h100"):
        prices = Objective.of("time", device).prices(
            AbstractMesh((2, 16, 16), ("slice", "data", "model")))
        topology = Topology.of(device, {"slice": 2, "data": 16, "model": 16})
        for kind, received in (("all-gather", 15), ("reduce-scatter", 15 / 16),
                               ("all-reduce", 30 / 16), ("all-to-all", 15 / 16),
                               ("collective-permute", 1)):
            for axis in ("data", "model"):
                for n in (1 << 10, 1 << 20, 1 << 30):
                    said = collective_seconds(topology, kind, (axis,), 16, n, int(n * received))
                    assert prices.exchange(kind, (axis,)).of(n) / SECOND == pytest.approx(
                        said, rel=1e-6)


def test_what_is_asked_for_is_in_the_text_and_in_all_that_is_made_of_it():
    f = st.jit(lambda x, w: x @ w, out_shardings=NamedSharding(M24, P("dp")),
               compiler_options={"objective": "bytes", "hardware": "h100"})
    lowered = f.lower(struct(M24, (64, 16), "dp", "tp"), struct(M24, (16, 64), "tp"))
    text = str(lowered.stages["traced"])
    assert '\nobjective bytes on "h100"\n' in text
    again = partition(parse_program(text), mesh=M24)
    assert again.objective.as_attribute == ("bytes", "h100", 0)
    for name, program in lowered.stages.items():
        assert str(again.stages[name]) == str(program)


def test_the_usual_is_not_said():
    lowered = st.jit(lambda x: x.sum()).lower(struct(M24, (64,), "dp"))
    assert "objective" not in str(lowered.stages["traced"])


@pytest.mark.parametrize("options, said", [
    ({"objective": "speed"},
     "objective must be one of 'time', 'bytes', 'memory', 'xla', got 'speed'"),
    ({"hardware": "v17"}, "no figures for hardware 'v17'"),
])
def test_unknown_objectives_and_devices(options, said):
    with pytest.raises(ValueError, match=said):
        st.jit(jnp.sin, compiler_options=options)


def test_unknown_objective_of_the_configuration():
    with pytest.raises(ValueError, match="new enum value"):
        config.update("shardtrace_objective", "speed")


def test_results_are_the_same_by_whatever_plans_are_judged(executor):
    mesh = st.make_mesh((2, 4), ("dp", "tp"))
    rng = np.random.default_rng(0)
    x, w1, w2 = (rng.normal(size=s).astype(np.float32) for s in ((16, 8), (8, 32), (32, 8)))
    placed = [st.device_put(v, NamedSharding(mesh, s)) for v, s in zip(
        (x, w1, w2), (P("dp"), P(None, "tp"), P("tp")), strict=True)]

    def loss(x, w1, w2):
        h = jnp.tanh(x @ w1)
        return jnp.sum(jnp.sort(h @ w2, axis=0)[1:] * jnp.cumsum(x, 0)[1:])

    h = np.tanh(x @ w1)
    want = (np.sort(h @ w2, axis=0)[1:] * np.cumsum(x, 0)[1:]).sum()
    for options in ({"objective": "time"}, {"objective": "bytes"}, {"hardware": "a100"}):
        value, grads = st.jit(st.value_and_grad(loss, (0, 1, 2)), compiler_options=options)(*placed)
        np.testing.assert_allclose(float(value), want, rtol=1e-4)
        assert all(np.isfinite(np.asarray(g)).all() for g in grads)


def clipped(ws, x):
    """Gradients that are asked for whole: several layouts of them cost the same."""
    mesh = AbstractMesh((8, 4), ("data", "model"))

    def loss(ws):
        h = x
        for w in ws:
            h = jnp.tanh(h @ w)
        return (h * h).mean()
    gs = [lax.with_sharding_constraint(g, NamedSharding(mesh, P())) for g in st.grad(loss)(ws)]
    norm = jnp.sqrt(sum((g * g).sum() for g in gs))
    return [w - 0.1 * g / norm for w, g in zip(ws, gs, strict=True)]


def test_a_plan_does_not_depend_on_the_programs_before_it():
    """They share tables, in which layouts are numbered as they come."""
    mesh, f32 = AbstractMesh((8, 4), ("data", "model")), np.float32
    args = ([struct(mesh, (2048, 2048), "data", "model", dtype=f32) for _ in range(6)],
            struct(mesh, (16384, 2048), "data", dtype=f32))
    st.clear_caches()
    first = st.explain(st.jit(clipped))(*args)
    st.clear_caches()
    st.explain(st.jit(lambda x: jnp.fft.fft(x, axis=1)))(
        struct(mesh, (512, 8192), None, "data", dtype=f32))
    again = st.explain(st.jit(clipped))(*args)
    assert (again.time, again.received_bytes) == (first.time, first.received_bytes)


def test_a_sum_that_two_dimensions_take_is_two_exchanges():
    """Rows at an index are a sum over both axes; one gather of all rows takes less on this torus
    than a reduce-scatter over dp and an all-reduce over tp, which cannot be one exchange.
    """
    out = NamedSharding(M24, P(None, "dp"))
    rows = st.jit(lambda x, i: lax.dynamic_slice_in_dim(x, i, 4, 1), out_shardings=out)
    found = st.explain(rows, "v5p")(
        struct(M24, (64, 8, 512), None, ("tp", "dp"), dtype=np.float32),
        st.ShapeDtypeStruct((), np.int32))
    assert kinds(found) == ["all-gather"]
