"""Clear every cache: traces, executables, types, index maps."""
from __future__ import annotations

from ..ir.op import OPS
from ..ir.support.buffer_pool import POOL
from ..ir.support.caches import forget
from .jit.jitted import JITTED


def clear_caches() -> None:
    """Forget all programs that were traced and partitioned, and what was computed from shardings.

    Memory that is kept for later runs is given back.

    Jitted functions trace again at their next call.

    >>> double = st.jit(lambda x: x * 2)
    >>> double(1.0), double._cache_size()
    (Array(2., dtype=float32, weak_type=True), 1)
    >>> st.clear_caches()
    >>> double._cache_size()
    0
    """
    for jitted in list(JITTED):
        jitted.clear_cache()
    for op in OPS.values():
        op.forget()
    forget()
    POOL.clear()
