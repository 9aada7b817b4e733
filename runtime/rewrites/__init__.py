"""Passes over a per-device program for the simulated executor; `pipeline.py` has their order.

All preserve results. Patterns of a few equations are declared as rewrites; what needs a view of the
whole program is a pass.
"""
