"""Meshes: named axes of devices, concrete (`Mesh`) and without devices (`AbstractMesh`).

Both are interned: equal construction gives the same object, so equality is identity. An abstract
mesh is only sizes, names and types of its axes; one of 65,536 devices costs what one of 8 does.
Attributes, messages and printed forms are those of `jax.sharding` (0.10.2).
"""

from __future__ import annotations

import contextlib
import functools
import math
import operator
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from ..source.wording import warn
from ..support.caches import cached
from ..support.interning import InternTable
from ..support.lazy import lazy_import
from .axes import AxisName
from .device import AbstractDevice, Device
from .mesh_axes import AxisType, BaseMesh, normalize_axis_types
from .process import ProcessIdentity, process_identity

_placement_html = lazy_import(".placement_html", __package__)

__all__ = [
    "AbstractMesh", "AxisType", "BaseMesh", "Mesh", "empty_abstract_mesh", "empty_concrete_mesh",
    "empty_mesh",
]

_MESHES: InternTable[Any] = InternTable()
_ABSTRACT_MESHES: InternTable[Any] = InternTable()


class Mesh(BaseMesh, contextlib.ContextDecorator):
    """A grid of devices with a name for each dimension.

    `devices`: ndarray (or nested sequence) of `Device`; `axis_names`: one name a dimension of it
    (a string for a single axis); `axis_types`: one `AxisType` an axis, all Auto if None.

    Raises ValueError if the number of names or types is wrong, TypeError if a type is not an
    `AxisType`. Interned: equal devices, names and types give the same object.

    Each axis is Auto, Explicit or Manual: who decides how values are split over it, see `AxisType`.

    >>> from shardtrace.sharding import Mesh
    >>> mesh = Mesh(np.array(st.devices()[::-1]).reshape(2, 4), ("x", "y"))
    >>> dict(mesh.shape), mesh.devices[0, 1]
    ({'x': 2, 'y': 4}, CpuDevice(id=6))
    >>> mesh.is_multi_process, mesh.local_mesh is mesh
    (False, True)
    """

    devices: np.ndarray
    """The grid; read-only."""

    def __new__(
        cls, devices: np.ndarray | Sequence, axis_names: str | Sequence[AxisName],
        axis_types: AxisType | tuple[AxisType, ...] | None = None,
    ) -> Mesh:
        if not isinstance(devices, np.ndarray):
            devices = np.array(devices)
        names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
        if any(name is None for name in names):
            raise ValueError(f"Mesh axis names cannot be None. Got: {names}")
        if devices.ndim != len(names):
            raise ValueError(
                "Mesh requires the ndim of its first argument (`devices`) to equal the length of "
                f"its second argument (`axis_names`), but got devices.ndim == {devices.ndim} and "
                f"len(axis_names) == {len(names)}."
            )
        types = normalize_axis_types(names, axis_types, "Mesh")
        flat = tuple(devices.flat)
        key = (flat, devices.shape, names, types)
        mesh = _MESHES.get(key)
        if mesh is not None:
            return mesh
        grid = np.empty(len(flat), dtype=object)
        grid[:] = flat
        grid = grid.reshape(devices.shape)
        grid.flags.writeable = False
        mesh = object.__new__(cls)
        put = object.__setattr__
        put(mesh, "devices", grid)
        put(mesh, "axis_names", names)
        put(mesh, "axis_sizes", grid.shape)
        put(mesh, "axis_types", types)
        # Without axes and without a device it is the empty mesh, not a mesh of one device.
        put(mesh, "size", 0 if not names and flat[0] is None else math.prod(grid.shape))
        put(mesh, "empty", mesh.size == 0)
        return _MESHES.add(key, mesh)

    def __reduce__(self) -> tuple:
        return Mesh, (self.devices, self.axis_names, self.axis_types)

    def update(
        self, devices: Any = None, axis_names: Any = None, axis_types: Any = None
    ) -> Mesh:
        """This mesh with some parts replaced."""
        return Mesh(
            self.devices if devices is None else devices,
            self.axis_names if axis_names is None else axis_names,
            self.axis_types if axis_types is None else axis_types,
        )

    def __enter__(self) -> Mesh:
        warn(
            "`with mesh:` context manager has been deprecated. Please use "
            "`with jax.set_mesh(mesh):` instead.",
            DeprecationWarning)
        outer = ENTERED.meshes
        try:
            ENTERED.meshes = (*outer, self)
            return self
        except BaseException:
            ENTERED.meshes = outer
            raise

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> bool:
        inside = None
        try:
            inside = ENTERED.meshes
            ENTERED.meshes = _without(self, inside)
        except BaseException:               # an interrupt, before or after the step that matters
            if inside is None or ENTERED.meshes is inside:
                ENTERED.meshes = _without(self, ENTERED.meshes)
            raise
        return False

    # -- devices

    @property
    def is_scalar(self) -> bool:
        """Whether this is one device without any axis."""
        return self.size == 1 and not self.axis_names

    @functools.cached_property
    def device_tuple(self) -> tuple[Device, ...]:
        """All devices in mesh order, last axis fastest."""
        return tuple(self.devices.flat)

    @functools.cached_property
    def device_set(self) -> frozenset[Device]:
        """All devices."""
        return frozenset(self.device_tuple)

    @functools.cached_property
    def device_ids(self) -> np.ndarray:
        """Ids of the devices, in the shape of the mesh."""
        if self.empty:
            raise AssertionError("an empty mesh has no device_ids")
        ids = np.array([device.id for device in self.device_tuple], dtype=int)
        return ids.reshape(self.axis_sizes)

    @functools.cached_property
    def _devices_by_process(self) -> dict[ProcessIdentity, tuple[Device, ...]]:
        return {}

    def _devices_of(self, identity: ProcessIdentity) -> tuple[Device, ...]:
        found = self._devices_by_process.get(identity)
        if found is None:
            found = self._devices_by_process[identity] = tuple(
                d for d in self.device_tuple if d is not None and d.process_index == identity.index)
        return found

    @property
    def local_devices(self) -> list[Device]:
        """Devices that the calling process owns, in mesh order."""
        return list(self._devices_of(process_identity()))

    @property
    def is_multi_process(self) -> bool:
        """Whether some device belongs to another process than the caller's."""
        return len(self._devices_of(process_identity())) != self.size

    @property
    def local_mesh(self) -> Mesh:
        """The part of this mesh that the calling process owns. Its axis types are all Auto.

        Raises ValueError if that part is not a contiguous subcube.
        """
        return self._local_mesh_of(process_identity())

    @cached(128, "part of a mesh that a process owns")
    def _local_mesh_of(self, identity: ProcessIdentity) -> Mesh:
        """The mesh of the devices that a process owns, which must be a block of this one."""
        if self.empty:
            return self
        found = set(self._devices_of(identity))
        is_local = np.array([d in found for d in self.device_tuple], dtype=bool)
        is_local = is_local.reshape(self.axis_sizes)
        if not is_local.any():
            raise ValueError(f"Process {identity.index} owns no device of {self}")
        places = np.nonzero(is_local)
        hull = tuple(slice(int(p.min()), int(p.max()) + 1) for p in places)
        if not is_local[hull].all():
            raise ValueError(
                "When passing host local inputs to pjit, devices connected to a single host must "
                "form a contiguous subcube of the global device mesh"
            )
        return Mesh(self.devices[hull], self.axis_names)

    @functools.cached_property
    def abstract_mesh(self) -> AbstractMesh:
        """This mesh without its devices, but for what kind they are."""
        if not self.axis_names:
            return empty_abstract_mesh
        device = self.devices.flat[0] if self.devices.size else None
        kind = None
        if device is not None:
            kind = AbstractDevice(device.device_kind, None, device.platform)
        return AbstractMesh(
            self.axis_sizes, self.axis_names, self.axis_types, abstract_device=kind
        )

    # -- text

    def __str__(self) -> str:
        if self.empty:
            return "Mesh()"
        axes = ", ".join(f"'{name}': {size}" for name, size in self.shape.items())
        return f"Mesh({axes}, axis_types={self.axis_types})"

    def __repr__(self) -> str:
        if self.empty:
            return "Mesh(axis_sizes=(), axis_names=())"
        return (f"Mesh(axis_sizes={self.axis_sizes}, axis_names={self.axis_names!r}, "
                f"axis_types={self.axis_types})")

    def _repr_html_(self) -> str:
        return _placement_html.mesh_html(self, self.devices)


def _no_device(name: str) -> NoReturn:
    raise ValueError(f"AbstractMesh does not implement {name}")


class AbstractMesh(BaseMesh):
    """A mesh known only by the sizes, names and types of its axes.

    `axis_sizes`: tuple of ints; `axis_names`: tuple of names; `axis_types`: one `AxisType` an
    axis (or a single one for a single axis), all Auto if None; `abstract_device`: what kind of
    devices are meant. A mesh written by hand has no abstract device, and so is not equal to
    `mesh.abstract_mesh` of a concrete mesh.

    Each axis is Auto, Explicit or Manual, see `AxisType`. Programs are traced and partitioned on
    it; to run one, a concrete mesh is needed.

    >>> from shardtrace.sharding import AbstractMesh, AxisType
    >>> AbstractMesh((4, 2), ("x", "y")).update_axis_types({"x": AxisType.Explicit})
    AbstractMesh('x': 4, 'y': 2, axis_types=(Explicit, Auto))
    """

    abstract_device: AbstractDevice | None

    def __new__(
        cls, axis_sizes: Sequence[int], axis_names: str | Sequence[AxisName],
        axis_types: AxisType | tuple[AxisType, ...] | None = None, *,
        abstract_device: AbstractDevice | None = None,
    ) -> AbstractMesh:
        names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
        sizes = tuple([operator.index(size) for size in axis_sizes])
        types = normalize_axis_types(names, axis_types, "AbstractMesh")
        if len(sizes) != len(names):
            raise ValueError(
                f"AbstractMesh needs one name for each axis size. Got axis_sizes={sizes} and "
                f"axis_names={names}"
            )
        key = (sizes, names, types, abstract_device)
        mesh = _ABSTRACT_MESHES.get(key)
        if mesh is not None:
            return mesh
        mesh = object.__new__(cls)
        put = object.__setattr__
        put(mesh, "axis_sizes", sizes)
        put(mesh, "axis_names", names)
        put(mesh, "axis_types", types)
        put(mesh, "abstract_device", abstract_device)
        put(mesh, "size", math.prod(sizes) if sizes else 0)
        put(mesh, "empty", mesh.size == 0)
        return _ABSTRACT_MESHES.add(key, mesh)

    def __reduce__(self) -> tuple:
        return _unpickle_abstract, (
            self.axis_sizes, self.axis_names, self.axis_types, self.abstract_device)

    def update(
        self, axis_sizes: Any = None, axis_names: Any = None, axis_types: Any = None,
        **kwargs: Any,
    ) -> AbstractMesh:
        """This mesh with some parts replaced; `abstract_device=None` drops the device kind."""
        kwargs.setdefault("abstract_device", self.abstract_device)
        return AbstractMesh(
            self.axis_sizes if axis_sizes is None else axis_sizes,
            self.axis_names if axis_names is None else axis_names,
            self.axis_types if axis_types is None else axis_types,
            **kwargs,
        )

    def update_axis_types(self, name_to_type: Mapping[AxisName, AxisType]) -> AbstractMesh:
        """This mesh with other types for the axes named; names it lacks are ignored."""
        old = zip(self.axis_names, self.axis_types, strict=True)
        types = tuple([name_to_type.get(name, axis_type) for name, axis_type in old])
        return self if types == self.axis_types else self.update(axis_types=types)

    @property
    def abstract_mesh(self) -> AbstractMesh:
        """Itself."""
        return self

    def __repr__(self) -> str:
        axes = ", ".join(f"'{name}': {size}" for name, size in self.shape_tuple) or "()"
        device = "" if self.abstract_device is None else f", {self.abstract_device.describe()}"
        return f"AbstractMesh({axes}, axis_types={self.axis_types}{device})"

    def _repr_html_(self) -> str:
        return _placement_html.mesh_html(self)

    # -- what needs devices is refused

    @property
    def devices(self) -> Any:
        """Refused with ValueError: only a `Mesh` has it."""
        _no_device("devices")

    @property
    def device_ids(self) -> Any:
        """Refused with ValueError: only a `Mesh` has it."""
        _no_device("device_ids")

    @property
    def is_multi_process(self) -> bool:
        """Refused with ValueError: only a `Mesh` has it."""
        _no_device("is_multi_process")

    @property
    def local_devices(self) -> list:
        """Refused with ValueError: only a `Mesh` has it."""
        _no_device("local_devices")

    @property
    def local_mesh(self) -> Any:
        """Refused with ValueError: only a `Mesh` has it."""
        _no_device("local_mesh")

    def __enter__(self) -> Any:
        _no_device("__enter__")

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> bool:
        _no_device("__exit__")


def _unpickle_abstract(
    sizes: tuple, names: tuple, types: tuple, device: AbstractDevice | None
) -> AbstractMesh:
    return AbstractMesh(sizes, names, types, abstract_device=device)


empty_abstract_mesh: AbstractMesh = AbstractMesh((), ())
"""The mesh of values that know nothing of a mesh."""
empty_concrete_mesh: Mesh = Mesh(np.empty((), dtype=object), ())
empty_mesh: Mesh = empty_concrete_mesh


class _Entered(threading.local):
    """The meshes of this thread's `with mesh:` blocks, the innermost last."""

    meshes: tuple[Mesh, ...] = ()


def _without(mesh: Mesh, entered: tuple[Mesh, ...]) -> tuple[Mesh, ...]:
    """What was entered before the last block of a mesh; blocks that an interrupt kept from being
    left go with it."""
    for i in range(len(entered) - 1, -1, -1):
        if entered[i] is mesh:
            return entered[:i]
    return entered


ENTERED = _Entered()
"""What `entered_mesh` looks at, for those who ask at every call."""


def entered_mesh() -> Mesh:
    """The mesh of the innermost `with mesh:` block of this thread, or the empty mesh.

    The old way of naming a mesh: only jit's shardings and with_sharding_constraint look at it.
    """
    return ENTERED.meshes[-1] if ENTERED.meshes else empty_mesh
