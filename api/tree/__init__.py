"""Functions over pytrees (nested containers of arrays) by their short names, as in `jax.tree`.

`map` applies a function to each leaf, `leaves` lists them, `flatten` and `unflatten` take a tree
apart and put it together. Classes become containers by `shardtrace.tree_util.register_dataclass`.

>>> import shardtrace as st
>>> st.tree.map(lambda w, g: w - g, {"w": 3, "b": 1}, {"w": 1, "b": 1})
{'b': 0, 'w': 2}
"""
from shardtrace.ir.api_boundary import bound_names as _bound_names
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
_bound_names(globals())
