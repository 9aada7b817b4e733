"""The index of a checkpoint: leaves, types, shardings, and blocks.

Everything here converts to plain JSON and back. A sharding is stored by its meaning (names and
sizes of axes, device ids, axes of each dimension), so that another run can build it again.
"""
from __future__ import annotations

import dataclasses
from typing import Any

from ...arrays.devices import create_device_mesh
from ...arrays.devices import devices as all_devices
from ...arrays.host import PYTHON_NUMBERS
from ...ir.diagnostics.diagnostic import fail
from ...ir.diagnostics.errors import ShardtraceError
from ...ir.meshes.device import Device
from ...ir.meshes.mesh import AxisType, Mesh
from ...ir.shardings.gspmd import GSPMDSharding
from ...ir.shardings.hlo_sharding import HloSharding
from ...ir.shardings.sharding import NamedSharding, Sharding, SingleDeviceSharding
from ...ir.spec import UNCONSTRAINED, PartitionSpec

FORMAT = "shardtrace checkpoint"
VERSION = 1
MOST_NESTED = 200        # levels of containers, at most: the JSON parser is recursive
NUMBERS = {kind.__name__: kind for kind in PYTHON_NUMBERS}


def generation_folder(generation: int) -> str:
    """The name of the folder with the blocks of a save, by its number."""
    return f"shards-{generation:06d}"


def block_file(process: int) -> str:
    return f"process-{process}.safetensors"


def number_from_text(kind: str, text: str) -> bool | int | float | complex:
    """A Python number, from the name of its class and its text."""
    if kind == "float":
        return float.fromhex(text)
    if kind == "complex":
        return complex(*map(float.fromhex, text.split()))
    return int(text) if kind == "int" else text == "True"


@dataclasses.dataclass(frozen=True)
class BlockRecord:
    """One block of an array. file: its name, in the folder of the blocks. name: of the tensor in
    that file. start, shape: which part of the global array it is."""
    file: str
    name: str
    start: tuple[int, ...]
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class LeafRecord:
    """One leaf of the tree.

    path: key path. kind: "array", "numpy", or the name of a Python type of numbers. dtype: in full
    ("bfloat16", "key<fry>"). sharding: number in the table of shardings; None where the array was
    not committed to devices, and for other kinds. value: of Python numbers, as text.
    """
    path: str
    kind: str
    shape: tuple[int, ...] = ()
    dtype: str = ""
    weak_type: bool = False
    sharding: int | None = None
    value: str = ""
    blocks: tuple[BlockRecord, ...] = ()

    def type_text(self) -> str:
        """As messages name it: `float32[8,16]`, `int`."""
        if self.dtype:
            return f"{self.dtype}[{','.join(map(str, self.shape))}]"
        return self.kind


@dataclasses.dataclass(frozen=True)
class Index:
    """A checkpoint.

    tree: nested containers, as described by driver/checkpoints/save_restore.py. shardings:
    descriptions to which leaves refer by number. folder: of the blocks. generation: how often this
    path has been saved to. sizes: bytes of each file.
    """
    tree: Any
    leaves: tuple[LeafRecord, ...]
    shardings: tuple[Any, ...]
    folder: str
    generation: int
    sizes: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, "version": VERSION, **dataclasses.asdict(self)}


def leaf_from_json(d: dict[str, Any]) -> LeafRecord:
    blocks = tuple(BlockRecord(b["file"], b["name"], tuple(b["start"]), tuple(b["shape"]))
                   for b in d["blocks"])
    return LeafRecord(**{**d, "shape": tuple(d["shape"]), "blocks": blocks})


# -- shardings -------------------------------------------------------------------------------------

def describe_sharding(sharding: Sharding) -> dict[str, Any]:
    """A sharding as JSON."""
    ids = [d.id for d in sharding.device_assignment]
    memory = sharding.memory_kind
    if isinstance(sharding, SingleDeviceSharding):
        return {"kind": "device", "devices": ids, "memory_kind": memory}
    if isinstance(sharding, NamedSharding) and all(
            isinstance(n, str) for n in sharding.mesh.axis_names):
        mesh, spec = sharding.mesh, sharding.spec
        return {"kind": "named", "axis_names": list(mesh.axis_names),
                "axis_sizes": list(mesh.axis_sizes),
                "axis_types": [t.name for t in mesh.axis_types], "devices": ids,
                "spec": [[] if e is UNCONSTRAINED else list(e) for e in spec.entries],
                "reduced": sorted(spec.reduced), "memory_kind": memory}
    if isinstance(sharding, GSPMDSharding):
        return {"kind": "tiles", "devices": ids, "memory_kind": memory,
                "tiles": repr(sharding.hlo_sharding)}
    return {"kind": "other", "devices": ids, "memory_kind": memory, "text": repr(sharding)}


def saved_sharding(described: dict[str, Any], path: str) -> Sharding:
    """The sharding described, on devices of the same ids.

    path: the leaf's. Raises ValueError if the devices do not exist, or it is impossible.
    """
    have = {d.id: d for d in all_devices()}
    missing = [i for i in described["devices"] if i not in have]
    if missing or described["kind"] == "other":
        what = described.get("text") or _text(described)
        fail(ValueError, f"{path} was saved with the sharding {what}, which cannot be made here",
             code="checkpoint-sharding",
             notes=(f"there are {len(have)} devices, and none with ids {missing}",) if missing
             else (),
             help="say where it shall go: give `like` a `NamedSharding`, or a tree of shardings")
    try:
        return _rebuilt_sharding(described, [have[i] for i in described["devices"]])
    except (ValueError, TypeError, KeyError, ShardtraceError) as problem:
        fail(ValueError, f"{path} was saved with the sharding {_text(described)}, which there "
             f"cannot be: {str(problem).splitlines()[0]}", code="checkpoint-sharding",
             help="say where it shall go: give `like` a `NamedSharding`, or a tree of shardings")


def _rebuilt_sharding(described: dict[str, Any], devices: list[Device]) -> Sharding:
    memory = described["memory_kind"]
    if described["kind"] == "device":
        return SingleDeviceSharding(devices[0], memory_kind=memory)
    if described["kind"] == "tiles":
        return GSPMDSharding(devices, HloSharding.from_string(described["tiles"]),
                             memory_kind=memory)
    types = tuple(AxisType[t] for t in described["axis_types"])
    grid = create_device_mesh(described["axis_sizes"], devices)
    mesh = Mesh(grid, tuple(described["axis_names"]), types)
    spec = PartitionSpec(*(tuple(e) or None for e in described["spec"]),
                         reduced=frozenset(described["reduced"]))
    return NamedSharding(mesh, spec, memory_kind=memory)


def _text(described: dict[str, Any]) -> str:
    if described["kind"] != "named":
        return f"on devices {described['devices']}"
    sizes = ", ".join(f"'{n}': {s}" for n, s in
                      zip(described["axis_names"], described["axis_sizes"], strict=True))
    spec = PartitionSpec(*(tuple(e) or None for e in described["spec"]))
    return f"NamedSharding(mesh=Mesh({sizes}), spec={spec})"
