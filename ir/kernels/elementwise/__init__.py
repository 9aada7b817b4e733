"""Elementwise functions that numpy lacks or computes slowly, in few numpy calls on whole arrays.

Narrow floats (`bfloat16`, `float16`), functions in float32 that are fast (`float32_forms`) or equal
to XLA's to the last bit (`float32_functions`), and selections without a branch per element.
"""
