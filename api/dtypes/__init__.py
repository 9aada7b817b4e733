"""Public module `shardtrace.dtypes`: re-exports only."""
