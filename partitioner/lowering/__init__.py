"""Lowering: the program that every device runs on its blocks.

Before, a RESHARDED program over whole values (see resharding/). After, shapes are those of blocks,
all axes are Manual, every `reshard` is a collective, and `V:x` marks what differs between the
devices along x, found by data flow:

    program @f(
        a: f32[8,4]{V:x} <- f32[8,16@x],
        w: f32[4,32]{V:x} <- f32[16@x,32],
    ) -> f32[2,32]{V:x} => f32[8@x,32] {
      %a: f32[8,32]{V:x} =
          dot_general[dimension_numbers=(((1,), (0,)), ((), ())), preferred_element_type=f32] a w
      %b: f32[2,32]{V:x} = reduce_scatter[axis_name=('x',), axis_size=4, scatter_dimension=0,
          tiled=True] %a  # reduce-scatter over x, 768 B received per device
          # because `dot_general` leaves partial sums: dimension 1 of operand 0 is over x; `max`
          #   takes the finished sum over x, no more expensive than no exchange at all: 768 B
          #   either way
      %c: f32[2,32]{V:x} = max %b 0.0:f32[]
      return %c
    }

`localize.py` is the pass; `builder.py` appends equations on blocks as `recipes.py` says; the other
modules lower what holds programs or calls the user's Python.
"""
