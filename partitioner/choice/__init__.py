"""The strategy of each equation: which mesh axes split its factors, chosen by cost with look-ahead.

A *strategy* (as in Alpa and GSPMD's auto-sharding) says which axes each factor of an equation has,
hence the layout in which every operand is taken and every result is produced. Its cost is that of
computing on blocks, of resharding operands to it and of resharding results to where they are read,
at the prices of what plans are judged by: time on a device, or bytes received (cost/prices.py).
There is one such cost and one search over it.

After propagation (see there) the product of this program has conflicting types:

    program @f(a: f32[8,16@x], w: f32[16@x,32]) -> f32[8@x,32] {
      %a: f32[8@x,32] =
          dot_general[dimension_numbers=(((1,), (0,)), ((), ())), preferred_element_type=f32] a w
      %b: f32[8@x,32] = max %a 0.0:f32
      return %b
    }

Factors are i (rows of a), k (contracting) and j (columns of w). Strategies of the product, with
the cost of bringing operands to them and the result to f32[8@x,32], by bytes, which are easier to
follow than nanoseconds (time leads to the same choice here):

    k over x    a and w as they are, partial sums to reduce-scatter      770 B
    j over x    a gathered, w by all-to-all, result by all-to-all        962 B
    i over x    a by all-to-all, w gathered                            1,634 B
    unsplit     a and w gathered, the result sliced                    1,928 B

Splitting k is cheapest only because of what follows: `max` may run on rows over x, so its
operand can be reduce-scattered (768 B). A search that finished the sum at once would pay for an
all-reduce (1,536 B). The look-ahead knows, since `max` reported which layouts it prefers.

Before: a RESOLVED program. After: per equation a strategy, or None where there is no choice.

    layouts      what is known of the layouts of one mesh, shared by programs on it
    layout_costs layouts and shapes as numbers, and the costs of reshards between them
    costs        cost of computing on blocks, and of a reshard
    candidates   factor shardings worth trying, from the layouts in play
    strategies   the legal ones of these, with costs
    decisions    what there is to decide about an equation; repeated layers share it
    preferences  backward: what an equation would gain from operands in other layouts
    transitions  forward: how an equation may go on from the layouts of its operands
    clusters     values that must be decided together, by variable elimination
    lookahead    the search over a program
    xla          instead of the search, by objective "xla": each equation by itself, as in XLA
    sinking      whether an equation can run before a reshard of its operands
    comparisons  the strategies that were not taken, and what they would have cost
    reasons      the sentences for why an operand or a result is moved
"""
