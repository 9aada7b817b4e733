"""jit, its arguments and stages, and functions like it."""
