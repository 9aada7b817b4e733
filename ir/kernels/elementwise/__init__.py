"""Elementwise functions as few numpy calls on whole arrays, where numpy has none or a slow one.

Narrow floats (`bfloat16`, `float16`), functions in float32 as fast as can be (`float32_forms`) or
to the last bit as XLA (`float32_functions`), and selections without a branch per element.
"""
