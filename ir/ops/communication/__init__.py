"""Ops that move data between devices, and the plans of such exchanges."""
