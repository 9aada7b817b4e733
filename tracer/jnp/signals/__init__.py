"""Polynomials, convolution of vectors, interpolation, window functions."""
