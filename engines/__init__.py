"""Engines: each runs a LOCAL program, the program of one device.

`engine.py` says what an engine is and lists them. `simulated` and `per_device` are the executors of
runtime/; `xla/` hands the program to XLA, through JAX; `mpi/` runs it on the ranks of a job.
"""
