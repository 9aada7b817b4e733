"""Sparse arrays, which are not supported: whatever would make one raises AttributeError."""
__all__ = ["BCOO"]


class BCOO:
    """A sparse array. No value is one."""
