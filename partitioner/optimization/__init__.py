"""Passes over the per-device program that save communication. The list of all passes
(partitioner/passes.py) has their order.
"""
