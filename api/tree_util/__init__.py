"""Functions over pytrees by their long names, keys of paths, and registration of classes."""
from shardtrace.tracer.tree import (
    DictKey,
    FlattenedIndexKey,
    GetAttrKey,
    Partial,
    SequenceKey,
    keystr,
    register_dataclass,
    register_pytree_node,
    register_pytree_node_class,
)
from shardtrace.tracer.tree import all as tree_all
from shardtrace.tracer.tree import leaves as tree_leaves
from shardtrace.tracer.tree import leaves_with_path as tree_leaves_with_path
from shardtrace.tracer.tree import map as tree_map
from shardtrace.tracer.tree import map_with_path as tree_map_with_path
from shardtrace.tracer.tree import reduce as tree_reduce
from shardtrace.tracer.tree_api import PyTreeDef, treedef_children, treedef_is_leaf, treedef_tuple
from shardtrace.tracer.tree_api import flatten as tree_flatten
from shardtrace.tracer.tree_api import flatten_with_path as tree_flatten_with_path
from shardtrace.tracer.tree_api import structure as tree_structure
from shardtrace.tracer.tree_api import transpose as tree_transpose
from shardtrace.tracer.tree_api import unflatten as tree_unflatten

__all__ = [
    "DictKey",
    "FlattenedIndexKey",
    "GetAttrKey",
    "Partial",
    "PyTreeDef",
    "SequenceKey",
    "keystr",
    "register_dataclass",
    "register_pytree_node",
    "register_pytree_node_class",
    "tree_all",
    "tree_flatten",
    "tree_flatten_with_path",
    "tree_leaves",
    "tree_leaves_with_path",
    "tree_map",
    "tree_map_with_path",
    "tree_reduce",
    "tree_structure",
    "tree_transpose",
    "tree_unflatten",
    "treedef_children",
    "treedef_is_leaf",
    "treedef_tuple",
]
