"""What a per-device program costs on chosen hardware: seconds, bytes, memory, operations.

`hardware` has the figures of devices, `topology` how they are wired and where the axes of a mesh
lie, `links` the seconds of a collective, `work` those of an equation. The partitioner chooses by
these (prices.py), and explain prints them: of a whole step, computation and collectives overlapped
(`schedule`), with the memory that it holds (`memory`).
"""
