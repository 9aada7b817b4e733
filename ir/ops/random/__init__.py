"""Random keys, random bits, and gamma numbers."""
