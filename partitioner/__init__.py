"""Global program to per-device program. Imports `ir` only."""
