"""Public module `shardtrace.nn`: re-exports only."""
