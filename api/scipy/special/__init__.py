"""Public module `shardtrace.scipy.special`: re-exports only."""
