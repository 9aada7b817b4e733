"""Several processes: what they tell each other, and how they are simulated by threads.

`coordinator.py` is the seam; `simulated.py` and `rendezvous.py` are what stands behind it here.
"""
