"""Waste is found, with its number, its line and a fix; what is no waste is not."""
import inspect

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.driver.analysis.explain import explain_program
from shardtrace.ir.text.parse import parse_program
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

MESH = st.make_mesh((2, 4), ("X", "Y"))
ROW = st.make_mesh((8,), ("x",))
GATHER = ("all_gather_invariant[all_gather_dimension=0, axis_index_groups=None, "
          "axis_name=('x',), axis_size=8, tiled=True]")
EXPLICIT = st.make_mesh((8,), ("x",), axis_types=(AxisType.Explicit,))


def struct(shape, *spec, mesh=MESH):
    return st.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(mesh, P(*spec)))


def bare(*shape):
    return st.ShapeDtypeStruct(shape, np.float32)


def found(f, *args):
    return {w.kind: w for w in st.explain(f)(*args).warnings}


def line(f, text):
    lines, first = inspect.getsourcelines(f)
    return first + next(i for i, t in enumerate(lines) if text in t)


def test_an_axis_that_splits_nothing():
    def f(a, w):
        return jnp.tanh(a @ w)

    warned = found(f, struct((64, 256), "X"), struct((256, 256)))
    idle = warned["idle-axis"]
    e = st.explain(f)(struct((64, 256), "X"), struct((256, 256)))
    assert "mesh axis `Y` of 4 devices" in idle.text
    assert idle.wasted_flops == pytest.approx(e.flops * 3 / 4)
    assert "pass `w` as P(None, 'Y')" in idle.fix
    assert idle.suggestion.time < e.time and idle.suggestion.flops < e.flops / 2
    assert "redundant-compute" not in warned          # said once
    assert not found(f, struct((64, 256), "X"), struct((256, 256), None, "Y"))


def test_an_argument_that_nobody_placed():
    def f(a, table):
        return a * 2, table.sum(1)

    w = found(f, struct((64, 256), "x", mesh=ROW), bare(512, 64))["silent-replication"]
    assert "`table` has no sharding" in w.text and w.wasted_bytes == 512 * 64 * 4 * 7 // 8
    assert w.source.line == line(f, "table.sum") and w.fix == "pass `table` as P('x')"
    placed = found(f, struct((64, 256), "x", mesh=ROW), struct((512, 64), mesh=ROW))
    assert "silent-replication" not in placed         # replicated because somebody said so


def test_a_constraint_that_does_not_divide():
    def f(a):
        h = jnp.sin(a)
        return st.lax.with_sharding_constraint(h, NamedSharding(ROW, P("x"))) * 2

    with pytest.warns(UserWarning, match="not divisible"):
        w = found(f, struct((6, 256), None, "x", mesh=ROW))["silent-replication"]
    assert "dimension 0, 6, 8 ways" in w.text and w.wasted_bytes == 6 * 256 * 4 * 7 // 8
    assert w.source.line == line(f, "with_sharding") and "pad the dimension to 8" in w.fix


def test_padding_is_reported_with_the_share_that_it_wastes():
    def f(a):
        b = jnp.pad(a, ((0, 5), (0, 0)))
        b = st.lax.with_sharding_constraint(b, NamedSharding(ROW, P("x")))
        return jnp.tanh(b)

    w = found(f, struct((59, 256), mesh=ROW))["padding"]
    assert "dimension 0 of `b`, 59, is padded to 64 to be split 8 ways over x: 8% of" in w.text
    assert w.wasted_bytes == int(8 * 256 * 4 * 5 / 64) and w.source.line == line(f, "jnp.pad")
    assert "multiple of 8 (56 or 64)" in w.fix

    def constrained(a):
        return st.lax.with_sharding_constraint(jnp.sin(a), NamedSharding(ROW, P("x"))) * 2

    w = found(constrained, struct((60, 256), mesh=ROW))["padding"]
    assert ", 60, is padded to 64 to be split 8 ways over x: 6% of" in w.text

    def sliced(a):
        return jnp.sort(jnp.tanh(a[1:]), 1).sum()

    w = found(sliced, struct((64, 256), "x", mesh=ROW))["padding"]
    assert ", 63, is padded to 64 to be split 8 ways over x: 2% of" in w.text
    assert w.source.line == line(sliced, "a[1:]")

    def window(a):
        return jnp.tanh(jnp.pad(a, ((1, 1), (0, 0))))

    assert "padding" not in found(window, struct((64, 256), "x", mesh=ROW))


def test_what_devices_compute_alike():
    def f(a, b, c):
        h = a @ b
        return h, jnp.tanh(c @ c)

    args = (struct((64, 256), None, "x", mesh=ROW), struct((256, 64), "x", mesh=ROW),
            struct((64, 64), mesh=ROW))
    w = found(f, *args)["redundant-compute"]
    assert "`dot_general` is computed alike on all 8 devices of `x`" in w.text
    assert w.source.line == line(f, "c @ c")
    assert w.wasted_flops == pytest.approx((2 * 64 ** 3 + 64 * 64) * 7 / 8)


def test_what_the_planner_repeats_is_not_blamed_on_the_user():
    def narrow(x, w):
        return x @ w                    # to gather x is cheaper than to add up 16 x 1024 sums

    args = struct((16, 8), None, "x", mesh=ROW), struct((8, 1024), mesh=ROW)
    w = found(narrow, *args)["redundant-compute"]
    (c,) = st.explain(narrow)(*args).collectives
    assert c.kind == "all-gather" and c.reason_kind == "chosen"
    other = c.alternative
    assert "which the planner chose: cheaper than summing" in w.text and other.text in w.text
    assert f"by {other.saved / 1000:.3g} kB" in w.text and "split one of" not in w.fix

    def asked(x, w):
        return st.lax.with_sharding_constraint(x, NamedSharding(ROW, P())) @ w

    w = found(asked, struct((256, 64), "x", mesh=ROW), struct((64, 64), mesh=ROW))
    text = w["redundant-compute"].text
    assert "its operands are whole by the all-gather at line" in text
    assert "asked for by `st.lax.with_sharding_constraint(" in text and "planner" not in text


def test_a_gather_that_is_cut_down_again():
    program = parse_program("""
mesh (x=8 manual)
level local

program @f(w: f32[8,256]{V:x} <- f32[64@x,256]) -> f32[4,256] => f32[4,256] {
  a: f32[64,256] = GATHER w
  b: f32[64,256] = copy a
  c: f32[4,256] = slice[start_indices=(0, 0), limit_indices=(4, 256), strides=None] b
  d: f32[2,256] = slice[start_indices=(4, 0), limit_indices=(6, 256), strides=None] b
  e: f32[4,256] = sin c
  return e
}
""".replace("GATHER", GATHER))
    w, = [w for w in explain_program(program).warnings if w.kind == "gather-then-slice"]
    assert "65.5 kB, is cut down to 6.14 kB" in w.text
    assert w.wasted_bytes == int(57344 * (1 - 6 / 64)) and w.what == "received"
    used = parse_program(str(program).replace("sin c", "sin c\n  g: f32[64,256] = cos a"))
    assert not [w for w in explain_program(used).warnings if w.kind == "gather-then-slice"]


def test_parts_that_are_padded_to_be_joined_are_one_waste():
    def f(a):
        return jnp.tanh(jnp.concatenate([a, a[:5]], 0))

    wastes = st.explain(f)(struct((8, 1024), "Y", "X")).warnings
    padded, = [w for w in wastes if w.kind == "padding"]
    assert ", 13, is padded to 16 to be split 4 ways over Y: 19% of" in padded.text


def test_a_value_that_is_gathered_twice():
    def f(a, w):
        once = st.lax.all_gather(w, "x", tiled=True)
        h = jnp.tanh(a @ once)
        h, w = st.lax.optimization_barrier((h, w))
        return h @ st.lax.all_gather(w, "x", tiled=True)

    mapped = st.shard_map(f, mesh=ROW, in_specs=(P("x"), P("x")), out_specs=P("x"))
    warned = found(mapped, bare(64, 64), bare(64, 64))
    assert "repeated-gather" not in warned or warned["repeated-gather"].wasted_bytes == 14336
    program = parse_program("""
mesh (x=8 manual)
level local

program @f(w: f32[8,64]{V:x} <- f32[64@x,64]) -> (
    f32[64,64] => f32[64,64], f32[64,64] => f32[64,64]
) {
  a: f32[64,64] = GATHER w
  b: f32[64,64] = sin a
  c: f32[64,64] = GATHER w
  return b, c
}
""".replace("GATHER", GATHER))
    again, = [w for w in explain_program(program).warnings if w.kind == "repeated-gather"]
    assert again.wasted_bytes == 14336 and "gathered 2 times" in again.text


def test_a_collective_that_is_the_same_in_every_step():
    def f(a, w):
        def more(state):
            return state[0] < 6

        def body(state):
            whole = st.lax.all_gather(w, "x", tiled=True)
            return state[0] + 1, jnp.tanh(state[1] @ whole)
        return st.lax.while_loop(more, body, (0, a))[1]

    mapped = st.shard_map(f, mesh=ROW, in_specs=(P("x"), P("x")), out_specs=P("x"))
    stage = st.jit(mapped).lower(bare(64, 64), bare(64, 64))
    before = explain_program(stage.stages["local"].replace(attributes={}))  # as if the last
    w, = [w for w in before.warnings if w.kind == "loop-invariant"]
    assert "same in each of the loop's 6 steps" in w.text and w.wasted_bytes == 14336 * 5
    assert w.source.line == line(f, "whole =")
    assert not [w for w in stage.explain().warnings if w.kind == "loop-invariant"]   # moved out


def test_warnings_are_shown_and_given_as_data():
    def f(a, w):
        return jnp.tanh(a @ w)

    e = st.explain(f)(struct((64, 256), "X"), struct((256, 256)))
    assert "warning: idle-axis: mesh axis `Y`" in str(e) and "fix: leave `Y` out" in str(e)
    data = e.to_dict(suggestions=False)["warnings"]
    assert [w["kind"] for w in data] == ["idle-axis"] and data[0]["wasted_bytes"] > 0


def test_splitting_over_an_idle_axis_is_tried_first():
    def loss(w, x):
        return jnp.mean(jnp.tanh(x @ w["up"]) @ w["down"])

    def step(w, x):
        return st.tree.map(lambda a, b: a - 0.1 * b, w, st.grad(loss)(w, x))

    w = {"up": struct((1024, 4096), None, "Y"), "down": struct((4096, 1024), "Y")}
    e = st.explain(step, "v5p", suggest_seconds=0.1)(w, struct((32768, 1024), "Y"))
    (idle,) = [w for w in e.warnings if w.kind == "idle-axis"]
    assert idle.suggestion.time < 0.7 * e.time
    assert f"change first: {idle.suggestion.text} saves" in " ".join(str(e).split())
    assert idle.to_dict()["suggestion"]["text"] == idle.suggestion.text
