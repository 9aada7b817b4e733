"""Several processes: how they communicate, and how threads simulate them.

`coordinator.py` is the seam; `simulated.py` and `rendezvous.py` are what stands behind it here.
"""
