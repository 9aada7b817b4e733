"""pjit and GlobalDeviceArray: the older interface, over arrays and jit."""
from __future__ import annotations

import copy
import pickle
import warnings

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.experimental.global_device_array import GlobalDeviceArray, Shard
from shardtrace.experimental.maps import Mesh, xmap
from shardtrace.experimental.pjit import FROM_GDA, pjit, with_sharding_constraint
from shardtrace.ir.settings.context import config
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P

DATA = np.arange(16, dtype=np.float32).reshape(8, 2)


pytestmark = pytest.mark.usefixtures("kept_config")


@pytest.fixture
def mesh():
    return Mesh(np.array(st.devices()[:8]).reshape(4, 2), ("x", "y"))


def _gda(mesh, spec):
    return GlobalDeviceArray.from_callback(DATA.shape, mesh, spec, lambda index: DATA[index])


# -- GlobalDeviceArray -----------------------------------------------------------------------------

@pytest.mark.parametrize("spec", [P(), P("x"), P("y"), P("x", "y"), P(("x", "y")), P(None, "y")])
def test_each_way_of_making_one_gives_the_same_array(mesh, spec):
    asked = []

    def batched(indices):
        asked.append(len(indices))
        return [DATA[index] for index in indices]

    def with_devices(blocks):
        asked.append(sum(len(devices) for _, devices in blocks))
        asked.append(len({str(index) for index, _ in blocks}) == len(blocks))
        return [st.device_put(DATA[index], d) for index, devices in blocks for d in devices]

    one = _gda(mesh, spec)
    two = GlobalDeviceArray.from_batched_callback(DATA.shape, mesh, spec, batched)
    three = GlobalDeviceArray.from_batched_callback_with_devices(
        DATA.shape, mesh, spec, with_devices)
    four = GlobalDeviceArray(DATA.shape, mesh, spec, [s.data for s in one.local_shards])
    assert asked == [8, 8, True]
    now = st.make_array_from_callback(DATA.shape, NamedSharding(mesh, spec), lambda i: DATA[i])
    for gda in (one, two, three, four):
        assert type(gda) is GlobalDeviceArray and isinstance(gda, st.Array)
        np.testing.assert_array_equal(np.asarray(gda), DATA)
        assert gda.sharding is now.sharding and gda.mesh is mesh and gda.mesh_axes == spec
        for old, new in zip(gda.local_shards, now.addressable_shards, strict=True):
            assert isinstance(old, Shard)
            assert (old.device, old.index, old.replica_id) == (
                new.device, new.index, new.replica_id)
            np.testing.assert_array_equal(old.data, new.data)
        assert [s.device for s in gda.global_shards] == list(mesh.devices.flat)
        assert gda.is_fully_replicated == now.is_fully_replicated == (spec == P())


def test_its_attributes_are_those_of_the_array(mesh):
    gda = _gda(mesh, P("x", "y"))
    assert (gda.shape, gda.dtype, gda.ndim, gda.size) == ((8, 2), np.float32, 2, 16)
    np.testing.assert_array_equal(gda.local_data(3), DATA[2:4, 1:2])
    np.testing.assert_array_equal(gda.addressable_data(3), DATA[2:4, 1:2])
    assert str(gda) == "GlobalDeviceArray(shape=(8, 2), dtype=float32)"
    with pytest.raises(IndexError):
        gda.local_data(8)


def test_mesh_axes_may_be_any_sequence(mesh):
    for axes in (("x",), ["x", None], P("x")):
        assert _gda(mesh, axes).local_data(0).shape == (2, 2)
    assert _gda(mesh, None).is_fully_replicated


def test_functions_take_it_and_give_arrays(mesh):
    gda = _gda(mesh, P("x", "y"))
    for result in (jnp.sin(gda), gda + 1, gda @ gda.T, st.jit(lambda v: v * 2)(gda), gda[0],
                   copy.copy(gda), copy.deepcopy(gda), pickle.loads(pickle.dumps(gda))):
        assert isinstance(result, st.Array) and type(result) is not GlobalDeviceArray
    np.testing.assert_allclose(gda @ gda.T, DATA @ DATA.T)
    assert (gda == gda).all()


def test_it_can_be_deleted_and_donated(mesh):
    gda = _gda(mesh, P("x", "y"))
    st.jit(lambda v: v * 2, donate_argnums=0)(gda)
    assert gda.is_deleted()
    with pytest.raises(RuntimeError, match="Array has been deleted"):
        gda.local_data(0)


def test_buffers_in_another_order_are_refused(mesh):
    blocks = [s.data for s in _gda(mesh, P("x", "y")).local_shards]
    with pytest.raises(ValueError, match="device order doesn't match") as e:
        GlobalDeviceArray(DATA.shape, mesh, P("x", "y"), blocks[::-1])
    assert "[7, 6, 5, 4, 3, 2, 1, 0]" in str(e.value)


@pytest.mark.parametrize(("buffers", "message"), [
    (lambda blocks: blocks[:3], "Expected 8 per-device arrays"),
    (lambda blocks: [st.device_put(np.zeros((4, 1), np.float32), b.device) for b in blocks],
     r"Expected shard shape \(2, 1\) doesn't match the single device array shape \(4, 1\)"),
    (lambda blocks: [*blocks[:7], blocks[7].astype(np.int32)], "must have matching dtypes"),
])
def test_buffers_that_do_not_fit_are_refused(mesh, buffers, message):
    blocks = [s.data for s in _gda(mesh, P("x", "y")).local_shards]
    with pytest.raises(ValueError, match=message):
        GlobalDeviceArray(DATA.shape, mesh, P("x", "y"), buffers(blocks))


def test_a_batched_callback_must_return_a_block_of_each(mesh):
    with pytest.raises(ValueError, match="8 local devices, and returned 1 arrays"):
        GlobalDeviceArray.from_batched_callback(DATA.shape, mesh, P("x"), lambda i: [DATA[:2]])


def test_each_process_sees_its_own_shards():
    def program():
        mesh = Mesh(np.array(st.devices()).reshape(4, 2), ("x", "y"))
        asked = []

        def batched(indices):
            asked.extend(indices)
            return [DATA[index] for index in indices]

        gda = GlobalDeviceArray.from_batched_callback(DATA.shape, mesh, P("x", "y"), batched)
        assert asked == [s.index for s in gda.local_shards]
        assert len(gda.local_shards) == 2 and len(gda.global_shards) == 8
        assert [s.data is None for s in gda.global_shards].count(True) == 6
        np.testing.assert_array_equal(gda.local_data(1), DATA[gda.local_shards[1].index])
        total = st.jit(jnp.sum, out_shardings=NamedSharding(mesh, P()))(gda)
        return float(total), str(gda)

    assert st.distributed.run_processes(program, 4) == [
        (120.0, "GlobalDeviceArray(shape=(8, 2), dtype=float32)")] * 4


# -- pjit ------------------------------------------------------------------------------------------

def test_without_older_arguments_it_is_jit(mesh):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with st.set_mesh(mesh):
            f = pjit(lambda v: v * 2, P("x"), P("x", "y"), donate_argnums=0)
            assert f(_gda(mesh, P("x"))).sharding.spec == P("x", "y")
            assert f.lower(DATA).compile().input_shardings == st.jit(
                lambda v: v * 2, in_shardings=P("x")).lower(DATA).compile().input_shardings
        decorated = pjit(in_shardings=NamedSharding(mesh, P("x")))(lambda v: v)
        np.testing.assert_array_equal(decorated(DATA), DATA)


def test_the_mesh_of_a_with_block_is_its_context(mesh):
    free = jnp.arange(8.0)
    with pytest.warns(DeprecationWarning, match="set_mesh"), mesh:
        assert pjit(lambda v: v)(free).sharding == NamedSharding(mesh, P())
        assert len(st.jit(lambda v: v)(free).devices()) == 1
        assert pjit(lambda: 1)().sharding == NamedSharding(mesh, P())


def test_none_is_the_same_on_all_devices_of_a_mesh_and_open_without_one(mesh):
    split = _gda(mesh, P("x", "y"))
    assert pjit(lambda v: v * 2, out_shardings=None)(split).sharding.spec == P("x", "y")
    with st.set_mesh(mesh):
        assert pjit(lambda v: v * 2, out_shardings=None)(split).sharding.spec == P()
        assert pjit(lambda v: v * 2, in_shardings=None)(DATA).sharding.spec == P()
        assert st.jit(lambda v: v * 2, out_shardings=None)(split).sharding.spec == P("x", "y")
        with pytest.raises(ValueError, match="Sharding passed to jit does not match"):
            pjit(lambda v: v, in_shardings=None)(split)


def test_a_nested_one_cannot_have_a_mesh_of_another_size(mesh):
    @pjit
    def outer(v):
        with st.sharding.Mesh(np.array(st.devices()[:2]), ("x",)):
            return pjit(lambda u: u, in_shardings=P("x"))(v)

    with pytest.warns(DeprecationWarning), mesh, pytest.raises(
            ValueError, match="cannot change the size of the mesh"):
        outer(DATA)


def test_each_older_argument_warns_with_its_replacement(mesh):
    with pytest.warns(DeprecationWarning) as said:
        f = pjit(lambda v: v * 2, in_axis_resources=P("x"), out_axis_resources=None)
    texts = [str(w.message) for w in said]
    assert [t.split(".")[0] for t in texts] == [
        "`in_axis_resources` is deprecated, write `in_shardings`",
        "`out_axis_resources` is deprecated, write `out_shardings`"]
    assert {w.filename for w in said} == {__file__}
    with st.set_mesh(mesh):
        y = f(DATA)
    assert y.sharding == NamedSharding(mesh, P())
    np.testing.assert_array_equal(y, DATA * 2)


def test_from_gda_takes_the_arguments_own_sharding(mesh):
    with pytest.warns(DeprecationWarning) as said:
        f = pjit(lambda a, b: a + b, in_axis_resources=(FROM_GDA, P("y")),
                 out_axis_resources=P("x"))
    assert any(str(w.message).startswith("FROM_GDA is deprecated") for w in said)
    assert {w.filename for w in said} == {__file__}
    with st.set_mesh(mesh):
        y = f(_gda(mesh, P("x", "y")), DATA)
    assert y.sharding.spec == P("x")
    np.testing.assert_array_equal(y, DATA + DATA)
    assert repr(FROM_GDA) == "FROM_GDA" and pickle.loads(pickle.dumps(FROM_GDA)) is FROM_GDA


def test_from_gda_may_be_the_whole_prefix_and_a_part_of_in_shardings(mesh):
    gda = _gda(mesh, P("x", "y"))
    with pytest.warns(DeprecationWarning):
        whole = pjit(lambda a, b: a + b, in_axis_resources=FROM_GDA)
        part = pjit(lambda a: a["v"] + a["w"], in_shardings=({"v": FROM_GDA, "w": P()},))
    with st.set_mesh(mesh):
        np.testing.assert_array_equal(whole(gda, gda), DATA + DATA)
        np.testing.assert_array_equal(part({"v": gda, "w": DATA}), DATA + DATA)


def test_from_gda_is_no_output(mesh):
    with pytest.warns(DeprecationWarning), pytest.raises(ValueError, match="cannot be `pjit.FROM"):
        pjit(lambda v: v, out_axis_resources=FROM_GDA)


def test_old_and_new_name_together_are_refused():
    with pytest.warns(DeprecationWarning), pytest.raises(ValueError, match="is the old name of"):
        pjit(lambda v: v, in_axis_resources=P("x"), in_shardings=P("x"))


def test_a_function_keeps_its_stages_under_older_arguments(mesh):
    with pytest.warns(DeprecationWarning):
        f = pjit(lambda v: v * 2, out_axis_resources=P("x"))
    with st.set_mesh(mesh):
        assert "mul" in f.lower(DATA).as_text()
        assert f.trace(DATA).jaxpr.out_avals[0].shape == DATA.shape


def test_the_old_flag_asks_for_global_device_arrays(mesh):
    with pytest.warns(DeprecationWarning, match="Remove this line"):
        config.update("jax_parallel_functions_output_gda", True)
    f = pjit(lambda v: (v, {"sum": v.sum()}))
    with st.set_mesh(mesh):
        same, rest = f(_gda(mesh, P("x", "y")))
    np.testing.assert_array_equal(same.local_data(1), DATA[0:2, 1:2])
    assert rest["sum"].local_shards[5].device is mesh.devices.flat[5]


def test_with_sharding_constraint_takes_the_old_keyword(mesh):
    with st.set_mesh(mesh), pytest.warns(DeprecationWarning, match="write `shardings`"):
        y = st.jit(lambda v: with_sharding_constraint(v, axis_resources=P("y")))(DATA)
    assert y.sharding.spec == P("y")
    with pytest.raises(TypeError, match="missing 1 required"):
        with_sharding_constraint(DATA)


def test_one_function_follows_the_entered_mesh():
    f = pjit(lambda v: v * 2, in_shardings=P("a"), out_shardings=P("a"))
    for n in (2, 4):
        with pytest.warns(DeprecationWarning, match="set_mesh"), st.make_mesh((n,), ("a",)):
            assert len(f(np.arange(8)).sharding.device_set) == n


def test_xmap_says_what_took_its_place():
    with pytest.raises(RuntimeError, match="xmap is gone") as e:
        xmap(lambda v: v, in_axes=({0: "i"},), out_axes={0: "i"})
    assert "`shard_map`, over a mesh" in str(e.value) and "an `axis_name`" in str(e.value)


# -- flags -----------------------------------------------------------------------------------------

def test_the_unified_array_cannot_be_turned_off():
    for turn_off in (lambda: config.update("jax_array", False),
                     lambda: config.override(jax_array=False).__enter__()):
        with pytest.raises(ValueError, match="cannot be disabled.*one type.*global_device_array"):
            turn_off()
    assert config.jax_array is True


def test_turning_it_on_warns():
    with pytest.warns(DeprecationWarning, match="always on.*Remove this line") as said:
        config.update("jax_array", True)
    assert said[0].filename == __file__


def test_shardings_of_a_list_of_results_are_a_list():
    x = jnp.ones([])
    nothing = [None] * 3
    assert len(pjit(lambda x: x, (nothing,), nothing)([x, x, x])) == 3
    with pytest.raises(ValueError, match="different lengths of list at key path"):
        pjit(lambda x: x, (nothing,), [None, None])([x, x, x])
