"""Meshes, abstract meshes and devices: attributes, printing, errors, identity."""

import copy
import pickle
import re

import numpy as np
import pytest

from shardtrace.ir.meshes import device as device_module
from shardtrace.ir.meshes.device import AbstractDevice, Device, process_index, process_scope
from shardtrace.ir.meshes.mesh import (
    AbstractMesh,
    AxisType,
    Mesh,
    empty_abstract_mesh,
    empty_concrete_mesh,
)

AUTO, EXPLICIT, MANUAL = AxisType.Auto, AxisType.Explicit, AxisType.Manual


def devices(*shape):
    grid = np.empty(int(np.prod(shape)), dtype=object)
    grid[:] = [Device(i) for i in range(grid.size)]
    return grid.reshape(shape)


@pytest.fixture
def mesh():
    return Mesh(devices(4, 2), ("x", "y"), (EXPLICIT, EXPLICIT))


# --------------------------------------------------------------------------- printing, attributes


def test_meshes_print_axes_and_their_types(mesh):
    assert repr(mesh) == ("Mesh(axis_sizes=(4, 2), axis_names=('x', 'y'), "
                          "axis_types=(Explicit, Explicit))")
    assert str(mesh) == "Mesh('x': 4, 'y': 2, axis_types=(Explicit, Explicit))"
    assert repr(empty_concrete_mesh) == "Mesh(axis_sizes=(), axis_names=())"
    assert str(empty_concrete_mesh) == "Mesh()"
    assert repr(mesh.abstract_mesh) == (
        "AbstractMesh('x': 4, 'y': 2, axis_types=(Explicit, Explicit), device_kind=cpu, "
        "num_cores=None, platform=cpu)")
    assert str(AbstractMesh((2,), ("x",))) == "AbstractMesh('x': 2, axis_types=(Auto,))"
    assert repr(empty_abstract_mesh) == "AbstractMesh((), axis_types=())"
    assert (repr(AUTO), str(AUTO)) == ("Auto", "AxisType.Auto")


def test_a_mesh_has_the_attributes_of_its_axes_and_devices(mesh):
    assert mesh.shape == {"x": 4, "y": 2} and list(mesh.shape) == ["x", "y"]
    assert mesh.shape_tuple == (("x", 4), ("y", 2))
    assert (mesh.axis_names, mesh.axis_sizes, mesh.size, mesh.empty) == (("x", "y"), (4, 2), 8,
                                                                         False)
    assert mesh.device_ids.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert mesh.device_tuple == tuple(Device(i) for i in range(8))
    assert mesh.local_devices == list(mesh.device_tuple) and not mesh.is_multi_process
    assert not mesh.is_scalar
    assert mesh.axis_positions == {"x": 0, "y": 1}
    assert empty_concrete_mesh.empty and empty_concrete_mesh.size == 0
    assert empty_concrete_mesh.abstract_mesh is empty_abstract_mesh


def test_axes_are_grouped_by_type_and_change_it():
    mesh = AbstractMesh((2, 2, 2), ("x", "y", "z"), (AUTO, EXPLICIT, MANUAL))
    assert (mesh.auto_axes, mesh.explicit_axes, mesh.manual_axes) == (("x",), ("y",), ("z",))
    assert mesh.any_axis_auto and mesh.any_axis_explicit and mesh.any_axis_manual
    assert not (mesh.are_all_axes_auto or mesh.are_all_axes_explicit or mesh.are_all_axes_manual)
    assert AbstractMesh((2,), "x").are_all_axes_auto
    assert not empty_abstract_mesh.are_all_axes_auto
    assert mesh.axis_type("y") is EXPLICIT and mesh.axis_type("y:(1)2") is EXPLICIT
    changed = mesh.update_axis_types({"x": MANUAL, "unknown": AUTO})
    assert changed.axis_types == (MANUAL, EXPLICIT, MANUAL)
    assert mesh.update_axis_types({"x": AUTO}) is mesh


def test_axis_types_default_to_auto(mesh):
    assert Mesh(devices(2), "x").axis_types == (AUTO,)
    assert AbstractMesh((2, 4), ("x", "y")).axis_types == (AUTO, AUTO)
    assert AbstractMesh((2,), ("x",), EXPLICIT).axis_types == (EXPLICIT,)
    assert mesh.local_mesh.axis_types == (AUTO, AUTO)


def test_sizes_of_sub_axes_and_mesh_order(mesh):
    assert (mesh.axis_size("x"), mesh.axis_size("x:(2)2")) == (4, 2)
    with pytest.raises(KeyError):
        mesh.axis_size("w")
    assert mesh.sort_axes(["y", "x:(2)2", "x:(1)2"]) == ("x:(1)2", "x:(2)2", "y")


def test_devices_of_a_mesh_are_read_only(mesh):
    with pytest.raises(ValueError, match="read-only"):
        mesh.devices[0, 0] = None
    with pytest.raises(AttributeError, match="cannot assign to field 'size'"):
        mesh.size = 3
    with pytest.raises(AttributeError, match="cannot delete field 'size'"):
        del mesh.size


def test_a_huge_abstract_mesh_is_only_its_axes():
    mesh = AbstractMesh((256, 256), ("of", "nobody_else"))   # nothing is cached on it yet
    assert mesh.size == 65536
    assert sum(len(v) for v in vars(mesh).values() if isinstance(v, tuple)) == 6


# --------------------------------------------------------------------------- identity


def test_equality_is_identity_and_minds_order_names_and_types(mesh):
    assert Mesh(devices(4, 2), ["x", "y"], (EXPLICIT, EXPLICIT)) is mesh
    assert mesh.update() is mesh
    assert Mesh(devices(4, 2), ("x", "y")) != mesh
    assert Mesh(devices(4, 2)[::-1], ("x", "y"), (EXPLICIT, EXPLICIT)) != mesh
    assert mesh.update(axis_names=("a", "b")) != mesh
    assert mesh.update(axis_types=(AUTO, AUTO)) is Mesh(devices(4, 2), ("x", "y"))
    assert AbstractMesh((2,), "x") is AbstractMesh([2], ["x"], (AUTO,))
    assert AbstractMesh((np.int64(2),), ("x",)) is AbstractMesh((2,), "x")


def test_a_handwritten_abstract_mesh_is_not_that_of_a_mesh(mesh):
    written = AbstractMesh((4, 2), ("x", "y"), (EXPLICIT, EXPLICIT))
    assert written != mesh.abstract_mesh
    assert mesh.abstract_mesh.update(abstract_device=None) is written
    assert mesh.abstract_mesh.update(axis_types=(AUTO, AUTO)).abstract_device == AbstractDevice(
        "cpu", None, "cpu")
    assert mesh.abstract_mesh.abstract_mesh is mesh.abstract_mesh


@pytest.mark.parametrize("remake", [
    copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x)), lambda x: x.update(),
], ids=["copy", "deepcopy", "pickle", "update"])
def test_copies_and_pickles_are_the_same_object(mesh, remake):
    for one in (mesh, mesh.abstract_mesh, empty_abstract_mesh, empty_concrete_mesh):
        assert remake(one) is one


def test_entering_a_mesh_gives_it_and_warns(mesh):
    with pytest.warns(DeprecationWarning, match="has been deprecated"), mesh as entered:
        assert entered is mesh


# --------------------------------------------------------------------------- errors


ERRORS = [
    (lambda M, A, T, d: M(d, ("x", "y")), ValueError,
     "Mesh requires the ndim of its first argument (`devices`) to equal the length of its second "
     "argument (`axis_names`), but got devices.ndim == 1 and len(axis_names) == 2."),
    (lambda M, A, T, d: M(d, (None,)), ValueError, "Mesh axis names cannot be None. Got: (None,)"),
    (lambda M, A, T, d: M(d, ("x",), (T.Auto, T.Auto)), ValueError,
     "Number of axis names should match the number of axis_types. Got axis_names=('x',) and "
     "axis_types=(Auto, Auto)"),
    (lambda M, A, T, d: M(d, ("x",), ("Auto",)), TypeError,
     "axis_types passed to Mesh must be of type `jax.sharding.AxisType`. Got ('Auto',) of type "
     "(<class 'str'>,)"),
    (lambda M, A, T, d: A((2,), ("x",), ("Auto",)), TypeError,
     "axis_types passed to AbstractMesh must be of type `jax.sharding.AxisType`. Got ('Auto',) of "
     "type (<class 'str'>,)"),
    *[(lambda M, A, T, d, name=name: getattr(A((2,), ("x",)), name), ValueError,
       f"AbstractMesh does not implement {name}")
      for name in ("devices", "device_ids", "local_devices", "local_mesh", "is_multi_process")],
    (lambda M, A, T, d: A((2,), ("x",)).__enter__(), ValueError,
     "AbstractMesh does not implement __enter__"),
    (lambda M, A, T, d: A((2,), ("x",)).__exit__(None, None, None), ValueError,
     "AbstractMesh does not implement __exit__"),
]


@pytest.mark.parametrize(("make", "error", "message"), ERRORS)
def test_mistakes_are_reported_in_jax_s_words(make, error, message):
    with pytest.raises(error) as caught:
        make(Mesh, AbstractMesh, AxisType, devices(4))
    first = str(caught.value).partition("\n")[0]
    assert re.sub(r"\b(st|shardtrace)\.", "jax.", first) == message


@pytest.mark.parametrize(("make", "error", "message"), ERRORS)
def test_jax_reports_the_same_mistakes(make, error, message):
    pytest.importorskip("jax")
    from jax.sharding import AbstractMesh, AxisType, Mesh
    with pytest.raises(error) as caught:
        make(Mesh, AbstractMesh, AxisType, devices(4))
    first = str(caught.value).partition("\n")[0]
    assert re.sub(r"\b(st|shardtrace)\.", "jax.", first) == message


def test_sizes_and_names_must_match():
    with pytest.raises(ValueError, match="one name for each axis size"):
        AbstractMesh((2, 2), ("x",))


# --------------------------------------------------------------------------- devices, processes


def test_devices_print_and_compare_as_names():
    device = Device(3)
    assert (repr(device), str(device)) == ("CpuDevice(id=3)", "cpu:3")
    assert Device(3) is device and copy.deepcopy(device) is device
    assert pickle.loads(pickle.dumps(device)) is device
    assert Device(3, process_index=1) != device
    assert sorted([Device(5), Device(1)]) == [Device(1), Device(5)]
    assert (device.platform, device.device_kind, device.host_id) == ("cpu", "cpu", 0)
    assert device.memory_stats() is None


def test_memories_of_a_device():
    device = Device(3)
    assert [m.kind for m in device.addressable_memories()] == ["device", "pinned_host",
                                                              "unpinned_host"]
    assert repr(device.default_memory()) == (
        "CpuDeviceMemory(id=9, process_index=0, client=cpu)")
    assert [str(m) for m in device.addressable_memories()] == [
        "CPU_DEVICE_9", "PINNED_HOST_10", "UNPINNED_HOST_11"]
    assert device.memory("pinned_host") == device.addressable_memories()[1]
    with pytest.raises(ValueError, match="Could not find memory addressable by device cpu"):
        device.memory("foo")


def test_process_identity_is_per_scope():
    assert process_index() == 0
    with process_scope(1):
        assert process_index() == 1
        with process_scope(2):
            assert process_index() == 2
        assert process_index() == 1
    assert process_index() == 0
    try:
        device_module.set_default_process_index(3)
        assert process_index() == 3
    finally:
        device_module.set_default_process_index(0)


def two_processes(owner):
    """A 4x2 mesh where device i belongs to process owner(i)."""
    grid = np.empty(8, dtype=object)
    grid[:] = [Device(i, process_index=owner(i)) for i in range(8)]
    return Mesh(grid.reshape(4, 2), ("x", "y"), (EXPLICIT, EXPLICIT))


def test_local_devices_depend_on_the_process_that_asks():
    mesh = two_processes(lambda i: i // 4)
    assert mesh.is_multi_process
    assert [d.id for d in mesh.local_devices] == [0, 1, 2, 3]
    assert mesh.local_mesh.axis_sizes == (2, 2) and mesh.local_mesh.axis_types == (AUTO, AUTO)
    with process_scope(1):
        assert [d.id for d in mesh.local_devices] == [4, 5, 6, 7]
        assert mesh.local_mesh.device_ids.tolist() == [[4, 5], [6, 7]]
        assert not mesh.local_mesh.is_multi_process
        assert mesh.device_tuple[4].is_addressable


def test_local_devices_must_form_a_subcube():
    mesh = two_processes(lambda i: int(i in (1, 2, 4, 7)))
    with pytest.raises(ValueError, match="must form a contiguous subcube"):
        _ = mesh.local_mesh
