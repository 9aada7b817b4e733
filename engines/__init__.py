"""Engines: what runs a LOCAL program, the one that every device runs.

`engine.py` says what an engine is and which there are. `simulated` and `per_device` are the
executors of runtime/; `xla/` hands the program to XLA, through JAX.
"""
