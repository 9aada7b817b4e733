"""Ops that hold programs or call Python: loops, branches, calls, callbacks, manual regions."""
