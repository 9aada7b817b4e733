"""Reading the index of a checkpoint: could a save have written it?

The file may come from anywhere. All that `restore` takes from it is checked first: classes and
bounds, file names (only such as saves write, in the folder itself), and that blocks cover their
arrays and fit into their files.
"""
from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ...ir.diagnostics.diagnostic import fail
from ...ir.dtypes.table import float0, parse_long
from ...ir.kernels.key_data import storage_dtype
from ...ir.meshes.mesh import AxisType
from .record import (
    FORMAT,
    MOST_NESTED,
    NUMBERS,
    VERSION,
    Index,
    LeafRecord,
    generation_folder,
    leaf_from_json,
    number_from_text,
)

_FILE = re.compile(r"process-\d{1,9}\.safetensors")
_LARGEST = 1 << 62       # bound for bytes, numbers of elements and of saves
_LEAF = {"path": str, "kind": str, "shape": list, "dtype": str, "weak_type": bool, "value": str,
         "blocks": list}
_BLOCK = {"file": str, "name": str, "start": list, "shape": list}
_SHARDINGS = {
    "device": {}, "other": {"text": str}, "tiles": {"tiles": str},
    "named": {"axis_names": list, "axis_sizes": list, "axis_types": list, "spec": list,
              "reduced": list}}


class Damage(Exception):
    """What is wrong with an index."""


def expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Damage(otherwise)


def fields(found: Any, kinds: Mapping[str, type], what: str) -> None:
    """Raise Damage unless `found` is an object with fields of these classes."""
    expect(isinstance(found, dict), f"{what} is no object")
    for name, kind in kinds.items():
        expect(name in found, f"{what} has no {name!r}")
        expect(type(found[name]) is kind, f"{name!r} of {what} is no {kind.__name__}")


def whole_numbers(found: Iterable[Any], what: str, least: int = 0) -> None:
    expect(all(type(n) is int and least <= n < _LARGEST for n in found),
           f"{what} has other things than whole numbers of {least} or more")


def _check_version(d: Any, path: str) -> None:
    """Raise ValueError for JSON that is not an index, or one of a later version."""
    if not isinstance(d, dict) or d.get("format") != FORMAT or type(d.get("version")) is not int:
        fail(ValueError, f"{path} is no index of a checkpoint", code="checkpoint-index",
             help="give the folder that `save` was called with")
    if d["version"] > VERSION:
        fail(ValueError, f"{path} is of version {d['version']}; this release reads up to "
             f"{VERSION}", code="checkpoint-version", help="restore it with the release it was "
             "saved with, or update shardtrace")


def index_from_json(d: Any, path: str) -> Index:
    """The index in JSON. Raises ValueError for other JSON, Damage for an invalid index."""
    _check_version(d, path)
    _check_raw(d)
    index = Index(d["tree"], tuple(map(leaf_from_json, d["leaves"])), tuple(d["shardings"]),
                  d["folder"], d["generation"], d["sizes"])
    _check_index(index)
    return index


def _check_raw(found: Any) -> None:
    """Raise Damage unless the JSON has the form of an index."""
    fields(found, {"tree": dict, "leaves": list, "shardings": list, "folder": str,
                   "generation": int, "sizes": dict}, "the index")
    whole_numbers([found["generation"]], "'generation'", 1)
    expect(found["folder"] == generation_folder(found["generation"]),
           f"its blocks are said to be in {found['folder']!r}, and those of save "
           f"{found['generation']} are in {generation_folder(found['generation'])!r}")
    for name in found["sizes"]:
        expect(_FILE.fullmatch(name) is not None, f"it names a file {name!r}, which no save writes")
    whole_numbers(found["sizes"].values(), "'sizes'")
    for i, sharding in enumerate(found["shardings"]):
        _check_sharding(sharding, f"sharding {i}")
    for i, leaf in enumerate(found["leaves"]):
        what = f"leaf {i}"
        fields(leaf, _LEAF, what)
        number = leaf.get("sharding")
        expect(number is None or type(number) is int and 0 <= number < len(found["shardings"]),
               f"{what} has no sharding of the index")
        expect(len(leaf) == len(_LEAF) + ("sharding" in leaf), f"{what} has unknown fields")
        whole_numbers(leaf["shape"], f"the shape of {what}")
        for block in leaf["blocks"]:
            fields(block, _BLOCK, f"a block of {what}")
            whole_numbers([*block["start"], *block["shape"]], f"a block of {what}")
    _check_tree(found["tree"], len(found["leaves"]))


def _check_sharding(found: Any, what: str) -> None:
    """Raise for a recorded sharding that is none: fields that are missing, a mesh of other sizes
    than its devices, an axis that is used twice. what: its name in messages.
    """
    fields(found, {"kind": str, "devices": list}, what)
    expect(found["kind"] in _SHARDINGS, f"{what} is of no known kind")
    fields(found, _SHARDINGS[found["kind"]], what)
    whole_numbers(found["devices"], f"'devices' of {what}")
    devices, memory = found["devices"], found.get("memory_kind")
    expect(0 < len(devices) == len(set(devices)), f"{what} has no devices, or some twice")
    expect(memory is None or type(memory) is str, f"'memory_kind' of {what} is no str")
    if found["kind"] == "named":
        names, sizes = found["axis_names"], found["axis_sizes"]
        whole_numbers(sizes, f"'axis_sizes' of {what}", 1)
        expect(all(type(n) is str for n in names) and len(set(names)) == len(names) == len(sizes)
               == len(found["axis_types"]) and math.prod(sizes) == len(devices),
               f"{what} has no mesh of its {len(devices)} devices")
        expect(all(type(t) is str and t in AxisType.__members__ for t in found["axis_types"]),
               f"'axis_types' of {what} are not those of axes")
        expect(all(type(e) is list for e in found["spec"]), f"'spec' of {what} is no list of lists")
        used = [a for e in (*found["spec"], found["reduced"]) for a in e]
        expect(all(type(a) is str for a in used) and len(set(used)) == len(used),
               f"{what} uses an axis twice")


def _check_tree(root: dict[str, Any], leaves: int) -> None:
    """Raise Damage unless each leaf is in the tree once, and the containers can be rebuilt."""
    seen: list[int] = []
    waiting = [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        expect(depth <= MOST_NESTED, f"the tree is nested in more than {MOST_NESTED} levels")
        if isinstance(node, dict) and "leaf" in node:
            fields(node, {"leaf": int, "path": str}, "a leaf of the tree")
            seen.append(node["leaf"])
            continue
        fields(node, {"node": str, "keys": list, "path": str, "children": list}, "a node")
        keys, children = node["keys"], node["children"]
        if node["node"] in ("dict", "OrderedDict"):
            expect(not any(isinstance(k, list | dict) for k in keys)
                   and len(set(keys)) == len(keys) == len(children),
                   f"the keys at {node['path'] or 'the root'} are not one for each value")
        waiting += [(child, depth + 1) for child in children]
    expect(sorted(seen) == list(range(leaves)), f"the tree has not each of its {leaves} leaves "
           "once")


def _check_index(index: Index) -> None:
    """Raise Damage unless the blocks of every leaf are complete, and fit into their files."""
    needed = dict.fromkeys(index.sizes, 0)
    for leaf in index.leaves:
        what = leaf.path or "the value"
        if leaf.kind in NUMBERS:
            try:
                number_from_text(leaf.kind, leaf.value)
            except (ValueError, TypeError, OverflowError):
                raise Damage(f"{what} is no {leaf.kind}") from None
            continue
        expect(leaf.kind in ("array", "numpy"), f"{what} is of no known kind, {leaf.kind!r}")
        try:
            dtype = parse_long(leaf.dtype)
        except (ValueError, TypeError, KeyError):
            raise Damage(f"{what} has no known dtype, {leaf.dtype!r}") from None
        item = storage_dtype(dtype).itemsize
        expect(math.prod(n or 1 for n in leaf.shape) * max(item, 16) < _LARGEST
               and len(leaf.shape) <= 64, f"{what} is larger than any memory, {leaf.shape}")
        for block in leaf.blocks:
            expect(block.file in needed, f"a block of {what} is in {block.file!r}, which is no "
                   "file of the index")
            expect(len(block.start) == len(block.shape) == len(leaf.shape) and all(
                a + n <= size for a, n, size in zip(block.start, block.shape, leaf.shape,
                                                    strict=True)),
                f"a block of {what} is no part of an array of shape {leaf.shape}")
            needed[block.file] += math.prod(block.shape) * item
        expect(covers(leaf), f"the blocks of {what} are not the whole of it")
    for file, size in needed.items():
        expect(size <= index.sizes[file], f"{file!r} has {index.sizes[file]} bytes, and its blocks "
               f"{size}")


def covers(leaf: LeafRecord) -> bool:
    """Do the blocks of a leaf cover it, each element once, as the cells of a grid?"""
    if parse_long(leaf.dtype) == float0 or 0 in leaf.shape:
        return True
    blocks = [b for b in leaf.blocks if 0 not in b.shape]
    cells = 1
    for d, size in enumerate(leaf.shape):
        at = 0
        cuts = sorted({(b.start[d], b.start[d] + b.shape[d]) for b in blocks})
        for start, stop in cuts:
            if start != at:
                return False
            at = stop
        if at != size:
            return False
        cells *= len(cuts)
    return len(blocks) == len({b.start for b in blocks}) == cells
