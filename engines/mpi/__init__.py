"""The MPI engine: a LOCAL program on the ranks of an MPI job.

Each rank runs the devices that it owns with the executor of runtime/per_device/; `wire.py` carries
the messages between ranks. `link.py` is the transport between two of them; by the status messages
of `status.py` it finds deadlocks. On it stand `coordinator.py`, by which the processes of a program
speak with each other as simulated ones do, and `engine.py`, which runs a program on whole values.
`values.py` writes values of the host as bytes. mpi4py is imported when it is first used.
"""
