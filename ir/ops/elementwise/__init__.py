"""Ops whose results depend, element by element, on the operands' elements alone.

Read `declaration.py` first, which has the rule, the checks and the samples that all share; then
`arithmetic.py`. `select.py` and `convert.py` have typing rules of their own.
"""
