"""Whose operation promotes: the user's, or one that a function of ours is made of.

`numpy_rank_promotion` and `numpy_dtype_promotion` are about what users write. A function that is a
composition of others, such as `image.resize`, may rely on promotion inside.
"""
from __future__ import annotations

import sys

from ...ir.diagnostics.location import PACKAGE, STANDS_BETWEEN

# What stands between a user's line and the function that promotes, in front of it or behind.
_PASSING = tuple(f"{PACKAGE}.{name}" for name in (
    "ir.", "runtime.arrays.", "tracer.arrays.", "tracer.indexing.", "tracer.jnp.elementwise.",
    "tracer.lax.", "tracer.operands.", "tracer.shardings.", "tracer.staging."))


def asked_by_user() -> bool:
    """Whether the function that promotes is the one that the user's line calls.

    Told by the frames of ours above this one: they are of one room, which promotes, and of those
    that only pass calls on.
    """
    promoting = None
    frame = sys._getframe(2)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if not STANDS_BETWEEN[module]:
            return True
        if not module.startswith(_PASSING):
            room = module.split(".")[:4]
            if promoting is None:
                promoting = room
            elif room != promoting:
                return False
        frame = frame.f_back
    return True
