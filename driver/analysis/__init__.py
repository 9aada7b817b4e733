"""Analyses of a function that need no run: cost, reasons, what-if, checks, reduction."""
