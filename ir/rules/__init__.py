"""Factor rules of ops: which dimensions are the same, and over which mesh axes they are split."""
