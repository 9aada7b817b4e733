"""Rewrites of the per-device program that save communication; `optimize.py` has their order."""
