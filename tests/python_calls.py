"""How many Python functions are called: a measure of cost that does not depend on the machine."""
from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from shardtrace.tracer.references.frames import BOXES


def python_calls(f: Callable[..., Any], *args: Any, events: tuple[str, ...] = ("call",)) -> int:
    """Calls of Python functions within `f(*args)`; what is written in C does not count (but with
    "c_call" among the events), nor what is called as the result goes, or as the collector removes
    what earlier tests left.
    """
    count = 0

    def on_event(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal count
        count += event in events

    gc.disable()
    left = [*BOXES]              # references of earlier tests, for which functions are looked at
    BOXES.clear()
    before = sys.getprofile()
    sys.setprofile(on_event)
    try:
        result = f(*args)
    finally:
        sys.setprofile(before)
        gc.enable()
        BOXES.update(left)
    del result
    return count
