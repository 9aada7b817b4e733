"""Gathers and scatters: reading and writing at positions that are values."""
