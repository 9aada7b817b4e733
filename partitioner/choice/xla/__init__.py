"""How XLA's partitioner runs each equation, by objective "xla": by itself, at no cost looked at.

    local_rule   the strategy of an equation: in most cases the layout of its result
    groups       groups of devices that share tiles, taken off one after the other
    products     the groups of a product
    lookups      the groups of a lookup at indices
    common_axes  the layout in which a concatenation runs
"""
