"""save and restore: a pytree of arrays in a folder, and back, onto any mesh.

Every block of every array is written once, by the process that owns it, and an index says where it
is; restoring reads, on each process, what its own devices need. What a folder looks like and how a
save is made safe stands in folder.py.
"""
from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from ...arrays.array import ArrayImpl
from ...arrays.blocks import PENDING_SUM
from ...arrays.devices import default_device
from ...arrays.host import PYTHON_NUMBERS
from ...arrays.processes.coordinator import Call, current_coordinator
from ...arrays.transfer import check_fits, concrete_sharding
from ...ir.diagnostics.diagnostic import fail
from ...ir.diagnostics.errors import IndivisibleError
from ...ir.dtypes import canonicalize_dtype, is_extended
from ...ir.dtypes.table import long_name, parse_long
from ...ir.meshes.device import Device, process_index
from ...ir.settings.context import STATE, x64_enabled
from ...ir.shardings.sharding import NamedSharding, Sharding, SingleDeviceSharding
from ...ir.source.location import capture
from ...ir.spec import PartitionSpec
from ...ir.values.shape_struct import ShapeDtypeStruct
from ...tracer.trees import tree
from . import folder
from .blocks import BlockReader, host_block, own_blocks
from .reading import covers
from .record import (
    NUMBERS,
    Index,
    LeafRecord,
    describe_sharding,
    leaf_from_json,
    number_from_text,
    saved_sharding,
)
from .trees import all_nodes, describe, numbers_under, rebuilt

_PLACES = (Sharding, PartitionSpec, Device)


# -- saving ----------------------------------------------------------------------------------------

def save(path: str | os.PathLike[str], tree: Any, *, overwrite: bool = True) -> None:
    """Write a pytree of arrays, numpy arrays and Python numbers to the folder `path`.

    Each block of an array is written once, whatever the number of its copies, by the process that
    owns the first of the devices that hold it; every process calls this with the same tree. The
    folder holds the older checkpoint, if there was one, until the new one is whole and on disk: a
    crash leaves the one or the other.

    overwrite: False to refuse a folder that holds a checkpoint.
    Raises TypeError for a leaf that cannot be saved, NotImplementedError for a partial sum,
    FileExistsError for a folder with other files in it, ValueError where the processes do not give
    the same tree, OSError where the disk is full or refuses, which says what is whole.

    >>> import tempfile
    >>> mesh = st.make_mesh((4, 2), ("x", "y"))
    >>> w = st.device_put(np.ones((8, 4), np.float32), st.NamedSharding(mesh, P("x", "y")))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     st.checkpoints.save(folder, {"w": w, "step": 3})
    ...     st.checkpoints.restore(folder)["w"].sharding.spec
    P('x', 'y')
    """
    path = os.path.abspath(os.fspath(path))
    part, tensors = _own_part(tree)
    generation = None
    if process_index() == 0:
        current = folder.read_index(path)
        folder.check_may_save(path, current, overwrite)
        generation = 1 if current is None else current.generation + 1
    made = not os.path.isdir(path)
    try:
        if generation is not None:
            folder.begin(path, generation)
        generation = _together("the beginning of checkpoints.save", path, generation)[0]
        part["sizes"] = folder.write_blocks(path, generation, process_index(), tensors)
        parts = _together("checkpoints.save", path, json.dumps(part))
        if process_index() == 0:
            folder.commit(path, _merged([json.loads(p) for p in parts], generation, path))
    except OSError as problem:
        if generation is None:
            raise
        one_process = current_coordinator() is None
        raise folder.not_saved(path, generation, one_process, made, problem) from problem
    _together("the end of checkpoints.save", path, None)


def _together(what: str, path: str, value: Any) -> list[Any]:
    """What each process gives here, once all are here."""
    coordinator = current_coordinator()
    if coordinator is None:
        return [value]
    everybody = tuple(range(coordinator.identity.count))
    return coordinator.all_gather(Call(what, (("paths", path),), everybody, capture()), value)


def _own_part(root: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What this process knows of the checkpoint as JSON, and the tensors that it writes."""
    nodes, leaves = describe(root)
    shardings: dict[str, int] = {}
    tensors: dict[str, np.ndarray] = {}
    records = [dataclasses.asdict(_leaf(path, x, shardings, tensors)) for path, x in leaves]
    return {"tree": nodes, "leaves": records,
            "shardings": [json.loads(s) for s in shardings]}, tensors


def _leaf(path: str, x: Any, shardings: dict[str, int], tensors: dict[str, np.ndarray]
          ) -> LeafRecord:
    """The record of one leaf in the index. shardings: their texts, by number, and `tensors` the
    blocks to write; both are added to.
    """
    if isinstance(x, ArrayImpl):
        sharding, aval = x.sharding, x.aval
        x.storage  # noqa: B018 - raises if deleted
        if isinstance(sharding, NamedSharding) and sharding.spec.unreduced:
            raise NotImplementedError(f"{path or 'the array'} is a partial sum and has no blocks "
                                      f"to save. {PENDING_SUM}")
        number = None
        if x.committed:
            text = json.dumps(describe_sharding(sharding))
            number = shardings.setdefault(text, len(shardings))
        return LeafRecord(path, "array", aval.shape, long_name(aval.dtype), aval.weak_type, number,
                          blocks=tuple(own_blocks(x, path, tensors)))
    if isinstance(x, (np.ndarray, np.generic)):
        try:
            name = long_name(x.dtype)
            parse_long(name)
        except ValueError:
            fail(TypeError, f"{path or 'the value'} has dtype {x.dtype}, which arrays cannot have",
                 code="checkpoint-leaf", help="convert it, or keep it outside of the tree")
        blocks = host_block(np.asarray(x), x.dtype, path, tensors) if process_index() == 0 else []
        return LeafRecord(path, "numpy", x.shape, name, blocks=tuple(blocks))
    if type(x) in PYTHON_NUMBERS:
        text = x.hex() if isinstance(x, float) else (
            f"{x.real.hex()} {x.imag.hex()}" if isinstance(x, complex) else repr(x))
        return LeafRecord(path, type(x).__name__, value=text)
    fail(TypeError, f"{path or 'the value'} is of type {type(x)}, which is not a valid JAX type: "
         "save takes arrays, numpy arrays and Python numbers", code="checkpoint-leaf",
         help="keep other things (text, functions, options) in a file of your own beside it")


def _merged(parts: Sequence[dict[str, Any]], generation: int, path: str) -> Index:
    """The index of what all processes wrote; raises ValueError where they do not agree."""
    first = parts[0]
    for i, other in enumerate(parts[1:], 1):
        if other["tree"] != first["tree"]:
            paths, others = ([leaf["path"] for leaf in p["leaves"]] for p in (first, other))
            _disagree(path, f"the tree of process {i} is not that of process 0: "
                      f"{sorted({*paths} ^ {*others}) or 'its containers are of other types'}")
        for leaf, other_leaf in zip(first["leaves"], other["leaves"], strict=True):
            for what in ("kind", "shape", "dtype", "weak_type", "value"):
                if leaf[what] != other_leaf[what]:
                    _disagree(path, f"{leaf['path']} has {what} {leaf[what]} in process 0 and "
                              f"{other_leaf[what]} in process {i}")
            places = [None if x["sharding"] is None else p["shardings"][x["sharding"]]
                      for x, p in ((leaf, first), (other_leaf, other))]
            if places[0] != places[1]:
                _disagree(path, f"{leaf['path']} is not one array of all processes: it lies on "
                          f"{_where(places[0])} in process 0 and {_where(places[1])} in process "
                          f"{i}")
    leaves = []
    for same in zip(*(p["leaves"] for p in parts), strict=True):
        blocks = [b for leaf in same for b in leaf["blocks"]]
        record = leaf_from_json({**same[0], "blocks": blocks})
        if record.dtype and not covers(record):
            _disagree(path, f"the blocks of {record.path} that the processes wrote are not all of "
                      "it")
        leaves.append(record)
    sizes = {name: size for p in parts for name, size in p["sizes"].items()}
    return Index(first["tree"], tuple(leaves), tuple(first["shardings"]),
                 folder.generation_folder(generation), generation, sizes)


def _where(described: Any) -> str:
    return "no devices in particular" if described is None else f"devices {described['devices']}"


def _disagree(path: str, how: str) -> NoReturn:
    fail(ValueError, f"The processes do not save the same tree to {path}: {how}",
         code="checkpoint-processes",
         help="make local values global with `multihost_utils.host_local_array_to_global_array`, "
              "or save what one process has as a numpy array")


# -- restoring -------------------------------------------------------------------------------------

def restore(path: str | os.PathLike[str], like: Any = None) -> Any:
    """The pytree that was saved to the folder `path`.

    like: what each leaf shall be: a pytree of the same structure, or a prefix of it that ends in
      shardings. A ShapeDtypeStruct or an array says shape, dtype and sharding; a Sharding,
      PartitionSpec (on the context mesh) or Device says where the leaf, or all leaves under that
      key, shall lie; a numpy array or Python number asks for a value on the host. Without it, or
      where a ShapeDtypeStruct has no sharding, a leaf lies as it was saved.

    Each process reads the parts of the files that its devices need, whatever mesh and spec the
    arrays had when they were saved.
    Raises FileNotFoundError where no save has finished, ValueError for damaged files and where
    tree, shapes, dtypes or devices do not fit, naming the key path; IndivisibleError for a
    sharding that does not divide a dimension.

    >>> import tempfile
    >>> rows = st.NamedSharding(st.make_mesh((8,), ("x",)), P("x"))
    >>> columns = st.NamedSharding(st.make_mesh((2, 4), ("a", "b")), P(None, ("a", "b")))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     st.checkpoints.save(folder, {"w": st.device_put(np.ones((8, 16)), rows), "step": 3})
    ...     state = st.checkpoints.restore(folder, like={"w": columns, "step": 0})
    >>> state["step"], state["w"].addressable_data(0).shape
    (3, (8, 2))
    """
    path = os.path.abspath(os.fspath(path))
    index = folder.require_index(path)
    folder.check_whole(path, index)
    with BlockReader(os.path.join(path, index.folder)) as reader:
        if like is None:
            values = {i: _load(reader, index, leaf, None) for i, leaf in enumerate(index.leaves)}
            return rebuilt(index.tree, values)
        targets, structure = tree.flatten_with_path(like, lambda x: isinstance(x, _PLACES))
        found = _matched([(tree.keystr(p), t) for p, t in targets], index, path)
        out = []
        for node, target in found:
            values = {i: _load(reader, index, index.leaves[i], target)
                      for i in numbers_under(node)}
            out.append(rebuilt(node, values))
        return tree.unflatten(structure, out)


def _matched(targets: Sequence[tuple[str, Any]], index: Index, path: str
             ) -> list[tuple[dict[str, Any], Any]]:
    """For each target the node of the checkpoint that it is for."""
    nodes = all_nodes(index.tree)
    out, extra, taken = [], [], set()
    for where, target in targets:
        node = nodes.get(where)
        if node is None or ("leaf" not in node and not isinstance(target, _PLACES)):
            extra.append(f"{where or '(root)'}: {_target_text(target)}")
            continue
        taken.update(numbers_under(node))
        out.append((node, target))
    missing = [f"{leaf.path or '(root)'}: {leaf.type_text()}"
               for i, leaf in enumerate(index.leaves) if i not in taken]
    if extra or missing:
        notes = [f"only in {what}: {', '.join(texts[:6])}" + (
            f", and {len(texts) - 6} more" if len(texts) > 6 else "")
            for what, texts in (("the checkpoint", missing), ("`like`", extra)) if texts]
        fail(ValueError, f"The tree of `like` is not that of the checkpoint at {path}. "
             + "; ".join(notes), code="checkpoint-tree",
             help="give `like` the structure that was saved; `restore` without it shows that")
    return out


def _target_text(target: Any) -> str:
    if isinstance(target, (ArrayImpl, ShapeDtypeStruct, np.ndarray)):
        shape = ",".join(map(str, target.shape))
        return f"{target.dtype.name}[{shape}]"
    return type(target).__name__


def _load(reader: BlockReader, index: Index, leaf: LeafRecord, target: Any) -> Any:
    """One leaf, as `target` asks for it."""
    name = leaf.path or "the value"
    if leaf.kind in NUMBERS:
        return _load_number(leaf, target, name)
    _check_type(leaf, target, name)
    on_host = leaf.kind == "numpy" if target is None else isinstance(
        target, (np.ndarray, np.generic, *PYTHON_NUMBERS))
    if on_host:
        if is_extended(parse_long(leaf.dtype)):
            fail(ValueError, f"{name} was saved as random keys, which numpy does not have",
                 code="checkpoint-dtype", help="give a ShapeDtypeStruct or a sharding for it")
        whole = reader.part(leaf, (0,) * len(leaf.shape), leaf.shape)
        return whole.item() if isinstance(target, PYTHON_NUMBERS) else whole
    dtype = parse_long(leaf.dtype)
    if canonicalize_dtype(dtype, x64_enabled()) != dtype:
        fail(ValueError, f"{name} was saved as {leaf.type_text()}, and 64-bit types are off",
             code="checkpoint-dtype", help="restore under `enable_x64`, or give a numpy "
             "array for this leaf in `like`")
    sharding, committed = _placement(index, leaf, target, name)
    try:
        check_fits(sharding, leaf.shape, "restored arrays")
    except ValueError as e:
        kind = IndivisibleError if isinstance(e, IndivisibleError) else ValueError
        fail(kind, f"{name}, saved as {leaf.type_text()}, cannot be restored with {sharding}: "
             f"{str(e).splitlines()[0]}", code="checkpoint-sharding",
             help="choose a spec that divides its dimensions")
    if isinstance(sharding, NamedSharding) and sharding.spec.unreduced:
        fail(ValueError, f"{name} cannot be restored as a partial sum, with {sharding}",
             code="checkpoint-sharding", help="restore it without unreduced axes")
    try:
        return reader.array(leaf, sharding, committed)
    except MemoryError as problem:
        fail(MemoryError, f"{name} was saved as {leaf.type_text()}, for which there is not enough "
             f"memory: {problem}", code="checkpoint-memory",
             help="restore it onto more processes, or only what you need of the tree, by `like`")


def _load_number(leaf: LeafRecord, target: Any, name: str) -> Any:
    kind, value = NUMBERS[leaf.kind], number_from_text(leaf.kind, leaf.value)
    if target is None or type(target) is kind or isinstance(target, _PLACES):
        return value
    fail(ValueError, f"{name} was saved as the Python number {value!r}, and `like` asks for "
         f"{_target_text(target)}", code="checkpoint-dtype",
         help=f"give a Python {leaf.kind} for it in `like`, or save an array")


def _check_type(leaf: LeafRecord, target: Any, name: str) -> None:
    """Raise ValueError unless a leaf has the shape and dtype that `target` asks for."""
    if target is None or isinstance(target, _PLACES):
        return
    if type(target) in PYTHON_NUMBERS:
        if leaf.shape == ():
            return
        wanted = type(target).__name__
    elif isinstance(target, (ArrayImpl, ShapeDtypeStruct, np.ndarray, np.generic)):
        dtype = target.dtype
        if isinstance(target, ShapeDtypeStruct):
            dtype = canonicalize_dtype(dtype, x64_enabled())
        if tuple(target.shape) == leaf.shape and dtype == parse_long(leaf.dtype):
            return
        wanted = f"{long_name(dtype)}[{','.join(map(str, target.shape))}]"
    else:
        fail(TypeError, f"`like` has {type(target)} at {name}, which says nothing of an array",
             code="checkpoint-like",
             help="give a ShapeDtypeStruct, an array, a sharding, a numpy array or a number")
    fail(ValueError, f"{name} was saved as {leaf.type_text()}, and `like` asks for {wanted}",
         code="checkpoint-type", help="restore it as it was saved, and convert or reshape it then")


def _placement(index: Index, leaf: LeafRecord, target: Any, name: str) -> tuple[Sharding, bool]:
    """The sharding of a restored array, and whether it is committed to it."""
    if isinstance(target, ShapeDtypeStruct):
        target = target.sharding
    if isinstance(target, ArrayImpl):
        if not target.committed:
            return SingleDeviceSharding(default_device()), False
        return target.sharding, True
    if target is None:
        if leaf.sharding is None:
            return SingleDeviceSharding(default_device()), False
        return saved_sharding(index.shardings[leaf.sharding], name), True
    if isinstance(target, NamedSharding) and not target.is_concrete:
        if STATE.mesh.empty or STATE.mesh.abstract_mesh.shape_tuple != target.mesh.shape_tuple:
            fail(ValueError, f"{name} is to be restored with {target}, on an AbstractMesh that has "
                 "no devices", code="no-mesh",
                 help="restore under `set_mesh` of a mesh with these axes")
        target = NamedSharding(STATE.mesh, target.spec, memory_kind=target.memory_kind)
    return concrete_sharding(target, "restore"), True
