"""Meshes, specs and shardings, as in `jax.sharding`, and the switches between axis modes.

A `Mesh` is a grid of devices with named axes, each Auto, Explicit or Manual (`AxisType`). A
`PartitionSpec` says which axes split which dimension; both together are a `NamedSharding`.
`set_mesh` makes a mesh the context, so that specs alone will do; `reshard`, `auto_axes` and
`explicit_axes` change how values are split and who decides it.

>>> import shardtrace as st
>>> from shardtrace.sharding import NamedSharding, PartitionSpec as P
>>> NamedSharding(st.make_mesh((4, 2), ("x", "y")), P("x", None)).shard_shape((8, 6))
(2, 6)
"""
import typing as _typing

from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.ir.api_boundary import public as _public
from shardtrace.ir.meshes.device import AbstractDevice
from shardtrace.ir.meshes.manual_state import ManualAxisType
from shardtrace.ir.meshes.mesh import AbstractMesh, AxisType, Mesh
from shardtrace.ir.shardings.sharding import (
    NamedSharding,
    Sharding,
    SingleDeviceSharding,
    make_single_device_sharding,
)
from shardtrace.ir.spec import PartitionSpec
from shardtrace.ir.support.lazy import lazy_names as _lazy_names
from shardtrace.tracer.shardings.mesh_context import (
    get_abstract_mesh,
    get_mesh,
    set_mesh,
    use_abstract_mesh,
    use_mesh,
)
from shardtrace.tracer.shardings.sharding_functions import auto_axes, explicit_axes, reshard

if _typing.TYPE_CHECKING:
    from shardtrace.ir.shardings.gspmd import GSPMDSharding
    from shardtrace.ir.shardings.hlo_sharding import HloSharding, OpSharding

__getattr__, __dir__ = _lazy_names(__name__, {
    "shardtrace.ir.shardings.gspmd": ("GSPMDSharding",),
    "shardtrace.ir.shardings.hlo_sharding": ("HloSharding", "OpSharding")}, _public)

__all__ = [
    "AbstractDevice",
    "AbstractMesh",
    "AxisType",
    "GSPMDSharding",
    "HloSharding",
    "ManualAxisType",
    "Mesh",
    "NamedSharding",
    "OpSharding",
    "PartitionSpec",
    "Sharding",
    "SingleDeviceSharding",
    "auto_axes",
    "explicit_axes",
    "get_abstract_mesh",
    "get_mesh",
    "make_single_device_sharding",
    "reshard",
    "set_mesh",
    "use_abstract_mesh",
    "use_mesh",
]
_bound_names(globals(), "auto_axes", "explicit_axes")
