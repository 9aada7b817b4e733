"""x[index]: what can stand in the brackets, and the slice or gather that it becomes.

Changes of elements (`x.at[index].set`) are made of jnp's functions: jnp/indexing/indexed_update.py.
"""
