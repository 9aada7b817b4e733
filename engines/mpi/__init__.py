"""The MPI engine: runs a LOCAL program on the ranks of an MPI job.

Each rank runs the devices that it owns with the executor of runtime/per_device/; `wire.py` carries
the messages between ranks. `link.py` is the transport between two ranks, and detects deadlocks by
the status messages of `status.py`. `coordinator.py` and `engine.py` are built on it: the first lets
processes communicate as simulated ones do, the second runs a program on whole values. `values.py`
encodes host values as bytes. mpi4py is imported on first use.
"""
