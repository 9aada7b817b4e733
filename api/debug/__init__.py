"""Public module `shardtrace.debug`: re-exports only."""
