"""JAX's types, meshes, shardings and params as ours."""
from __future__ import annotations

import enum
import math
from typing import Any

import numpy as np

from ..arrays.devices import device_count, make_mesh
from ..engines.xla.engine import check_devices
from ..ir.dtypes import KEY_DTYPES
from ..ir.meshes.mesh import AbstractMesh, AxisType, Mesh
from ..ir.ops.contractions.conv_typing import ConvDimensionNumbers
from ..ir.ops.contractions.fft import FftType
from ..ir.ops.contractions.precision import DotAlgorithmPreset, Precision
from ..ir.ops.contractions.ragged import RaggedDotDimensionNumbers
from ..ir.ops.gather_numbers import (
    GatherDimensionNumbers,
    GatherScatterMode,
    ScatterDimensionNumbers,
)
from ..ir.ops.random.bit_generator import RandomAlgorithm
from ..ir.shardings.sharding import NamedSharding
from ..ir.spec import UNCONSTRAINED, PartitionSpec
from ..ir.support.lazy import lazy_import
from ..ir.values.shape_struct import ShapeDtypeStruct
from ..tracer.random.keys import wrap_key_data

jax = lazy_import("jax")

_ENUMS = {c.__name__: c for c in (DotAlgorithmPreset, FftType, GatherScatterMode, Precision,
                                  RandomAlgorithm)}
_NUMBERS = {c.__name__: c for c in (ConvDimensionNumbers, GatherDimensionNumbers,
                                    RaggedDotDimensionNumbers, ScatterDimensionNumbers)}


def mesh_of(mesh: Any) -> Mesh | AbstractMesh:
    """A mesh with the axes of JAX's: of devices if there are as many here, else an abstract one."""
    if isinstance(mesh, Mesh | AbstractMesh):
        return mesh
    sizes, names = tuple(mesh.axis_sizes), tuple(mesh.axis_names)
    kinds = tuple(AxisType[t.name] for t in mesh.axis_types)
    if math.prod(sizes) > device_count():
        return AbstractMesh(sizes, names, kinds)
    return make_mesh(sizes, names, kinds)


def spec_of(spec: Any) -> PartitionSpec:
    """A spec of ours or JAX's, as ours."""
    if isinstance(spec, PartitionSpec):
        return spec
    entries = [UNCONSTRAINED if e is jax.sharding.PartitionSpec.UNCONSTRAINED else e
               for e in spec]
    return PartitionSpec(*entries, unreduced=frozenset(spec.unreduced),
                         reduced=frozenset(spec.reduced))


def sharding_of(sharding: Any, mesh: Mesh | AbstractMesh | None = None) -> NamedSharding | None:
    """A sharding of JAX's; None where it says nothing of mesh axes. mesh: instead of its own."""
    if sharding is None or isinstance(sharding, NamedSharding):
        return sharding
    if isinstance(sharding, PartitionSpec | jax.sharding.PartitionSpec):
        if mesh is None:
            raise ValueError(f"from_jax: the spec {sharding} needs a mesh; pass mesh=, or a "
                             "NamedSharding")
        return NamedSharding(mesh, spec_of(sharding))
    if not isinstance(sharding, jax.sharding.NamedSharding) or sharding.mesh.empty:
        return None
    own = mesh if mesh is not None and set(sharding.mesh.axis_names) <= set(
        mesh.axis_names) else mesh_of(sharding.mesh)
    kind = sharding.memory_kind
    if kind not in ("pinned_host", "unpinned_host") or not isinstance(own, Mesh):
        kind = None
    return NamedSharding(own, spec_of(sharding.spec), memory_kind=kind)


def theirs_of(ours: NamedSharding | None) -> Any:
    """A sharding of ours as JAX's, on its first devices; types of axes are kept."""
    if ours is None or not isinstance(ours, NamedSharding):
        return None
    mesh, sharding = ours.mesh, jax.sharding
    check_devices(mesh.size)
    devices = np.array(jax.devices()[:mesh.size]).reshape(mesh.axis_sizes)
    theirs = sharding.Mesh(devices, mesh.axis_names, axis_types=tuple([
        sharding.AxisType[t.name] for t in mesh.axis_types]))
    entries = [sharding.PartitionSpec.UNCONSTRAINED if e is UNCONSTRAINED else e
               for e in ours.spec]
    return sharding.NamedSharding(theirs, sharding.PartitionSpec(*entries))


def is_key(dtype: Any) -> bool:
    """Is it JAX's dtype of random keys?"""
    return jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key)


def dtype_of(dtype: Any) -> Any:
    """A dtype of JAX's, keys included, as ours."""
    return KEY_DTYPES[impl_of(dtype._impl)] if is_key(dtype) else np.dtype(dtype)


def impl_of(impl: Any) -> str:
    """The short name of a generator: `fry` for threefry."""
    return impl.tag if hasattr(impl, "tag") else str(impl)


def struct_of(x: Any, mesh: Mesh | AbstractMesh | None, sharding: Any = None
              ) -> ShapeDtypeStruct:
    """A struct for an array, tracer or ShapeDtypeStruct of JAX's, or for a numpy value."""
    aval = jax.typeof(x) if not hasattr(x, "dtype") or isinstance(x, jax.Array) else x
    placed = sharding_of(getattr(x, "sharding", None) if sharding is None else sharding, mesh)
    return ShapeDtypeStruct(aval.shape, dtype_of(aval.dtype), sharding=placed,
                            weak_type=bool(getattr(aval, "weak_type", False)))


def array_of(x: Any) -> Any:
    """An array of JAX's as numpy's; keys as ours."""
    if is_key(x.dtype):
        return wrap_key_data(np.asarray(jax.random.key_data(x)), dtype=dtype_of(x.dtype))
    return np.asarray(x)


def value_of(x: Any, aval: Any) -> Any:
    """A constant of JAX's as an operand of this type: scalars of Python stay weakly typed."""
    if is_key(aval.dtype):
        return array_of(x)
    if getattr(aval, "weak_type", False) and np.ndim(x) == 0:
        return np.asarray(x).item()
    return np.asarray(x, dtype_of(aval.dtype))


def param_of(value: Any, mesh: Mesh | AbstractMesh | None) -> Any:
    """A param of an equation: enumerations, dimension numbers, dtypes and shardings are ours."""
    name = type(value).__name__
    if name in _ENUMS and isinstance(value, enum.Enum):
        return _ENUMS[name][value.name]
    if name in _NUMBERS:
        ours = _NUMBERS[name]
        return ours(*[getattr(value, field) for field in ours._fields])
    if isinstance(value, jax.sharding.Sharding):
        return sharding_of(value, mesh)
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return np.dtype(value)
    if hasattr(value, "dtype") and hasattr(value, "_impl") or hasattr(value, "_rules"):
        return dtype_of(value)
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple([param_of(v, mesh) for v in value])
    return value
