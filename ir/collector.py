"""Pausing the cyclic garbage collector while many linked objects are made.

Programs are graphs of small objects that stay alive; building one makes the collector run again
and again over all of them, for nothing. Bulk stages (trace, parse, print, pass) switch it off.
"""
from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the collector off within a `with` block, and then as it was before."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
