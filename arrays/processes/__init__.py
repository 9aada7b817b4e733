"""Several processes: how they communicate, and how threads simulate them.

`coordinator.py` is the interface; `simulated.py` and `rendezvous.py` implement it with threads.
"""
