"""Checkpoints that anybody may have written, or damaged: an error that names the file, or values.

Indexes and files are changed at random; `restore` then gives values or raises one of its errors,
opens nothing outside of the folder, and takes no memory that the files do not.
"""
from __future__ import annotations

import json
import os
import pathlib
import random
import shutil
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardtrace as st
from shardtrace.checkpoints import restore, save
from shardtrace.sharding import PartitionSpec as P

EXTREMES: list[Any] = [
    None, True, False, -1, 0, 1, 2**31, 2**62, 2**64, 10**400, 0.5, float("nan"), "", "x", "../x",
    "/etc/passwd", "process-0.safetensors", "shards-000001", "float32", "key<fry>", "\x1b[2J", [],
    [0], [1, 2], [[]], [["x"]], {}, {"leaf": 0, "path": ""}, "array", "numpy", "int", "named"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A checkpoint with leaves of every kind."""
    mesh = st.make_mesh((4, 2), ("x", "y"))
    w = st.device_put(np.arange(32, dtype=np.float32).reshape(8, 4), st.NamedSharding(
        mesh, P("x", "y")))
    path = tmp_path_factory.mktemp("hostile") / "c"
    save(path, {"w": w, "n": [3, 2.5, 1j, True], "h": np.arange(3), "k": st.random.key(0),
                "e": np.zeros((0, 3)), "d": st.device_put(np.float32(1), st.devices()[1]),
                "t": (st.numpy.ones(4, "bfloat16"), None), "c": np.ones(2, np.complex64)})
    restore(path)
    return path


@pytest.fixture
def copy(whole: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    return pathlib.Path(shutil.copytree(whole, tmp_path / "c"))


def _index(path: pathlib.Path, change: Callable[[Any], Any]) -> None:
    index = json.loads((path / "index.json").read_text())
    (path / "index.json").write_text(json.dumps(change(index) or index))


def _refused(path: pathlib.Path, says: str, like: Any = None) -> str:
    with pytest.raises(ValueError, match=says) as refused:
        restore(path, like)
    assert hasattr(refused.value, "diagnostic") and str(path) in str(refused.value)
    assert len(str(refused.value)) < 3_000
    return str(refused.value)


@pytest.mark.parametrize("name", ["../../other.safetensors", "/etc/passwd", "..", "index.json",
                                  "process-0.safetensors/../x", ""])
def test_an_index_names_files_of_its_own_folder_only(copy: pathlib.Path, name: str) -> None:
    def change(index: Any) -> None:
        index["sizes"] = {name: 1}
        for leaf in index["leaves"]:
            for block in leaf["blocks"]:
                block["file"] = name

    _index(copy, change)
    _refused(copy, "damaged: it names a file")
    _index(copy, lambda index: index | {"sizes": {}})
    _refused(copy, "damaged: a block of .* is in")


@pytest.mark.parametrize("folder", ["../elsewhere", "/tmp", "shards-000002", "."])
def test_blocks_are_in_the_folder_of_their_save(copy: pathlib.Path, folder: str) -> None:
    _index(copy, lambda index: index | {"folder": folder})
    _refused(copy, "damaged: its blocks are said to be in")


def test_links_devices_and_pipes_are_not_opened(copy: pathlib.Path, tmp_path: pathlib.Path) -> None:
    blocks = copy / "shards-000001"
    file = blocks / "process-0.safetensors"
    shutil.move(file, tmp_path / "away")
    file.symlink_to(tmp_path / "away")
    _refused(copy, "is no regular file")
    file.unlink()
    os.mkfifo(file)
    _refused(copy, "is no regular file")
    file.unlink()
    shutil.move(tmp_path / "away", file)
    shutil.move(blocks, tmp_path / "elsewhere")
    blocks.symlink_to(tmp_path / "elsewhere")
    _refused(copy, "is in a folder that is a link")
    (copy / "index.json").unlink()
    os.mkfifo(copy / "index.json")
    _refused(copy, "damaged: it is no regular file")


@pytest.mark.parametrize("text", [
    b"", b"{", b"[]", b"7", b"null", b"\xff", b"[" * 100_000, b'{"format": 1}', b"1" * 10_000,
    b'{"format": "shardtrace checkpoint"}', b'{"format": "shardtrace checkpoint", "version": 1}',
    b'{"format": "shardtrace checkpoint", "version": "1"}'])
def test_what_is_no_index_is_said(copy: pathlib.Path, text: bytes) -> None:
    (copy / "index.json").write_bytes(text)
    _refused(copy, "is damaged|is no index")


def test_blocks_that_overlap_or_leave_gaps_are_refused(copy: pathlib.Path) -> None:
    def change(index: Any) -> None:
        leaf = next(leaf for leaf in index["leaves"] if leaf["path"] == "['w']")
        leaf["blocks"][0]["start"] = [1, 0]

    _index(copy, change)
    _refused(copy, r"the blocks of \['w'\] are not the whole of it")


def test_shapes_larger_than_the_files_are_refused_before_memory_is_taken(copy: pathlib.Path
                                                                         ) -> None:
    def change(index: Any) -> None:
        for leaf in index["leaves"]:
            if leaf["path"] == "['h']":
                leaf["shape"] = leaf["blocks"][0]["shape"] = [2**50]

    _index(copy, change)
    _refused(copy, "bytes, and its blocks")


def test_trees_of_any_depth_are_saved_or_refused_by_name(copy: pathlib.Path, tmp_path: pathlib.Path
                                                         ) -> None:
    def nested(n: int) -> Any:
        value: Any = 1
        for _ in range(n):
            value = {"a": value}
        return value

    save(tmp_path / "deep", nested(200))
    assert restore(tmp_path / "deep") == nested(200)
    for n in (201, 800):
        with pytest.raises(ValueError, match="nested in more than 200 levels"):
            save(tmp_path / "deeper", nested(n))
    assert not (tmp_path / "deeper").exists()

    def change(index: Any) -> None:
        for _ in range(250):
            index["tree"] = {"node": "list", "keys": [], "path": "", "children": [index["tree"]]}

    _index(copy, change)
    _refused(copy, "nested in more than 200 levels")


def _judged(path: pathlib.Path) -> None:
    """Restoring gives values or an error of ours."""
    for like in (None, P()):
        try:
            with st.set_mesh(st.make_mesh((4, 2), ("x", "y"))):
                restore(path, like)
        except Exception as error:
            if not hasattr(error, "diagnostic"):
                raise
            assert "\x1b" not in str(error) and len(str(error)) < 10_000


def _places(node: Any) -> list[tuple[Any, Any]]:
    """Every container with a key of it."""
    items = (list(node.items()) if isinstance(node, dict) else
             list(enumerate(node)) if isinstance(node, list) else [])
    return [p for key, child in items for p in [(node, key), *_places(child)]]


def _mutated_index(path: pathlib.Path, rng: random.Random) -> None:
    index = json.loads((path / "index.json").read_text())
    for _ in range(rng.choice((1, 1, 2))):
        places = _places(index)
        node, key = rng.choice(places)
        other, name = rng.choice(places)
        change = rng.randrange(5)
        if change == 0:
            del node[key]
        elif change == 1:
            node[key] = json.loads(json.dumps(other[name]))
        elif change == 2 and type(node[key]) is int:
            node[key] += rng.choice((-1, 1, 7, 2**40))
        else:
            node[key] = rng.choice(EXTREMES)
    (path / "index.json").write_text(json.dumps(index))


def _mutated_text(path: pathlib.Path, rng: random.Random) -> None:
    data = bytearray((path / "index.json").read_bytes())
    for _ in range(rng.choice((1, 2, 5))):
        data[rng.randrange(len(data))] = rng.choice(b'\x00\xff\x1b{}[]",:0-e')
    (path / "index.json").write_bytes(data[:rng.randrange(len(data))] if rng.random() < 0.2
                                      else data)


def _mutated_file(path: pathlib.Path, rng: random.Random) -> None:
    """The header or length of the file of blocks, which keeps the size that the index says."""
    file = path / "shards-000001" / "process-0.safetensors"
    data = bytearray(file.read_bytes())
    (size,) = struct.unpack("<Q", data[:8])
    change = rng.randrange(4)
    if change == 0:
        data[:8] = struct.pack("<Q", rng.choice((0, 1, size + 8, 2**40, 2**64 - 1)))
    elif change == 1:
        data[8 + rng.randrange(size)] = rng.choice(b"0123456789abIF,[]{}\x00\xff")
    elif change == 2:
        data = data[:rng.randrange(len(data))]
        _index(path, lambda index: index | {"sizes": {file.name: len(data)}})
    else:
        header = json.loads(data[8:8 + size])
        name = rng.choice([k for k in header if k != "__metadata__"])
        field = rng.choice(["dtype", "shape", "data_offsets"])
        header[name][field] = header[rng.choice(list(header))].get(field, [])
        if rng.random() < 0.3:
            header["other"] = header.pop(name)
        text = json.dumps(header).encode().ljust(size)
        if len(text) == size:
            data[8:8 + size] = text
    file.write_bytes(data)


@pytest.mark.parametrize("change", [_mutated_index, _mutated_text, _mutated_file],
                         ids=lambda f: f.__name__)
def test_mutants_of_checkpoints_are_refused_or_restored(
        change: Callable[[pathlib.Path, random.Random], None], copy: pathlib.Path,
        whole: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> None:
    survey(change, copy, whole, 120, 0)


def survey(change: Callable[[pathlib.Path, random.Random], None], copy: pathlib.Path,
           whole: pathlib.Path, count: int, seed: int) -> None:
    for n in range(count):
        for file in ("index.json", "shards-000001/process-0.safetensors"):
            shutil.copy(whole / file, copy / file)
        change(copy, random.Random(1000 * seed + n))
        try:
            _judged(copy)
        except Exception as error:
            error.add_note(f"mutant {n} of seed {seed}, {change.__name__}")
            raise


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("change", [_mutated_index, _mutated_text, _mutated_file],
                         ids=lambda f: f.__name__)
def test_many_mutants_of_checkpoints_are_refused_or_restored(
        change: Callable[[pathlib.Path, random.Random], None], seed: int, copy: pathlib.Path,
        whole: pathlib.Path) -> None:
    survey(change, copy, whole, 1000, seed)
