"""Ops that combine elements along dimensions.

`reduction.py` (sums, maxima, logic, positions), `reduce.py` (any associative computation),
`cumulative.py` (prefixes), `pooling.py` (windows), `sorting.py`.
"""
