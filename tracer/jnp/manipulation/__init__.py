"""Shapes and order of elements: reshaping, joining, padding, rearranging, diagonals."""
