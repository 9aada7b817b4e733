"""What functions make of their operands before an op sees them.

Dtypes are promoted (`dtype_promotion.py`, `scalars.py`), shapes and shardings broadcast
(`broadcasting.py`), dimensions and sizes checked (`shape_arguments.py`).
"""
