"""Rewrites of a per-device program for the simulated executor, a pass each, in `pipeline.py`.

Each has equal results; `equations.py` is what they are written with.
"""
