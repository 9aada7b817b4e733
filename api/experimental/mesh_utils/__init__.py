"""Public module `shardtrace.experimental.mesh_utils`: re-exports only."""
