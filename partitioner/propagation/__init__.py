"""Propagation: open dimensions get the mesh axes that their factors have elsewhere.

Before, every call is inlined; arguments and requested results have shardings, values in between
none:

    program @f(a: f32[8,16] <- f32[8,16@x], w: f32[16,32] <- f32[16@x,32])
        -> f32[8,32] => f32[8@x,32] {
      %a: f32[8,32] =
          dot_general[dimension_numbers=(((1,), (0,)), ((), ())), preferred_element_type=f32] a w
      %b: f32[8,32] = max %a 0.0:f32[]
      return %b
    }

After, every type has its sharding and the mesh is frozen. The result's `x` flows back through `max`
to the product, whose dimension 0 it may have; the contracting dimension keeps `x` on both operands:

    program @f(a: f32[8,16@x], w: f32[16@x,32]) -> f32[8@x,32] {
      %a: f32[8@x,32] =
          dot_general[dimension_numbers=(((1,), (0,)), ((), ())), preferred_element_type=f32] a w
      %b: f32[8@x,32] = max %a 0.0:f32
      return %b
    }

Types may now disagree: `x` cannot split the product's rows and its contracting dimension at once.
That is left to choice/ and resharding/.

`graph.py` states the problem as tensors and factor rules, into which `program_graph.py` reads a
program; `fixed_point.py` solves it with the steps of `step.py`, `resolve.py` writes the types down
(`resolved_types.py`) and why values change their layout where programs meet
(`boundary_reasons.py`), and `origins.py` says where an axis came from. `fully_specified.py` serves
programs whose types are all given.
"""
