"""Public module `shardtrace.random`: re-exports only."""
