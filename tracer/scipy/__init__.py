"""The parts of `jax.scipy` that are here: iterative solvers, linalg, and special functions."""
