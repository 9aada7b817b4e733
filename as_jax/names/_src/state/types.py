"""The types of mutable references."""
__all__ = ["AbstractRef"]


class AbstractRef:
    """The type of a mutable reference. No value has it: values do not change."""
