"""Ops whose results depend, element by element, on the operands' elements alone."""
