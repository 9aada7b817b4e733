"""Import of arrays of other libraries through the DLPack protocol.

The export, `__dlpack__`, is in arrays/host_view.py.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.dtypes import canonicalize_dtype
from ..ir.settings.context import x64_enabled
from ..ir.shardings.sharding import Sharding
from .array import ArrayImpl
from .devices import local_devices
from .transfer import put

_CPU = 1           # DLDeviceType.kDLCPU
_SUPPORTED = frozenset(np.dtype(name) for name in (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
    "float32", "float64", "complex64", "complex128"))


def from_dlpack(external_array: Any, device: Any = None, copy: bool | None = None) -> ArrayImpl:
    """The array of another library (numpy, torch) as an array here, by the DLPack protocol.

    device: a Device, or a Sharding of one; the first device unless given. The result is committed
    to it. copy: True copies; otherwise memory is shared where the dtype stays, so that the other
    array must not be changed any more.
    Raises TypeError for what has no such protocol or is on another kind of device, ValueError for a
    sharding of several devices, and where copy=False cannot be granted.

    >>> st.dlpack.from_dlpack(np.arange(3, dtype=np.int32))
    Array([0, 1, 2], dtype=int32)
    """
    if isinstance(device, Sharding):
        if device.num_devices > 1:
            raise ValueError(
                "from_dlpack can only unpack a dlpack tensor onto a singular device, but a "
                f"Sharding with {device.num_devices} devices was provided.")
        (device,) = device.device_assignment
    if not hasattr(external_array, "__dlpack__") or not hasattr(
            external_array, "__dlpack_device__"):
        raise TypeError("The array passed to from_dlpack must have __dlpack__ and "
                        "__dlpack_device__ methods.")
    kind, number = external_array.__dlpack_device__()
    if kind != _CPU:
        raise TypeError("Array passed to from_dlpack is on unsupported device type (DLDeviceType: "
                        f"{kind}, array: {external_array}")
    source = local_devices()[number]
    if device is not None and device is not source and copy is False:
        raise ValueError(
            f"Specified device={device!r} which requires a copy since the source device is "
            f"{source!r}, however copy=False. Set copy=True or copy=None to perform the requested "
            "operation.")
    ours = isinstance(external_array, ArrayImpl)        # also of dtypes that the protocol lacks
    data = np.asarray(external_array) if ours else np.from_dlpack(external_array)
    canonical = canonicalize_dtype(data.dtype, x64_enabled())
    if copy is False and canonical != data.dtype:
        raise ValueError(f"an array of {data.dtype} becomes one of {canonical}, which copy=False "
                         "forbids")
    return put(data, source if device is None else device, may_alias=copy is not True)


def numpy_from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> ArrayImpl:
    """`dlpack.from_dlpack` under its name in `numpy`.

    >>> jnp.from_dlpack(np.ones((2, 2), np.float32))
    Array([[1., 1.],
           [1., 1.]], dtype=float32)
    """
    return from_dlpack(x, device, copy)


def is_supported_dtype(dtype: Any) -> bool:
    """Whether arrays of this dtype can be exchanged.

    >>> st.dlpack.is_supported_dtype(jnp.float32), st.dlpack.is_supported_dtype(jnp.bfloat16)
    (True, False)
    """
    if dtype is None:
        raise TypeError(f"Expected a string or dtype-like object; got dtype={dtype}")
    return np.dtype(getattr(dtype, "dtype", dtype)) in _SUPPORTED
