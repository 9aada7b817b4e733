"""Global program to per-device program. Imports `ir` only.

`pipeline.py` runs the passes in their order, each in a folder: preparation/, propagation/,
resharding/ (with what choice/ decides and redistribution/ plans), lowering/, optimization/.
"""
