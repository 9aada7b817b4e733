"""The state of an optimizer may be split over axes over which its parameter is whole."""
from __future__ import annotations

import numpy as np

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.driver.analysis.applied_changes import inlined
from shardtrace.planning.model.groups import Groups
from shardtrace.planning.optimizer_states import states_of
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P


def loss(p, x, y):
    return jnp.mean((jnp.tanh(x @ p["up"]) @ p["down"] - y) ** 2)


def adam(p, m, v, x, y, decay=0.01):
    value, g = st.value_and_grad(loss)(p, x, y)
    g = st.tree.map(lambda g, p: g + decay * p, g, p)
    m = st.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
    v = st.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, v, g)
    p = st.tree.map(lambda p, m, v: p - 0.01 * m / (jnp.sqrt(v) + 1e-8), p, m, v)
    return p, m, v, value


def plain(p, x, y):
    return st.tree.map(lambda p, g: p - 0.1 * g, p, st.grad(loss)(p, x, y))


def shapes(width, hidden, batch):
    def shape(*sizes):
        return st.ShapeDtypeStruct(sizes, np.float32)

    p = {"up": shape(width, hidden), "down": shape(hidden, width)}
    return (p, p, p, shape(batch, width), shape(batch, width))


def states(f, *args):
    program = st.jit(f).trace(*args).jaxpr
    found = states_of(Groups(inlined(program, padded=False)))
    names = program.result_names
    return {program.arg_names[i]: names[k] for i, k in found.items()}


def test_state_is_what_only_the_update_reads():
    p, m, v, x, y = shapes(64, 128, 256)
    assert states(adam, p, m, v, x, y) == {
        "m['down']": "[1]['down']", "m['up']": "[1]['up']",
        "v['down']": "[2]['down']", "v['up']": "[2]['up']"}
    assert not states(plain, p, x, y)           # the batch is no state


def test_state_is_split_where_parameters_have_to_be_whole():
    args = shapes(2048, 8192, 65536)
    kept = {"p*": P(), "result[0]*": P()}
    found = st.autoshard(adam, *args, mesh={"data": 16}, fixed=kept, hardware="v5p")
    for name, spec in found.specs.items():
        if name.startswith(("m", "v", "result[1]", "result[2]")):
            assert spec.axes(), name
        elif name.startswith(("p", "result[0]")):
            assert not spec.axes(), name
    assert found.specs["m['up']"] == found.specs["result[1]['up']"]
    whole = st.autoshard(adam, *args, mesh={"data": 16}, hardware="v5p",
                         fixed={**kept, "m*": P(), "v*": P(), "result[1]*": P(),
                                "result[2]*": P()})
    assert found.time < whole.time and found.peak_bytes < whole.peak_bytes


def test_a_step_with_split_state_computes_the_same():
    args = shapes(16, 32, 64)
    mesh = st.make_mesh((8,), ("data",))
    rng = np.random.default_rng(0)
    values = st.tree.map(lambda a: np.abs(rng.standard_normal(a.shape)).astype(np.float32), args)
    found = st.autoshard(adam, *args, mesh=mesh, fixed={
        "p*": P(), "m*": P("data"), "result[1]*": P("data"), "x": P("data")})
    placed = st.tree.map(lambda x, s: st.device_put(x, s), values, found.in_shardings[0])
    for got, want in zip(st.tree.leaves(found.jit()(*placed)), st.tree.leaves(adam(*values)),
                         strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert isinstance(found.in_shardings[0][1]["up"], NamedSharding)


def test_plans_with_split_state_are_among_those_with_names():
    found = st.autoshard(adam, *shapes(256, 1024, 4096), mesh={"data": 8}, hardware="v5p")
    names = [n.name for n in found.named]
    assert "data parallel, optimizer state split" in names and "data parallel" in names
