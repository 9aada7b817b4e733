"""Public module `shardtrace.scipy`: re-exports only."""
