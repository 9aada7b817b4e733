"""Public module `shardtrace.lax`: re-exports only."""
