"""Sparse arrays, of which there are none: what makes them raises AttributeError."""
__all__ = ["BCOO"]


class BCOO:
    """A sparse array. No value is one."""
