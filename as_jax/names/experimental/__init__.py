"""Names of `jax.experimental` beyond those of `shardtrace.experimental`."""
__all__ = ["MutableArray"]


class MutableArray:
    """A mutable reference. No value is one: values do not change."""
