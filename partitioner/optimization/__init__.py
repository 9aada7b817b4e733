"""Passes over the per-device program that save communication; `optimize.py` has their order."""
