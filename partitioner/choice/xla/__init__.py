"""The strategies of objective "xla": each equation on its own, without costs, as in XLA.

    local_rule   the strategy of an equation: in most cases the layout of its result
    groups       groups of devices that share tiles, separated one after the other
    products     the groups of a product
    lookups      the groups of a lookup at indices
    common_axes  the layout in which a concatenation runs
"""
