"""`memoryview(x)` on CPython 3.11, whose classes cannot say yet how they export a buffer.

From 3.12 on, the interpreter calls `__buffer__` (PEP 688). Before, only the C slot of the type
counts; here it is filled with a function that lets the numpy array behind an array fill in the
request, which then also owns it. Where there is no such numpy array (values on several devices,
bfloat16), readers without another way report a SystemError, not the message that 3.12 shows.

Layout of types: CPython, Include/cpython/object.h (3.11).
"""
from __future__ import annotations

import ctypes
import sys
from typing import Any

_SLOT = 20          # words before tp_as_buffer in a type object
_GET_BUFFER = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p, ctypes.c_int)
_kept: list[Any] = []       # what C holds pointers to


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
    _kept.append(function)
    word = ctypes.sizeof(ctypes.c_void_p)
    procs = ctypes.c_void_p.from_address(id(cls) + _SLOT * word).value
    if procs:
        ctypes.c_void_p.from_address(procs).value = ctypes.cast(function, ctypes.c_void_p).value
