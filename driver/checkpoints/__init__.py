"""Saving pytrees of arrays in a folder, and restoring them onto any mesh."""
