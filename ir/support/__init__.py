"""Utilities that know no programs: caches, lazy imports, records, buffers, time by phase."""
