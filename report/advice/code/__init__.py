"""Changes to the user's code after which less is exchanged and the same is computed.

`changes.py` finds them in a program; `rewrites.py`, `enlarging.py`, `one_hot.py`, `weights.py`,
`reduced_blocks.py`, `blocks.py`, `one_block.py`, `selections.py`, `joins.py` and `loops.py` declare
them; `varying_axes.py` says which values all devices have, on which many depend; `on_blocks.py`
applies an op to blocks as the partitioner does; `shard_map_bodies.py` has the changes of what a
`shard_map` is given; `lines/` reads and writes the user's lines.
"""
