"""Preparation of operands before an op is bound.

Dtypes are promoted (`dtype_promotion.py`, `scalars.py`), then ranks (`rank_promotion.py`), shapes
and shardings broadcast (`broadcasting.py`), dimensions and sizes checked (`shape_arguments.py`).
"""
