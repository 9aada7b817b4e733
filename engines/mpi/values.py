"""Host values as bytes and back: JSON, followed by the data of arrays."""
from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np

from ...ir.diagnostics.diagnostic import fail
from ...ir.support.lazy import lazy_import

json = lazy_import("json")
_ALIGNED = 16


def encode(value: Any) -> bytes:
    """Numbers, text, arrays, and tuples, lists and dicts of them. TypeError for anything else."""
    arrays: list[np.ndarray] = []
    head = json.dumps(_plain(value, arrays)).encode()
    parts = [struct.pack("<Q", len(head)), head]
    size = 8 + len(head)
    for a in arrays:
        gap = -size % _ALIGNED
        parts += [bytes(gap), data_of(a)]
        size += gap + a.nbytes
    return b"".join(parts)


def decode(data: np.ndarray) -> Any:
    """The value of these bytes; its arrays are views of them."""
    (size,) = struct.unpack("<Q", data[:8].tobytes())
    at = 8 + size

    def built(node: Any) -> Any:
        nonlocal at
        if not isinstance(node, list):
            return node
        kind, *rest = node
        if kind in ("tuple", "list"):
            return (tuple if kind == "tuple" else list)(built(x) for x in rest)
        if kind == "dict":
            return {built(k): built(v) for k, v in rest}
        dtype, shape = _dtype(rest[0]), tuple(rest[1])
        at += -at % _ALIGNED
        count = math.prod(shape) * dtype.itemsize
        found = data[at:at + count].view(dtype).reshape(shape)
        at += count
        return found if kind == "array" else found[()]

    return built(json.loads(data[8:at].tobytes()))


def data_of(a: np.ndarray) -> np.ndarray:
    """The bytes of an array, without a copy where it is contiguous."""
    return np.ascontiguousarray(a).reshape(-1).view(np.uint8)


def _plain(x: Any, arrays: list[np.ndarray]) -> Any:
    """A value as JSON has it; arrays go into `arrays`, in the order in which they are found."""
    if x is None or type(x) in (bool, int, float, str):
        return x
    if type(x) in (tuple, list):
        return [type(x).__name__, *[_plain(v, arrays) for v in x]]
    if type(x) is dict:
        return ["dict", *[(_plain(k, arrays), _plain(v, arrays)) for k, v in x.items()]]
    if isinstance(x, (np.ndarray, np.generic)) and not x.dtype.hasobject:
        arrays.append(np.asarray(x))
        kind = "array" if isinstance(x, np.ndarray) else "number"
        return [kind, _name(x.dtype), list(x.shape)]
    fail(TypeError, f"a value of {type(x)} cannot be sent to another process", code="mpi-value",
         help="send numbers, text and arrays, in tuples, lists and dicts")


def _name(dtype: np.dtype) -> Any:
    if dtype.names:                                  # random keys
        (name,) = dtype.names
        return [name, list(dtype[name].shape)]
    return dtype.name if dtype.kind not in "SUmM" else dtype.str


def _dtype(name: Any) -> np.dtype:
    if isinstance(name, list):
        return np.dtype([(name[0], np.uint32, tuple(name[1]))])
    return np.dtype(name)
