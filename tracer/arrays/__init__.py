"""The operators and methods of arrays and tracers, installed on their common base."""
