"""The simulated executor: a per-device program becomes a plan on numpy, for all devices at once.

`executor.py` walks the program; `equation_plans.py` plans one equation, `collectives.py` and
`control.py` plan collectives, loops and branches. `workspace.py` keeps track of the values.
"""
