"""Waste in a partitioned program: more held, computed or moved than necessary, and why."""
