"""An array as seen by Python and other libraries: numbers, numpy arrays, DLPack, buffers, text.

Everything is derived from `value`, the global value as a read-only numpy array, and nothing copies
where it need not. Placement and data belong to the subclass (arrays/array.py). Errors are
those of `jax.Array` (0.10.2).
"""
from __future__ import annotations

import ctypes
import operator
import sys
from typing import Any

import numpy as np

from ..ir.api_boundary import bound_methods
from ..ir.diagnostics.errors import JaxRuntimeError
from ..ir.dtypes import is_extended, long_name
from ..ir.kernels.key_data import key_words
from ..ir.shardings.sharding import NamedSharding, Sharding
from ..ir.source.wording import warn
from ..ir.support.lazy import lazy_import
from ..ir.values.array import Array
from ..ir.values.conversions import check_bool, check_index, check_scalar
from .host import PYTHON_NUMBERS, python_number

visualize = lazy_import(".visualize", __package__)

_OLDEST_DLPACK = (0, 5)
_STRIDES, _CONTIGUOUS = 0x18, 0xe0      # of the flags of buffer requests: takes strides, or not


@bound_methods
class HostView(Array):
    """The conversions of concrete arrays. Subclasses have `value` and `sharding`."""

    __slots__ = ()

    value: np.ndarray
    sharding: Sharding
    is_fully_addressable: bool
    is_fully_replicated: bool

    def is_deleted(self) -> bool:
        raise NotImplementedError

    def _check_if_deleted(self) -> None:
        raise NotImplementedError

    # -- arrays of other libraries -------------------------------------------------------------
    def __array__(self, dtype: Any = None, context: Any = None,
                  copy: bool | None = None) -> np.ndarray:
        if is_extended(self.aval.dtype):
            raise TypeError(
                "JAX array with PRNGKey dtype cannot be converted to a NumPy array. Use "
                "jax.random.key_data(arr) if you wish to extract the underlying integer array.")
        return np.asarray(self.value, dtype=dtype, copy=copy)

    @property
    def __numpy_dtype__(self) -> Any:
        """The result of `np.dtype(x)`, with a warning that recommends `x.dtype`."""
        warn("Implicit conversion of an array to a dtype is deprecated; rather than "
             "dtype=arr use dtype=arr.dtype.", DeprecationWarning)
        return self.aval.dtype

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
                   copy: bool | None = None) -> Any:
        """The capsule of an array on one device. Raises BufferError for what JAX cannot export
        either.
        """
        count = self.sharding.num_devices
        if count > 1:
            raise BufferError(
                "to_dlpack can only pack a dlpack tensor from an array on a singular device, but "
                f"an array with a Sharding over {count} devices was provided.")
        if max_version is not None and tuple(max_version) < _OLDEST_DLPACK:
            raise BufferError(f"JAX does not support any version below {_OLDEST_DLPACK} but "
                              f"version ({tuple(max_version)}) was requested.")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(
                "The device specification passed to to_dlpack contains an unsupported device "
                f"type (DLDeviceType: {dl_device[0]})")
        data = np.asarray(self)
        if max_version is None or tuple(max_version) < (1, 0):
            # These versions cannot say that the data is read-only, so they get a copy.
            return data.copy().__dlpack__(stream=stream)
        return data.__dlpack__(stream=stream, max_version=max_version, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        if self.sharding.num_devices > 1:
            raise BufferError("__dlpack__ only supported for unsharded arrays.")
        return np.empty(0).__dlpack_device__()

    def __buffer__(self, flags: int) -> memoryview:
        """The data as a read-only buffer (PEP 688; Python 3.12 and later call it)."""
        return memoryview(self._exported(flags))  # type: ignore[arg-type]

    def _exported(self, flags: int) -> np.ndarray:
        """The memory that a buffer exposes. Raises BufferError if it is not in one piece."""
        if self.is_deleted():
            raise BufferError("INVALID_ARGUMENT: Array is null")
        if self.sharding.num_devices > 1:
            raise BufferError("INVALID_ARGUMENT: Python buffer protocol is only defined for "
                              "buffers with a single shard.")
        dtype = self.aval.dtype
        if is_extended(dtype) or dtype.kind not in "biufc":
            raise BufferError(f"INVALID_ARGUMENT: Buffers of type {_xla_name(dtype)} are not "
                              "supported by the Python buffer protocol.")
        if flags & _STRIDES == _STRIDES and not flags & _CONTIGUOUS:
            return self.value
        value = np.asarray(self.value, order="C")
        value.flags.writeable = False
        return value

    def unsafe_buffer_pointer(self) -> int:
        """Address of the data in bytes.

        Raises JaxRuntimeError if there are several devices, or the array was deleted.
        """
        if self.is_deleted():
            raise JaxRuntimeError(
                "INVALID_ARGUMENT: UnsafeBufferPointer( called on deleted or donated buffer")
        if self.sharding.num_devices > 1:
            raise JaxRuntimeError("INVALID_ARGUMENT: UnsafeBufferPointer() is supported only for "
                                  "unsharded arrays.")
        return self.value.__array_interface__["data"][0]

    # -- numbers of Python ---------------------------------------------------------------------
    __hash__ = None  # type: ignore[assignment]

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError(
            "JAX arrays are immutable and do not support in-place item assignment. Instead of "
            "x[idx] = y, use x = x.at[idx].set(y) or another .at[] method: "
            "https://docs.jax.dev/en/latest/_autosummary/jax.numpy.ndarray.at.html")

    def __len__(self) -> int:
        if not self.aval.shape:
            raise TypeError("len() of unsized object")
        return self.aval.shape[0]

    def __bool__(self) -> bool:
        check_bool(self.aval)
        return bool(self.value)

    def _scalar(self) -> np.ndarray:
        check_scalar(self.aval)
        return np.asarray(self)

    def __int__(self) -> int:
        return int(self._scalar())

    def __float__(self) -> float:
        return float(self._scalar())

    def __complex__(self) -> complex:
        return complex(self._scalar())

    def __index__(self) -> int:
        check_index(self.aval)
        return operator.index(int(self.value))

    def item(self, *args: Any) -> Any:
        """The element at `args` (not needed if there is one) as a Python number."""
        element = np.asarray(self).item(*args)
        return element if isinstance(element, PYTHON_NUMBERS) else python_number(element)

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers."""
        return np.asarray(self).tolist()

    def tobytes(self, order: Any = "C") -> bytes:
        """The bytes of the elements, one after the other."""
        return np.asarray(self).tobytes(order)

    # -- text ----------------------------------------------------------------------------------
    def __repr__(self) -> str:
        self._check_if_deleted()
        return _repr(self)

    def __str__(self) -> str:
        self._check_if_deleted()
        return str(self.value) if self._prints_value() else _repr(self)

    def __format__(self, spec: str) -> str:
        self._check_if_deleted()
        if not self._prints_value():
            return format(_repr(self), spec)
        return format(self.value if self.aval.shape else self.value[()], spec)

    def _repr_html_(self) -> str:
        self._check_if_deleted()
        return visualize.array_html(self)

    def _prints_value(self) -> bool:
        return not is_extended(self.aval.dtype) and _shows_value(self)


def _xla_name(dtype: Any) -> str:
    """The compiler's name of a dtype that buffers do not have: BF16, S4, F8E4M3FN."""
    name = dtype.name.upper()
    for long, short in (("BFLOAT", "BF"), ("FLOAT", "F"), ("UINT", "U"), ("INT", "S")):
        if name.startswith(long):
            return name.replace(long, short, 1).replace("_", "")
    return name


# -- `memoryview(x)` on CPython 3.11 --------------------------------------------------------------
# Its classes cannot say how they export a buffer: from 3.12 on the interpreter calls `__buffer__`
# (PEP 688), before, only the C slot of the type counts. Here it is filled with a function that lets
# the numpy array behind an array fill in the request, which then also owns it. Where there is no
# such numpy array (values on several devices, bfloat16), readers without another way report a
# SystemError. Layout of types: CPython, Include/cpython/object.h (3.11).

_SLOT = 20          # words before tp_as_buffer in a type object
_GET_BUFFER = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p, ctypes.c_int)
_REFERENCED: list[Any] = []       # what C holds pointers to


def _get_buffer(x: Any, request: int, flags: int) -> int:
    try:
        return ctypes.pythonapi.PyObject_GetBuffer(
            ctypes.py_object(x._exported(flags)), ctypes.c_void_p(request), flags)
    except BaseException:
        return -1


def export_buffers(cls: type) -> None:
    """Let instances of `cls` be read as buffers, by its method `__buffer__`."""
    if sys.implementation.name != "cpython" or sys.version_info[:2] != (3, 11):
        return
    function = _GET_BUFFER(_get_buffer)
    _REFERENCED.append(function)
    word = ctypes.sizeof(ctypes.c_void_p)
    procs = ctypes.c_void_p.from_address(id(cls) + _SLOT * word).value
    if procs:
        ctypes.c_void_p.from_address(procs).value = ctypes.cast(function, ctypes.c_void_p).value


# -- text, as JAX prints it: `Array([0., 1.], dtype=float32)` -------------------------------------
# Values are shown where this process can see them and they are values: a partial sum shows its
# sharding instead, random keys their words.

_PREFIX = "Array("


def _shows_value(x: HostView) -> bool:
    """Is there a value that this process can print?"""
    if _is_pending(x):
        return False
    return x.is_fully_addressable or (
        x.is_fully_replicated and bool(x.sharding.addressable_devices))


def _is_pending(x: HostView) -> bool:
    sharding = x.sharding
    return isinstance(sharding, NamedSharding) and bool(sharding.spec.unreduced)


def _repr(x: HostView) -> str:
    """The text of an array, as JAX has it: its elements, or its shape where they are not all known
    here.
    """
    aval = x.aval
    if is_extended(aval.dtype):
        words = key_words(x.value) if _shows_value(x) else f"shape={aval.shape}"
        return f"Array({aval.shape}, dtype={aval.dtype.name}) overlaying:\n{words}"
    tail = f"dtype={long_name(aval.dtype)}" + (", weak_type=True" if aval.weak_type else "")
    if _is_pending(x):
        return f"Array(shape={aval.shape}, {tail}, sharding={x.sharding})"
    if not _shows_value(x):
        return f"Array(shape={aval.shape}, {tail})"
    width = np.get_printoptions()["linewidth"]
    if aval.size == 0:
        body = f"[], shape={aval.shape}"
    else:
        body = np.array2string(x.value, prefix=_PREFIX, suffix=",", separator=", ",
                               max_line_width=width)
    last_line = len(body) - (body.rfind("\n") + 1)
    fits = last_line + 2 + len(tail) + 2 <= width
    return f"{_PREFIX}{body},{' ' if fits else ' ' * len(_PREFIX)}{tail})"
