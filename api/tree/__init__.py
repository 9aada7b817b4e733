"""Functions over pytrees by their short names, as in `jax.tree`."""
from shardtrace.tracer.trees.tree import all, leaves, leaves_with_path, map, map_with_path, reduce
from shardtrace.tracer.trees.tree_api import (
    flatten,
    flatten_with_path,
    structure,
    transpose,
    unflatten,
)
from shardtrace.tracer.trees.tree_nodes import broadcast, reduce_associative, static

__all__ = [
    "all",
    "broadcast",
    "flatten",
    "flatten_with_path",
    "leaves",
    "leaves_with_path",
    "map",
    "map_with_path",
    "reduce",
    "reduce_associative",
    "static",
    "structure",
    "transpose",
    "unflatten",
]
