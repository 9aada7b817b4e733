"""Loops of plans, written out as source, and what is known before the first iteration."""
