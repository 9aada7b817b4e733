"""Pytrees: nested containers of arrays, flattened and rebuilt (optree does the work).

`tree.py` is what the rest of the package uses; `tree_api.py` and `tree_nodes.py` are what users
find in `jax.tree` and `jax.tree_util`.
"""
