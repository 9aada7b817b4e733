"""Gathers and scatters: reading and writing at positions that are values.

`common.py` has what both share, `gather.py` and `scatter.py` the ops, `gather_evaluation.py` the
evaluator of the former and `scatter_derivatives.py` the derivatives of the latter.
`row_indexing.py`, `point_indexing.py`, `one_window.py` and `window_updates.py` evaluate the usual
forms fast; `split_windows.py` is for indexed dimensions that are split over devices.
"""
