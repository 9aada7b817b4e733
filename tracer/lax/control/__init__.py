"""Loops and branches: scan, while_loop, cond, map and their kin."""
