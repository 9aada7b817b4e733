"""Arguments of a computation: what a cached executable depends on, and their values as stored."""
from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from ...arrays.array import ArrayImpl
from ...arrays.processes.coordinator import current_coordinator
from ...arrays.storage import LocalBlocks, Stored, memory_of, new_stored, on_mesh
from ...ir.meshes.mesh import Mesh
from ...ir.shardings.sharding import Sharding
from ...ir.types import ArrayType
from ...ir.values.array import Array
from ...ir.values.shape_struct import ShapeDtypeStruct
from ...ir.values.typeof import canonical_value, typeof
from ...tracer.staging.tracer import Tracer


def placed_sharding(x: Any) -> Sharding | None:
    """The sharding that binds a computation to devices, or None where `x` may go anywhere."""
    if isinstance(x, ArrayImpl):
        return x.sharding if x.committed else None
    if isinstance(x, ShapeDtypeStruct):
        sharding = x.sharding
        return sharding if isinstance(sharding, Sharding) else None
    return None


_KEY = attrgetter("_key")


def leaf_key(x: Any) -> Any:
    """What a cached executable depends on, of one argument."""
    if type(x) is ArrayImpl:
        return x.key
    return (x if isinstance(x, ArrayType) else typeof(x), placed_sharding(x))


def leaf_keys(leaves: Sequence[Any]) -> tuple[Any, ...]:
    """What a cached executable depends on, of all arguments: compared by identity where they are
    arrays.
    """
    try:
        return tuple(map(_KEY, leaves))
    except AttributeError:             # numbers and numpy arrays among them
        return tuple(map(leaf_key, leaves))


def stored_value(x: Any, mesh: Mesh | None = None) -> Any:
    """The value in the form that executors take. mesh: of the computation; it names stacked axes.
    """
    if isinstance(x, ArrayImpl):
        whole = getattr(x, "_whole", None)
        if whole is not None:
            return new_stored((whole, ()))
        storage = x.storage
        if type(storage) is LocalBlocks:
            if current_coordinator() is None:
                return Stored(x.value)       # raises where blocks are missing
            return storage
        if mesh is not None and getattr(storage, "lead", ()):
            own = on_mesh(x.sharding).mesh  # type: ignore[attr-defined]
            if own is not mesh and own.shape != mesh.shape:
                return Stored(x.value, ())
        return storage
    if isinstance(x, Tracer):
        return stored_value(x.builder.outside(x), mesh)
    if isinstance(x, Array):
        return Stored(np.asarray(x, x.dtype), ())       # a number of a derivative
    return Stored(canonical_value(x), ())


def host_memory(leaves: Sequence[Any], values: Sequence[Any]) -> set[int]:
    """Whose memory those arguments lie in that are numpy arrays of the caller."""
    return {memory_of(v.data) for x, v in zip(leaves, values, strict=True)
            if isinstance(x, np.ndarray)}
