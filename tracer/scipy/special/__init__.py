"""Special functions, as in `jax.scipy.special`."""
