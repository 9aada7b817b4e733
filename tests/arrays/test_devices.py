"""Simulated devices, processes, and meshes of them."""
from __future__ import annotations

import pytest

from shardtrace.arrays import devices as dv
from shardtrace.ir.meshes.device import process_scope
from shardtrace.ir.meshes.mesh import AxisType
from shardtrace.ir.settings.context import config

pytestmark = pytest.mark.usefixtures("eight_devices")


def test_there_are_as_many_devices_as_configured():
    assert [d.id for d in dv.devices()] == list(range(8))
    assert dv.device_count() == dv.local_device_count() == 8
    assert repr(dv.devices()[3]) == "CpuDevice(id=3)" and str(dv.devices()[3]) == "cpu:3"
    assert dv.devices("cpu")[0] is dv.devices()[0]
    assert dv.default_backend() == "cpu"
    assert dv.process_index() == 0 and dv.process_count() == 1 and dv.process_indices() == [0]


def test_the_number_of_devices_may_change_later():
    before = dv.devices()
    with config.override(jax_num_cpu_devices=12):
        assert dv.device_count() == 12
        assert dv.devices()[:8] == before
    assert dv.device_count() == 8


@pytest.mark.parametrize(("backend", "message"), [
    ("gpu", "Unknown backend: 'gpu' requested, but no platforms that are instances of gpu are "
            "present. Platforms present are: cpu"),
    ("foo", "Unknown backend foo. Available backends are ['cpu']"),
])
def test_other_backends_are_refused(backend, message):
    with pytest.raises(RuntimeError) as caught:
        dv.devices(backend)
    assert str(caught.value) == message


def test_processes_own_devices():
    with process_scope(0, (0,) * 4 + (1,) * 4):
        assert dv.device_count() == 8 and dv.process_count() == 2
        assert [d.id for d in dv.local_devices()] == [0, 1, 2, 3]
        with process_scope(1):
            assert dv.process_index() == 1
            assert [d.id for d in dv.local_devices()] == [4, 5, 6, 7]
            assert [d.local_hardware_id for d in dv.local_devices()] == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="Unknown process_index 1"):
        dv.local_devices(process_index=1)


def test_the_default_device_is_the_first_local_one_or_chosen():
    assert dv.default_device() is dv.devices()[0]
    with dv.using_default_device(dv.devices()[4]):
        assert dv.default_device() is dv.devices()[4]
    assert dv.default_device() is dv.devices()[0]


def test_make_mesh_takes_the_first_devices_with_auto_axes_by_default():
    mesh = dv.make_mesh((2, 3), ("x", "y"))
    assert str(mesh) == "Mesh('x': 2, 'y': 3, axis_types=(Auto, Auto))"
    assert [d.id for d in mesh.device_tuple] == [0, 1, 2, 3, 4, 5]
    assert dv.make_mesh((2, 3), ("x", "y")) is mesh
    assert dv.make_mesh((2,), "x").axis_names == ("x",)
    assert dv.make_mesh((), ()).size == 1


def test_the_default_axis_type_is_configurable():
    with config.override(default_axis_types="explicit"):
        assert dv.make_mesh((2,), ("x",)).axis_types == (AxisType.Explicit,)


def test_make_mesh_of_given_devices_and_types():
    mesh = dv.make_mesh((2,), ("x",), axis_types=(AxisType.Explicit,), devices=dv.devices()[4:])
    assert [d.id for d in mesh.device_tuple] == [4, 5]
    assert mesh.axis_types == (AxisType.Explicit,)


@pytest.mark.parametrize(("arguments", "error", "message"), [
    (((4, 4), ("x", "y")), ValueError,
     "Number of devices 8 must be >= the product of mesh_shape (4, 4)"),
    (((2, 2), ("x",)), ValueError, "Mesh requires the ndim of its first argument"),
    (((2, 4), ("x", "y"), (AxisType.Auto,)), ValueError,
     "Number of axis names should match the number of axis_types. Got axis_names=('x', 'y') and "
     "axis_types=(Auto,)"),
    ((2, ("x",)), TypeError, "'int' object is not iterable"),
    (((-2,), ("x",)), ValueError, "negative"),
])
def test_make_mesh_refuses_what_does_not_fit(arguments, error, message):
    with pytest.raises(error) as caught:
        dv.make_mesh(*arguments)
    assert message in str(caught.value)
