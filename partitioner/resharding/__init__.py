"""Resharding: every change of layout becomes a `reshard` equation, placed where it moves least.

Before, types may ask for conflicting layouts (see propagation/). choice/ has decided that the
product splits its contracting dimension. After, operands are in the layout in which their
equation runs, partial sums have a type that says so (`U:x`), and each `reshard` has a reason:

    program @f(a: f32[8,16@x], w: f32[16@x,32]) -> f32[8@x,32] {
      %a: f32[8,32]{U:x} =
          dot_general[dimension_numbers=(((1,), (0,)), ((), ())), preferred_element_type=f32] a w
      %b: f32[8@x,32] = reshard[dst_sharding=sharding P('x', None)] %a
          # because `dot_general` leaves partial sums: dimension 1 of operand 0 is over x; `max`
          #   takes the finished sum over x, no more expensive than no exchange at all: 768 B
          #   either way
      %c: f32[8@x,32] = max %b 0.0:f32
      return %c
    }

`reshards.py` inserts them; `open_reasons.py` says why, from `reason_kinds.py`, when all are there;
`folding.py` merges those that follow one another. The others move them where they cost less:
`delay.py` sinks them below linear equations, `forks.py` shares one between readers,
`move_reshards.py` and `carry_layouts.py` take them out of loops, `routes.py` lets values go by way
of another layout.
`as_xla.py` inserts them as XLA does, and moves none; `lookups_as_xla.py` writes lookups so that
their masks are values that can be moved.
"""
