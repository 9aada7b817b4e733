"""Per-device program to values on simulated or real devices. Imports `ir` only."""
