"""Rewrites of programs, each declared as pattern, condition and replacement, and the engine that
applies them.
"""
