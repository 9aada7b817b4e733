"""Mutable references: arrays that are read and written in place.

`ref.py` is what users hold, `elements.py` which elements they read and write. `frames.py` knows
which references a function reads and writes, and `through.py` what loops, branches and
transformations do with a function that does: its references' values become further arguments and
results. Programs themselves have no references.
"""
