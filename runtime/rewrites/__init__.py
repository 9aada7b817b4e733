"""Rewrites of a per-device program for the simulated executor, a pass each, in `pipeline.py`.

All preserve results. Patterns of a few equations are declared as rewrites, the others are passes.
"""
