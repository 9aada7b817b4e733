"""What propagation did, and what it left undecided.

    steps.py     each step in order, what disagreed in the end and what that costs
    freedom.py   which dimensions the user decided, which propagation, which nobody
"""
