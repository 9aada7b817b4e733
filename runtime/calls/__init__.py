"""Calls, the elements of a plan: an evaluator, its operands, and what is known of its result.

`call.py` is a call; `symbolic.py` finds the numpy calls that an evaluator makes, `indexed.py`
writes those at an index.
"""
