"""The array: attributes, blocks, conversions, texts and life, as JAX has them."""
from __future__ import annotations

import copy
import io
import pickle

import ml_dtypes
import numpy as np
import pytest

from shardtrace.arrays import storage
from shardtrace.arrays.array import ArrayImpl, place
from shardtrace.arrays.devices import devices, make_mesh
from shardtrace.arrays.exchange import from_dlpack
from shardtrace.arrays.live import live_arrays
from shardtrace.arrays.transfer import device_put
from shardtrace.ir.diagnostics.errors import JaxRuntimeError
from shardtrace.ir.dtypes import KEY_FRY
from shardtrace.ir.kernels.key_data import pack_keys
from shardtrace.ir.meshes.device import process_scope
from shardtrace.ir.meshes.mesh import AxisType, Mesh
from shardtrace.ir.settings.context import config
from shardtrace.ir.shardings.sharding import NamedSharding, SingleDeviceSharding
from shardtrace.ir.spec import P

pytestmark = pytest.mark.usefixtures("eight_devices")


def mesh42(kind=AxisType.Explicit):
    return make_mesh((4, 2), ("x", "y"), (kind,) * 2)


def sharded(shape=(8, 4), spec=P("x", "y"), kind=AxisType.Explicit):
    data = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    return device_put(data, NamedSharding(mesh42(kind), spec))


def test_attributes_of_a_plain_array():
    x = device_put(np.arange(8, dtype=np.int32))
    assert (x.shape, x.dtype, x.ndim, x.size, x.nbytes, x.itemsize) == (
        (8,), np.int32, 1, 8, 32, 4)
    assert x.devices() == {devices()[0]} and x.device is devices()[0]
    assert repr(x.sharding) == "SingleDeviceSharding(device=CpuDevice(id=0), memory_kind=device)"
    assert not x.committed and x.is_fully_replicated and x.is_fully_addressable
    assert x.platform() == "cpu" and x.is_ready() and not x.weak_type


def test_the_type_has_explicit_axes_only():
    assert str(sharded().aval) == "float32[8@x,4@y]"
    assert str(sharded(kind=AxisType.Auto).aval) == "float32[8,4]"
    x = sharded()
    assert x.sharding.spec == P("x", "y") and x.device is x.sharding and x.committed


def test_shards_are_blocks_in_mesh_order():
    x = sharded()
    assert [s.device.id for s in x.addressable_shards] == list(range(8))
    shard = x.addressable_shards[3]
    assert shard.index == (slice(2, 4), slice(2, 4)) and shard.replica_id == 0
    assert shard.data.committed and shard.data.devices() == {devices()[3]}
    assert repr(shard) == ("Shard(device=CpuDevice(id=3), index=(slice(2, 4, None), "
                           "slice(2, 4, None)), replica_id=0, data=[[10. 11.]\n [14. 15.]])")
    assert x.addressable_shards[3] is shard
    assert [s.device.id for s in x.global_shards] == list(range(8))


def test_replicas_are_counted_in_device_order():
    x = sharded((8, 4), P("y"))
    assert [s.replica_id for s in x.addressable_shards] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert x.addressable_shards[1].index == (slice(4, 8), slice(None))
    scalar = device_put(np.float32(2), NamedSharding(mesh42(), P()))
    assert scalar.addressable_shards[7].index == () and scalar.addressable_shards[7].replica_id == 7


def test_blocks_follow_the_order_of_devices_in_the_mesh():
    mesh = Mesh(np.array(devices()[:4][::-1]), ("i",))
    x = device_put(np.arange(8), NamedSharding(mesh, P("i")))
    assert [(s.device.id, s.data.tolist()) for s in x.addressable_shards] == [
        (3, [0, 1]), (2, [2, 3]), (1, [4, 5]), (0, [6, 7])]


def test_the_first_name_of_a_tuple_is_most_significant():
    x = device_put(np.arange(8), NamedSharding(mesh42(), P(("y", "x"))))
    assert [int(s.data.value[0]) for s in x.addressable_shards] == [
        0, 4, 1, 5, 2, 6, 3, 7]


def test_addressable_data_is_the_i_th_block():
    x = sharded()
    assert x.addressable_data(7).tolist() == [[26.0, 27.0], [30.0, 31.0]]
    with pytest.raises(IndexError, match="list index out of range"):
        x.addressable_data(9)
    whole = sharded((8, 4), P())
    assert whole.addressable_data(3).devices() == {devices()[0]}
    assert whole.addressable_data(3).shape == (8, 4)


def test_a_block_is_a_view_of_the_one_array():
    x = sharded()
    assert np.shares_memory(x.addressable_data(3).value, x.value)


@pytest.mark.parametrize(("data", "weak", "text"), [
    (np.ones((2, 3), np.float32), False,
     "Array([[1., 1., 1.],\n       [1., 1., 1.]], dtype=float32)"),
    (np.float32(1.5), False, "Array(1.5, dtype=float32)"),
    (np.int32(2), True, "Array(2, dtype=int32, weak_type=True)"),
    (np.float32(2), True, "Array(2., dtype=float32, weak_type=True)"),
    (np.array([True, False]), False, "Array([ True, False], dtype=bool)"),
    (np.array([1 + 2j], np.complex64), False, "Array([1.+2.j], dtype=complex64)"),
    (np.ones((2, 2), ml_dtypes.bfloat16), False,
     "Array([[1, 1],\n       [1, 1]], dtype=bfloat16)"),
    (np.zeros((0, 3), np.float32), False, "Array([], shape=(0, 3), dtype=float32)"),
    (np.arange(30, dtype=np.float32), False,
     "Array([ 0.,  1.,  2.,  3.,  4.,  5.,  6.,  7.,  8.,  9., 10., 11., 12.,\n"
     "       13., 14., 15., 16., 17., 18., 19., 20., 21., 22., 23., 24., 25.,\n"
     "       26., 27., 28., 29.], dtype=float32)"),
    (np.array([True] * 10), False,
     "Array([ True,  True,  True,  True,  True,  True,  True,  True,  True,\n"
     "        True], dtype=bool)"),
    (np.ones(18, np.float32), False,
     "Array([1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1.,\n"
     "       1.], dtype=float32)"),
])
def test_repr_is_that_of_jax(data, weak, text):
    assert repr(place(np.asarray(data), weak_type=weak)) == text


def test_str_is_that_of_numpy():
    assert str(sharded((4, 2), P("x"))) == "[[0. 1.]\n [2. 3.]\n [4. 5.]\n [6. 7.]]"
    assert f"{place(np.asarray(np.float32(1.23456))):.2f} {place(np.ones(2, np.float32))}" == (
        "1.23 [1. 1.]")
    with pytest.raises(TypeError, match="unsupported format string"):
        format(place(np.ones(2)), ".2f")


def test_a_partial_sum_shows_its_sharding_and_not_its_value():
    x = device_put(np.ones((8, 2), np.float32), NamedSharding(mesh42(), P("x", unreduced={"y"})))
    text = ("Array(shape=(8, 2), dtype=float32, sharding=NamedSharding(mesh=Mesh('x': 4, 'y': 2, "
            "axis_types=(Explicit, Explicit)), spec=P('x', unreduced={'y'}), memory_kind=device))")
    assert repr(x) == str(x) == format(x) == text
    assert [s.data.tolist()[0][0] for s in x.addressable_shards] == [1, 0] * 4
    for attempt in (lambda: np.asarray(x), x.tolist, lambda: x.addressable_shards[0].index):
        with pytest.raises(NotImplementedError, match="device_indices_map doesn't work with unred"):
            attempt()
    assert x.on_device_size_in_bytes() == 8 * 2 * 2 * 4


def test_random_keys_show_their_words():
    keys = place(pack_keys(np.arange(4, dtype=np.uint32).reshape(2, 2)), dtype=KEY_FRY)
    assert repr(keys) == "Array((2,), dtype=key<fry>) overlaying:\n[[0 1]\n [2 3]]"
    assert keys.shape == (2,) and keys.itemsize == 8 and len(keys) == 2
    assert [r.shape for r in keys] == [(), ()]
    with pytest.raises(TypeError, match="JAX array with PRNGKey dtype cannot be converted"):
        np.asarray(keys)
    with pytest.raises(TypeError, match="key array cannot be converted to boolean"):
        bool(place(np.asarray(np.uint64(1)), dtype=KEY_FRY))


def test_numpy_gets_a_read_only_view():
    x = sharded()
    y = np.asarray(x)
    assert not y.flags.writeable and np.shares_memory(y, x.value)
    assert np.array(x).flags.writeable
    assert np.asarray(x, dtype=np.int32).dtype == np.int32


def test_dlpack_wants_one_device():
    x = place(np.arange(3, dtype=np.float32))
    assert np.from_dlpack(x).tolist() == [0, 1, 2]
    with pytest.raises(BufferError, match="array on a singular device"):
        sharded().__dlpack__()
    with pytest.raises(BufferError, match="only supported for unsharded"):
        sharded().__dlpack_device__()


def test_a_buffer_of_one_device_shows_the_data():
    x = place(np.arange(6, dtype=np.int16).reshape(2, 3))
    view = memoryview(x)
    assert (view.shape, view.format, view.readonly) == ((2, 3), "h", True)
    assert bytes(x) == np.asarray(x).tobytes() and io.BytesIO().write(x) == 12
    assert np.frombuffer(place(np.broadcast_to(np.float32(1), 3)), np.float32).tolist() == [1] * 3
    x.delete()
    assert view.tolist() == [[0, 1, 2], [3, 4, 5]]
    for y in (place(np.ones(2, ml_dtypes.bfloat16)), sharded(), x):
        with pytest.raises((BufferError, SystemError)):
            memoryview(y)
    with pytest.raises(BufferError, match="Buffers of type BF16 are not supported"):
        place(np.ones(2, ml_dtypes.bfloat16)).__buffer__(0)


def test_arrays_come_from_other_libraries_without_a_copy():
    data = np.arange(3, dtype=np.float32)
    x = from_dlpack(data)
    assert x.committed and np.shares_memory(x.value, data)
    assert not np.shares_memory(from_dlpack(data, copy=True).value, data)
    assert from_dlpack(data, device=devices()[2]).devices() == {devices()[2]}
    assert from_dlpack(np.arange(2)).dtype == np.int32
    with pytest.raises(ValueError, match="becomes one of int32, which copy=False forbids"):
        from_dlpack(np.arange(2), copy=False)


def test_an_array_can_be_made_of_its_blocks():
    x = sharded()
    y = ArrayImpl(x.aval, x.sharding, [s.data for s in x.addressable_shards], True)
    assert y.tolist() == x.tolist()
    with pytest.raises(ValueError, match="Expected 8 per-device arrays"):
        ArrayImpl(x.aval, x.sharding, [x.addressable_data(0)], True)


SCALAR = "Only scalar arrays can be converted to Python scalars; got arr.ndim=1"


@pytest.mark.parametrize(("data", "convert", "error", "message"), [
    (np.ones(2), bool, ValueError, "The truth value of an array with more than one element is "
     "ambiguous. Use a.any() or a.all()"),
    (np.ones(0), bool, ValueError, "The truth value of an empty array is ambiguous"),
    (np.ones(1), float, TypeError, SCALAR),
    (np.ones(1), int, TypeError, SCALAR),
    (np.ones(1), complex, TypeError, SCALAR),
    (np.float32(1), range, TypeError, "Only integer scalar arrays can be converted"),
    (np.array(True), range, TypeError, "Only integer scalar arrays can be converted"),
    (np.ones(1, int), range, TypeError, "Only integer scalar arrays can be converted"),
    (np.float32(1), len, TypeError, "len() of unsized object"),
    (np.float32(1), iter, TypeError, "iteration over a 0-d array"),
    (np.ones(2), hash, TypeError, "unhashable type"),
    (np.ones(2), lambda x: x.item(), ValueError, "can only convert an array of size 1"),
])
def test_conversions_that_make_no_sense_are_refused(data, convert, error, message):
    with pytest.raises(error) as caught:
        convert(place(np.asarray(data)))
    assert message in str(caught.value)


def test_conversions_to_python():
    assert float(place(np.asarray(np.float32(2)))) == 2.0
    assert int(place(np.asarray(np.int32(3)))) == 3 and bool(place(np.ones((1, 1))))
    assert range(place(np.asarray(np.int32(3)))) == range(3)
    assert complex(place(np.asarray(np.float32(1)))) == 1
    assert place(np.asarray(2, ml_dtypes.int4)).__index__() == 2
    assert sharded().item(1, 1) == 5.0 and sharded().item(3) == 3.0
    element = place(np.asarray(1.5, ml_dtypes.bfloat16)).item()
    assert element == 1.5 and type(element) is float
    assert len(sharded()) == 8


def test_assignment_says_what_to_do_instead():
    with pytest.raises(TypeError, match=r"JAX arrays are immutable.* use x = x.at\[idx\].set"):
        sharded()[0] = 1.0


@pytest.mark.parametrize(("spec", "spec_of_rows", "committed"), [
    (P("x"), None, False), (P(), P(None), True)])
def test_rows_stay_where_every_device_has_them_all(spec, spec_of_rows, committed):
    rows = list(sharded((4, 2), spec))
    assert [r.tolist() for r in rows] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert rows[0].committed == committed
    if spec_of_rows is None:
        assert rows[0].devices() == {devices()[0]}
    else:
        assert rows[0].sharding.spec == spec_of_rows
    one = device_put(np.ones((2, 2), np.float32), devices()[2])
    assert next(iter(one)).devices() == {devices()[2]}


def test_a_deleted_array_keeps_its_type_and_nothing_else():
    x = sharded()
    x.delete()
    x.delete()
    assert x.is_deleted() and x.shape == (8, 4) and x.sharding.spec == P("x", "y")
    for attempt in (lambda: repr(x), lambda: np.asarray(x), x.devices, lambda: x.device,
                    lambda: x.addressable_shards, lambda: device_put(x, devices()[0]), x.tolist,
                    lambda: x.storage, lambda: copy.copy(x), lambda: x[0]):
        with pytest.raises(RuntimeError, match=r"Array has been deleted with shape=float32\[8@x"):
            attempt()
    for attempt, what in ((x.block_until_ready, "BlockHostUntilReady"),
                          (x.on_device_size_in_bytes, "GetOnDeviceSizeInBytes"),
                          (x.unsafe_buffer_pointer, "UnsafeBufferPointer")):
        with pytest.raises(JaxRuntimeError, match=f"INVALID_ARGUMENT: {what}"):
            attempt()


def test_copies_keep_the_sharding_and_pickles_do_not():
    x = sharded()
    for y in (copy.copy(x), copy.deepcopy(x)):
        assert y is not x and y.sharding is x.sharding and y.committed
        y.delete()
    assert not x.is_deleted()
    y = pickle.loads(pickle.dumps(x))
    assert y.sharding is SingleDeviceSharding(devices()[0]) and not y.committed
    assert y.tolist() == x.tolist()
    weak = pickle.loads(pickle.dumps(place(np.asarray(np.float32(1)), weak_type=True)))
    assert weak.weak_type


def test_live_arrays_are_those_with_data():
    x = sharded()
    assert any(y is x for y in live_arrays())
    x.delete()
    assert not any(y is x for y in live_arrays())


def test_bytes_on_devices_count_every_copy():
    assert sharded((4,), P("x")).on_device_size_in_bytes() == 4 * 8
    assert sharded((4,), P()).on_device_size_in_bytes() == 4 * 4 * 8


def test_a_process_sees_its_own_blocks():
    with config.override(jax_num_cpu_devices=8):
        mesh = make_mesh((8,), ("x",))
        x = device_put(np.arange(16.0), NamedSharding(mesh, P("x")))
        whole = device_put(np.arange(2.0), NamedSharding(mesh, P()))
        with process_scope(1, (0,) * 4 + (1,) * 4):
            assert not x.is_fully_addressable
            assert [s.device.id for s in x.addressable_shards] == [4, 5, 6, 7]
            assert x.addressable_data(0).tolist() == [8.0, 9.0]
            assert [s.data is None for s in x.global_shards] == [True] * 4 + [False] * 4
            assert repr(x) == str(x) == "Array(shape=(16,), dtype=float32)"
            with pytest.raises(RuntimeError, match="non-addressable"):
                np.asarray(x)
            assert np.asarray(whole).tolist() == [0.0, 1.0]
            assert repr(whole) == "Array([0., 1.], dtype=float32)"


def test_memory_kinds_show_in_the_type():
    host = device_put(np.ones(4, np.float32), NamedSharding(mesh42(), P("x"),
                                                            memory_kind="pinned_host"))
    assert str(host.aval) == "float32<host>[4@x]"


def test_arrays_are_instances_of_the_abstract_array():
    from shardtrace.ir.values.array import Array
    assert isinstance(sharded(), Array) and type(sharded()) is ArrayImpl


def test_where_blocks_lie_is_computed_once_for_all_devices():
    sharding = NamedSharding(make_mesh((4, 2), ("x", "y")), P("x"))
    assert storage.block_index(sharding, (8, 2)) is storage.block_index(sharding, (8, 2))
    x = device_put(np.zeros((8, 2), np.float32), sharding)
    assert [s.replica_id for s in x.addressable_shards] == [0, 1] * 4


def test_a_pickled_array_of_64_bits_is_read_in_32_where_these_are_not_on():
    with config.override(jax_enable_x64=True):
        text = pickle.dumps(place(np.ones(3)))
        assert pickle.loads(text).dtype == np.float64
    assert pickle.loads(text).dtype == np.float32
