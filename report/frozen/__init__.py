"""Frozen plans: the decisions of a partition as data, for a later one to keep or compare with.

    decisions.py   what was decided of each value and exchange, and by what it is found again
    fitting.py     a program with the decisions of a plan written into it
    plan.py        the plan: a file, a text, and what is otherwise in another one
"""
