"""Deeply nested traces: a larger recursion limit, and an error beyond it.

Each level of `jit`, `scan`, `cond` and their kin takes about ten frames of Python's stack, and
passes over the program a few for each level of bodies. Python allows a thousand by default.
"""
from __future__ import annotations

import sys
import threading
from typing import Any, NoReturn

from ...ir.diagnostics.diagnostic import fail

DEEPLY_NESTED = 16      # levels from which on Python's limit is raised, and at fault if reached
FRAMES = 10_000         # what the stack of a main thread holds for sure
SHOWN = 3


def make_room() -> None:
    """Allow more frames, once functions nest deeply. Other threads may have small stacks."""
    if (threading.current_thread() is threading.main_thread()
            and sys.getrecursionlimit() < FRAMES):
        sys.setrecursionlimit(FRAMES)


def refuse(error: RecursionError, builder: Any) -> NoReturn:
    """Re-raise the error where a trace sees it; the outermost one says what nests.

    A function that recurses without end by itself, with few traces around it, has Python's error.
    """
    names: list[str] = getattr(error, "nested", [])
    if not names:
        b = builder
        while b is not None:
            names.append(b.name)
            b = b.parent
        error.nested = names  # type: ignore[attr-defined]
    if builder.parent is not None or len(names) < DEEPLY_NESTED:
        raise error
    chain = " in ".join(f"`{n}`" for n in names[:SHOWN])
    fail(RecursionError,
         f"{len(names)} functions are traced inside of one another, more than Python's stack has "
         f"room for: {chain} in ... `{names[-1]}`", code="nesting",
         help="where the levels are alike, loop over them with `lax.scan` or `lax.fori_loop`; "
              "`sys.setrecursionlimit` allows deeper stacks")
