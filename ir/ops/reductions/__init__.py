"""Ops that combine elements along dimensions: reductions, prefixes, windows, sorting."""
