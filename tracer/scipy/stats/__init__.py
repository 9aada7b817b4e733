"""Distributions and statistics of samples, as in `jax.scipy.stats`."""
