"""From Python values to arrays: array, asarray, copy, frombuffer, load, and back to text."""
from __future__ import annotations

import os
from typing import Any

import numpy as np

from ....ir.diagnostics.diagnostic import fail
from ....ir.dtypes import ExtendedDType, dtype_of, float0, lattice_result_type
from ....ir.meshes.device import Device
from ....ir.ops.communication.sharding import reshard_p
from ....ir.ops.elementwise.comparison import ne_p
from ....ir.ops.elementwise.identity import copy_p
from ....ir.settings.context import STATE, x64_enabled
from ....ir.shardings.sharding import Sharding
from ....ir.source.wording import warn
from ....ir.values.array import Array
from ....ir.values.typeof import refuse_masked
from ... import lax, sharding_notes
from ...lax.conversion import convert_quietly
from ...operands.dtype_promotion import convert, dtype_and_weak, user_dtype
from ...operands.scalars import LEVEL
from ...shardings.out_sharding import placement
from ...staging.constants import as_array, put_on_device, unwrapped
from ...staging.tracer import Tracer

__all__ = [
    "array", "array_repr", "array_str", "asarray", "astype", "copy", "frombuffer", "fromfile",
    "fromiter", "fromstring", "load", "save", "savez", "set_printoptions",
]
_PYTHON = (bool, int, float, complex)


def array(object, dtype=None, *args, copy=True, order="K", ndmin=0, device=None,
          out_sharding=None):
    """An array made of a number, an array, or nested sequences of these.

    dtype: by default what the elements promote to, in 32 bits unless x64 is enabled; a Python
    number stays weakly typed. copy: True copies an array, False gives it back as it is. ndmin:
    dimensions of size 1 are put in front up to this rank. device, out_sharding: where it shall lie.
    Raises TypeError for what is no number or array, ValueError for sequences of unequal lengths.

    Sharding
      Auto: an array keeps its layout; values of the host lie on the default device, uncommitted.
      Explicit: an array keeps its sharding unless `out_sharding` is given; other values are whole.
      Manual: values of the host are the same on every device; they vary over no axis.

    >>> jnp.array([[1, 2], [3, 4]])
    Array([[1, 2],
           [3, 4]], dtype=int32)
    >>> jnp.array([1, 2.5]), jnp.array(3).weak_type
    (Array([1. , 2.5], dtype=float32), True)
    """
    if args:
        raise TypeError(f"jax.numpy.array() takes from 1 to 2 positional arguments but "
                        f"{2 + len(args)} were given")
    if object is None:
        raise ValueError("None is not a valid value for jnp.array")
    if order is not None and order != "K":
        raise NotImplementedError("Only implemented for order='K'")
    if dtype is not None and not isinstance(dtype, ExtendedDType):
        dtype = user_dtype(dtype, "array")
    object = unwrapped(object)
    out = _array_from(object, dtype, copy)
    if ndmin > out.ndim:
        out = lax.expand_dims(out, tuple(range(ndmin - out.ndim)))
    device, sharding = placement(device, out_sharding, "jnp.array", out.ndim)
    if sharding is not None and isinstance(object, np.ndarray) and dtype is None and not copy:
        warn("jnp.asarray(a, out_sharding=...) of a numpy array leaves it whole, as in "
             "JAX. `jnp.array` lays it out as asked.")
        sharding = None
    if sharding is not None and out.aval.sharding is not sharding:
        out = reshard_p.bind(out, dst_sharding=sharding)
    if isinstance(device, (Device, Sharding)) and STATE.interpreter is None:
        _check_stays(out, device)
    return put_on_device(out, device)


def _check_stays(x: Any, device: Device | Sharding) -> None:
    """Raise where `device=` would move an array from the devices that it is committed to."""
    if not getattr(x, "committed", False):
        return
    own_ids = [d.id for d in x.sharding.device_assignment]
    wanted = (device,) if isinstance(device, Device) else device.device_assignment
    wanted_ids = [d.id for d in wanted]
    if own_ids != wanted_ids:
        fail(ValueError,
             "Received incompatible devices for jitted computation. Got argument args[0] of "
             f"convert_element_type with shape {x.aval.update(sharding=None).str_short()} and with "
             f"device ids {own_ids} on platform CPU and sharding_constraint inside jit with device "
             f"ids {wanted_ids} on platform CPU", code="incompatible-devices",
             help="move the array with `device_put`")


def _array_from(object: Any, dtype: Any, copy: bool) -> Array:
    """An array of whatever Python object, by its class. copy: whether an array is copied."""
    if isinstance(object, Array):
        out = copy_p.bind(object) if copy else object
        return out if dtype is None else convert(out, dtype)
    if dtype == float0 and not isinstance(object, (np.ndarray, np.generic)):
        return np.array(object, float0)         # type: ignore[return-value]
    if type(object) is int and isinstance(dtype, np.dtype):
        return as_array(np.asarray(object, dtype)[()])      # raises where it does not fit
    if type(object) in _PYTHON:
        return as_array(object if dtype is None else convert(object, dtype))
    if isinstance(object, (np.ndarray, np.generic)):
        refuse_masked(object)
        value = np.asarray(object)
        dtype_of(value, x64_enabled())          # raises for strings and objects
        return as_array(value if dtype is None else value.astype(dtype))
    if isinstance(object, (list, tuple)):
        return _from_sequence(object, dtype)
    if isinstance(object, _PYTHON):                  # of a class of its own, such as an enum
        base: Any = next(k for k in _PYTHON if isinstance(object, k))
        return _array_from(base(object), dtype, copy)
    if isinstance(object, (bytearray, memoryview)):
        object = np.array(memoryview(object), copy=True)
    return _array_from(np.asarray(object), dtype, copy)     # of numbers where it is a sequence


def _from_sequence(values: Any, dtype: Any) -> Array:
    leaves = list(_leaves(values))
    if dtype is None:
        dtype = lattice_result_type([dtype_and_weak(x) for x in leaves], x64_enabled())[0] \
            if leaves else np.dtype("float32")
    if not any(isinstance(x, Array) for x in leaves):
        return as_array(np.array(values, dtype=dtype))
    return _stacked(values, dtype)


def _leaves(values: Any) -> Any:
    for v in values:
        if isinstance(v, (list, tuple)):
            yield from _leaves(v)
        else:
            if v is None:
                raise ValueError("None is not a valid value for jnp.array")
            v = unwrapped(v)
            if not isinstance(v, (Array, np.ndarray, np.generic, *_PYTHON)):
                v = np.asarray(v)
                dtype_of(v, x64_enabled())          # raises for strings and objects
            yield v


def _stacked(values: Any, dtype: Any) -> Array:
    """Nested lists that hold arrays: joined along new dimensions, constants in one piece."""
    if not isinstance(values, (list, tuple)):
        return _array_from(unwrapped(values), dtype, copy=False)
    if not any(isinstance(x, Array) for x in _leaves(values)):
        return as_array(np.array(values, dtype=dtype))
    parts = [_stacked(v, dtype) for v in values]
    rows = [lax.expand_dims(p, (0,)) for p in parts]
    return lax.concatenate(rows, 0)


def asarray(a, dtype=None, order=None, *, copy=None, device=None, out_sharding=None):
    """An array made of a number, an array or nested sequences, without a needless copy.

    copy: False raises ValueError where a copy is needed, as it is for numpy arrays.

    Sharding
      Auto: an array keeps its layout; values of the host lie on the default device, uncommitted.
      Explicit: an array keeps its sharding unless `out_sharding` is given; other values are whole.
      Manual: values of the host are the same on every device; they vary over no axis.

    >>> x = jnp.ones(3)
    >>> jnp.asarray(x) is x, jnp.asarray([1, 2])
    (True, Array([1, 2], dtype=int32))
    """
    a = unwrapped(a)
    if copy is False and not isinstance(a, (Array, bool, int, float, complex)):
        raise ValueError("jnp.asarray: cannot convert an input that is no JAX array without a "
                         "copy, as copy=False asks")
    if order is None:
        order = "K"
    return array(a, dtype, copy=bool(copy), order=order, device=device, out_sharding=out_sharding)


@sharding_notes.elementwise
def astype(x, dtype, /, *, copy=False, device=None):
    """The elements of `x` as another dtype; also written `x.astype(dtype)`.

    dtype: None means float32. Floats are cut to integers towards zero; bool means "not zero".

    >>> jnp.astype(jnp.array([1.7, -1.7]), jnp.int32)
    Array([ 1, -1], dtype=int32)
    """
    x = as_array(x)
    if dtype is None:
        dtype = np.dtype("float64" if x64_enabled() else "float32")
    if isinstance(dtype, ExtendedDType):
        return put_on_device(convert(x, dtype), device)
    dtype = user_dtype(dtype, "astype")
    if np.dtype(dtype) == np.dtype(bool) and isinstance(x.dtype, np.dtype) and x.dtype.kind == "c":
        out = ne_p.bind(x, convert(0, x.dtype))
    else:
        if LEVEL.get(x.dtype) == 3 and LEVEL[dtype] < 3:
            warn("Casting from complex to real dtypes will soon raise a ValueError. "
                 "Please first use jnp.real or jnp.imag to take the real/imaginary "
                 "component of your input.", DeprecationWarning)
        out = convert_quietly(x, dtype)
    if copy and out is x:
        out = copy_p.bind(x)
    return put_on_device(out, device)


def copy(a, order=None):
    """A copy of an array, laid out as the array is; numbers and sequences become arrays."""
    return array(a, copy=True, order="K" if order is None else order)


# -- bytes, files and text -------------------------------------------------------------------------

def frombuffer(buffer, dtype=float, count=-1, offset=0):
    """A vector of the bytes of a buffer, read as numbers of `dtype`."""
    return as_array(np.frombuffer(buffer, user_dtype(dtype, "frombuffer"), count, offset).copy())


def fromstring(string, dtype=float, count=-1, *, sep):
    """A vector of the numbers that a text holds, separated by `sep`."""
    return as_array(np.fromstring(string, user_dtype(dtype, "fromstring"), count, sep=sep))


def load(file: str | os.PathLike, *args: Any, **kwargs: Any) -> Any:
    """The array in an `.npy` file, or the arrays in an `.npz` file."""
    out = np.load(file, *args, **kwargs)
    return as_array(out) if isinstance(out, np.ndarray) else out


def save(file, arr, allow_pickle=True):
    """Write an array to a `.npy` file, as numpy does; `load` reads it again."""
    np.save(file, np.asarray(arr), allow_pickle=allow_pickle)


def savez(file, *args, allow_pickle=True, **kwds):
    """Write several arrays to one `.npz` file, as numpy does; `load` reads it again."""
    np.savez(file, *map(np.asarray, args), allow_pickle=allow_pickle,
             **{k: np.asarray(v) for k, v in kwds.items()})


def array_repr(arr, max_line_width=None, precision=None, suppress_small=None):
    """The text of `repr(arr)`, with numpy's options for width, digits and small numbers."""
    if isinstance(arr, Tracer):
        return repr(arr)
    return np.array_repr(np.asarray(arr), max_line_width, precision, suppress_small)


def array_str(a, max_line_width=None, precision=None, suppress_small=None):
    """The text of `str(a)`, with numpy's options for width, digits and small numbers."""
    if isinstance(a, Tracer):
        return str(a)
    return np.array_str(np.asarray(a), max_line_width, precision, suppress_small)


def fromfile(*args, **kwargs):
    """Not offered: reading a file is not a pure function. Raises NotImplementedError."""
    raise NotImplementedError(
        "jnp.fromfile() is not implemented because it may be non-pure and thus unsafe for use with "
        "JIT and other JAX transformations. Consider using jnp.asarray(np.fromfile(...)) instead, "
        "although care should be taken if np.fromfile is used within jax transformations because "
        "of its potential side-effect of consuming the file object.")


def fromiter(*args, **kwargs):
    """Not offered: using up an iterator is not a pure function. Raises NotImplementedError."""
    raise NotImplementedError(
        "jnp.fromiter() is not implemented because it may be non-pure and thus unsafe for use with "
        "JIT and other JAX transformations. Consider using jnp.asarray(np.fromiter(...)) instead, "
        "although care should be taken if np.fromiter is used within jax transformations because "
        "of its potential side-effect of consuming the iterable object.")


def set_printoptions(*args, **kwargs):
    """How arrays are printed; arguments are those of `numpy.set_printoptions`."""
    np.set_printoptions(*args, **kwargs)
