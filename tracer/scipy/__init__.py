"""The parts of `jax.scipy` that are here; `special/` and `stats/` are folders."""
