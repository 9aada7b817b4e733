"""Warnings about waste: more held, computed or moved than necessary, and why."""
