"""Collectives by axis name, for the bodies of shard_map."""
