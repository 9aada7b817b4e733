"""Where in the user's source an equation of a jaxpr comes from."""
from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from ...ir.source.location import Location
from ...ir.support.caches import cached
from ...ir.support.lazy import lazy_import
from ..files import is_library

source_info_util = lazy_import("jax._src.source_info_util")


def is_of_jax(function: str) -> bool:
    """Is a function, written as `name at file:line`, defined by JAX itself?"""
    file = function.rpartition(" at ")[2]
    own = os.path.dirname(os.path.realpath(str(sys.modules["jax"].__file__)))
    return os.path.realpath(file).startswith(own + os.sep)


def location_of(source_info: Any, near: Location | None, call: Location | None
                ) -> Location | None:
    """The user's innermost frame behind an equation, else the place of something near, else a
    library's frame. With its scopes and transformations, or those of the call that it is in.
    """
    frame = None
    for found in source_info_util.user_frames(source_info.traceback):
        if not is_library(found.file_name):
            frame = found
            break
        frame = frame or found
    if near is not None and (frame is None or is_library(frame.file_name)):
        return near
    if frame is None:
        return None
    place = _at(frame.file_name, frame.start_line, frame.start_column, frame.end_line,
                frame.end_column, frame.function_name)
    place = _described(place, source_info.name_stack.stack)
    if call is not None and call.transform and not place.transform:
        place = place.under(call.transform)
    return place


@cached(16384, "places in the source of imported equations")
def _at(file: str, line: int, column: int, end_line: int, end_column: int, function: str
        ) -> Location:
    return Location.at(file, line, column, end_line or line, end_column or column, function)


def _described(place: Location, stack: Sequence[Any]) -> Location:
    """The place with the scopes and transformations of a name stack."""
    transforms = [str(e.name) for e in stack if type(e).__name__ == "Transform"]
    scope = "/".join([e.name for e in stack if type(e).__name__ == "Scope"])
    for name in reversed(transforms):
        place = place.under("batch" if name == "vmap" else name)
    return place.within(scope)
