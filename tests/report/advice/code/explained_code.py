"""Explains the code of a file, and runs what a suggestion makes of it device by device."""
from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
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
    with st.config.override(shardtrace_engine="per_device"):
        return np.asarray(suggestion.apply()(*placed))


def check_change(tmp_path: Path, source: str, words: str, least: float, given: Callable[[Any], Any],
                 wanted: Callable[..., Any] | None, shown: bool = True, **tolerance: float
                 ) -> tuple[Any, Any]:
    """The suggestion with these words receives less than a part in `least` of the bytes, and with
    the change made `f` gives what is wanted of the values that `given` makes for its arguments, and
    the same if the lines that it shows are typed in; it is not made where nothing is wanted. shown:
    whether it shows lines. Returns the explanation and the suggestion.
    """
    with explained_code(tmp_path, source, words) as (module, found, best):
        assert (best is None) is (wanted is None)
        if best is not None and wanted is not None:
            assert best.received_bytes < found.received_bytes / least
            values = given(module.args)
            changed = changed_result(best, module.args, values)
            np.testing.assert_allclose(changed, wanted(*values), **tolerance)
            assert bool(best.diff) is shown
            typed = check_typed(tmp_path, source, best, values, wanted(*values), **tolerance)
            assert typed == best.received_bytes or not shown
    return found, best


def check_typed(tmp_path: Path, source: str, suggestion: Any, values: list[np.ndarray], wanted: Any,
                **tolerance: float) -> int:
    """The function of a source with the lines of a suggestion typed in gives what is wanted of
    these values; the bytes that it receives.
    """
    assert all(source.count(old) == 1 for old, _ in suggestion.diff)
    for at, old, new in sorted([(source.index(old), old, new) for old, new in suggestion.diff],
                               reverse=True):       # a new line may say what an old one said
        source = source[:at] + new + source[at + len(old):]
    with user_module(user_file(tmp_path, source)) as module:
        placed = [st.device_put(v, a.sharding) for v, a in zip(values, module.args, strict=True)]
        np.testing.assert_allclose(np.asarray(st.jit(module.f)(*placed)), wanted, **tolerance)
        return st.explain(module.f, suggest_seconds=0)(*module.args).received_bytes
