"""What editors show of a file, through the Language Server Protocol.

`server.py` speaks with the editor and executes nothing; `worker.py` is the process that it asks,
which explains a file in a copy of itself and gives what `findings.py` makes of it.
"""
