"""What layouts cost, and the cheapest choice of them. Read in this order:

    groups           values that share one layout
    moves            the prices of bringing values from one layout to another
    model            the cost of each layout of a group, as tables, at the partitioner's prices
    memory           what a device holds at its peak, for a choice of layouts
    bounds           the least cost that any choice can have, and what a cheaper one may use
    solve            the cheapest choice: coordinate descent, and a mixed-integer program
"""
