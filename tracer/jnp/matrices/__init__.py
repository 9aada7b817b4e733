"""Products, decompositions, norms and linear systems of matrices."""
