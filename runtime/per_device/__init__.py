"""The per-device executor: every device runs the program alone and sends messages to the others.

`executor.py` runs a program, `control.py` its loops and branches, `exchanges.py` its
collectives. It is slow and plain: what the simulated executor gives is held against it.
"""
