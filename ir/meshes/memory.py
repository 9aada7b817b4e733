"""Memory spaces: whether a value's type says device or host memory.

A sharding names a kind of memory that devices have (`device`, `pinned_host`, `unpinned_host`); a
type only knows which of two spaces that is. In simulation both are the same memory: a space affects
types, what may be combined, and where results are reported to be.
"""

from __future__ import annotations

import enum

__all__ = ["MemorySpace", "kind_of_space", "space_of_kind"]


class MemorySpace(enum.StrEnum):
    """Device memory, host memory, or either; `memory.Space` for users.

    >>> import shardtrace as st
    >>> x = st.device_put(np.ones((4, 2), np.float32), st.memory.Space.Host)
    >>> st.typeof(x), x.sharding.memory_kind
    (ShapedArray(float32<host>[4,2]), 'pinned_host')
    """

    Device = "device"
    Host = "host"
    Any = "any"

    def __repr__(self) -> str:
        return f"MemorySpace.{self.name}"

    __str__ = __repr__
    __hash__ = str.__hash__  # a space and its word are one key


DEVICE = MemorySpace.Device


def space_of_kind(kind: str | None) -> MemorySpace:
    """The space that types say for a memory kind of a sharding."""
    return MemorySpace.Host if kind == "pinned_host" else DEVICE


def kind_of_space(space: MemorySpace) -> str:
    """The memory kind of arrays in this space. Raises ValueError for `Any`, which is none."""
    if space is MemorySpace.Any:
        raise ValueError("an array is in device or in host memory; MemorySpace.Any is neither")
    return "pinned_host" if space is MemorySpace.Host else "device"
