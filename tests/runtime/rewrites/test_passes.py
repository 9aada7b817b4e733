"""The passes by which the simulated executor prepares a program: named, dumped, left out."""
import re

import numpy as np
import pytest

import shardtrace as st
import shardtrace.lax as lax
import shardtrace.numpy as jnp
from shardtrace.driver.execution.mesh_switches import ONE_MESH
from shardtrace.ir.passes import PASSES, skipped
from shardtrace.ir.program import Level
from shardtrace.partitioner.passes import PIPELINE
from shardtrace.runtime.plans import plan
from shardtrace.runtime.plans.generated import WRITTEN
from shardtrace.runtime.plans.passes import PLANNED
from shardtrace.runtime.rewrites.pipeline import EXECUTION, run_execution_passes

from ...executors import forget_plans

MB = 1 << 18            # floats


def local(f, *args):
    return st.jit(f).lower(*args).compile().program


def layers(w, xs):
    def layer(x, w):
        return jnp.tanh(x @ w) * x, None
    return lax.scan(layer, xs, w)[0].sum()


def two_sums(x):
    mesh = st.make_mesh((8,), ("x",))
    sums = st.shard_map(lambda x: (lax.psum(x, "x"), lax.psum(x[:1] * x, "x")), mesh=mesh,
                        in_specs=st.P("x"), out_specs=st.P())
    return jnp.add(*sums(x))


def gelu(x):
    return (x * (1 + jnp.tanh(0.8 * (x + 0.04 * x ** 3)))).sum()


# Of each pass a program that it changes. (The partitioner has inlined calls already.)
CASES = {
    "part-exchanges": (two_sums, np.arange(16, dtype=np.float32)),
    "masked-gathers": (
        lambda table, rows: table[rows] * 2,
        st.device_put(np.ones((8192, 64), np.float32), st.NamedSharding(
            st.make_mesh((8,), ("x",)), st.P("x"))), np.arange(1024, dtype=np.int32)),
    "narrow-updates": (lambda x, i: jnp.where(i > 2, lax.dynamic_update_slice(x, x[:1], (i,)), x),
                       np.ones(8, np.float32), np.int32(3)),
    "join-slices": (st.grad(lambda w: sum(jnp.sin(w[i]).sum() for i in range(4))),
                    np.ones((4, 3), np.float32)),
    "round-integers": (lambda x: x // 7, np.arange(-8, 8, dtype=np.int32)),
    "solve-at-once": (jnp.linalg.solve, np.eye(3, dtype=np.float32)[::-1] * 2,
                      np.ones((3, 2), np.float32)),
    "count-from-front": (lambda x: x[jnp.argmax(x)], np.arange(8, dtype=np.float32)),
    "induction-variables": (lambda x: lax.fori_loop(0, 8, lambda i, s: s + x[7 - i], x[0]),
                            np.ones((8, 3), np.float32)),
    "rematerialize-scans": (st.grad(layers), np.full((8, 256, 256), 0.01, np.float32),
                            np.ones((1024, 256), np.float32)),
    "rematerialize": (st.grad(lambda x: gelu(gelu(x) * x)), np.ones(8 * MB, np.float32)),
    "share-zeros": (lambda x: lax.select(x > 0, jnp.zeros(8), jnp.zeros(8)) + x,
                    np.ones(8, np.float32)),
    "spread-windows": (st.grad(lambda x: (lax.reduce_window(
        x, 0.0, lax.add, (1, 2), (1, 2), "VALID") ** 2).sum()), np.ones((8, 6), np.float32)),
    "interleave": (lambda x: lax.associative_scan(jnp.add, x), np.ones(8, np.float32)),
}


def test_these_passes_cannot_be_left_out():
    steps = {step.name: step for step in (*ONE_MESH, *PIPELINE, *EXECUTION, *PLANNED, *WRITTEN)}
    assert steps == PASSES
    as_xla = {step.name for step in PIPELINE if step.plans == "xla"}
    assert {step.name for step in steps.values() if not step.may_be_skipped} - as_xla == {
        "refine-mesh", "unify-mesh", "inline", "drop-checks", "propagate", "insert-reshards",
        "note-padding", "localize", "inline-calls", "part-exchanges"}
    assert {step.name for step in PIPELINE if step.optimizes} == {
        *[step.name for step in PIPELINE if step.stage == "optimized"],
        "move-reshards", "route-reshards"} - as_xla
    assert list(CASES) == [step.name for step in EXECUTION][1:]


def test_parts_that_are_gathered_along_their_dimension_are_gathered_together():
    """What was all of a part lies in pieces then."""
    mesh = st.make_mesh((2,), ("x",), axis_types=(st.sharding.AxisType.Explicit,))
    with st.set_mesh(mesh):
        x = st.device_put(np.arange(1.0, 3.0, dtype=np.float32), st.P("x"))

        def f(x):
            whole = st.sharding.reshard(jnp.pad(x, (0, 2)), st.P())
            return whole.at[0].max(whole[0] + 4)
        np.testing.assert_array_equal(st.jit(f)(x), [5, 2, 0, 0])


@pytest.mark.parametrize("name", CASES)
def test_each_changes_its_program_and_no_result(name):
    f, *args = CASES[name]
    want = jnp.asarray(st.jit(f)(*args))
    program, changed = local(f, *args), []
    after = run_execution_passes(program, lambda i, step, p: changed.append((i, step.name)))
    assert (1 + list(CASES).index(name), name) in changed
    assert after.level is Level.LOCAL and after.in_avals == program.in_avals
    if PASSES[name].may_be_skipped:
        with st.config.override(shardtrace_skip=name):
            forget_plans()
            left = []
            run_execution_passes(local(f, *args), lambda i, step, p: left.append(step.name))
            assert name not in left
            np.testing.assert_allclose(st.jit(f)(*args), want, rtol=1e-5)


def training(w, x):
    """A loop that changes a buffer in part, products, large elementwise chains, and constants."""
    def step(carry, i):
        buffer, h = carry
        h = jnp.maximum(jnp.tanh(h @ w.T), 0) + jnp.sqrt(jnp.full((256, 1), 2.0))
        buffer = buffer.at[i].set(buffer[7 - i]).at[7 - i].set(h[0])
        return (buffer, h), lax.logistic(h)
    (buffer, h), rows = lax.scan(step, (x[:8], x), jnp.arange(8))
    return (w.T @ x.T).T + h, buffer, rows.sum(0)


@pytest.mark.parametrize("name", [step.name for step in (*PLANNED, *WRITTEN)])
def test_each_pass_over_calls_can_be_left_out(name, monkeypatch):
    monkeypatch.setattr(plan, "ROUNDS", 1)              # written out from the third iteration on
    rng = np.random.default_rng(0)
    w, x = (rng.normal(size=s).astype(np.float32) / 16 for s in ((256, 256), (256, 256)))
    want = st.jit(lambda w, x: training(w, x))(w, x)
    with st.config.override(shardtrace_skip=name), st.profile_phases() as profile:
        f = st.jit(lambda w, x: training(w, x))
        for _ in range(4):
            for a, b in zip(f(w, x), want, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    made = {row.name for row in profile.rows}
    assert name not in made and len(made.intersection(PASSES)) > 8


def test_plans_are_dumped_after_each_pass_that_changed_them(tmp_path):
    def scaled(x):
        return lax.scan(lambda c, r: (c + r, jnp.exp(r) * jnp.sin(2.0)), x[0], x)
    with st.config.override(shardtrace_dump=str(tmp_path)):
        st.jit(scaled)(np.ones((4, 1 << 17), np.float32))
    texts = [(path.name.split("-", 1)[1], path.read_text())
             for path in sorted((tmp_path / "passes").glob("scaled.*.txt"))]
    assert {"fuse.txt", "planned.txt"} <= {name for name, _ in texts}
    assert any("  # add + exp + mul, test_passes.py:" in text for name, text in texts
               if name == "fuse.txt")
    assert re.search(r"v\d+, v\d+ = run\(.*\)  # scan, test_passes.py", texts[-1][1])


def test_calls_are_inlined():
    program = st.jit(lambda x: st.jit(lambda y: y * 2)(x) + 1).trace(np.ones(4, np.float32)).jaxpr
    assert [e.op.name for e in program.eqns] == ["jit", "add"]
    assert [e.op.name for e in run_execution_passes(program).eqns] == ["mul", "add"]


def test_a_quotient_before_and_after():
    program = local(lambda x: x // 7, np.arange(8, dtype=np.int32))
    assert len(program.eqns) > 5
    assert [re.sub(r"\s*#.*", "", line) for line in str(run_execution_passes(program)).splitlines()
            if line.startswith("  ") and " = " in line] == ["  %a: i32[8] = floor_div x 7:i32[]"]


def test_all_stages_are_dumped_in_order_and_run(tmp_path):
    mesh = st.make_mesh((2, 4), ("x", "y"), axis_types=(st.sharding.AxisType.Auto,) * 2)
    x = st.device_put(np.arange(32, dtype=np.int32), st.NamedSharding(mesh, st.P("y")))
    with st.config.override(shardtrace_dump=str(tmp_path)):
        def whole_weeks(x):
            return st.jit(lambda y: y // 7)(x) * 2
        got = st.jit(whole_weeks)(x)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert [n for n in names if n.startswith("whole_weeks")] == [
        "whole_weeks.00-traced.st", "whole_weeks.01-inlined.st", "whole_weeks.02-resolved.st",
        "whole_weeks.03-resharded.st", "whole_weeks.04-local.st", "whole_weeks.05-optimized.st",
        "whole_weeks.11-rounded-integers.st"]
    last = st.parse_program((tmp_path / "whole_weeks.11-rounded-integers.st").read_text())
    assert [e.op.name for e in last.eqns] == ["floor_div", "mul"]
    np.testing.assert_array_equal(got, np.arange(32) // 7 * 2)


def test_optimize_is_left_out():
    with st.config.override(shardtrace_skip="optimize"):
        lowered = st.jit(lambda x: x + 1).lower(np.ones(3, np.float32))
        assert "without optimize" in lowered.as_text()


@pytest.mark.parametrize("names", ["localize", "rematerialise", "x,optimize"])
def test_names_that_cannot_be_left_out(names):
    with pytest.raises(ValueError, match="there is no pass that can be left out called"):
        skipped(names)
