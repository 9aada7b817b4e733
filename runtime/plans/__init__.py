"""Plans: a program as a straight line of numpy calls, and the ways to run it.

`plan.py` makes and runs one: as a list of steps (`steps.py`), or as one Python function where it
runs often (`generated.py`).
"""
