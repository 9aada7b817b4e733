"""Each step of propagation is shown with its source, and what disagrees in the end priced."""
import functools

import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import nn
from shardtrace.partitioner.propagation.origins import origins_of
from shardtrace.report.propagation.steps import Propagation
from shardtrace.sharding import AxisType

from ... import specs

MESH = st.make_mesh((2, 4), ("data", "model"))
struct = functools.partial(specs.struct, mesh=MESH)


def layer(x, w1, w2):
    h = jnp.tanh(x @ w1)
    return h @ w2


ARGS = (struct((64, 256), "data"), struct((256, 256), None, "model"),
        struct((256, 256), None, "model"))


def test_steps_say_what_grew_and_from_where():
    p = st.explain(layer)(*ARGS).propagation()
    assert [(a.text, a.type) for a in p.annotations] == [
        ("`in_shardings[0]`, argument `x`", "f32[64@data,256]"),
        ("`in_shardings[1]`, argument `w1`", "f32[256,256@model]"),
        ("`in_shardings[2]`, argument `w2`", "f32[256,256@model]")]
    first, second = p.steps[:2]
    assert (first.op, first.rule) == ("dot_general", "i k, k j -> i j | k:sum")
    assert first.gained == ((0, "data", "`x`", 0), (1, "model", "`w1`", 1))
    assert second.value == "`h`" and second.before == "f32[64,256]"
    assert second.type == "f32[64@data,256@model]" and list(p.of("h")) == [second]
    assert "1. `dot_general` (i k, k j -> i j | k:sum) at" in str(p)


def test_a_conflict_has_the_bytes_of_both_outcomes():
    (conflict,) = st.explain(layer)(*ARGS).propagation().conflicts
    assert (conflict.loser, conflict.loser_dim, conflict.axis) == ("`h`", 1, "model")
    assert (conflict.winner, conflict.winner_dim) == ("`w2`", 0)
    assert conflict.held == "dimension 1 of it is over model"
    assert conflict.winning_bytes == 32 * 256 * 4 * 3 // 4           # `h` is gathered
    assert conflict.losing_bytes == 256 * 64 * 4 * 3 // 4            # `w2` is split otherwise
    assert conflict.cost == conflict.winning_bytes


def test_a_conflict_over_a_size_that_no_axis_divides_has_the_bytes_of_padded_blocks():
    def f(a, b):
        return (nn.softmax(a[1:] @ b[:-1].T, -1) @ b[:-1]).sum(0)
    mesh = st.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))
    x = specs.struct((256, 64), "x", mesh=mesh)
    with st.config.override(shardtrace_objective="xla"):
        conflicts = [c for c in st.explain(f)(x, x).propagation().conflicts if c.cost]
    assert [c.op for c in conflicts] == ["dot_general"] * 2         # the two products' `b[:-1]`
    for conflict in conflicts:
        assert {conflict.winning_bytes, conflict.losing_bytes} == {
            256 * 64 * 4 * 7 // 8, 256 * 256 * 4 // 8 * 7 // 8}


def test_without_a_conflict_there_is_none():
    args = (*ARGS[:2], struct((256, 256), "model"))
    assert not st.explain(layer)(*args).propagation().conflicts


@pytest.mark.parametrize("grads", [False, True])
def test_the_steps_lead_to_the_layouts_that_were_found(grads):
    def loss(ws, x):
        y, _ = st.lax.scan(lambda h, w: (jnp.tanh(h @ w[0]) @ w[1], h.sum()), x, ws)
        return jnp.mean(y * y)

    f = st.value_and_grad(loss) if grads else loss
    ws = struct((4, 64, 128), None, None, "model"), struct((4, 128, 64), None, "model")
    partitioned = st.jit(f).lower(ws, struct((32, 64), "data"))._executable.partitioned
    p = Propagation(partitioned)
    last = {}
    for step in p.steps:
        last.setdefault(step.value, set()).add(step.type)
    for var, t in origins_of(partitioned.resolved).tensors.items():
        entries = p.origins.solution.graph.layouts[t].entries
        if entries != p.initial(t):
            assert p.shown(t, entries) in last[p.names.name(var)]


def test_over_explicit_axes_types_decide():
    mesh = st.make_mesh((8,), ("x",), axis_types=(AxisType.Explicit,))
    with st.set_mesh(mesh):
        p = st.explain(lambda a: jnp.tanh(a))(struct((8, 64), "x", mesh=mesh)).propagation()
    assert not p.steps and not p.conflicts
