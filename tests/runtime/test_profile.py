"""Profiles: every equation with its time, collectives with their bytes, and traces that open."""
import json

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.ir.ops.communication.collective_kinds import each_collective
from shardtrace.runtime import measure, profile, profiling
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P

MESH = st.make_mesh((2, 4), ("X", "Y"))


def put(shape, *spec):
    return st.device_put(np.ones(shape, np.float32), NamedSharding(MESH, P(*spec)))


def layer(x, w1, w2):
    h = jnp.tanh(x @ w1)
    return h @ w2


def looped(x, w):
    def body(h, _):
        h = jnp.tanh(h @ w)
        return h, (h * h).sum()
    return st.lax.scan(body, x, None, length=5)


LAYER = (layer, (put((64, 32), "X"), put((32, 32), None, "Y"), put((32, 32), "Y")))
LOOP = (looped, (put((64, 32), "X"), put((32, 32), None, "Y")))


def compiled(case):
    fun, args = case
    return st.jit(fun).lower(*args).compile(), args


@pytest.mark.parametrize("executor", ["simulated", "per_device"])
@pytest.mark.parametrize("case", [LAYER, LOOP], ids=["layer", "loop"])
def test_times_add_up_and_every_collective_is_listed(case, executor):
    run, args = compiled(case)
    found = profile(run, *args, executor=executor, repeat=1)
    assert sum(r.seconds for r in found.rows) + found.other == pytest.approx(found.seconds)
    assert 0.99 < sum(r.share for r in found.rows) + found.other / found.seconds < 1.01
    uses = list(each_collective(run.program))
    listed = {id(r.equation): r for r in found.rows if r.kind}
    assert listed.keys() == {id(u.equation) for u in uses}
    for use in uses:
        row = listed[id(use.equation)]
        assert (row.kind, row.runs, row.received) == (
            use.kind, use.count, use.received_bytes * use.count)


def test_equations_of_a_loop_are_counted_once_a_step():
    run, args = compiled(LOOP)
    found = profile(run, *args, repeat=1)
    runs = {r.op: r.runs for r in found.rows}
    assert runs["tanh"] == runs["dot_general"] == 5 and runs["scan"] == 1
    dot = next(r for r in found.rows if r.op == "dot_general")
    assert dot.source.source_line().strip() == "h = jnp.tanh(h @ w)" and dot.type.startswith("f32[")
    assert [r.source.line for r in found.rows] == [r.source.line for r in profile(
        run, *args, repeat=2).rows]


def test_bytes_by_device_where_they_differ():
    def shifted(x):
        return st.lax.ppermute(x, "X", [(0, 1)])

    x = put((8, 4), "X")
    run = st.jit(st.shard_map(shifted, mesh=MESH, in_specs=P("X"), out_specs=P("X"))).lower(
        x).compile()
    found = profile(run, x, executor="per_device", repeat=1)
    devices = found.by_device()
    assert devices.tolist() == [0, 0, 0, 0, 64, 64, 64, 64]
    assert "bytes by device: 0 0 0 0 64" in str(found)
    assert found.to_dict()["received_by_device"] == devices.tolist()
    assert profile(run, x, repeat=1).by_device() is None
    assert [int(m.received.max()) for m in measure(run, x)] == [64]


def test_collectives_are_summed_by_kind():
    run, args = compiled(LAYER)
    found = profile(run, *args).collectives()
    assert set(found) == {"all-reduce"}
    assert found["all-reduce"]["received_bytes"] == run.collectives()[0].received_bytes


def test_programs_by_themselves_and_blocks_are_profiled():
    run, args = compiled(LAYER)
    found = profile(run.program, *(np.asarray(a) for a in args))
    assert [r.op for r in found.rows] == [e.op.name for e in run.program.eqns
                                          if e.op.name != "pvary"]
    jitted = st.jit(layer)
    with profiling("two steps") as block:
        jitted(*args)
        jitted(*args)
    assert block[0].name == "two steps"
    assert {r.op: r.runs for r in block[0].rows}["tanh"] == 2
    after = profile(run, *args)                   # nothing goes on recording
    assert {r.op: r.runs for r in after.rows}["tanh"] == 1


def test_profiled_runs_give_the_same_values_and_the_same_errors():
    fun, args = LOOP
    plain = st.jit(fun)(*args)
    with profiling():
        again = st.jit(fun)(*args)
    for a, b in zip(plain, again, strict=True):
        np.testing.assert_array_equal(a, b)

    def broken(x):
        return st.pure_callback(lambda v: 1 / 0, st.ShapeDtypeStruct((), np.float32), x)

    with pytest.raises(st.errors.JaxRuntimeError) as caught, profiling():
        st.jit(broken)(np.ones(4, np.float32))
    assert any("while running" in n for n in caught.value.__notes__)


def test_forms_of_a_profile():
    run, args = compiled(LAYER)
    found = profile(run, *args)
    data = json.loads(json.dumps(found.to_dict()))
    assert {"name", "executor", "seconds", "other_seconds", "equations", "collectives"} <= set(data)
    assert data["equations"][0]["source"]["text"] == "h = jnp.tanh(x @ w1)"
    html = found._repr_html_()
    assert "<table " in html and "dot_general" in html
    assert found.table().row_count == len(found.rows)
    text = found.text(width=140)
    assert max(map(len, found.text(width=80).split("\n"))) <= 80
    assert "local type" in text and "h @ w2" in text and "all-reduce:" in text
    assert "profile of layer" in repr(found)


def slices(events, pid):
    return [e for e in events if e["ph"] == "X" and e["pid"] == pid]


@pytest.mark.parametrize("case", [LAYER, LOOP], ids=["layer", "loop"])
def test_the_trace_is_of_the_chrome_format(case, tmp_path):
    run, args = compiled(case)
    found = profile(run, *args)
    path = tmp_path / "trace.json"
    found.save_chrome_trace(path, "h100")
    trace = json.loads(path.read_text())
    events = trace["traceEvents"]
    names = {(e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    processes = {e["pid"]: e["args"]["name"] for e in events
                 if e["ph"] == "M" and e["name"] == "process_name"}
    assert processes[1].startswith("measured") and processes[2].startswith("modelled: H100")
    for e in events:
        assert e["ph"] in ("X", "M") and isinstance(e["args"], dict)
        if e["ph"] == "X":
            assert e["ts"] >= 0 and e["dur"] >= 0 and (e["pid"], e["tid"]) in names
    for pid in (1, 2):
        tracks: dict = {}
        for e in slices(events, pid):
            tracks.setdefault(e["tid"], []).append(e)
        for track in tracks.values():       # slices of a track nest, or follow one another
            open_ = []
            for e in track:
                while open_ and open_[-1] <= e["ts"] + 1e-6:
                    open_.pop()
                assert not open_ or e["ts"] + e["dur"] <= open_[-1] + 1e-6
                open_.append(e["ts"] + e["dur"])


def test_the_modelled_process_is_the_cost_model_s_step(tmp_path):
    run, args = compiled(LAYER)
    path = tmp_path / "trace.json"
    profile(run, *args).save_chrome_trace(path, "v5e")
    modelled = slices(json.loads(path.read_text())["traceEvents"], 2)
    explained = run.explain("v5e")
    end = max(e["ts"] + e["dur"] for e in modelled)
    assert end * 1e-6 == pytest.approx(explained.time)
    reduce, = {(e["ts"], e["dur"]) for e in modelled if e["name"] == "all-reduce"}
    assert reduce[1] * 1e-6 == pytest.approx(explained.collectives[0].time)


def test_wrong_executors_and_argument_counts_are_refused():
    run, args = compiled(LAYER)
    with pytest.raises(ValueError, match="'simulated' or 'per_device', not 'xla'"):
        profile(run, *args, executor="xla")
    with pytest.raises(TypeError, match="takes 3 arguments, and 1 were given"):
        profile(run.program, np.ones(3))


def test_a_fused_group_shares_out_its_time():
    def f(x):
        return jnp.tanh(jnp.sin(x) * 2 + 1) * x

    x = np.ones((1024, 1024), np.float32)         # large enough to be computed in blocks
    run = st.jit(f).lower(x).compile()
    found = profile(run, x)
    seconds = {r.op: r.seconds for r in found.rows}
    assert {"sin", "tanh", "mul", "add"} <= set(seconds) and min(seconds.values()) > 0
    assert all(r.runs == 1 for r in found.rows)
    np.testing.assert_array_equal(run(x), st.jit(f)(x))
