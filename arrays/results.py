"""Result arrays of a computation, constructed in bulk."""
from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from ..ir.shardings.sharding import Sharding
from ..ir.types import ArrayType
from .array import ArrayImpl
from .keys import ArrayKey
from .live import remember
from .storage import Stored

Described = tuple[ArrayType, Sharding, ArrayKey]
_WHOLE = attrgetter("_whole")


def results(described: Sequence[Described], stored: Sequence[Any],
            committed: bool) -> list[ArrayImpl]:
    """Arrays of these types, shardings and keys, row-major, as results of a computation.

    stored: for each its storage, or the bare data where that is one array for all devices.
    """
    new, out = object.__new__, []
    for (aval, sharding, key), data in zip(described, stored, strict=True):
        x = new(ArrayImpl)
        x.aval = aval
        x._sharding = sharding
        x._committed = committed
        x._key = key
        x._layout = x._npy_value = x._shards = None
        if type(data) is np.ndarray:
            x._whole = data
        elif type(data) is Stored and not data[1]:
            x._whole = data[0]
        else:
            x._other = data
        out.append(x)
    remember(out)
    return out


def all_held(arrays: Iterable[ArrayImpl]) -> bool:
    """Do all of these have their data in one array? A quick test; where it fails, ask each."""
    try:
        collections.deque(map(_WHOLE, arrays), maxlen=0)
    except AttributeError:
        return False
    return True
