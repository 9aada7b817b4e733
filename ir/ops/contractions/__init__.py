"""Products of arrays: dot_general, ragged products, convolutions, Fourier transforms."""
