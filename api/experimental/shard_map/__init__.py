"""Public module `shardtrace.experimental.shard_map`: re-exports only."""
