"""Explains the code of a file, and runs what a suggestion makes of it device by device."""
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import shardtrace as st

from ....user_files import user_file, user_module


@contextlib.contextmanager
def explained_code(tmp_path: Path, source: str, words: str
                   ) -> Iterator[tuple[ModuleType, Any, Any]]:
    """(the module of the source, the explanation of its `f` on its `args`, the first suggestion of
    a single change with these words, or None).
    """
    with user_module(user_file(tmp_path, source)) as module:
        found = st.explain(module.f)(*module.args)
        yield module, found, next((s for c in found.collectives for s in c.suggestions
                                   if words in s.text and len(s.changes) == 1), None)


def changed_result(suggestion: Any, args: Any, given: list[np.ndarray]) -> np.ndarray:
    """What the function with the change made gives for these values of its arguments."""
    placed = [st.device_put(v, a.sharding) for v, a in zip(given, args, strict=True)]
    with st.config.override(shardtrace_executor="per_device"):
        return np.asarray(suggestion.apply()(*placed))
