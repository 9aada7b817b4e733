"""ShapeDtypeStruct: an array's type given by hand, for an array that need not exist."""
from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..dtypes import ExtendedDType, canonicalize_dtype
from ..meshes.manual_state import NOT_MANUAL, ManualAxisType
from ..meshes.mesh import AbstractMesh, Mesh
from ..settings.context import STATE, x64_enabled
from ..shardings.base_sharding import Sharding
from ..shardings.formats import AutoLayout, Format
from ..shardings.sharding import NamedSharding
from ..spec import PartitionSpec
from ..support.lazy import lazy_import
from ..types import ArrayType, array_type
from .array import Array
from .typeof import typeof

_html = lazy_import("..support.html", __package__)
_placement_html = lazy_import("..meshes.placement_html", __package__)

_set = object.__setattr__


class ShapeDtypeStruct:
    """The shape, dtype and sharding of an array that need not exist. Immutable.

    Stands for an argument in `trace`, `lower` and `eval_shape`, and says in `restore` how an array
    is to come back. sharding: a Sharding, a Format, or a PartitionSpec, whose mesh is the context
    mesh at the time when it is asked for. manual_axis_type: over which Manual axes it varies (vma:
    the same, as a set of names). Raises ValueError for a sharding that cannot be one of this shape.

    The sharding's Auto axes lay the argument out, its Explicit axes are part of the type it is
    traced with; Manual axes are named by manual_axis_type.

    >>> x = st.ShapeDtypeStruct((8, 4), jnp.bfloat16)
    >>> st.eval_shape(lambda x: x @ x.T, x)
    ShapeDtypeStruct(shape=(8, 8), dtype=bfloat16)
    >>> x.update(shape=(2,)).size
    2
    """

    __slots__ = ("_layout", "_sharding", "dtype", "is_ref", "manual_axis_type", "shape",
                 "weak_type")
    shape: tuple[int, ...]
    dtype: Any
    weak_type: bool
    manual_axis_type: ManualAxisType | None
    is_ref: bool

    def __init__(self, shape: Sequence[int], dtype: Any, *, sharding: Any = None,
                 weak_type: bool = False, manual_axis_type: ManualAxisType | None = None,
                 is_ref: bool = False, vma: Iterable[str] | None = None) -> None:
        if dtype is None:
            raise ValueError("ShapeDtypeStruct: dtype must be specified.")
        if is_ref:
            raise NotImplementedError("ShapeDtypeStruct: there are no references to arrays here, "
                                      "so is_ref must be False.")
        if vma is not None:
            manual_axis_type = ManualAxisType(varying=frozenset(vma))
        if manual_axis_type is not None and not isinstance(manual_axis_type, ManualAxisType):
            raise TypeError(
                "`manual_axis_type` argument passed to ShapeDtypeStruct should be of type "
                f"`jax.sharding.ManualAxisType`. Got type {type(manual_axis_type)}")
        _set(self, "shape", tuple([int(n) for n in shape]))
        _set(self, "dtype", _dtype(dtype))
        _set(self, "weak_type", weak_type)
        _set(self, "manual_axis_type", manual_axis_type)
        _set(self, "is_ref", is_ref)
        layout = None
        if isinstance(sharding, Format):
            if isinstance(sharding.layout, AutoLayout):
                raise TypeError("`Layout.AUTO` cannot be used in place of a device-local layout "
                                f"in a `ShapeDtypeStruct`. Got {sharding}")
            layout, sharding = sharding.layout, sharding.sharding
        _set(self, "_layout", layout)
        _set(self, "_sharding", _checked(sharding, self.shape))

    def __setattr__(self, name: str, value: Any) -> None:
        raise RuntimeError(f"Cannot reassign attributes ({name}) of immutable ShapeDtypeStruct "
                           "objects")

    @classmethod
    def like(cls, x: Any) -> ShapeDtypeStruct:
        """The struct of a value: an array, a type, a struct, a numpy array or a Python scalar.

        The sharding is kept where the user chose it: on committed arrays and on types over a mesh.
        Raises TypeError for what is no array.

        >>> st.ShapeDtypeStruct.like(np.ones((2, 3), np.float32))
        ShapeDtypeStruct(shape=(2, 3), dtype=float32)
        """
        aval = _type_of(x)
        if isinstance(x, ShapeDtypeStruct):
            return x.update(dtype=aval.dtype)
        sharding: Any = None
        if isinstance(x, Array) and hasattr(type(x), "format"):
            sharding = x.format if x.committed else None
        elif aval.mesh.axis_names:
            sharding = aval.sharding
        return cls(aval.shape, aval.dtype, sharding=sharding, weak_type=aval.weak_type,
                   manual_axis_type=None if aval.manual is NOT_MANUAL else aval.manual)

    @property
    def sharding(self) -> Any:
        """The sharding; a PartitionSpec is taken on the context mesh. None: anywhere.

        Raises TypeError for a PartitionSpec without a context mesh.
        """
        if not isinstance(self._sharding, PartitionSpec):
            return self._sharding
        mesh: Mesh | AbstractMesh = STATE.abstract_mesh if STATE.mesh.empty else STATE.mesh
        if not mesh.axis_names:
            raise TypeError("When specifying PartitionSpec to `ShapeDtypeStruct`, the context mesh "
                            "cannot be empty. Please use `jax.set_mesh` to set the mesh context.")
        return NamedSharding(mesh, self._sharding)

    @property
    def format(self) -> Format:
        """The sharding, and the order of elements in memory if it was given."""
        return Format(self._layout, self.sharding)

    @property
    def aval(self) -> ArrayType:
        """The type: 64 bits narrowed as usual, the sharding over its abstract mesh."""
        sharding, dtype = self.sharding, self.dtype
        if isinstance(dtype, np.dtype):
            dtype = canonicalize_dtype(dtype, x64_enabled())
        return array_type(self.shape, dtype, self.weak_type,
                          sharding if isinstance(sharding, NamedSharding) else None,
                          self.manual_axis_type or NOT_MANUAL)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def update(self, **changes: Any) -> ShapeDtypeStruct:
        """This type with some of shape, dtype, sharding, weak_type, manual_axis_type replaced.

        Raises TypeError for other names, ValueError for a sharding that would drop a layout.
        """
        if self._layout is not None and isinstance(changes.get("sharding"), Sharding):
            raise ValueError(
                f"You are updating ShapeDtypeStruct with a {type(changes['sharding'])} when the "
                f"original ShapeDtypeStruct had a concrete layout {self.format}. This might lead "
                "to bugs. If you want to do this, create a new ShapeDtypeStruct via the "
                "constructor.")
        kept = self._sharding if self._layout is None else self.format
        fields = {"shape": self.shape, "dtype": self.dtype, "sharding": kept,
                  "weak_type": self.weak_type, "manual_axis_type": self.manual_axis_type,
                  "is_ref": self.is_ref}
        fields.update(changes)
        return ShapeDtypeStruct(fields.pop("shape"), fields.pop("dtype"), **fields)

    def _repr_html_(self) -> str:
        if isinstance(self._sharding, NamedSharding):
            return _placement_html.sharding_html(self._sharding, self.shape, repr(self))
        return _html.page(f"<code>{_html.escaped(repr(self))}</code>")

    def __repr__(self) -> str:
        parts = [f"shape={self.shape}", f"dtype={self.dtype.name}"]
        for name, value in (("sharding", self._sharding), ("format", self._layout)):
            if value is not None:
                parts.append(f"{name}={value}")
        if self.weak_type:
            parts.append("weak_type=True")
        if self.manual_axis_type:
            parts.append(f"manual_axis_type={self.manual_axis_type}")
        return f"ShapeDtypeStruct({', '.join(parts)})"

    def _key(self) -> tuple[Any, ...]:
        return (self.shape, self.dtype, self._sharding, self._layout, self.weak_type,
                self.manual_axis_type)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, ShapeDtypeStruct) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __reduce__(self) -> tuple:
        sharding = self._sharding if self._layout is None else Format(self._layout, self._sharding)
        return _rebuilt, (self.shape, self.dtype, sharding, self.weak_type, self.manual_axis_type)


def _rebuilt(shape: tuple[int, ...], dtype: Any, sharding: Any, weak_type: bool,
             manual: ManualAxisType | None) -> ShapeDtypeStruct:
    return ShapeDtypeStruct(shape, dtype, sharding=sharding, weak_type=weak_type,
                            manual_axis_type=manual)


def _checked(sharding: Any, shape: tuple[int, ...]) -> Any:
    """A sharding that values of this shape may have."""
    if sharding is None:
        return None
    if isinstance(sharding, PartitionSpec):
        if len(sharding.entries) > len(shape):
            hint = " For scalars the PartitionSpec should be P()" if not shape else ""
            raise ValueError(
                f"PartitionSpec {sharding} is only valid for values of rank at least "
                f"{len(sharding.entries)}, but was applied to a value of rank {len(shape)}.{hint}")
        return sharding
    if not isinstance(sharding, Sharding):
        raise ValueError(
            "sharding should be an instance of `jax.sharding.Sharding`, "
            "`jax.sharding.PartitionSpec` or `jax.experimental.layout.Format`. Got "
            f"{sharding} of type {type(sharding)}.")
    sharding.check_compatible_aval(shape)
    return sharding


def _type_of(x: Any) -> ArrayType:
    """The type of an array, or of anything that has a shape and a dtype."""
    if isinstance(x, ArrayType):
        return x
    if isinstance(x, (str, bytes)):
        raise TypeError(f"Argument '{x}' of type {type(x)} is not a valid JAX type")
    if hasattr(x, "shape") and hasattr(x, "dtype"):
        aval = getattr(x, "aval", None)
        if isinstance(aval, ArrayType):
            return aval
        return array_type(tuple(x.shape), canonicalize_dtype(_dtype(x.dtype), x64_enabled()))
    if isinstance(x, (bool, int, float, complex)) or hasattr(x, "__jax_array__"):
        return typeof(x)
    raise TypeError(f"Cannot interpret value of type {type(x)} as an abstract array; it does not "
                    "have a dtype attribute")


def _dtype(dtype: Any) -> Any:
    for candidate in (dtype, getattr(dtype, "dtype", None)):    # scalar types such as jnp.float32
        if isinstance(candidate, (np.dtype, ExtendedDType)):
            return candidate
    return np.dtype(dtype)


def struct_of(aval: ArrayType) -> ShapeDtypeStruct:
    """The struct of a type; its sharding is kept where Explicit axes make it part of the type."""
    inside = aval.manual is not NOT_MANUAL
    sharding = aval.sharding if aval.mesh.explicit_axes or inside else None
    return ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding, weak_type=aval.weak_type,
                            manual_axis_type=aval.manual if inside else None)
