"""From types of operands to types of results, and what each level demands of an equation.

`infer.py` first: shapes and dtypes, then Explicit axes (`explicit.py`, with `factor_conflicts.py`
for its errors) and pending sums (`unreduced.py`, `pending.py`). `form.py` and `levels.py` are what
the verifier asks of equations.
"""
