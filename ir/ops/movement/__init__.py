"""Ops that make, rearrange, cut and join arrays without computing on elements."""
