"""Rewrites of a per-device program for the simulated executor, a pass each, in `pipeline.py`.

Each gives equal results: shapes of a few equations are declared rewrites, the others passes.
"""
