"""The per-device executor: every device runs the program by itself and exchanges messages.

`executor.py` runs a program, `control.py` its loops and branches, `exchanges.py` its collectives.
It is slow and simple: a reference for the simulated executor.
"""
