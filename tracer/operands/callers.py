"""Distinguishes promotion that the user wrote from promotion inside library functions.

`numpy_rank_promotion` and `numpy_dtype_promotion` apply to what users write. A function composed of
others, such as `image.resize`, may rely on promotion inside.
"""
from __future__ import annotations

import sys

from ...ir.source.location import PACKAGE, STANDS_BETWEEN

# What stands between a user's line and a function that promotes, before it or after.
_PASSING = tuple(f"{PACKAGE}.{name}" for name in (
    "ir.", "arrays.", "tracer.arrays.", "tracer.indexing.", "tracer.jnp.elementwise.",
    "tracer.lax.", "tracer.operands.", "tracer.shardings.", "tracer.staging."))
_ARRAY_FUNCTIONS = f"{PACKAGE}.tracer.jnp."
_PROMOTING = f"{PACKAGE}.tracer.operands."


def called_by_user() -> bool:
    """Whether the function that promotes is the one that the user's line calls.

    The frames of the package above this one show it. Functions of `jax.numpy` that promote within
    are taken for ones that promote their arguments; those of other modules are compositions.
    """
    first = package = None
    frame = sys._getframe(2)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if not STANDS_BETWEEN[module]:
            return True
        if first is None and not module.startswith(_PROMOTING):
            first = module
        if not module.startswith(_PASSING):
            folder = module.split(".")[:4]
            if package is None:
                package = folder
            if package != folder or module != first and not module.startswith(_ARRAY_FUNCTIONS):
                return False
        frame = frame.f_back
    return True
