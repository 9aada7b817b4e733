"""Waste in a partitioned program: what holds, computes or moves more than it need, and why."""
