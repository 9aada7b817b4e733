"""Shardings: which part of an array each device holds, in the forms that JAX and XLA give them."""
