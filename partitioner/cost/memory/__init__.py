"""Memory of a per-device program: from live ranges of buffers to what a run allocates.

    order.py        in which order XLA's compiler of CPUs runs equations
    live_ranges.py  from which instant to which each buffer is held, and what is copied besides
    assignment.py   which temporaries lie in the memory of results, and the block of the others
    peak.py         the peak, where it is, and what is held there
"""
from .peak import Held, Memory, Moment, memory

__all__ = ["Held", "Memory", "Moment", "memory"]
