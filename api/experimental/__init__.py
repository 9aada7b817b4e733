"""Public module `shardtrace.experimental`: re-exports only."""
