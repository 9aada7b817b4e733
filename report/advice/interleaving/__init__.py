"""Rows of several parts in turn, instead of one part after the other.

`change.py` says what that is, and is the change as data: `seeds.py` finds where one may help,
`reordering.py` walks over the program, `row_order.py` says what the order is.
"""
