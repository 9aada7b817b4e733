"""Public module `shardtrace.numpy.linalg`: re-exports only."""
