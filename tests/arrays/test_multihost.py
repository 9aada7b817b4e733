"""The functions of `experimental.multihost_utils`, with one process and with four."""
from __future__ import annotations

import zlib

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.distributed import run_processes
from shardtrace.errors import IndivisibleError, ProcessMismatchError
from shardtrace.experimental import multihost_utils as mh
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

pytestmark = pytest.mark.usefixtures("impatient_processes")


def equal(found, expected):
    assert type(found) is np.ndarray
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == np.asarray(expected).dtype and found.shape == np.shape(expected)


# -- one process -----------------------------------------------------------------------------------

@pytest.mark.parametrize(("value", "stacked", "tiled"), [
    (np.arange(3), np.arange(3)[None], np.arange(3)),
    (np.ones((2, 2), np.float16), np.ones((1, 2, 2), np.float16), np.ones((2, 2), np.float16)),
    (3, np.array([3]), np.array(3)),
    (2.5, np.array([2.5]), np.array(2.5)),
])
def test_alone_a_process_gathers_its_own(value, stacked, tiled):
    equal(mh.process_allgather(value), stacked)
    equal(mh.process_allgather(value, tiled=True), tiled)
    equal(mh.process_allgather({"a": [value]})["a"][0], stacked)


def test_alone_arrays_of_several_devices_come_whole():
    mesh = st.make_mesh((8,), ("x",))
    x = st.device_put(np.arange(8, dtype=np.float32), NamedSharding(mesh, P("x")))
    equal(mh.process_allgather(x, tiled=True), np.arange(8, dtype=np.float32))
    equal(mh.process_allgather(x), np.arange(8, dtype=np.float32)[None])


def test_alone_a_process_tells_itself():
    equal(mh.broadcast_one_to_all(np.arange(3)), np.arange(3))
    equal(mh.broadcast_one_to_all({"a": 5}, is_source=False)["a"], np.array(5))
    mh.sync_global_devices("here")
    mh.assert_equal({"a": np.arange(3), "b": 2})


def test_alone_local_and_global_arrays_are_the_same():
    mesh = st.make_mesh((8,), ("x",))
    x = mh.host_local_array_to_global_array(np.arange(8), mesh, P("x"))
    assert x.shape == (8,) and x.sharding.spec == P("x") and x.dtype == np.int32
    y = mh.global_array_to_host_local_array(x, mesh, P("x"))
    assert y is x


# -- several ---------------------------------------------------------------------------------------

def test_values_of_all_come_in_the_order_of_processes():
    def program(i):
        tree = {"a": np.full((2, 3), i), "b": (jnp.float32(i), True), "c": 10 * i}
        return mh.process_allgather(tree), mh.process_allgather(tree, tiled=True)

    ranks = np.arange(4, dtype=np.int32)
    for stacked, tiled in run_processes(program, 4):
        equal(stacked["a"], np.broadcast_to(ranks[:, None, None], (4, 2, 3)))
        equal(tiled["a"], np.broadcast_to(np.repeat(ranks, 2)[:, None], (8, 3)))
        for found in (stacked, tiled):
            equal(found["b"][0], ranks.astype(np.float32))
            equal(found["b"][1], np.ones(4, bool))
            equal(found["c"], 10 * ranks)


def test_a_gathered_value_is_the_one_of_the_call():
    def program(i):
        mine = np.full(2, i)
        found = mh.process_allgather(mine)
        mine[:] = 99
        mh.sync_global_devices("changed")
        return found

    for found in run_processes(program, 4):
        equal(found, np.repeat(np.arange(4, dtype=np.int32), 2).reshape(4, 2))


def test_wide_types_stay_wide_with_x64():
    with st.enable_x64():
        for found in run_processes(lambda i: mh.process_allgather(np.float64(i) / 3), 3):
            equal(found, np.arange(3) / 3)


@pytest.mark.parametrize("spec", [P("x"), P(None, "x"), P(), P(("x",), None)])
def test_global_arrays_come_whole(spec):
    def program():
        mesh = st.make_mesh((8,), ("x",))
        data = np.arange(64, dtype=np.float32).reshape(8, 8)
        x = st.make_array_from_callback((8, 8), NamedSharding(mesh, spec), lambda i: data[i])
        return mh.process_allgather([x, x + 1], tiled=True)

    data = np.arange(64, dtype=np.float32).reshape(8, 8)
    for x, y in run_processes(program, 4):
        equal(x, data)
        equal(y, data + 1)


def test_pending_sums_have_no_value_to_gather():
    def program():
        mesh = st.make_mesh((8,), ("x",), axis_types=(AxisType.Explicit,))
        x = st.device_put(np.ones(8, np.float32), NamedSharding(mesh, P()))
        u = st.reshard(x, NamedSharding(mesh, P(unreduced={"x"})))
        mh.process_allgather(u, tiled=True)

    with pytest.raises(NotImplementedError, match="unreduced"):
        run_processes(program, 4)


@pytest.mark.parametrize(("source", "expected"), [(None, 0), (0, 0), (3, 3)])
def test_all_get_what_one_has(source, expected):
    def program(i):
        is_source = None if source is None else i == source
        return mh.broadcast_one_to_all({"a": np.array([i, 1]), "b": jnp.float32(i)}, is_source)

    for found in run_processes(program, 4):
        equal(found["a"], np.array([expected, 1], np.int32))
        equal(found["b"], np.float32(expected))


@pytest.mark.parametrize(("sources", "message"), [((), "none"), ((1, 2), r"processes \[1, 2\]")])
def test_one_process_is_the_source(sources, message):
    with pytest.raises(ValueError, match=f"one process with is_source=True, got {message}"):
        run_processes(lambda i: mh.broadcast_one_to_all(3, is_source=i in sources), 4)


def test_barriers_have_names():
    assert run_processes(lambda: mh.sync_global_devices("a"), 4) == [None] * 4
    with pytest.raises(AssertionError) as caught:
        run_processes(lambda i: mh.sync_global_devices("ab"[i // 3]), 4)
    text = str(caught.value)
    number = zlib.crc32(b"a")
    assert text.startswith(f"sync_global_devices name mismatch ('a'). Expected: [{number}")
    assert "process 3 waits for 'b' at test_multihost.py" in text


def test_unlike_values_are_found():
    assert run_processes(lambda: mh.assert_equal({"a": np.arange(3), "b": 1.5}), 4) == [None] * 4
    with pytest.raises(AssertionError) as caught:
        run_processes(lambda i: mh.assert_equal(i, "boo"), 2)
    assert str(caught.value).splitlines()[0] == "boo. Expected: [0 1]; got: 0."


def test_unlike_shapes_are_unlike_calls():
    with pytest.raises(ProcessMismatchError, match="called with different values, int32\\[0\\]"):
        run_processes(lambda i: mh.process_allgather(np.arange(i)), 2)


# -- parts of global arrays ------------------------------------------------------------------------

def test_parts_become_global_arrays_and_parts_again():
    def program(i):
        mesh = st.make_mesh((4, 2), ("p", "d"), axis_types=(AxisType.Explicit,) * 2)
        part = np.arange(8.0, dtype=np.float32).reshape(2, 4) + 100 * i
        specs = {"a": P("p", "d"), "b": [P(None, "p"), P("d")]}
        whole = mh.host_local_array_to_global_array(
            {"a": part, "b": [part, jnp.asarray(part[:, 0] * 0)]}, mesh, specs)
        again = mh.global_array_to_host_local_array(whole, mesh, specs)
        assert all(x.sharding.mesh is mesh.local_mesh for x in st.tree.leaves(again))
        equal(np.asarray(again["a"]), part)
        equal(np.asarray(again["b"][0]), part)
        assert [x.shape for x in st.tree.leaves(whole)] == [(8, 4), (2, 16), (2,)]
        return mh.process_allgather(whole, tiled=True)

    expected = np.arange(8.0, dtype=np.float32).reshape(2, 4)
    for found in run_processes(program, 4):
        equal(found["a"], np.concatenate([expected + 100 * i for i in range(4)]))
        equal(found["b"][0], np.concatenate([expected + 100 * i for i in range(4)], axis=1))


def test_an_array_that_is_sharded_otherwise_is_moved_by_all():
    def program(i):
        mesh = st.make_mesh((8,), ("x",))
        x = mh.host_local_array_to_global_array(np.arange(4) + 4 * i, mesh, P("x"))
        y = mh.global_array_to_host_local_array(x, mesh, P())
        assert mh.host_local_array_to_global_array(x, mesh, P()) is x
        return np.asarray(y)

    for found in run_processes(program, 4):
        equal(found, np.arange(16, dtype=np.int32))


@pytest.mark.parametrize(("value", "spec", "error", "message"), [
    (np.arange(8), None, ValueError, "`None` is not a valid input to the pspecs argument"),
    ({"a": np.arange(8)}, {"a": None}, ValueError, "`None` is not a valid input"),
    (np.arange(7), P("x"), IndivisibleError, "partitioned 2 times, but the dimension size is 7"),
    ({"a": np.arange(8)}, {"b": P()}, ValueError, "input pspecs must be a tree prefix"),
])
def test_parts_that_do_not_fit_are_refused(value, spec, error, message):
    def program():
        mesh = st.make_mesh((8,), ("x",))
        mh.host_local_array_to_global_array(value, mesh, spec)

    with pytest.raises(error, match=message):
        run_processes(program, 4)
