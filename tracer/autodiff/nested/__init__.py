"""Derivatives of equations that hold programs: calls, loops, branches, manual regions."""
