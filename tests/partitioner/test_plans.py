"""Whole plans: limits of memory, the plan that holds the least, repeated computation."""
from __future__ import annotations

import math

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.driver.execution.programs import further
from shardtrace.errors import JaxRuntimeError, MemoryLimitError
from shardtrace.ir.ops.communication.collective_kinds import each_collective
from shardtrace.ir.reasons import reason_text
from shardtrace.ir.settings.context import config
from shardtrace.ir.text.parse import parse_program
from shardtrace.partitioner.cost.hardware import hardware
from shardtrace.partitioner.cost.memory import memory
from shardtrace.partitioner.cost.prices import Objective
from shardtrace.partitioner.cost.schedule import times
from shardtrace.partitioner.cost.topology import Topology
from shardtrace.partitioner.pipeline import partition
from shardtrace.partitioner.plans import plans_made
from shardtrace.partitioner.trial_plans import TRIALS, Facts
from shardtrace.sharding import AbstractMesh, NamedSharding
from shardtrace.sharding import PartitionSpec as P

MESH = AbstractMesh((8,), ("x",))


@pytest.fixture(autouse=True)
def by_time():
    with config.override(shardtrace_objective="time"):
        yield


def struct(shape, *spec, mesh=MESH):
    return st.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))


def positions(x):
    """The order of a split vector: small ones are gathered, since an exchange takes as long."""
    return lax.with_sharding_constraint(jnp.argsort(x), NamedSharding(MESH, P("x")))


def normed(x):
    """Over split features: gathered where an exchange takes longer than to compute them all."""
    return (x - x.mean(1, keepdims=True)) * lax.rsqrt(jnp.var(x, 1, keepdims=True) + 1e-5)


def peak(f, *args, **options):
    return memory(st.jit(f, compiler_options=options).lower(*args).stages["optimized"]).peak_bytes


VECTOR = struct((4096,), "x")


def test_a_limit_is_kept_where_a_plan_keeps_it():
    usual = peak(positions, VECTOR)
    least = peak(positions, VECTOR, objective="memory")
    assert least < usual
    assert peak(positions, VECTOR, memory_limit=usual) == usual
    for limit in (usual - 1, (usual + least) // 2, least):
        assert peak(positions, VECTOR, memory_limit=limit) <= limit
    assert peak(positions, VECTOR, objective="memory", memory_limit=usual) == least


def test_a_limit_that_no_plan_keeps_is_refused_with_the_least():
    least = peak(positions, VECTOR, objective="memory")
    with pytest.raises(MemoryLimitError) as refused:
        peak(positions, VECTOR, memory_limit=least - 1)
    said = str(refused.value)
    assert f"within {least - 1:,} bytes" in said and f"that was found is {least:,}." in said
    assert "jnp.argsort(x)" in said and "f32[512]" in said
    assert isinstance(refused.value, JaxRuntimeError)


def test_donated_arguments_count_once():
    def step(x):
        return x * 2 + 1

    x = struct((1024, 1024), "x")
    block = 4 * 1024 * 1024 // 8
    kept = {"memory_limit": block * 1.5}
    st.jit(step, donate_argnums=0, compiler_options=kept).lower(x).compile()
    with pytest.raises(MemoryLimitError):
        st.jit(step, compiler_options=kept).lower(x).compile()


@pytest.mark.parametrize("limit", [-1, float("inf"), float("nan"), "80GB"])
def test_what_is_no_limit(limit):
    with pytest.raises(ValueError, match="memory_limit must be the number of bytes"):
        st.jit(jnp.sin, compiler_options={"memory_limit": limit})


def test_the_limit_is_in_the_text_and_holds_for_what_is_read():
    usual = peak(positions, VECTOR)
    lowered = st.jit(positions, compiler_options={"memory_limit": usual - 1}).lower(VECTOR)
    assert f'\nobjective time on "v5p" within {usual - 1}\n' in str(lowered.stages["traced"])
    again = partition(parse_program(str(lowered.stages["traced"])), mesh=MESH)
    for name, program in lowered.stages.items():
        assert str(again.stages[name]) == str(program)
    resumed = further(parse_program(str(lowered.stages["resolved"])))
    assert str(resumed["optimized"]) == str(lowered.stages["optimized"])


def test_a_setting_is_a_limit_for_all():
    usual = peak(positions, VECTOR)
    with config.override(shardtrace_memory_limit=usual - 1):
        assert peak(positions, VECTOR) < usual


def test_dumps_are_of_the_plan_that_is_taken(tmp_path):
    usual = peak(positions, VECTOR)
    options = {"memory_limit": usual - 1}
    with config.override(shardtrace_dump=str(tmp_path)):
        lowered = st.jit(positions, compiler_options=options).lower(VECTOR)
    written = sorted(p.name for p in tmp_path.glob("*.st"))
    assert [w.split("-")[1].removesuffix(".st") for w in written][:6] == list(lowered.stages)
    for name, file in zip(lowered.stages, written, strict=False):
        assert str(parse_program((tmp_path / file).read_text())) == str(lowered.stages[name])


def test_least_memory_holds_no_more_than_least_time():
    x, w = struct((256, 64), "x"), struct((64, 256), None, "x")

    def product(x, w):
        return jnp.tanh(x @ w).sum(0) @ w.T

    for f, args in ((positions, (VECTOR,)), (normed, (struct((64, 64), None, "x"),)),
                    (product, (x, w))):
        assert peak(f, *args, objective="memory") <= peak(f, *args)


@pytest.mark.parametrize("hardware", ["v5p", "h100"])
def test_a_plan_that_repeats_computation_holds_more_only_as_it_takes_less_time(hardware):
    for f, args in ((positions, (VECTOR,)), (normed, (struct((64, 64), None, "x"),)),
                    (normed, (struct((8192, 8192), None, "x"),))):
        found = st.explain(f, hardware)(*args)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("shardtrace.partitioner.plans.best_of",
                          lambda usual, tried, limits: limits[0])
            st.clear_caches()
            other = st.explain(f, hardware)(*args)
        assert found.time <= other.time
        assert found.peak_bytes * found.time <= 1.1 * other.peak_bytes * other.time
        st.clear_caches()


def test_results_are_the_same_within_a_limit(executor):
    mesh = st.make_mesh((8,), ("x",))
    values = np.random.default_rng(0).permutation(4096).astype(np.float32)
    x = st.device_put(values, NamedSharding(mesh, P("x")))
    limit = peak(positions, VECTOR) - 1
    order = st.jit(positions, compiler_options={"memory_limit": limit})(x)
    np.testing.assert_array_equal(np.asarray(order), np.argsort(values))


def step_of(w1, w2, x, y):
    """Of two matrices that are split both ways, with large batches."""
    def loss(w1, w2):
        return ((jnp.tanh(x @ w1) @ w2 - y) ** 2).mean()
    g1, g2 = st.grad(loss, argnums=(0, 1))(w1, w2)
    return w1 - g1, w2 - g2


def test_where_much_is_exchanged_no_step_is_longer_than_by_the_plan_that_xla_makes():
    mesh = AbstractMesh((2, 4), ("x", "y"))

    def at(shape, *spec):
        return st.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    def seconds(n, **options):
        args = (at((n, 2 * n), "x", "y"), at((2 * n, n), "y", "x"), at((4 * n, n), "x"),
                at((4 * n, n), "x"))
        found = st.jit(step_of, compiler_options=options).lower(*args).stages["optimized"]
        time = times(found, Topology.of(hardware("v5p"), found.mesh.shape))
        return math.sqrt(time.step * (time.compute + time.communication)), found    # as plans.py

    for n in (512, 4096, 8192):
        assert seconds(n)[0] <= seconds(n, objective="xla")[0]
    assert any("as in XLA" in reason_text(e.reason) for e in seconds(8192)[1].eqns)


def test_where_arguments_are_large_small_sums_take_no_longer_than_by_the_plan_of_xla():
    mesh = AbstractMesh((2, 4), ("x", "y"))

    def loss(logits, labels):
        picked = jnp.take_along_axis(logits, labels[:, None], 1)[:, 0]
        return (st.nn.logsumexp(logits, -1) - picked).mean()

    def seconds(**options):
        local = st.jit(loss, compiler_options=options).lower(
            struct((4096, 16384), "x", "y", mesh=mesh),
            st.ShapeDtypeStruct((4096,), jnp.int32, sharding=NamedSharding(mesh, P("x")))
        ).stages["optimized"]
        return times(local, Topology.of(hardware("v5p"), local.mesh.shape)).step

    assert seconds() <= seconds(objective="xla")


def test_where_a_plan_needs_too_much_memory_one_between_it_and_xlas_is_taken():
    def convolved(a, b):
        a = jnp.pad(a, ((0, 0), (2, 2), (0, 0)))
        return lax.conv_general_dilated(a, b, (1,), "VALID",
                                        dimension_numbers=("NWC", "WIO", "NWC")).sum(1)

    def found(**options):
        local = st.jit(convolved, compiler_options=options).lower(
            struct((4, 512, 32), None, "x"), struct((5, 32, 64))).stages["optimized"]
        return (times(local, Topology.of(hardware("v5p"), local.mesh.shape)).step,
                memory(local).peak_bytes)

    (own, peak_bytes), (theirs, of_xla) = found(), found(objective="xla")
    assert own < theirs and peak_bytes <= 1.1 * of_xla


def test_a_plan_that_needs_too_much_memory_is_taken_where_the_best_other_needs_as_much():
    """The scan of gathered rows needs more than that of blocks, but less than the one of XLA, which
    was the best one left, takes its own rows of it and gathers them again.
    """
    def found(**options):
        step = st.jit(lambda a: jnp.cumsum(a, 0), out_shardings=NamedSharding(MESH, P()),
                      compiler_options=options | {"hardware": "h100"})
        local = step.lower(struct((64, 128), "x")).stages["optimized"]
        return (times(local, Topology.of(hardware("h100"), local.mesh.shape)).step,
                memory(local).peak_bytes, [use.kind for use in each_collective(local)])

    (own, peak_bytes, kinds), (theirs, of_xla, _) = found(), found(objective="xla")
    assert own < theirs and peak_bytes <= of_xla and kinds == ["all-gather"]


def test_windows_that_xla_leaves_whole_take_no_longer_than_by_it():
    def convolved(a, b):
        return lax.conv_general_dilated(a, b, (2,), "VALID",
                                        dimension_numbers=("NWC", "WIO", "NWC")).sum(1)

    def found(device, **options):
        local = st.jit(convolved, compiler_options=options | {"hardware": device}).lower(
            struct((2, 2048, 64), None, "x"), struct((4, 64, 64))).stages["optimized"]
        kinds = [use.kind for use in each_collective(local)]
        return times(local, Topology.of(hardware(device), local.mesh.shape)).step, kinds

    for device in ("v5p", "h100"):
        theirs, kinds = found(device, objective="xla")
        assert kinds == ["all-gather"] and found(device)[0] <= theirs


def test_sums_that_could_be_exchanged_together_are_where_waiting_for_one_takes_longer():
    def loss(h, w, ids):
        scores = h @ w
        picked = jnp.take_along_axis(scores, ids[:, None], -1)[:, 0]
        return (st.nn.logsumexp(scores, -1) - picked).mean()

    ids = st.ShapeDtypeStruct((128,), jnp.int32, sharding=NamedSharding(MESH, P()))
    lowered = st.jit(loss).lower(struct((128, 64)), struct((64, 4096), None, "x"), ids)
    assert len(list(each_collective(lowered.stages["optimized"]))) == 2


def test_longer_programs_are_searched_widely_too():
    """A normalised layer with split weights: both are gathered, in one exchange."""
    mesh = AbstractMesh((8,), ("x",))

    def at(shape, *spec):
        return st.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    def loss(x, w, u):
        x = (x - x.mean(-1, keepdims=True)) * st.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
        return ((st.nn.relu(x @ w) @ u) ** 2).sum()
    with st.config.override(shardtrace_objective="time"):
        compiled = st.jit(st.grad(loss), out_shardings=NamedSharding(mesh, P("x"))).lower(
            at((8, 64, 64), "x"), at((64, 64), None, "x"), at((64, 64), "x")).compile()
    assert [(c.kind, c.received_bytes) for c in compiled.collectives()] == [
        ("all-gather", 2 * 64 * 64 * 4 * 7 // 8)]


def largest_of_rows(x):
    """By blocks it takes an exchange of little, and kernels to put these together."""
    return lax.top_k(x, 8)


def similar_bags(table, places):
    """Gradient of embedding bags: repeating their gather takes the shortest, and most memory."""
    def loss(table):
        h = table[places].sum(1)
        n = h / jnp.sqrt((h * h).sum(-1, keepdims=True) + 1e-6)
        return jnp.mean((n @ n.T) ** 2)
    return st.grad(loss)(table)


@pytest.mark.parametrize("f, args, device", [
    (largest_of_rows, (struct((16, 2048), None, "x"),), "h100"),
    (similar_bags, (struct((512, 64)), struct((256, 16), None, "x").update(dtype=jnp.int32)),
     "v5p")])
def test_small_programs_take_no_longer_than_by_the_plan_of_xla(f, args, device):
    def seconds(objective):
        lowered = st.jit(f, compiler_options={"objective": objective, "hardware": device}).lower(
            *args)
        local = lowered.stages["optimized"]
        return times(local, Topology.of(hardware(device), local.mesh.shape)).step

    assert seconds("time") <= seconds("xla")


def normed_convolution(x, k, g, b):
    """Gradients with batch norm: a wide search finds less memory, but exchanges more sums."""
    def loss(k, g, b):
        z = lax.conv_general_dilated(x, k, (1, 1), "SAME",
                                     dimension_numbers=("NHWC", "HWIO", "NHWC"))
        mean = z.mean((0, 1, 2))
        var = ((z - mean) ** 2).mean((0, 1, 2))
        return st.nn.relu((z - mean) * lax.rsqrt(var + 1e-5) * g + b).mean(), (mean, var)
    return st.grad(loss, (0, 1, 2), has_aux=True)(k, g, b)


def test_a_plan_for_less_memory_takes_no_longer_than_that_of_xla():
    def seconds(objective):
        whole = NamedSharding(MESH, P())
        lowered = st.jit(normed_convolution, out_shardings=whole,
                         compiler_options={"objective": objective, "hardware": "h100"}).lower(
            struct((64, 32, 32, 64), "x"), struct((3, 3, 64, 64)), struct((64,)), struct((64,)))
        local = lowered.stages["optimized"]
        return times(local, Topology.of(hardware("h100"), local.mesh.shape)).mean

    assert seconds("time") <= seconds("xla")


@pytest.mark.parametrize("layers, batch, features", [(1, 8192, 1024), (2, 16384, 4096)])
def test_a_batch_over_two_axes_is_gathered_rather_than_the_weights_of_one(layers, batch, features):
    """The plan made first repeats computation, or is searched narrowly, and gathers weights, where
    gathering the batch over `m`, as a constraint asks for, takes less time.
    """
    mesh = AbstractMesh((4, 2), ("d", "m"))
    given = [{"up": struct((features, 4 * features), None, "m", mesh=mesh),
              "down": struct((4 * features, features), "m", mesh=mesh)} for _ in range(layers)]
    x = struct((batch, features), ("d", "m"), mesh=mesh)

    def seconds(spec):
        def loss(ps, x, y):
            for p in ps:
                h = x if spec is None else lax.with_sharding_constraint(
                    x, NamedSharding(mesh, spec))
                x = x + st.nn.gelu(h @ p["up"]) @ p["down"]
            return ((x - y) ** 2).mean()

        out = st.tree.map(lambda w: w.sharding, given)
        lowered = st.jit(st.grad(loss), out_shardings=out).lower(given, x, x)
        local = lowered.stages["optimized"]
        return times(local, Topology.of(hardware("v5p"), local.mesh.shape)).step

    assert seconds(None) <= seconds(P("d"))


def test_exchanges_that_are_written_by_hand_ask_for_no_other_plan():
    def ring(x):
        for _ in range(4):
            x = x + lax.ppermute(x, "x", [(i, (i + 1) % 8) for i in range(8)])
        return x

    written = st.shard_map(ring, mesh=MESH, in_specs=P("x"), out_specs=P("x"))
    x = struct((4096, 1024), "x")
    for f, count in (written, 1), (lambda x: jnp.roll(written(x), 1, axis=0), 4):
        assert plans_made(st.jit(f).lower(x).stages, Objective.of("time", "v5p", 0)) == count


def test_each_trial_has_a_name_a_reason_and_plans_of_its_own():
    usual = Objective.of()
    assert len({trial.name for trial in TRIALS}) == len(TRIALS)
    assert not usual.unlike_usual
    every = {v for trial in TRIALS for v in trial.variants(usual, Facts(False))}
    told = {v.unlike_usual for v in every}
    assert all(told) and len(told) == len(every)
    for trial in TRIALS:
        assert trial.why and not trial.when(Facts(False))
        variants = trial.variants(usual, Facts(False))
        assert variants and usual not in variants
        assert all(Objective.of(v.as_attribute[0]) == v for v in variants)  # text makes it again
