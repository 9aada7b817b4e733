"""Loops of plans, written out as source: what is known before the first iteration, and what memory
their bodies need.
"""
