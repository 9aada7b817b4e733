"""The strategies of objective "xla": each equation by itself, and by no cost, as XLA chooses them.

    local_rule   the strategy of an equation: in most cases the layout of its result
    groups       groups of devices that share tiles, taken off one after the other
    products     the groups of a product
    lookups      the groups of a lookup at indices
    common_axes  the layout in which a concatenation runs
"""
