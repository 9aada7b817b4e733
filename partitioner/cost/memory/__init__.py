"""Memory of a per-device program: from live ranges of buffers to the allocation of a run.

    order.py        the order in which XLA's CPU compiler runs equations
    live_ranges.py  the instants between which each buffer is held, and the copies that are made
    assignment.py   the temporaries that lie in the memory of results, and the block of all others
    peak.py         the peak, where it is, and what is held there
"""
from .peak import Held, Memory, Moment, memory

__all__ = ["Held", "Memory", "Moment", "memory"]
