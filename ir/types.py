"""The type of a value: dtype, weak flag, global shape, sharding, and what varies over manual axes.

Printed as JAX prints it. On a mesh (X=2, Y=4):

    f32[8@X,4]            8 rows split along X, columns whole
    f32[8@(X,Y),4]        rows split along X, each part along Y
    f32[8,4]{U:X}         unreduced: the value is the sum over X of what the devices hold
    f32[4,4]{V:X}         varying: inside shard_map, the block may differ along X

Types are immutable and interned: equal types are the same object, so comparing types is `is`, and
whatever is computed from types (inferred results, local shapes) is cached by identity. All axis
names in a type's spec are Explicit axes of its mesh; Auto and Manual axes are dropped when the type
is made, because what is open or local is not part of the type (Auto) or is in the shape (Manual).
"""
from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import numpy as np

from .diagnostics.diagnostic import fail
from .diagnostics.errors import IndivisibleError
from .dtypes import ExtendedDType, long_name, short_name, tangent_dtype
from .meshes.manual_state import NOT_MANUAL, ManualState, set_text
from .meshes.memory import DEVICE, MemorySpace
from .meshes.mesh import AbstractMesh, AxisType, empty_abstract_mesh
from .rules.factor_axes import axis_set
from .shardings.normalized import normalized_sharding, unsharded
from .shardings.sharding import NamedSharding
from .spec import PartitionSpec, parse_axis
from .support.interning import Immutable, InternTable

Shape = tuple[int, ...]
Entries = tuple[tuple[str, ...], ...]


class ArrayType(Immutable):
    """The sharded type of an array value: what users know as `core.ShapedArray`.

    Equal types are one object. Making one here checks what users write; `array_type` is for the
    package itself. Raises TypeError for shapes that are none, ValueError where the sharding does
    not fit or names devices.

    >>> mesh = st.sharding.AbstractMesh((4,), ("x",), (st.sharding.AxisType.Explicit,))
    >>> t = st.core.ShapedArray((8, 2), jnp.float32, sharding=st.NamedSharding(mesh, P("x")))
    >>> t.str_short(True), t is t.update(shape=(8, 2)), t.update(shape=(4, 3))
    ('f32[8@x,2]', True, ShapedArray(float32[4@x,3]))

    shape: global shape (local to the manual axes inside shard_map).
    sharding: a NamedSharding over an AbstractMesh, its spec padded to full rank; mesh: that mesh,
    which is empty where there is none.
    manual: varying, unreduced and reduced Manual axes.
    entries: the spec with every dimension as a tuple of axis names, () where it is whole.
    """

    __slots__ = ("__weakref__", "_text", "dtype", "entries", "manual", "memo", "memory_space",
                 "mesh", "ndim", "shape", "sharding", "weak_type")
    shape: Shape
    ndim: int
    dtype: np.dtype
    weak_type: bool
    sharding: NamedSharding
    mesh: AbstractMesh
    manual: ManualState
    memory_space: MemorySpace
    entries: Entries
    memo: dict[Any, Any]

    def __new__(cls, shape: Any, dtype: Any, weak_type: bool = False, *,
                sharding: NamedSharding | None = None, manual_axis_type: ManualState | None = None,
                memory_space: MemorySpace = MemorySpace.Device) -> ArrayType:
        return checked_type(shape, dtype, weak_type, sharding, manual_axis_type, memory_space)

    # -- parts -------------------------------------------------------------------------------
    @property
    def size(self) -> int:
        """Number of elements."""
        n = 1
        for d in self.shape:
            n *= d
        return n

    @property
    def nbytes(self) -> int:
        """Bytes of the whole (global) value."""
        return self.size * self.dtype.itemsize

    @property
    def spec(self) -> PartitionSpec:
        """The spec of the sharding, one entry for each dimension."""
        return self.sharding.spec

    @property
    def varying(self) -> frozenset[str]:
        """The Manual axes along which devices may hold different values."""
        return self.manual.varying

    vma = varying  # the name of this set in JAX's documents

    @property
    def mat(self) -> ManualState:
        """`manual`, under its name in JAX."""
        return self.manual

    @property
    def manual_axis_type(self) -> ManualState:
        """`manual`, under the name that it has in JAX."""
        return self.manual

    @property
    def unreduced(self) -> frozenset[str]:
        """Axes over which the value is a pending sum, of both explicit and manual axes."""
        return self.sharding.spec.unreduced | self.manual.unreduced

    @property
    def reduced(self) -> frozenset[str]:
        """Axes over which gradients of the value are pending sums."""
        return self.sharding.spec.reduced | self.manual.reduced

    def has_explicit_mesh(self) -> bool:
        """Does the mesh have an axis whose sharding is part of the type?"""
        return bool(self.sharding.mesh.explicit_axes)

    # -- derived types -----------------------------------------------------------------------
    def update(self, **changes: Any) -> ArrayType:
        """A type with some of shape, dtype, weak_type, sharding, manual, memory_space replaced.

        `manual` may also be called manual_axis_type. Raises TypeError for other names.
        """
        if "manual_axis_type" in changes:
            changes["manual"] = changes.pop("manual_axis_type")
        fields = {"shape": self.shape, "dtype": self.dtype, "weak_type": self.weak_type,
                  "sharding": self.sharding, "manual": self.manual,
                  "memory_space": self.memory_space}
        for name in changes:
            if name not in fields:
                raise TypeError(f"a type has no field {name!r}")
        fields.update(changes)
        return array_type(**fields)

    def strong(self) -> ArrayType:
        """This type without its weakness: its dtype does not give way to another."""
        return self.update(weak_type=False) if self.weak_type else self

    def to_tangent_aval(self) -> ArrayType:
        """The type of its tangents: itself, or of float0 for values that have none."""
        dtype = tangent_dtype(self.dtype)
        return self if dtype == self.dtype else self.update(dtype=dtype, weak_type=False)

    def local_shape(self) -> Shape:
        """The shape of one device's block, rounded up where an axis does not divide."""
        memo = self.memo
        if "local_shape" not in memo:
            mesh = self.sharding.mesh
            sizes = list(self.shape)
            for d, axes in enumerate(self.entries):
                for axis in axes:
                    sizes[d] = -(-sizes[d] // mesh.axis_size(axis))
            memo["local_shape"] = tuple(sizes)
        return memo["local_shape"]

    @property
    def local_size(self) -> int:
        """Number of elements of one device's block."""
        n = 1
        for d in self.local_shape():
            n *= d
        return n

    @property
    def local_nbytes(self) -> int:
        """Bytes of one device's block."""
        memo = self.memo
        if "local_nbytes" not in memo:
            memo["local_nbytes"] = self.local_size * self.dtype.itemsize
        return memo["local_nbytes"]

    # -- text --------------------------------------------------------------------------------
    def str_short(self, short_dtypes: bool = False, mesh_axis_types: bool = False) -> str:
        """`f32[8@X,2]` (short) or `float32[8@X,2]`, with `({Explicit: ('X',)})` if asked."""
        key = (short_dtypes, mesh_axis_types)
        text = self._text.get(key)
        if text is None:
            name = short_name(self.dtype) if short_dtypes else long_name(self.dtype)
            space = "" if self.memory_space is DEVICE else f"<{self.memory_space.value}>"
            dims = ",".join(_dim_text(n, a) for n, a in zip(self.shape, self.entries, strict=True))
            text = f"{name}{space}[{dims}]{self._state_text()}"
            if mesh_axis_types:
                text += mesh_info(self.mesh)
            self._text[key] = text
        return text

    def _state_text(self) -> str:
        parts = []
        order = self.mesh.axis_names
        for letter, axes in (("V", self.varying), ("U", self.unreduced), ("R", self.reduced)):
            if axes:
                names = sorted(axes, key=lambda a: _mesh_position(order, a))
                listed = names[0] if len(names) == 1 else "(" + ",".join(names) + ")"
                parts.append(f"{letter}:{listed}")
        return "{" + ", ".join(parts) + "}" if parts else ""

    def __str__(self) -> str:
        return ("~" if self.weak_type else "") + self.str_short()

    def __repr__(self) -> str:
        weak = ", weak_type=True" if self.weak_type else ""
        return f"ShapedArray({self.str_short()}{weak})"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("types are immutable; use .update(...)")

    def __reduce__(self):
        return array_type, (self.shape, self.dtype, self.weak_type, self.sharding, self.manual,
                            self.memory_space)


def _mesh_position(order: tuple[str, ...], axis: str) -> tuple[int, int]:
    base, pre, _ = parse_axis(axis)
    return (order.index(base) if base in order else len(order), pre)


def _dim_text(size: int, axes: tuple[str, ...]) -> str:
    if not axes:
        return str(size)
    return f"{size}@{axes[0]}" if len(axes) == 1 else f"{size}@({','.join(axes)})"


def mesh_info(mesh: AbstractMesh) -> str:
    """`({Explicit: ('X',), Auto: ('Y',)})`: the axis types, in order of first appearance."""
    kinds: dict[AxisType, list[str]] = {}
    for name, kind in zip(mesh.axis_names, mesh.axis_types, strict=True):
        kinds.setdefault(kind, []).append(name)
    return "({" + ", ".join(f"{k!r}: {tuple(v)}" for k, v in kinds.items()) + "})"


# The attributes of a type, which its class does not let anybody set.
_slots: Any = ArrayType
_set_shape, _set_dtype, _set_weak_type, _set_sharding, _set_manual, _set_memory_space = (
    _slots.shape.__set__, _slots.dtype.__set__, _slots.weak_type.__set__,
    _slots.sharding.__set__, _slots.manual.__set__, _slots.memory_space.__set__)
_set_entries, _set_text_memo, _set_memo, _set_mesh, _set_ndim = (
    _slots.entries.__set__, _slots._text.__set__, _slots.memo.__set__, _slots.mesh.__set__,
    _slots.ndim.__set__)
_types: InternTable[ArrayType] = InternTable()
_known_type = _types.data.get


def array_type(shape: Shape, dtype: Any, weak_type: bool = False,
               sharding: NamedSharding | None = None, manual: ManualState = NOT_MANUAL,
               memory_space: str = DEVICE) -> ArrayType:
    """The one type with these parts.

    sharding: over an AbstractMesh, or None for a whole value on no mesh. Its spec may be shorter
      than the rank; Auto and Manual axes in it are dropped.
    Raises ValueError where an axis does not divide its dimension (blocks are rounded up only on
      meshes whose types came out of propagation, see `frozen` meshes in the partitioner).
    """
    if sharding is None:
        sharding = unsharded(len(shape))
    entry = _known_type((shape, dtype, weak_type, sharding, manual, memory_space))
    if entry is not None:
        found = entry()
        if found is not None:
            return found
    return _make(shape, dtype, weak_type, sharding, manual, memory_space)


def checked_type(shape: Any, dtype: Any, weak_type: bool, sharding: Any, manual: Any,
                 memory_space: Any) -> ArrayType:
    """The type that a user asks for, with JAX's errors (0.10.2)."""
    try:
        dims = (operator.index(shape),) if not np.iterable(shape) else tuple(
            [operator.index(n) for n in shape])
    except TypeError:
        raise TypeError("Shapes must be 1D sequences of concrete values of integer type, got "
                        f"{shape}.") from None
    for candidate in (dtype, getattr(dtype, "dtype", None)):    # scalar types such as jnp.float32
        if isinstance(candidate, (np.dtype, ExtendedDType)):
            break
    else:
        candidate = np.dtype(dtype)
    if sharding is not None:
        if not isinstance(sharding.mesh, AbstractMesh):
            raise ValueError("Mesh of an aval must be an AbstractMesh. Got "
                             f"{sharding.mesh} of type {type(sharding.mesh)}")
        if sharding.memory_kind is not None:
            raise ValueError(
                "sharding with memory_kind is not allowed. Please use `jax.device_put` to transfer "
                f"to different memory spaces. Got sharding={sharding}")
    return array_type(dims, candidate, bool(weak_type), sharding, manual or NOT_MANUAL,
                      MemorySpace(memory_space))


def _make(shape, dtype, weak_type, sharding, manual, memory_space) -> ArrayType:
    """A type that does not exist yet, checked and entered into the table. Shapes may hold integers
    of numpy's, and dtypes and memory spaces be given by name.
    """
    for n in shape:
        if type(n) is not int:
            shape = [int(n) for n in shape]
            break
    shape = tuple(shape)
    if sharding.normal_rank != len(shape):
        sharding = normalized_sharding(sharding, len(shape))
    if isinstance(dtype, type) or isinstance(dtype, str):
        dtype = np.dtype(dtype)
    if type(memory_space) is not MemorySpace:
        memory_space = MemorySpace(memory_space)
    weak_type = bool(weak_type)
    entries = sharding.spec.entries
    for axes in entries:
        if axes:
            _check_divisible(shape, entries, sharding)
            break
    if manual is not NOT_MANUAL:
        mesh = sharding.mesh
        state_axes = manual.varying | manual.unreduced | manual.reduced
        if not state_axes.issubset(mesh.manual_axes):
            manual_axes = set(mesh.manual_axes)
            if not all(parse_axis(a)[0] in manual_axes for a in state_axes):
                raise ValueError(
                    "Axes mentioned in `manual_axis_type` field of ShapedArray should be of type "
                    f"`Manual`. Got axes {set_text(state_axes)} on mesh {mesh}")
            if not manual.varying <= mesh.shape.keys():       # there are parts of axes
                whole = axis_set(manual.varying, mesh.abstract_mesh)
                if whole != manual.varying:
                    return array_type(shape, dtype, weak_type, sharding, ManualState(
                        whole, manual.unreduced, manual.reduced), memory_space)
    self = object.__new__(ArrayType)
    _set_shape(self, shape)
    _set_dtype(self, dtype)
    _set_weak_type(self, weak_type)
    _set_sharding(self, sharding)
    _set_manual(self, manual)
    _set_memory_space(self, memory_space)
    _set_entries(self, entries)
    _set_mesh(self, sharding.mesh)
    _set_ndim(self, len(shape))
    _set_text_memo(self, {})
    _set_memo(self, {})
    return _types.add((shape, dtype, weak_type, sharding, manual, memory_space), self)


def _check_divisible(shape: Shape, entries: Entries, sharding: NamedSharding) -> None:
    """Refuse a dimension that the axes over which it is split do not divide."""
    mesh = sharding.mesh
    for dim, (n, axes) in enumerate(zip(shape, entries, strict=True)):
        if not axes:
            continue
        parts = 1
        for axis in axes:
            parts *= mesh.axis_size(axis)
        if n % parts:
            fail(IndivisibleError,
                 f"Sharding spec {axes} implies that array axis {dim} is partitioned {parts} "
                 f"times, but does not evenly divide the dimension size {n}. Got shape: {shape} "
                 f"and sharding {sharding}", code="indivisible",
                 label=f"{n} elements cannot be cut into {parts} equal blocks",
                 help=f"pad dimension {dim} to {-(-n // parts) * parts} elements, or leave it "
                      "whole in the spec")


def same_type(a: ArrayType, b: ArrayType) -> bool:
    """JAX's `typematch`: equal but for weak types; specs count where both are on an Explicit mesh,
    since a value on no mesh may be used on any."""
    if a is b:
        return True
    if (a.shape != b.shape or a.dtype != b.dtype or a.manual is not b.manual
            or a.memory_space != b.memory_space):
        return False
    if a.mesh is empty_abstract_mesh or b.mesh is empty_abstract_mesh:
        return True
    if a.has_explicit_mesh() or b.has_explicit_mesh():
        return a.sharding is b.sharding
    return True


def short_list(types: Iterable[ArrayType]) -> str:
    """Types as errors list them."""
    return ", ".join(t.str_short(True) for t in types)
