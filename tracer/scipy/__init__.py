"""The parts of `jax.scipy` that are here; `special/` and `stats/` have rooms of their own."""
