"""Nested containers of arrays (pytrees), and one value for a whole subtree."""
