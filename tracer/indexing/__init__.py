"""x[index]: the forms of an index, and the slice or gather that it becomes.

Updates of elements (`x.at[index].set`) are written with jnp functions:
jnp/indexing/indexed_update.py.
"""
