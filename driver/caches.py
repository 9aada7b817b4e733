"""Forgetting what was computed once and kept: traces, executables, types, index maps."""
from __future__ import annotations

from ..ir.op import DEFAULT_INTERPRETER, OPS
from ..ir.pool import POOL
from ..ir.shardings.base_sharding import common_devices_indices_map
from ..ir.shardings.tiling import canonical_tiling
from ..partitioner.choice import alternatives
from ..partitioner.choice.layouts import forget_layouts
from ..partitioner.propagation.fixed_point import forget_steps
from ..runtime.axes import forget_atoms
from ..runtime.blocks.blocked import forget_routines
from ..runtime.placement import spec_on
from ..runtime.plans.generated import forget_sources
from ..runtime.simulation.workspace import kind_of
from ..tracer.autodiff.recurring import forget_recurring
from ..tracer.staging.composed import REMEMBERED
from .eager import EagerInterpreter
from .executable import array_aval, found_sharding
from .jit import JITTED
from .recent import forget_recent


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
    for interpreter in DEFAULT_INTERPRETER:
        if isinstance(interpreter, EagerInterpreter):
            interpreter._cache.clear()
    for op in OPS.values():
        op.infer_cache.clear()
        op.uses.clear()
    forget_recent()
    forget_recurring()
    for table in REMEMBERED:
        table.clear()
    forget_steps()
    for cache in (common_devices_indices_map, canonical_tiling, spec_on, found_sharding, array_aval,
                  kind_of, alternatives.between):
        cache.cache_clear()
    POOL.clear()
    forget_layouts()
    forget_atoms()
    forget_routines()
    forget_sources()
