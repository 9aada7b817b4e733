"""Frames that tracebacks leave out: those of shardtrace, and no others."""
from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

from ....ir.api_boundary import UnfilteredStackTrace
from ....ir.source.location import is_ours
from ..extend.source_info_util import _EXCLUDED, register_exclusion

__all__ = ["UnfilteredStackTrace", "_exclude_paths", "api_boundary", "include_frame",
           "register_exclusion"]
_exclude_paths = _EXCLUDED
_F = TypeVar("_F", bound=Callable[..., Any])


def include_frame(f: FrameType) -> bool:
    """Is it a frame of a file that is not excluded?"""
    return f.f_code.co_filename not in _EXCLUDED and not is_ours(f.f_globals.get("__name__", ""))


def api_boundary(fun: _F, **_: Any) -> _F:
    """The function, whose exceptions pass as they are: those of shardtrace have passed theirs."""
    return fun
