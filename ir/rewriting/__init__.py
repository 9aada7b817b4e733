"""Rewrites of programs: declared as pattern, condition and replacement, applied by one engine."""
