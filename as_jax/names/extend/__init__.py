"""Names of `jax.extend` beyond those of `shardtrace.extend`."""
__all__: list[str] = []
