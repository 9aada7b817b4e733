"""Public module `shardtrace.nn.initializers`: re-exports only."""
