"""Redistribution: the cheapest sequence of collectives from one layout of a value to another.

Input: mesh, shape, the layout that a value has and the one that is wanted, with the axes over which
it is a partial sum. Output: a `Plan`, its moves and the elements that each device receives. For the
reshard of the example of resharding/, f32[8,32]{U:x} to f32[8@x,32] on four devices:

    reduce_scatter over x onto dimension 0, 192 elements received

and had the whole sum been wanted, f32[8,32]:

    psum over x, 384 elements received

`redistribute.py` makes the plan, with `shortest.py` and `between_tilings.py` for layouts without
partial sums, and `partial_sums.py` for sums; `effects.py` says what a move does to a block,
`moves.py` writes moves as equations, `joint_axes.py` treats mesh axes that always go together as
one. `steps_of_xla.py` says which way XLA goes, by axes of prime size (`prime_axes.py`).
"""
