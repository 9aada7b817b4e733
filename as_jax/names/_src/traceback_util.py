"""Frames that tracebacks leave out: those of shardtrace, and no others."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..extend.source_info_util import _EXCLUDED, register_exclusion

__all__ = ["_exclude_paths", "api_boundary", "register_exclusion"]
_exclude_paths = _EXCLUDED
_F = TypeVar("_F", bound=Callable[..., Any])


def api_boundary(fun: _F, **_: Any) -> _F:
    """The function, whose exceptions pass as they are: those of shardtrace have passed theirs."""
    return fun
