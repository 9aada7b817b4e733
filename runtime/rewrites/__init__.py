"""Programs looked through before the simulated executor plans them: equal results, less to do.

`flatten.py` takes called programs in, `lean.py` says which of the others are asked, and in which
order.
"""
