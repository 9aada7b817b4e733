"""device_put, device_get and assembly of arrays: what goes where, and what is refused."""
from __future__ import annotations

import numpy as np
import pytest

from shardtrace.arrays.assembly import (
    make_array_from_callback,
    make_array_from_process_local_data,
    make_array_from_single_device_arrays,
)
from shardtrace.arrays.devices import devices, make_mesh, using_default_device
from shardtrace.arrays.storage import LocalBlocks
from shardtrace.arrays.transfer import block_until_ready, device_get, device_put
from shardtrace.ir.diagnostics.errors import IndivisibleError
from shardtrace.ir.meshes.device import process_scope
from shardtrace.ir.meshes.mesh import AbstractMesh, AxisType
from shardtrace.ir.settings.context import config, mesh_context
from shardtrace.ir.shardings.sharding import NamedSharding, SingleDeviceSharding
from shardtrace.ir.spec import P

pytestmark = pytest.mark.usefixtures("eight_devices")


def named(*partitions, kind=AxisType.Explicit, shape=(2, 4), **sets):
    mesh = make_mesh(shape, ("x", "y")[:len(shape)], (kind,) * len(shape))
    return NamedSharding(mesh, P(*partitions, **sets))


# -- device_put ------------------------------------------------------------------------------------

@pytest.mark.parametrize(("value", "text"), [
    (1.5, "~float32[]"), (2, "~int32[]"), (True, "bool[]"), (3 + 1j, "~complex64[]"),
    (np.float64(2), "float32[]"), (np.int64(2), "int32[]"), (np.ones(3), "float32[3]"),
    (np.arange(3), "int32[3]"), (np.uint64(2 ** 40), "uint32[]"),
])
def test_values_become_32_bits_and_python_numbers_weak(value, text):
    x = device_put(value)
    assert str(x.aval) == text and not x.committed
    assert x.sharding is SingleDeviceSharding(devices()[0])


def test_64_bits_stay_with_x64():
    with config.override(jax_enable_x64=True):
        assert str(device_put(np.ones(2)).aval) == "float64[2]"
        assert str(device_put(2 ** 40).aval) == "~int64[]"


@pytest.mark.parametrize(("value", "error", "message"), [
    ("a", TypeError, "Argument 'a' of type <class 'str'> is not a valid JAX type"),
    (np.array(["a"]), TypeError, "Dtype <U1 is not a valid JAX array type. Only arrays of numeric "
                                 "types are supported by JAX."),
    (np.array([None]), TypeError, "Dtype object is not a valid JAX array type"),
    (2 ** 40, OverflowError, "Python int 1099511627776 too large to convert to int32"),
])
def test_values_that_are_no_arrays_are_refused(value, error, message):
    with pytest.raises(error) as caught:
        device_put({"a": value})
    assert message in str(caught.value)


def test_a_device_a_sharding_a_spec_or_nothing():
    x = np.arange(8.0)
    assert device_put(x, devices()[2]).devices() == {devices()[2]}
    assert device_put(x, named("x")).sharding is named("x")
    with mesh_context(named().mesh):
        assert device_put(x, P("y")).sharding is named("y")
        assert device_put(x).sharding is SingleDeviceSharding(devices()[0])
    with using_default_device(devices()[3]):
        assert device_put(x).devices() == {devices()[3]}
    with pytest.raises(ValueError, match="Please set a mesh via `jax.set_mesh` if a PartitionSpec "
                                         "is passed to device_put"):
        device_put(x, P("x"))


def test_an_array_that_is_there_is_returned_as_it_is():
    x = device_put(np.arange(8.0), named("x"))
    assert device_put(x, named("x")) is x and device_put(x) is x
    assert device_put(x, named("x"), may_alias=False) is not x
    assert device_put(x, may_alias=False) is not x
    y = device_put(np.ones(3))
    z = device_put(y, devices()[0])
    assert z is not y and z.committed and not y.committed


def test_moving_moves_no_data():
    x = device_put(np.arange(32.0).reshape(8, 4), named("x", "y"))
    y = device_put(x, named("y", "x"))
    assert y.sharding is named("y", "x") and np.shares_memory(x.value, y.value)
    assert y.addressable_shards[1].data.tolist() == [[8.0, 9.0], [12.0, 13.0]]


def test_numpy_arrays_are_copied_unless_they_may_alias_or_cannot_change():
    data = np.ones(4, np.float32)
    x, y = device_put(data), device_put(data, may_alias=True)
    fixed = np.ones(4, np.float32)
    fixed.flags.writeable = False
    z = device_put(fixed)
    data[0] = 7
    assert x.tolist() == [1, 1, 1, 1] and y.tolist() == [7, 1, 1, 1]
    assert np.shares_memory(z.value, fixed)


def test_trees_of_values_and_of_places():
    out = device_put({"w": np.ones((4, 2)), "b": [np.zeros(4), None]}, named("x"))
    assert out["w"].sharding.spec == P("x") and out["b"][0].sharding.spec == P("x")
    assert out["b"][1] is None
    a, b = device_put((np.ones(4), np.ones(4)), (named("x"), devices()[1]))
    assert a.sharding is named("x") and b.devices() == {devices()[1]}
    c, d = device_put([1, 2], [None, devices()[3]])
    assert not c.committed and d.devices() == {devices()[3]}
    deep = device_put({"a": (1, 2), "b": 3}, {"a": devices()[1], "b": None})
    assert deep["a"][1].devices() == {devices()[1]} and not deep["b"].committed


@pytest.mark.parametrize(("device", "message"), [
    ("cpu", "`jax.device_put` only accepts `None`, `jax.sharding.Sharding`, `jax.Device`, `Format`,"
            " `jax.memory.Space` or a pytree of these values. Received invalid value: cpu"),
    ((None,), "device_put device specification must be a tree prefix of the corresponding value;"),
    ([None, None], "device_put device specification must be a tree prefix"),
])
def test_places_that_do_not_fit_the_tree(device, message):
    with pytest.raises(ValueError) as caught:
        device_put((np.ones(2), np.ones(2)), device)
    assert message in str(caught.value)


def test_donating_and_aliasing_exclude_each_other():
    with pytest.raises(ValueError, match="may_alias and donate cannot be True at the same time."):
        device_put(np.ones(2), donate=True, may_alias=True)


def test_sizes_must_divide():
    with pytest.raises(IndivisibleError) as caught:
        device_put(np.ones(6), named("y", kind=AxisType.Auto))
    assert "implies that array axis 0 is partitioned 4 times, but the dimension size is 6" in str(
        caught.value)
    with pytest.raises(ValueError) as caught:
        device_put(np.ones(6), named("y"))
    assert "does not evenly divide the dimension size 6. Got shape: (6,)" in str(caught.value)


def test_a_spec_longer_than_the_rank():
    sharding = named("x", "y", kind=AxisType.Auto)
    with pytest.raises(ValueError) as caught:
        device_put(np.ones(8), sharding)
    assert str(caught.value).startswith(
        f"One of device_put args is incompatible with its sharding annotation {sharding}: Sharding "
        f"{sharding} is only valid for values of rank at least 2, but was applied to a value of "
        "rank 1.")
    with pytest.raises(ValueError, match=r"For scalars the PartitionSpec should be P\(\)"):
        device_put(3.0, named("x", kind=AxisType.Auto))


def test_an_abstract_mesh_has_no_devices_to_put_on():
    with pytest.raises(ValueError, match="AbstractMesh"):
        device_put(np.ones(4), NamedSharding(AbstractMesh((2,), ("x",)), P("x")))


def test_partial_sums_keep_the_value_on_the_first_device():
    sharding = named("y", unreduced={"x"})
    u = device_put(np.arange(4.0), sharding)
    assert [s.data.tolist() for s in u.addressable_shards] == [
        [0.0], [1.0], [2.0], [3.0], [0.0], [0.0], [0.0], [0.0]]
    assert device_put(u, sharding) is u
    for attempt in (lambda: device_put(u, named()), lambda: device_put(np.ones(4), named(
            unreduced={"x"})), lambda: device_get(u)):
        with pytest.raises(NotImplementedError, match="device_indices_map doesn't work with unred"):
            attempt()


def test_device_get_turns_arrays_into_numpy():
    x = device_put(np.arange(4.0), named("x"))
    got, *rest = device_get((x, 1, None, "a"))
    assert type(got) is np.ndarray and got.tolist() == [0, 1, 2, 3] and rest == [1, None, "a"]


def test_waiting_for_values_finds_deleted_arrays():
    x, y = device_put(np.arange(4.0), named("x")), device_put(np.ones(3))
    tree = {"x": x, "rest": (y, 1, "a")}
    assert block_until_ready(tree) is tree
    assert block_until_ready(x) is x
    x.delete()
    for values in (x, [y, x], tree):
        with pytest.raises(RuntimeError, match="called on deleted or donated buffer"):
            block_until_ready(values)


# -- assembly --------------------------------------------------------------------------------------

def pieces(count=8, dtype=np.float32, size=1):
    return [device_put(np.full(size, i, dtype), d) for i, d in enumerate(devices()[:count])]


def test_one_device_arrays_are_matched_by_device_in_any_order():
    line = named("x", shape=(8,))
    x = make_array_from_single_device_arrays((8,), line, pieces()[::-1])
    assert x.tolist() == list(range(8)) and x.committed and x.sharding is line


def test_copies_that_differ_are_kept_and_not_compared():
    x = make_array_from_single_device_arrays((2,), named("x"), pieces())
    assert x.tolist() == [0.0, 4.0]
    assert [s.data.tolist() for s in x.addressable_shards] == [[float(i)] for i in range(8)]
    alike = [device_put(np.full(1, i // 4, np.float32), d) for i, d in enumerate(devices())]
    assert make_array_from_single_device_arrays((2,), named("x"), alike).storage.lead == ()


@pytest.mark.parametrize(("make", "error", "message"), [
    (lambda p: (p[:3],), ValueError, "Expected 8 per-device arrays (this is how many devices are "
                                     "addressable by the sharding), but got 3"),
    (lambda p: (p[:7] + p[:1],), ValueError, "the input arrays must be from distinct devices, but "
     "got device IDs [0, 1, 2, 3, 4, 5, 6, 0]"),
    (lambda p: (iter(p),), TypeError, "`arrays` argument must be a list or tuple, but got"),
    (lambda p: ([np.ones(1)] * 8,), TypeError, "Unsupported type for elements in `arrays`: "
     "<class 'numpy.ndarray'>"),
    (lambda p: (pieces(size=4),), ValueError, "Expected shard shape (1,) doesn't match the single "
     "device array shape (4,). Shape of Array is float32[2@x] with sharding"),
    (lambda p: (p[:7] + pieces(8, np.int32)[7:],), ValueError, "Input buffers to `Array` must have "
     "matching dtypes. Got int32, expected float32 for buffer: [7]"),
    (lambda p: ([],), ValueError, "If the Array has no addressable shards, `dtype` must be"),
    (lambda p: ([device_put(np.ones(2), named("x"))] * 8,), ValueError,
     "the input arrays must have one shard each. An argument array had 8 shard(s)."),
])
def test_one_device_arrays_that_do_not_fit(make, error, message):
    with pytest.raises(error) as caught:
        make_array_from_single_device_arrays((2,), named("x"), *make(pieces()))
    assert message in str(caught.value)


def test_one_device_arrays_on_the_wrong_device():
    with pytest.raises(ValueError) as caught:
        make_array_from_single_device_arrays(
            (1,), SingleDeviceSharding(devices()[7]), pieces()[:1])
    assert ("Sharding contains devices {7} that are not present in per-device arrays. Per-device "
            "arrays contain devices {0} that are not present in the sharding.") in str(caught.value)
    with pytest.raises(ValueError, match="must match the dtype of the addressable shards. Got "):
        make_array_from_single_device_arrays((2,), named("x"), pieces(), dtype=np.int32)


def test_a_callback_is_asked_for_each_device():
    asked = []

    def give(index):
        asked.append(index)
        return np.arange(8)[index] * 10

    x = make_array_from_callback((8,), named("x"), give)
    assert x.tolist() == [0, 10, 20, 30, 40, 50, 60, 70] and len(asked) == 8
    asked.clear()
    make_array_from_callback((8,), named(), give)
    assert asked == [(slice(None),)]
    assert not make_array_from_callback((), named(), lambda i: 1.0).weak_type


@pytest.mark.parametrize(("sharding", "give", "error", "message"), [
    (P("x"), np.ones, TypeError, "sharding should be an instance of `jax.sharding`. Got P('x',) of "
     "type"),
    (None, lambda i: np.ones(3, np.float32), ValueError,
     "Expected shard shape (4,) doesn't match the single device array shape (3,)"),
    (None, lambda i: [1.0], TypeError, "Argument '[1.0]' of type <class 'list'> is not a valid JAX "
     "type."),
])
def test_callbacks_that_do_not_fit(sharding, give, error, message):
    with pytest.raises(error) as caught:
        make_array_from_callback((8,), sharding or named("x"), give)
    assert message in str(caught.value)


def test_one_process_provides_everything():
    x = make_array_from_process_local_data(named("x"), {"a": np.arange(8)})["a"]
    assert x.sharding is named("x") and x.tolist() == list(range(8))
    assert make_array_from_process_local_data(named("x"), np.ones(4), (4,)).shape == (4,)
    with pytest.raises(ValueError, match="global_shape should be None or equal to local_data"):
        make_array_from_process_local_data(named("x"), np.ones(4), (8,))


def test_several_processes_provide_their_parts():
    with config.override(jax_num_cpu_devices=8):
        mesh = make_mesh((8,), ("x",))
        sharding, whole = NamedSharding(mesh, P("x")), NamedSharding(mesh, P())
        with process_scope(1, (0,) * 4 + (1,) * 4):
            x = make_array_from_process_local_data(sharding, np.arange(8.0))
            assert x.shape == (16,) and isinstance(x.storage, LocalBlocks)
            assert [s.data.tolist() for s in x.addressable_shards] == [
                [0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0]]
            y = make_array_from_process_local_data(sharding, np.arange(16.0), (16,))
            assert y.addressable_data(0).tolist() == [8.0, 9.0]
            z = make_array_from_process_local_data(whole, np.arange(3.0))
            assert z.shape == (3,) and np.asarray(z).tolist() == [0, 1, 2]
            with pytest.raises(ValueError) as caught:
                make_array_from_process_local_data(sharding, np.ones(8), (24,))
            assert ("In dimension 0, the process data has 8 elements. Process addresses 12 elements"
                    " and global_shape=(24,).") in str(caught.value)
