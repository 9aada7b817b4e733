"""What `jax.experimental` holds that programs on sharding import: `shard_map`, `mesh_utils`."""
