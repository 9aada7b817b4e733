"""What `jax.experimental` has more of."""
__all__ = ["MutableArray"]


class MutableArray:
    """A mutable reference. No value is one: values do not change."""
