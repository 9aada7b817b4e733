"""Running part of a computation with the Explicit axes switched to Auto: what `out_sharding=` of
samplers, updates, repeats and the like means.

The operands' shardings are then no longer checked op by op, the partitioner lays the values out,
and the result alone is of the sharding that was asked for.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.settings.context import STATE, abstract_mesh_context
from ...ir.shardings.sharding import NamedSharding
from .sharding_functions import with_auto_axes


def in_auto_mode(f: Callable[..., Any], sharding: NamedSharding | None, *operands: Any) -> Any:
    """`f(*operands)` with all Explicit axes of the sharding's mesh Auto, resharded to `sharding`.

    sharding: over an abstract mesh (`canonicalize_sharding`); None runs `f` as it is. Where no mesh
    is in context that of the sharding is taken.
    """
    if sharding is None:
        return f(*operands)
    switched = with_auto_axes(f, sharding.mesh.explicit_axes, sharding, op_by_op=False)
    if STATE.abstract_mesh.axis_names:
        return switched(*operands)
    with abstract_mesh_context(sharding.mesh.abstract_mesh):
        return switched(*operands)
