"""The simulated executor: a per-device program becomes a plan on numpy, for all devices at once.

`executor.py` walks the program; `decisions.py` decides for one equation, `collectives.py` and
`control.py` for those that are more than that. `workspace.py` holds the values meanwhile.
"""
