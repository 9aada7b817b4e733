"""Generators of random bits in numpy, to the last bit those of JAX and XLA."""
