"""Numeric algorithms on numpy arrays: what evaluators of ops call. They know nothing of meshes."""
