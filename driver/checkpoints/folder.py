"""Replaces one checkpoint in a folder by the next, so that no crash leaves half of one.

    path/index.json                       what the checkpoint is; replaced in one step
    path/shards-000007/process-0.safetensors      the blocks that a process wrote

A save writes its blocks into a new folder, makes sure that they are on the disk, and then replaces
index.json, which names that folder: before this step the older checkpoint is whole, after it the
newer. What is not named by index.json is left over from a save that did not finish; the next one
removes it. A folder with blocks but no index.json holds no checkpoint.
"""
from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import stat

import numpy as np

from ...ir.diagnostics.diagnostic import clipped, error, fail
from ...ir.support.lazy import lazy_import
from .reading import Damage, expect, index_from_json
from .record import Index, block_file, generation_folder

safetensors_numpy = lazy_import("safetensors.numpy")

INDEX = "index.json"
_NEW_INDEX = "index.json.new"
_LARGEST_INDEX = 1 << 28
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_BLOCKS = re.compile(r"shards-\d{6,}")


def read_index(path: str) -> Index | None:
    """The index of the checkpoint in a folder; None if no save to it has finished.

    Raises ValueError if the index is damaged (which no crash of a save causes).
    """
    name = os.path.join(path, INDEX)
    try:
        found = os.lstat(name)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        expect(stat.S_ISREG(found.st_mode), "it is no regular file")
        expect(found.st_size <= _LARGEST_INDEX, f"it has {found.st_size:,} bytes")
        try:
            with open(name, encoding="utf-8") as file:
                raw = json.load(file)
        except (ValueError, RecursionError) as error:
            raise Damage(str(error)) from error
        return index_from_json(raw, name)
    except Damage as error:
        fail(ValueError, f"{name} is damaged: {clipped(str(error), 500)}",
             code="checkpoint-index", help="copy the whole folder again from where it came from")


def require_index(path: str) -> Index:
    """`read_index`, or FileNotFoundError that says what the folder holds instead."""
    index = read_index(path)
    if index is not None:
        return index
    if not os.path.isdir(path):
        what = "is a file" if os.path.exists(path) else "does not exist"
        fail(FileNotFoundError, f"There is no checkpoint at {path}: it {what}",
             code="no-checkpoint", help="give the folder that `save` was called with")
    if any(_is_ours(name) for name in os.listdir(path)):
        fail(FileNotFoundError, f"There is no whole checkpoint at {path}: a save to it began and "
             "did not finish", code="torn-checkpoint",
             notes=(f"it has blocks, but no {INDEX}, which is written last",),
             help="restore an earlier checkpoint; saving to this path again starts afresh")
    fail(FileNotFoundError, f"There is no checkpoint at {path}: the folder has no {INDEX}",
         code="no-checkpoint", help="give the folder that `save` was called with")


def check_whole(path: str, index: Index) -> None:
    """Raise ValueError unless all files of the checkpoint are in its own folder, with the sizes
    they had. Links do not count, since they may lead anywhere.
    """
    folder = os.path.join(path, index.folder)
    for name, size in index.sizes.items():
        file = os.path.join(folder, name)
        try:
            found = os.lstat(file)
        except OSError:
            found = None
        if os.path.islink(folder):
            was = "is in a folder that is a link"
        elif found is None:
            was = "is missing"
        elif not stat.S_ISREG(found.st_mode):
            was = "is no regular file"
        else:
            was = f"has {found.st_size} bytes"
        if was != f"has {size} bytes":
            fail(ValueError, f"The checkpoint at {path} is damaged: {file} {was}, and had {size} "
                 "when it was saved", code="checkpoint-damaged",
                 help="copy the whole folder again from where it came from, or restore an earlier "
                      "checkpoint")


# -- saving ----------------------------------------------------------------------------------------

def check_may_save(path: str, current: Index | None, overwrite: bool) -> None:
    """Raise FileExistsError if a save would destroy something that must not be replaced."""
    if current is not None:
        if not overwrite:
            fail(FileExistsError, f"There is a checkpoint at {path} already",
                 code="checkpoint-exists", help="save to another path, or leave out "
                 "`overwrite`: the old one stays whole until the new one is")
        return
    if os.path.isdir(path):
        foreign = sorted(name for name in os.listdir(path) if not _is_ours(name))
        if foreign:
            fail(FileExistsError, f"The folder {path} has files that are no part of a checkpoint: "
                 f"{', '.join(foreign[:5])}", code="not-a-checkpoint",
                 help="save to a folder of its own, such as a new one inside of it")
    elif os.path.exists(path):
        fail(FileExistsError, f"{path} is a file; a checkpoint is a folder",
             code="not-a-checkpoint", help="save to another path")


def begin(path: str, generation: int) -> None:
    """Make the folder for new blocks, and remove what an unfinished save left.

    Called by one process; the others write afterwards.
    """
    parents = [os.path.dirname(path)]      # of new folders: to be synced
    while not os.path.isdir(parents[-1]):
        parents.append(os.path.dirname(parents[-1]))
    os.makedirs(path, exist_ok=True)
    for folder in parents:
        _sync_folder(folder)
    current = read_index(path)
    _remove_others(path, current.folder if current else None)
    os.mkdir(os.path.join(path, generation_folder(generation)))
    _sync_folder(path)


def write_blocks(path: str, generation: int, process: int, tensors: dict[str, np.ndarray]
                 ) -> dict[str, int]:
    """Write the blocks of one process to disk, synced; returns names and sizes of the files."""
    if not tensors:
        return {}
    folder, name = os.path.join(path, generation_folder(generation)), block_file(process)
    file = os.path.join(folder, name)
    try:
        safetensors_numpy.save_file(tensors, file)
    except Exception as problem:            # the library's own class, with the number in its text
        number = re.search(r"os error (\d+)", str(problem))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), file) from problem
    _sync(file)
    _sync_folder(folder)
    return {name: os.path.getsize(file)}


def commit(path: str, index: Index) -> None:
    """Make `index` the checkpoint of this folder. Called by one process, after all have written."""
    new = os.path.join(path, _NEW_INDEX)
    with open(new, "w", encoding="utf-8") as file:
        json.dump(index.to_json(), file, separators=(",", ":"))
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, os.path.join(path, INDEX))
    _sync_folder(path)
    _remove_others(path, index.folder)


def not_saved(path: str, generation: int, only_writer: bool, made: bool, problem: OSError
              ) -> Exception:
    """The error for a save that the system did not let finish; removes what it wrote.

    only_writer: no other process saves here. Others may still be writing, and their files go with
    the next save. made: there was no such folder before.
    """
    current = None
    with contextlib.suppress(OSError, ValueError):
        current = read_index(path)
    name = generation_folder(generation)
    if current is not None and current.folder == name:
        intact = ("the new checkpoint is whole, but may not be on the disk yet, or what it "
                  "replaces is still there")
    else:
        if only_writer:
            shutil.rmtree(os.path.join(path, name), ignore_errors=True)
            with contextlib.suppress(OSError):
                os.remove(os.path.join(path, _NEW_INDEX))
            if made:
                with contextlib.suppress(OSError):
                    os.rmdir(path)
        intact = ("there was no checkpoint here, and there is none now" if current is None else
                  "the checkpoint that was here before is whole, and is what `restore` gives")
    help = "make room on the disk" if problem.errno in _FULL else "see that it can be written to"
    failure = error(OSError, f"The checkpoint could not be saved at {path}: {problem}",
                    code="checkpoint-not-saved", notes=(intact,),
                    help=f"{help}, or give a path elsewhere, and save again")
    failure.errno = problem.errno  # type: ignore[attr-defined]
    return failure


def _is_ours(name: str) -> bool:
    return name == _NEW_INDEX or _BLOCKS.fullmatch(name) is not None


def _remove_others(path: str, keep: str | None) -> None:
    for name in sorted(os.listdir(path)):
        if name == keep or not _is_ours(name):
            continue
        full = os.path.join(path, name)
        if os.path.isdir(full):
            shutil.rmtree(full)
        else:
            os.remove(full)


def _sync(name: str) -> None:
    descriptor = os.open(name, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(name: str) -> None:
    if os.name != "nt":      # there a folder cannot be opened, and names are on disk at once
        _sync(name)
