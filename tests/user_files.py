"""Programs of users as files: written, run as modules, and left without a trace."""
from __future__ import annotations

import contextlib
import importlib.util
import itertools
import pathlib
import sys
from collections.abc import Iterator
from types import ModuleType

from shardtrace.ir.settings.context import STATE

from .paths import EXAMPLES

COUNT = itertools.count()


def example_module(name: str) -> ModuleType:
    """The file of examples/ as a new module."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def user_file(folder: pathlib.Path, source: str) -> pathlib.Path:
    """A file with this text, under a name that no other has."""
    file = folder / f"user{next(COUNT)}.py"
    file.write_text(source)
    return file


@contextlib.contextmanager
def user_module(file: pathlib.Path) -> Iterator[ModuleType]:
    """The file as a module; a mesh that it sets is set within the block only."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    saved = STATE.mesh, STATE.abstract_mesh
    sys.modules[file.stem] = module
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        STATE.mesh, STATE.abstract_mesh = saved
        del sys.modules[file.stem]
