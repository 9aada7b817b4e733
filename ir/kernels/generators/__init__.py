"""Generators of random bits in numpy, bit for bit those of JAX and XLA."""
