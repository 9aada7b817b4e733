"""Traces of functions: a function is one program however often it is jitted."""
from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from typing import Any

from ...ir.support.caches import Cache, tables
from ...tracer.staging.signature import Arguments

_TRACES = tables("driver.jit.shared_traces._TRACES", "traced programs of one function", 1024)
# A function that its own trace leads back to, by a callback for instance, is held until others have
# come; jitted functions keep their traces.
_SHARED_TRACES: weakref.WeakKeyDictionary[Any, dict[Any, dict[Any, Any]]] = (
    weakref.WeakKeyDictionary())
_SHARED = Cache("driver.jit.shared_traces._SHARED_TRACES",
                "traces of functions, for all their jitted forms", 1024, _SHARED_TRACES)


def traces_of(f: Callable[..., Any], arguments: Arguments) -> dict[Any, Any]:
    """The traces of a function, which all its jitted forms with these static arguments share."""
    if type(f) is not types.FunctionType:
        return _TRACES()
    known = _SHARED_TRACES
    if len(known.data) >= _SHARED.most and f not in known:  # type: ignore[attr-defined]
        for entry in known.keyrefs()[:1 + _SHARED.most // 8]:
            known.pop(entry(), None)
    of_function = known.setdefault(f, {})
    return of_function.setdefault((arguments.static_nums, arguments.static_names),
                                  _TRACES())
