"""Functions over pytrees by their long names, keys of paths, and registration of classes."""
from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.tracer.trees.tree import (
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
from shardtrace.tracer.trees.tree import all as tree_all
from shardtrace.tracer.trees.tree import leaves as tree_leaves
from shardtrace.tracer.trees.tree import leaves_with_path as tree_leaves_with_path
from shardtrace.tracer.trees.tree import map as tree_map
from shardtrace.tracer.trees.tree import map_with_path as tree_map_with_path
from shardtrace.tracer.trees.tree import reduce as tree_reduce
from shardtrace.tracer.trees.tree_api import (
    PyTreeDef,
    treedef_children,
    treedef_is_leaf,
    treedef_tuple,
)
from shardtrace.tracer.trees.tree_api import flatten as tree_flatten
from shardtrace.tracer.trees.tree_api import flatten_with_path as tree_flatten_with_path
from shardtrace.tracer.trees.tree_api import structure as tree_structure
from shardtrace.tracer.trees.tree_api import transpose as tree_transpose
from shardtrace.tracer.trees.tree_api import unflatten as tree_unflatten
from shardtrace.tracer.trees.tree_nodes import (
    KeyEntry,
    KeyPath,
    all_leaves,
    flatten_one_level,
    flatten_one_level_with_keys,
    is_tree_node,
    register_pytree_with_keys,
    register_pytree_with_keys_class,
    register_static,
)
from shardtrace.tracer.trees.tree_nodes import broadcast as tree_broadcast
from shardtrace.tracer.trees.tree_nodes import reduce_associative as tree_reduce_associative

__all__ = [
    "DictKey",
    "FlattenedIndexKey",
    "GetAttrKey",
    "KeyEntry",
    "KeyPath",
    "Partial",
    "PyTreeDef",
    "SequenceKey",
    "all_leaves",
    "flatten_one_level",
    "flatten_one_level_with_keys",
    "is_tree_node",
    "keystr",
    "register_dataclass",
    "register_pytree_node",
    "register_pytree_node_class",
    "register_pytree_with_keys",
    "register_pytree_with_keys_class",
    "register_static",
    "tree_all",
    "tree_broadcast",
    "tree_flatten",
    "tree_flatten_with_path",
    "tree_leaves",
    "tree_leaves_with_path",
    "tree_map",
    "tree_map_with_path",
    "tree_reduce",
    "tree_reduce_associative",
    "tree_structure",
    "tree_transpose",
    "tree_unflatten",
    "treedef_children",
    "treedef_is_leaf",
    "treedef_tuple",
]
_bound_names(globals())
