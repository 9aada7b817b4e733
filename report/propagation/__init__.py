"""The steps of propagation, and the dimensions that it left undecided.

    steps.py     each step in order, the conflicts that remained and what they cost
    freedom.py   which dimensions the user decided, which propagation did, and which are open
"""
